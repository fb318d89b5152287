"""The built pages as somebody in a hurry reads them: short pages, few boxes, code that is seen whole."""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath
from statistics import median
from urllib.parse import urljoin

import pytest
import yaml
from bs4 import BeautifulSoup
from readings import BROKEN_CODE, MEASURE

from inferlab import figures

TALLEST = 12_500
"""Pixels of a page at 1280 pixels of width, its folds closed."""
LISTS = ("bibliography", "claims-on-trial", "glossary")
"""Registers of the book, in which nobody reads more than a line; they may be longer."""
MOST_PAGES = 54
MOST_WORDS = 110_000
"""Pages beside the labs, and words on them that are seen while all folds are closed."""
WORDS_OF_A_REGISTER, WORDS_OF_A_CHAPTER, WORDS_LOOKED_UP = 5_000, 3_500, 2_000
READ_THROUGH = ("compute-and-bandwidth", "inference-engines", "blocks")
"""Pages outside of the chapters that are read like one."""
FRONT = ("index", "labs")
"""Pages of doors, which lead on and have nothing to do on them."""
STUDIED = ("book/foundations/", "book/workflow/", "book/optimization/")
"""Folders of the chapters up to the seventh."""
ROOT = Path(__file__).parents[2]
MOST_IN_BOXES = 0.2

VERDICTS_TOO_NEAR = """() => [...document.querySelectorAll(".claim")].filter((claim) => {
  const place = (part) => claim.querySelector(part).getBoundingClientRect();
  const verdict = place(".verdict"), text = place(".claim-body");
  return verdict.right + 8 > text.left && verdict.bottom > text.top;
}).map((claim) => claim.id)"""
LEFT_OUT = (
    "script, style, .cell_input, details.hide, .highlight, .lab-figure, .exercise, .solution, .disturbed, "
    ".admonition.dropdown"
)
"""What is no text of the page, or closed until a reader opens it."""
BOXES = ".admonition, details.on-trial"
RESULTS = ".cell_output .output pre"
LONG = re.compile(r"\d\.\d{6,}")
FULL_LINES = """() => {
  const lines = [];
  for (const block of document.querySelectorAll(".bd-article :is(p, li)")) {
    if (block.matches("table *") || block.querySelector("p, ul, ol, .math") || !block.checkVisibility()) continue;
    const own = [""];
    let right = -Infinity;
    const walker = document.createTreeWalker(block, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      for (const word of node.data.matchAll(/(\\s*)(\\S+)\\s*/g)) {
        const range = document.createRange();
        const start = word.index + word[1].length;
        range.setStart(node, start);
        range.setEnd(node, start + word[2].length);
        const place = range.getBoundingClientRect();
        if (place.width === 0) continue;
        if (place.left < right - 1) own.push("");
        right = place.left;
        own[own.length - 1] += word[0];
      }
    }
    lines.push(...own.slice(0, -1).map((line) => line.replace(/\\s+/g, " ").trim()));
  }
  return lines;
}"""
"""The lines of text as the browser breaks them, without the last of a paragraph."""
READ = (
    "book/why-is-it-slow",
    "book/foundations/kv-cache",
    "book/workflow/pipeline",
    "book/optimization/quantization",
    "labs/03-follow-the-pipeline",
)


def test_no_page_is_too_long(wide):
    """A page of reading ends after about twelve screens."""
    read = [page for page in wide if page.startswith(("book/", "labs/")) and PurePosixPath(page).stem not in LISTS]
    heights = {page: wide[page]["form"]["height"] for page in read}
    assert len(heights) > 1
    assert {page: height for page, height in heights.items() if height > TALLEST} == {}


def book_pages() -> dict[str, str]:
    """The pages beside the labs, in the order of the contents, each with the part that it stands in."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    listed = {toc["root"]: ""}
    for part in toc["parts"]:
        for chapter in part["chapters"]:
            names = [chapter["file"], *(section["file"] for section in chapter.get("sections", []))]
            listed |= {name: part["caption"] for name in names if name.startswith("book/")}
    return listed


def most_words(page: str, part: str) -> int:
    """The words that a page may show."""
    name = PurePosixPath(page).name
    if name in LISTS:
        return WORDS_OF_A_REGISTER
    return WORDS_OF_A_CHAPTER if part == "Chapters" or name in READ_THROUGH else WORDS_LOOKED_UP


def test_the_book_is_short(wide):
    """Fifty-four pages and 110,000 words; a page that is looked up has 2,000 words at most, one of a chapter 3,500."""
    pages = book_pages()
    words = {page: wide[f"{page}.html"]["form"]["words"] for page in pages}
    assert {page: n for page, n in words.items() if not 0 < n <= most_words(page, pages[page])} == {}
    assert sum(words.values()) <= MOST_WORDS
    assert len(pages) <= MOST_PAGES


def test_every_page_says_what_to_do(soups):
    """A reader who leaves early leaves with the answer: *In short*, then *What to do*, on every page of the book."""
    pages = [page for page in book_pages() if PurePosixPath(page).name not in FRONT]
    missing = {
        page: [name for name, is_there in opening(soups[f"{page}.html"]).items() if not is_there] for page in pages
    }
    assert {page: names for page, names in missing.items() if names} == {}


def opening(soup: BeautifulSoup) -> dict[str, bool]:
    heads = {head.get_text().strip("# \n") for head in soup.select("article :is(h2, h3)")}
    return {"In short": soup.select_one(".in-short") is not None, "What to do": "What to do" in heads}


def test_only_chapters_ask_the_reader(soups):
    """Predictions and exercises stand where a reader studies: on labs, chapters up to the seventh, and their pages."""
    asking = {page for page in book_pages() if soups[f"{page}.html"].select(".predict, .exercise")}
    assert {page for page in asking if not page.startswith(STUDIED)} == set()
    assert asking


def test_next_follows_the_chapters(soups):
    """From the foreword on, *Next* passes every page of the chapters in their order, and no lab between them."""
    chapters = [f"{page}.html" for page, part in book_pages().items() if part == "Chapters"]
    passed = [chapters[0]]
    while passed[-1] in chapters and len(passed) <= len(chapters):
        passed.append(urljoin(passed[-1], soups[passed[-1]].select_one("a.right-next")["href"]))
    assert passed[:-1] == chapters


def test_code_is_never_cut_off(seen):
    """No block of code has to be scrolled to be read, on a desktop or on a phone."""
    assert {page: read["form"]["cut"] for page, read in seen.items() if read["form"]["cut"]} == {}


def test_the_rest_of_a_long_line_of_code_is_seen_to_be_one(seen):
    """What goes on below stands further in than its line began, and no option is broken behind a hyphen."""
    assert {page: read["broken"] for page, read in seen.items() if read["broken"]} == {}


@pytest.mark.parametrize("style", ["", ".line { display: block; padding-left: 2ch; text-indent: -2ch; }"])
def test_broken_code_is_noticed(browser, style):
    """The check above can fail: on a rest at the line's beginning, and on an option that breaks behind a hyphen."""
    words = '<span class="word">--an-option-of-words</span> ' * 3
    page = browser.new_page(viewport={"width": 390, "height": 900})
    page.set_content(
        f"<style>pre {{ white-space: pre-wrap; width: 300px; }} {style}</style>"
        f'<article><div class="highlight"><pre><span class="line">run {words}</span></pre></div></article>'
    )
    broken = page.evaluate(BROKEN_CODE)
    page.close()
    assert "--an-option-of-words" in broken
    assert any(text.startswith("run ") for text in broken) is not bool(style)


def test_a_verdict_does_not_touch_the_claim(built_book, browser):
    """The longest verdict stands beside the text, in a wide window and above it in a narrow one."""
    page = browser.new_page()
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto((built_book / "book/appendix/claims-on-trial.html").as_uri())
        assert page.locator(".claim").count() > 100
        assert page.evaluate(VERDICTS_TOO_NEAR) == []
    page.close()


def test_code_is_copied_as_it_was_written(open_page):
    """The button and the mouse copy a command from a phone's narrow lines without a sign more or less."""
    page = open_page(
        "book/workflow/pipeline.html", viewport={"width": 390, "height": 900}, permissions=["clipboard-read"]
    )
    box = page.locator("article div.highlight").first
    select = "pre => { getSelection().selectAllChildren(pre); return `${getSelection()}`; }"
    selected = box.locator("pre").evaluate(select)
    box.hover()
    box.locator(".copybtn").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == selected.rstrip("\n") == "inferlab measure model.gguf --n-prompt 512 --n-gen 128"


def test_a_long_page_and_cut_code_are_noticed(browser):
    """The two checks above can fail: on a page as high as this one, with one block wider than its place."""
    narrow = '<pre style="width: 50px; overflow: auto; {}">one long line of code</pre>'
    page = browser.new_page(viewport={"width": 390, "height": 900})
    page.set_content(
        f'<article class="bd-article" style="display: block; height: {TALLEST + 1}px">'
        f"{narrow.format('')}{narrow.format('white-space: pre-wrap')}{narrow.format('display: none')}</article>"
    )
    read = page.evaluate(MEASURE)
    page.close()
    assert read["height"] > TALLEST
    assert read["cut"] == ["one long line of code"]


@pytest.fixture(scope="session")
def lines(built_book, browser) -> dict[str, list[str]]:
    """The full lines of text on five pages in a window of 1280 pixels."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    read = {}
    for name in READ:
        page.goto((built_book / f"{name}.html").as_uri())
        page.evaluate("document.fonts.ready")
        read[name] = page.evaluate(FULL_LINES)
    page.close()
    return read


def test_a_line_has_about_seventy_characters(lines):
    """The eye finds the next line: 66 to 74 characters in the median, never more than 80."""
    medians = {name: median(map(len, read)) for name, read in lines.items()}
    assert {name: value for name, value in medians.items() if not 66 <= value <= 74} == {}
    assert [line for read in lines.values() for line in read if len(line) > 80] == []


def test_lines_are_counted_as_the_browser_breaks_them(browser):
    """The check above can fail: a wide paragraph gives long lines; a code word or a link does not break one."""
    page = browser.new_page(viewport={"width": 2000, "height": 900})
    page.set_content(f'<div class="bd-article"><p style="width: 1800px">{"word <code>x</code>, " * 80}</p></div>')
    read = page.evaluate(FULL_LINES)
    page.close()
    assert read[0].startswith("word x, word x, ")
    assert len(read[0]) > 80


def test_boxes_hold_at_most_a_fifth_of_a_page(soups):
    """Text is text: boxes other than exercises and answers hold a fifth of the words at most."""
    shares = {name: share_in_boxes(soup) for name, soup in soups.items() if name.startswith("book/")}
    assert {name: round(share, 2) for name, share in shares.items() if share > MOST_IN_BOXES} == {}


def share_in_boxes(soup: BeautifulSoup) -> float:
    article = soup.select_one("article.bd-article")
    left_out, boxes = ({id(tag) for tag in article.select(names)} for names in (LEFT_OUT, BOXES))
    around = [(len(text.split()), {id(tag) for tag in text.parents}) for text in article.strings]
    words = [(n_words, bool(tags & boxes)) for n_words, tags in around if not tags & left_out]
    return sum(n_words for n_words, is_in_box in words if is_in_box) / sum(n_words for n_words, _ in words)


def test_too_many_boxes_are_noticed():
    """The check above can fail; a box in a box counts once, exercises and code not at all."""
    box = '<div class="admonition">a b<div class="admonition">c d</div></div>'
    page = f'<article class="bd-article">{box}<div class="exercise">x y</div><p>{"word " * 12}</p></article>'
    assert share_in_boxes(BeautifulSoup(page, "html.parser")) == 4 / 16


def test_blue_is_prefill_and_orange_is_decode(built_book, soups):
    """A figure with one of the two colours is about that phase, by its words."""
    boxes = {page: soup.select(".lab-figure") for page, soup in soups.items()}
    used = {page: [figure_json(built_book, box) for box in drawings] for page, drawings in boxes.items()}
    assert any(figures.DECODE in drawn for drawings in used.values() for drawn in drawings)
    assert {name: wrong for name, drawings in used.items() if (wrong := misused_colours(drawings))} == {}


def figure_json(built_book, box) -> str:
    """What plotly draws a figure from, out of the script that the page loads for it."""
    script = (built_book / "_static" / "figures" / f"{box['data-figure']}.js").read_text(encoding="utf-8")
    return script[script.index("{") : script.rindex("}") + 1]


def misused_colours(drawn: list[str]) -> list[str]:
    """Text alternatives of figures that draw in blue or orange and speak of no prefill, or of no decode."""
    words = {
        figures.PREFILL: ("prefill", "prompt", "ttft", "first token"),
        figures.DECODE: ("decode", "token", "answer", "sequences"),
    }
    return [
        json.loads(figure)["layout"]["meta"]["alt"][:80]
        for figure in drawn
        for colour, said in words.items()
        if colour in figure and not any(word in figure.lower() for word in said)
    ]


def test_a_misused_colour_is_noticed():
    """The check above can fail: on a blue figure that has no word of prefill."""
    wrong, right = (
        json.dumps({"data": [{"color": figures.PREFILL}], "layout": {"meta": {"alt": alt}}})
        for alt in ("Bytes of weights.", "Bytes of weights in prefill.")
    )
    assert misused_colours([wrong, right]) == ["Bytes of weights."]


def test_a_result_is_a_table_or_a_sentence(soups):
    """No tuple, no dictionary and no number of many digits stands where a reader looks for a result."""
    assert {name: raw for name, soup in soups.items() if (raw := raw_results(soup))} == {}


def raw_results(soup: BeautifulSoup) -> list[str]:
    """The beginnings of printed results that are values of Python, or have a number of many digits."""
    printed = [pre.get_text().strip() for pre in soup.select(RESULTS)]
    return [text[:60] for text in printed if text.startswith(("(", "{", "[")) or LONG.search(text)]


@pytest.mark.parametrize("text", ["(1.5, 2)", "{'decode': 3}", "[1, 2]", "took 0.1234567 s"])
def test_a_raw_result_is_noticed(text):
    """The check above can fail."""
    output = f'<div class="cell_output"><div class="output"><pre>{text}</pre><pre>decode: 25 ms</pre></div></div>'
    assert raw_results(BeautifulSoup(output, "html.parser")) == [text]
