"""Your numbers in a browser: the answers of the library about dropped files, what is saved, a link without them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench_rows import as_bytes, on_card
from first_visit import PHONE
from instrument_page import DROP, asked_elsewhere, drop, told, watched_page
from playwright.sync_api import Page, expect

from inferlab import instruments
from inferlab.atlas.contribute import problems
from inferlab.instruments.dropped import DroppedFiles
from inferlab.instruments.your_numbers import DEFAULTS

PAGE, FORM = "book/your-numbers.html", "[data-instrument=your-numbers]"
FILES = {"slow.json": as_bytes(on_card(slower=16)), "fast.jsonl": as_bytes(on_card(), "jsonl")}
HOSTILE = '<img src=x onerror="window.ran = true"><script>window.ran = true</script>'


@pytest.fixture(scope="module")
def window(browser, site) -> Iterator[Page]:
    """One window with the instrument; it notes every address that is asked for, and every error."""
    with watched_page(browser, site + PAGE) as page:
        yield page


@pytest.fixture
def page(window) -> Iterator[Page]:
    """The same window without files; nothing is asked for elsewhere, no name is in the address, nothing fails."""
    told(window, lambda: window.get_by_role("button", name="Remove all files").click())
    yield window
    assert asked_elsewhere(window) == []
    assert "json" not in window.url
    assert window.errors == []


def here(folder: Path, files: dict[str, bytes]) -> dict:
    """What the library answers about the same files."""
    kept = DroppedFiles(folder)
    for name, data in files.items():
        kept.keep(name, len(data), 0, data)
    return instruments.answered("your-numbers", {**DEFAULTS, "files": json.dumps([*files])}, kept)


def test_the_page_and_the_library_agree(page, tmp_path):
    """About two dropped files: every number, the first line, and the record."""
    answer, expected = drop(page, FILES), here(tmp_path, FILES)
    assert answer["data"] == json.loads(json.dumps(expected["data"]))
    assert page.locator(f"{FORM} .instrument-status").inner_text() == expected["summary"]
    assert page.locator(f"{FORM} .instrument-bar").count() == 2


def test_files_stay_beside_those_before(page, tmp_path):
    """Dropped one after the other they are both there; another of the same name too; a refused one is named."""
    for name, data in FILES.items():
        answer = drop(page, {name: data})
    assert answer["data"] == json.loads(json.dumps(here(tmp_path, FILES)["data"]))
    same_name = drop(page, {"slow.json": as_bytes(on_card(slower=32))})
    assert len(same_name["data"]["read"]["results"]) == 6
    large = drop(page, {"large.json": b" " * (4 * 2**20 + 1)})
    assert len(large["data"]["read"]["results"]) == 6
    expect(page.locator(f"{FORM} .instrument-status")).to_contain_text("large.json was not read")


def test_a_file_that_is_too_large_is_refused_alone_too(page):
    """The first line says it beside the one of the example, which stays."""
    page.evaluate(DROP, [["large.json", " " * (4 * 2**20 + 1)]])
    said = page.locator(f"{FORM} .instrument-said[data-state=refused]")
    expect(said).to_have_text(re.compile(r"^large\.json was not read"))


def test_what_is_saved_is_what_was_read(page):
    """All of it as JSON, and a record that the atlas's schema takes."""
    answer = drop(page, FILES)
    for name, part in (("Save the answer", "read"), ("Save llama-bench", "contribution")):
        with page.expect_download() as saved:
            page.get_by_role("button", name=name).click()
        assert json.loads(saved.value.path().read_text(encoding="utf-8")) == answer["data"][part]
    assert problems(answer["data"]["contribution"]) == []


def test_a_file_is_removed_by_itself(page):
    """The others stay, and without any the example is back."""
    drop(page, FILES)
    for left in range(len(FILES) - 1, -1, -1):
        answer = told(page, lambda: page.get_by_role("button", name=re.compile("^Remove .*json")).first.click())
        assert page.locator(f"{FORM} .instrument-files li").count() == left
        expect(page.locator(f"{FORM} .instrument-status")).to_be_focused()
    assert answer["summary"].startswith("Example:")


def test_a_file_is_text_and_never_markup(page):
    """Names that are scripts stand there letter by letter."""
    drop(page, {"a.json": as_bytes([{**row, "model_type": HOSTILE, "cpu_info": HOSTILE} for row in on_card()])})
    assert HOSTILE[:60] in page.locator(f"{FORM} .instrument-answer").inner_text()
    assert page.locator(".instrument :is(img, script)").count() == 0
    assert page.evaluate("window.ran === undefined")


def test_what_would_end_python_is_refused(page):
    """A file of a hundred thousand brackets has a reason, and the next file its answer."""
    assert drop(page, {"deep.json": b"[" * 100_000})["state"] == "refused"
    told(page, lambda: page.get_by_role("button", name="Remove all files").click())
    assert drop(page, FILES)["state"] == "yes"


def test_two_are_chosen_beside_their_names(page):
    """A button beside a name chooses it; an arrow key goes to the next one, and the focus stays where it was."""
    drop(page, {**FILES, "third.json": as_bytes(on_card(slower=4))})
    answer = told(page, lambda: page.get_by_label("Compare third.json as second").check())
    assert answer["summary"].endswith("Number 3 (third.json) decodes 4 times as fast as number 1 (slow.json).")
    expect(page.locator("#second-3")).to_be_focused()
    answer = told(page, lambda: page.keyboard.press("ArrowUp"))
    assert answer["summary"].endswith("Number 2 (fast.jsonl) decodes 2 times as fast as number 1 (slow.json).")
    expect(page.locator("#second-2")).to_be_focused()
    answer = told(page, lambda: page.locator("#compare-by").select_option("machine"))
    assert answer["data"]["read"]["comparison"] is None
    told(page, lambda: page.locator("#compare-by").select_option("run"))


def test_the_place_for_files_answers_a_drag(page):
    """It is seen before, and is another one while files are held above the instrument."""
    look = "() => { const { borderStyle, backgroundColor } = getComputedStyle(document.querySelector"
    look += "('.instrument-drop')); return [borderStyle, backgroundColor]; }"
    drag = """(type) => document.querySelector(".instrument").dispatchEvent(new DragEvent(type, {
      bubbles: true, cancelable: true, dataTransfer: window.held }))"""
    page.evaluate("window.held = new DataTransfer(); held.items.add(new File(['x'], 'x.json')); null")
    before = page.evaluate(look)
    page.evaluate(drag, "dragover")
    during = page.evaluate(look)
    page.evaluate(drag, "dragleave")
    assert before[0] == during[0] == "dashed"
    assert during[1] != before[1] == page.evaluate(look)[1]


def test_a_phone_shows_all_of_it(page):
    """Nothing is wider than a narrow screen."""
    size = page.viewport_size
    page.set_viewport_size(PHONE)
    drop(page, FILES)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    page.set_viewport_size(size)
