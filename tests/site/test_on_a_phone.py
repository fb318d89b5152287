"""What a phone of 390 pixels shows: that a table goes on, the sign of a fold beside its title, names uncut."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

PHONE = {"width": 390, "height": 844}
FRAMES = """() => [...document.querySelectorAll("article div:has(table)")].filter(frame => frame.checkVisibility()
  && frame.scrollWidth > frame.clientWidth + 4 && /auto|scroll/.test(getComputedStyle(frame).overflowX))"""
EDGES = """async (picture) => {
  const image = new Image(), canvas = document.createElement("canvas");
  image.src = `data:image/png;base64,${picture}`;
  await image.decode();
  [canvas.width, canvas.height] = [image.width, image.height];
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const typical = x => {
    const greens = context.getImageData(x, 0, 1, image.height).data.filter((_, i) => i % 4 === 1).sort();
    return greens[greens.length >> 1];
  };
  return [1, image.width - 13].map(left => Math.min(...Array.from({ length: 12 }, (_, i) => typical(left + i))));
}"""
"""How light the darkest of twelve columns of pixels typically is, at the left and at the right edge of a picture."""
SIGNS_ELSEWHERE = """() => [...document.querySelectorAll("article :is(summary, .toggle > .admonition-title)")]
  .filter(title => title.checkVisibility() && !title.closest(".hide")).filter(title => {
    const walker = document.createTreeWalker(title, NodeFilter.SHOW_TEXT), range = document.createRange(), lines = [];
    while (walker.nextNode()) {
      if (!walker.currentNode.data.trim() || walker.currentNode.parentElement.closest("button")) continue;
      range.selectNodeContents(walker.currentNode);
      lines.push(...range.getClientRects());
    }
    const button = title.querySelector("button")?.getBoundingClientRect();
    if (!button) {
      const { display, paddingTop, borderTopWidth } = getComputedStyle(title);
      const top = title.getBoundingClientRect().top + parseFloat(paddingTop) + parseFloat(borderTopWidth);
      return display !== "list-item" || lines[0].top - top > lines[0].height / 2;
    }
    const middle = (button.top + button.bottom) / 2;
    const covers = line => line.right > button.left && line.bottom > button.top && line.top < button.bottom;
    return middle < lines[0].top || middle > lines.at(-1).bottom || button.right > innerWidth || lines.some(covers);
  }).map(title => title.textContent.trim().slice(0, 60))"""
"""Titles whose sign stands above or below their words, upon them, or outside of the window."""
CUT_NAMES = """() => [...document.querySelectorAll("article :is(code.literal, .question label)")].filter(name => {
  if (!name.checkVisibility()) return false;
  const range = document.createRange();
  const places = (one) => (range.selectNodeContents(one), [...range.getClientRects()].filter(place => place.width));
  for (let around = name; around.tagName !== "ARTICLE"; around = around.parentElement) {
    const { overflowX } = getComputedStyle(around);
    if (overflowX === "visible" || around.scrollWidth <= around.clientWidth + 1) continue;
    return /hidden|clip/.test(overflowX);
  }
  if (places(name).some(place => place.left < 0 || place.right > innerWidth + 1)) return true;
  return [...name.querySelectorAll(".pre")].some(word => {
    const parts = places(word), tops = parts.map(part => part.top);
    if (Math.max(...tops) - Math.min(...tops) < 5) return false;
    const block = word.closest("p, li, dt, dd, td, th, h1, h2, h3, h4, summary, figcaption, legend, label");
    const { paddingLeft, paddingRight } = getComputedStyle(block);
    const room = block.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
    return parts.reduce((sum, part) => sum + part.width, 0) < room - 8;
  });
}).map(name => name.textContent)"""
"""Names and choices that end outside of the window or of a frame that does not scroll, and names that break although
they are shorter than a line."""


@pytest.fixture(scope="module")
def phone(browser):
    """A page in the window of a phone."""
    page = browser.new_page(viewport=PHONE)
    yield page
    page.close()


@pytest.fixture(scope="module")
def seen(built_book, phone) -> dict[str, dict]:
    """What is wrong on each page."""
    files = [*built_book.glob("book/**/*.html"), *built_book.glob("labs/*.html")]
    return {file.stem: wrongs(phone, file) for file in files}


def wrongs(phone, file: Path) -> dict[str, list[str]]:
    phone.goto(file.as_uri())
    return {"signs": phone.evaluate(SIGNS_ELSEWHERE), "names": phone.evaluate(CUT_NAMES), "tables": unshaded(phone)}


def unshaded(phone) -> list[str]:
    """The beginnings of tables that scroll and do not show on which side they go on."""
    frames = phone.evaluate_handle(FRAMES).get_properties().values()
    return [frame.inner_text()[:60] for frame in (one.as_element() for one in frames) if not is_shaded(phone, frame)]


def is_shaded(phone, frame) -> bool:
    """Whether the right edge is dark before a frame is scrolled, and the left one after, and no other.

    A first column that stays in sight lies above the shade at its side; the ground of code there is darker than a page.
    """
    before, after = (edges(phone, frame, to) for to in ("0", "frame.scrollWidth"))
    stays = frame.evaluate("frame => getComputedStyle(frame.querySelector('tr > *')).position === 'sticky'")
    return before[1] < before[0] <= after[1] and (stays or after[0] < after[1])


def edges(phone, frame, to: str) -> list[int]:
    frame.evaluate(f"frame => frame.scrollLeft = {to}")
    return phone.evaluate(EDGES, base64.b64encode(frame.screenshot()).decode())


@pytest.mark.parametrize("what", ["signs", "names", "tables"])
def test_a_phone_shows_it(seen, what):
    """A fold's sign stands beside its title, a name is whole, and a table has a shade at the side where it goes on."""
    assert len(seen) > 1
    assert {name: found[what] for name, found in seen.items() if found[what]} == {}


def test_a_table_without_a_shade_is_noticed(phone):
    """The check above can fail: on a frame without a shade, and on one whose cells cover it."""
    phone.set_content(
        "<style>div { overflow: auto; background: linear-gradient(to left, white 2rem, transparent) 100% 0 / 3rem local"
        " no-repeat, linear-gradient(to right, white 2rem, transparent) 0 0 / 3rem local no-repeat, linear-gradient("
        "to left, #ccc 1rem, transparent 1rem), linear-gradient(to right, #ccc 1rem, transparent 1rem) }</style>"
        "<article>" + "".join(f"<div {how}><table><td>{how}<p style='width: 900px'>wide</table></div>"
                  for how in ("class=shaded", "style='background: none'", "id=covered"))
        + "<style>#covered td { background: white }</style></article>"
    )  # fmt: skip
    assert [text.split("\n")[0] for text in unshaded(phone)] == ["style='background: none'", "id=covered"]


def test_a_sign_above_its_title_is_noticed(phone):
    """The check above can fail: on a marker above a paragraph, and on a button below the words, or upon them."""
    title = '<div class="toggle"><p class="admonition-title" style="position: relative">{}<button {}>+</button></div>'
    phone.set_content(
        "<article><details><summary>beside</summary></details><details><summary><p>below its marker</p></summary>"
        f"</details>{title.format('before ', '')}{title.format('above', 'style=display:block')}"
        f"{title.format('under', 'style=position:absolute;left:0;top:0')}</article>"
    )
    found = phone.evaluate(SIGNS_ELSEWHERE)
    assert found == ["below its marker", "above+", "under+"]


def test_a_cut_name_is_noticed(phone):
    """The check above can fail: on a name outside of the window, in a frame that hides it, or broken for no reason."""
    long, name = "a_long_name_" * 6, '<p style="{}"><code class="literal"><span class="pre">{}</span></code></p>'
    hidden = "width: 90px; overflow: hidden"
    rows = [("", "whole"), ("", long), (hidden, "hidden_beyond_the_frame"), ("overflow-wrap: anywhere", long),
            ("overflow-wrap: anywhere; text-indent: 300px", "broken_name")]  # fmt: skip
    phone.set_content(f"<article>{''.join(name.format(*row) for row in rows)}</article>")
    assert phone.evaluate(CUT_NAMES) == [long, "hidden_beyond_the_frame", "broken_name"]
