"""The log reader in a browser: the same report as elsewhere, files, texts that stay texts, a link without them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from instrument_page import asked_elsewhere, drop, told, watched_page
from playwright.sync_api import Page, expect

from inferlab.log_reader import explain
from inferlab.log_reader.rules import rules
from inferlab.results.log_memory import derive_memory

PAGE = "book/log-reader.html"
RUNS = sorted((Path(__file__).parents[1] / "data" / "logs").glob("*.log"))
SLOTS = Path(__file__).parents[1] / "data" / "logs" / "server-slots.log"
HOSTILE = '<img src=x onerror="window.ran = true"></pre><script>window.ran = true</script>'


@pytest.fixture(scope="module")
def window(browser, site) -> Iterator[Page]:
    """One window with the log reader; it notes every address that is asked for, and every error."""
    with watched_page(browser, site + PAGE) as page:
        yield page


@pytest.fixture
def page(window) -> Iterator[Page]:
    """The same window; nothing is asked for elsewhere, nothing is stored, no log is in the address, nothing fails."""
    window.errors.clear()
    yield window
    assert asked_elsewhere(window) == []
    assert window.url.partition("?")[1:] == ("", "")
    kept = window.evaluate(
        "JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, history.state])"
    )
    assert "llama" not in kept
    assert window.errors == []


def pasted(page: Page, log: str) -> dict:
    """What the page answers about a pasted log."""
    return told(page, lambda: page.locator("[name=log]").fill(log))


def chosen(page: Page, path: Path) -> dict:
    """What the page answers about a chosen file."""
    return told(page, lambda: page.locator("[type=file]").set_input_files([path]))


def reported(log: str | bytes) -> dict:
    """What the library says about a log, and about its load planned again, as JSON has it."""
    report, derived = explain(log), derive_memory(log)
    planned = derived.to_dict() if report.buffers else None
    return json.loads(json.dumps(report.to_dict() | {"derived": planned}))


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_the_page_and_the_library_agree(page, path):
    """A pasted log has the report of `inferlab explain --json`, and its first finding as the line of the verdict."""
    log = path.read_text(encoding="utf-8")
    report = explain(log.encode())
    answer = pasted(page, log)
    assert answer["data"] == reported(log.encode())
    assert page.locator(".instrument-status").inner_text() == answer["summary"]
    assert page.locator(".instrument-finding").count() == len(report.findings)


def test_an_empty_file_is_called_empty(page, tmp_path):
    """In place of the example, which an empty form has."""
    (tmp_path / "empty.log").touch()
    answer = chosen(page, tmp_path / "empty.log")
    assert answer["state"] == "refused"
    expect(page.locator(".instrument-answer")).to_contain_text("is empty")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_file_is_read_as_the_command_line_reads_it(page, tmp_path, encoding):
    """Also one with the line ends of Windows, and one that PowerShell wrote."""
    path = tmp_path / "server.log"
    path.write_bytes(SLOTS.read_text(encoding="utf-8").replace("\n", "\r\n").encode(encoding))
    answer = chosen(page, path)
    assert answer["data"] == reported(path.read_bytes())
    assert answer["state"] == "no"


def test_a_dropped_file_takes_the_place_of_the_log(page):
    """A file may be dropped anywhere on the instrument; its text stands in the form then."""
    log = SLOTS.read_text(encoding="utf-8")
    assert drop(page, {"any.txt": log.encode()})["data"] == reported(log.encode())
    assert page.locator("[name=log]").input_value() == log


def test_of_a_long_file_the_beginning_is_read(page, tmp_path):
    """Ten megabytes are answered by their first four, and the line of the verdict says so until the next log."""
    path = tmp_path / "long.log"
    log = SLOTS.read_bytes()
    path.write_bytes(log + b"slot of a server: a line that says nothing\n" * 250_000)
    answer = chosen(page, path)
    assert answer["data"]["findings"] == reported(log)["findings"]
    lines = 1 + path.read_bytes()[: 4 * 2**20].count(b"\n")
    said = f"Only the first 4.0 MiB of long.log were read, of {path.stat().st_size / 2**20:.1f} MiB: the rest, "
    assert f"{said}from line {lines:,} on, is left out." in page.locator(".instrument-status").inner_text()
    pasted(page, "\n" + log.decode())
    assert "MiB of" not in page.locator(".instrument-status").inner_text()


@pytest.mark.parametrize(("content", "said"), [(b"GGUF\x03\0\0\0" * 99, "memory planner"), (b" \r\n", "is empty")])
def test_a_file_that_is_no_log_is_called_what_it_is(page, tmp_path, content, said):
    """A model leads to the planner, and blanks are an empty file; neither shows the example under its name."""
    path = tmp_path / "any.log"
    path.write_bytes(content)
    assert chosen(page, path)["state"] == "refused"
    assert said in page.locator(".instrument-error[role=alert]").inner_text()


def test_the_same_file_can_be_chosen_again(page):
    """A chooser that is pressed forgets its file, because a browser reports no change to the same one."""
    chosen(page, SLOTS)
    chooser = page.locator("[type=file]")
    assert chooser.evaluate("one => one.files.length") == 1
    with page.expect_file_chooser() as asked:
        chooser.click()
    assert chooser.evaluate("one => one.files.length") == 0
    assert told(page, lambda: asked.value.set_files([SLOTS]))["data"] == reported(SLOTS.read_bytes())


def test_a_log_is_text_and_never_markup(page):
    """A log whose names and lines are scripts is explained, and they stand there letter by letter."""
    log = SLOTS.read_text(encoding="utf-8").replace("inferlab tiny", HOSTILE)
    assert pasted(page, log)["data"]["model"]["name"] == HOSTILE
    assert HOSTILE[:100] in page.locator(".instrument-answer").inner_text()
    assert page.locator(".instrument :is(img, script)").count() == 0
    assert page.evaluate("window.ran === undefined")


def test_a_long_name_is_broken(page):
    """A name and a device without a blank make the page no wider."""
    log = SLOTS.read_text(encoding="utf-8").replace("inferlab tiny", "n" * 1000)
    pasted(page, log.replace("AMX model", f"{'G' * 300} model"))
    assert page.locator(".instrument").evaluate("(shown) => shown.scrollWidth - shown.clientWidth") <= 0


def test_what_is_no_log_has_a_reason_and_the_next_answer_comes(page):
    """The reason is announced and says what to do; an emptied form shows the example again."""
    assert pasted(page, "just some words")["state"] == "refused"
    assert "Give the file of a log" in page.locator(".instrument-error[role=alert]").inner_text()
    assert pasted(page, "")["summary"].startswith("Example: ")


def test_a_link_cannot_bring_a_log(open_page, site):
    """What an address says about the log is not read: the page opens with its example and an empty form."""
    page = open_page(f"{site}{PAGE}?log=llama_model_load")
    page.wait_for_selector(".instrument fieldset:not([disabled])")
    assert page.locator("[name=log]").input_value() == ""
    expect(page.locator(".instrument-status")).to_contain_text("Example: ")


def test_the_example_needs_no_script(open_page):
    """Without JavaScript, also from disk, the answer to the example stands there, and no control that does nothing."""
    plain = open_page(PAGE, java_script_enabled=False)
    expect(plain.locator(".instrument-status")).to_contain_text("Example: 3 of 7 layers")
    assert "offloaded 3/7 layers" in plain.locator(".instrument-finding pre").inner_text()
    assert plain.locator(".instrument :is(form, button):visible").count() == 0


def test_each_finding_leads_to_a_section_of_the_site(built_book):
    """Every page and label that a finding names is in the built site."""
    places = {rule.page.partition("#")[::2] for rule in rules().values() if rule.page}
    for page, label in sorted(places):
        soup = BeautifulSoup((built_book / f"{page}.html").read_text(encoding="utf-8"), "html.parser")
        assert soup.find(id=label), f"{page}#{label}"
