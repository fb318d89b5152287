"""What a phone of 390 pixels shows: that a table goes on, the sign of a fold beside its title, names uncut."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from first_visit import PHONE
from playwright.sync_api import Page
from readings import CUT_NAMES, SIGNS_ELSEWHERE, unshaded


@pytest.fixture
def page(browser) -> Iterator[Page]:
    """An empty page in the window of a phone."""
    page = browser.new_page(viewport=PHONE)
    yield page
    page.close()


@pytest.mark.parametrize("what", ["signs", "names", "tables"])
def test_a_phone_shows_it(phone, what):
    """A fold's sign stands beside its title, a name is whole, and a table has a shade at the side where it goes on."""
    assert len(phone) > 1
    assert {page: seen[what] for page, seen in phone.items() if seen[what]} == {}


def test_a_table_without_a_shade_is_noticed(page):
    """The check above can fail: on a frame without a shade, and on one whose cells cover it."""
    page.set_content(
        "<style>div { overflow: auto; background: linear-gradient(to left, white 2rem, transparent) 100% 0 / 3rem local"
        " no-repeat, linear-gradient(to right, white 2rem, transparent) 0 0 / 3rem local no-repeat, linear-gradient("
        "to left, #ccc 1rem, transparent 1rem), linear-gradient(to right, #ccc 1rem, transparent 1rem) }</style>"
        "<article>"
        + "".join(
            f"<div {how}><table><td>{how}<p style='width: 900px'>wide</table></div>"
            for how in ("class=shaded", "style='background: none'", "id=covered")
        )
        + "<style>#covered td { background: white }</style></article>"
    )
    assert [text.split("\n")[0] for text in unshaded(page)] == ["style='background: none'", "id=covered"]


def test_a_sign_above_its_title_is_noticed(page):
    """The check above can fail: on a marker above a paragraph, and on a button below the words, or upon them."""
    title = '<div class="toggle"><p class="admonition-title" style="position: relative">{}<button {}>+</button></div>'
    page.set_content(
        "<article><details><summary>beside</summary></details><details><summary><p>below its marker</p></summary>"
        f"</details>{title.format('before ', '')}{title.format('above', 'style=display:block')}"
        f"{title.format('under', 'style=position:absolute;left:0;top:0')}</article>"
    )
    elsewhere = page.evaluate(SIGNS_ELSEWHERE)
    assert elsewhere == ["below its marker", "above+", "under+"]


def test_a_cut_name_is_noticed(page):
    """The check above can fail: on a name outside of the window, in a frame that hides it, or broken for no reason."""
    long, name = "a_long_name_" * 6, '<p style="{}"><code class="literal"><span class="pre">{}</span></code></p>'
    hidden = "width: 90px; overflow: hidden"
    rows = [
        ("", "whole"),
        ("", long),
        (hidden, "hidden_beyond_the_frame"),
        ("overflow-wrap: anywhere", long),
        ("overflow-wrap: anywhere; text-indent: 300px", "broken_name"),
    ]
    page.set_content(f"<article>{''.join(name.format(*row) for row in rows)}</article>")
    assert page.evaluate(CUT_NAMES) == [long, "hidden_beyond_the_frame", "broken_name"]
