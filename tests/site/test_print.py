"""A page on paper: always light, the article alone, nothing split that fits on one page, closed answers left out."""

from __future__ import annotations

import re
import zlib

import pytest

CHAPTER, LAB, REGISTER = (
    "book/foundations/anatomy.html",
    "labs/03-follow-the-pipeline.html",
    "book/appendix/claims-on-trial.html",
)

VISIBLE = "[...document.querySelectorAll({selector!r})].filter((element) => element.checkVisibility())"

PALE_INK = f"""() => {VISIBLE.format(selector="article :is(p, h1, h2, td, pre, pre span, code, figcaption, svg text)")}
  .filter((element) => element.textContent.trim())
  .map((element) => [element.outerHTML, getComputedStyle(element)[element.matches("svg *") ? "fill" : "color"]])
  .filter(([, colour]) => {{
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 150;
  }})"""
"""The texts that could not be read on white paper."""

GREY = f"""() => {VISIBLE.format(selector="body, main, article, article *:not(svg *, svg)")}
  .map((element) => [element.outerHTML.slice(0, 80), getComputedStyle(element).backgroundColor])
  .filter(([, colour]) => colour !== "rgb(255, 255, 255)" && !/^rgba\\(.* 0\\)$/.test(colour))"""
"""The areas that are not white."""

SPLIT = f"""() => {VISIBLE.format(selector="article :is(figure, pre, tr, .diagram, .in-short, .cell_input)")}
  .filter((element) => getComputedStyle(element).breakInside !== "avoid")
  .map((element) => element.outerHTML.slice(0, 120))"""
"""What a page's end could divide."""

TEXT_OF_A4 = {"width": 665, "height": 986}
"""A sheet of A4 within the margins of print.css, in pixels."""
TEXT_OF_LETTER = {"width": 688, "height": 920}

ON_SCREEN_ONLY = (
    ".bd-sidebar-primary, .bd-sidebar-secondary, .bd-header-article, .prev-next-footer, .bd-footer-content, "
    "article button, article form"
)


@pytest.fixture(params=[CHAPTER, LAB, REGISTER])
def printed(request, open_page):
    """A page of the site in a dark browser, laid out for paper."""
    page = open_page(request.param, color_scheme="dark", viewport={"width": 720, "height": 1000})
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.emulate_media(media="print")
    page.wait_for_function("document.documentElement.dataset.theme === 'light'")
    return page


def test_ink_is_dark_and_paper_is_white(printed):
    """A reader in dark mode prints dark text on white, without grey areas, and reads on in the dark."""
    assert printed.evaluate(PALE_INK) == []
    assert printed.evaluate(GREY) == []
    printed.emulate_media(media="screen")
    printed.wait_for_function("document.documentElement.dataset.theme === 'dark'")


def test_nothing_that_fits_on_a_page_is_split(printed):
    """Figures, code, table rows and the box *In short* ask not to be divided between two pages."""
    assert printed.evaluate(SPLIT) == []


def test_only_the_article_is_printed(printed):
    """Navigation, buttons and footers stay on the screen."""
    assert printed.evaluate(f"{VISIBLE.format(selector=ON_SCREEN_ONLY)}.length") == 0
    assert printed.locator("article h1").is_visible()


def test_what_is_closed_is_not_printed_but_for_quiet_lines(open_page):
    """Who prints before answering gets no answers; who opened one gets that one; claims and sources keep their line."""
    page = open_page(CHAPTER)
    page.emulate_media(media="print")
    closed = "[...document.querySelectorAll('article details:not([open])')].filter((e) => e.checkVisibility())"
    assert page.evaluate(f"{closed}.filter((e) => !e.matches('.on-trial, .provenance')).length") == 0
    assert page.evaluate(f"{closed}.filter((e) => e.matches('.on-trial')).length") > 0
    assert page.evaluate(f"{closed}.filter((e) => e.matches('.provenance')).length") > 0
    page.evaluate("document.querySelectorAll('article details').forEach((e) => { e.open = true; })")
    assert page.evaluate("[...document.querySelectorAll('article details')].every((e) => e.checkVisibility())")


@pytest.mark.parametrize("path", [CHAPTER, "book/workflow/pipeline.html", "book/optimization/parameter-guide.html"])
def test_every_figure_that_is_seen_is_printed_on_one_page(open_page, path):
    """What stands on the screen, with its source folded, stands on paper too, at most as high as the text of A4."""
    page = open_page(path, viewport=TEXT_OF_A4)
    figures = VISIBLE.format(selector="article figure")
    seen = page.evaluate(f"{figures}.map((figure) => figure.id)")
    page.emulate_media(media="print")
    assert page.evaluate(f"{figures}.map((figure) => figure.id)") == seen
    heights = page.evaluate(f"{figures}.map((figure) => figure.getBoundingClientRect().height)")
    assert 0 < max(heights) <= TEXT_OF_A4["height"]


def test_a_drawing_is_of_one_piece(open_page):
    """A page's end never leaves a drawing's place on one sheet and the drawing, over other text, on the next."""
    page = open_page(CHAPTER, viewport=TEXT_OF_A4)
    page.emulate_media(media="print")
    drawings = VISIBLE.format(selector="article .lab-figure")
    assert set(page.evaluate(f"{drawings}.map((drawing) => getComputedStyle(drawing).contain)")) == {"size"}


def test_every_tab_is_printed(open_page):
    """Paper has no tabs to press: the text of each stands there, one below the other."""
    page = open_page("book/optimization/parameter-guide.html")
    page.emulate_media(media="print")
    tabs = page.locator("article .sd-tab-content")
    tops = [box["y"] for tab in tabs.all() if (box := tab.bounding_box())]
    assert len(tops) == tabs.count() > 1
    assert tops == sorted(set(tops))


def test_no_heading_is_printed_above_closed_answers_alone(open_page):
    """A section of which everything is closed is left out with its heading, and is there once its answer is open."""
    page = open_page("labs/06b-tune-the-engine.html")
    heading = page.get_by_role("heading", name="Answers to Explain")
    assert heading.is_visible()
    page.emulate_media(media="print")
    assert not heading.is_visible()
    page.evaluate("document.querySelectorAll('article details').forEach((e) => { e.open = true; })")
    assert heading.is_visible()


def test_the_menu_prints_a_page_with_its_answers(open_page):
    """*Print with answers* opens every answer, leaves code and sources folded, and closes the answers afterwards."""
    page = open_page(LAB)
    page.wait_for_selector(".print-answers", state="attached")
    page.evaluate(
        "window.print = () => { window.atPrint = document.querySelectorAll('details.outcome[open]').length; }"
    )
    outcomes = page.locator("article details.outcome").count()
    page.evaluate("document.querySelector('.print-answers').click()")
    assert page.evaluate("window.atPrint") == outcomes > 0
    assert page.locator("article details:is(.hide, .provenance)[open]").count() == 0
    page.emulate_media(media="print")
    assert page.evaluate(GREY) == []
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("article details.outcome[open]").count() == 0


def test_a_pdf_made_in_the_dark_has_no_dark_area(open_page):
    """No page of the PDF is filled with a dark colour over a large part of it."""
    page = open_page(CHAPTER, color_scheme="dark")
    streams = pdf_streams(page.pdf(print_background=True))
    assert streams
    assert [area for stream in streams for area in dark_areas(stream)] == []


def pdf_streams(pdf: bytes) -> list[str]:
    """The drawing commands of a PDF's pages."""
    streams = []
    for raw in re.findall(rb"stream\r?\n(.*?)endstream", pdf, re.DOTALL):
        try:
            streams.append(zlib.decompress(raw).decode("latin-1"))
        except zlib.error:
            continue  # a font or a picture
    return [stream for stream in streams if " re\n" in stream]


def dark_areas(stream: str) -> list[tuple[float, float]]:
    """Width and height of the rectangles larger than 300 by 100 points that are filled while the colour is dark."""
    dark, areas, pending = False, [], []
    for line in stream.splitlines():
        if colour := re.fullmatch(r"([\d.]+) ([\d.]+) ([\d.]+) rg", line):
            dark = sum(map(float, colour.groups())) < 1
        elif box := re.fullmatch(r"[-\d.]+ [-\d.]+ ([-\d.]+) ([-\d.]+) re", line):
            pending.append((abs(float(box[1])), abs(float(box[2]))))
        elif line in ("f", "f*", "n", "W n", "W* n", "S"):
            areas += [box for box in pending if line in ("f", "f*") and dark and box[0] > 300 and box[1] > 100]
            pending = []
    return areas


@pytest.mark.parametrize("sheet", ["helper-s-sheet", "quick-reference"])
@pytest.mark.parametrize("text", [TEXT_OF_A4, TEXT_OF_LETTER], ids=["A4", "Letter"])
def test_a_sheet_to_hand_out_is_one_side_of_paper(open_page, sheet, text):
    """Who prints it for a room gives one side of paper to each person, with nothing else on it."""
    page = open_page("book/teaching/sheets.html", viewport=text)
    page.emulate_media(media="print")
    style, height = page.evaluate(
        """id => {
          const { breakBefore, breakAfter } = getComputedStyle(document.getElementById(id));
          return [[breakBefore, breakAfter], document.getElementById(id).offsetHeight];
        }""",
        sheet,
    )
    assert style == ["page", "page"]
    assert 0 < height <= text["height"]
