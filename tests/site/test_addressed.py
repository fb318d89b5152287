"""A model at an address that a reader types into the planner: nobody is asked before a press, then only who is named.

Servers on this machine stand in the place of the Hub and of the host of its files, under their names and over TLS.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import (
    REPO,
    HubServer,
    answers,
    drips,
    ends_early,
    fails_first,
    ignores_ranges,
    is_silent,
    of_files,
    page_of_a_file,
    sends_other_bytes,
    serving_hub,
    tells,
)
from instrument_page import STARTING_MS, asked_elsewhere, told, watched_page
from playwright.sync_api import Page, expect
from small_models import write_model
from split_files import write_split

from handbook.chromium import find_chromium
from inferlab.model.gguf import read_gguf

PAGE, FILE = "book/planner.html?model=file", "model-Q4_K_M.gguf"
HUB, FILES = "huggingface.co", "cas-bridge.xethub.hf.co"
WHOLE_FILE = 16 * 2**30
ANSWER_MS = 60_000
FASTER = """const real = setTimeout;
window.setTimeout = (act, ms, ...more) => real(act, ms === 300000 ? 6000 : ms > 20000 ? ms : ms / 20, ...more);"""
"""Ten seconds of a page are half a second, and the five minutes for an address are six."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> Path:
    """A certificate that nobody trusts, with its key; the browser of these tests is told to ask for no better one."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed, which makes a certificate for a server")
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={HUB}"]
    subprocess.run([*command, "-keyout", path, "-out", path.with_name("cert.pem")], check=True, capture_output=True)
    path.write_text(path.read_text() + path.with_name("cert.pem").read_text())
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    """A model of 16 GiB that takes almost no disk, one in parts, and a projector."""
    folder = tmp_path_factory.mktemp("hub")
    model = write_model(folder / FILE, "llama")
    os.truncate(model, WHOLE_FILE)
    parts = write_split(folder, "big-F16", write_model(folder / "whole.gguf", "llama"), 2)
    projector = folder / "mmproj-F16.gguf"
    projector.write_bytes(bytes(2**20))
    return {projector.name: projector, FILE: model, **{f"big/{part.name}": part for part in parts}}


@pytest.fixture(scope="module")
def hubs(files, certificate) -> Iterator[tuple[HubServer, HubServer]]:
    """The Hub, which sends on to the host of the files; any page may read what they answer."""
    anybody = {"Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": "Link, Content-Range"}
    with (
        serving_hub(HubServer(files, headers=anybody, cdn=f"https://{FILES}"), certificate) as hub,
        serving_hub(HubServer(files, headers=anybody), certificate) as bytes_of,
    ):
        yield hub, bytes_of


@pytest.fixture(scope="module")
def own_browser(browser, hubs) -> Iterator:
    """A browser in which the two hosts are servers of this machine, and no other host is there."""
    ports = [one.address.rpartition(":")[2] for one in hubs]
    rules = f"MAP {HUB}:443 127.0.0.1:{ports[0]}, MAP {FILES}:443 127.0.0.1:{ports[1]}"
    own = browser.browser_type.launch(
        executable_path=find_chromium(),
        args=[
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--ignore-certificate-errors",
            f"--host-resolver-rules={rules}, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        ],
    )
    yield own
    own.close()


@pytest.fixture(scope="module")
def window(own_browser, site) -> Iterator[Page]:
    """The planner, started once, with the field for an address shown."""
    with watched_page(own_browser, site + PAGE.partition("?")[0]) as page:
        page.add_init_script(FASTER)
        page.goto(site + PAGE)
        expect(page.locator(".instrument-status")).to_contain_text("No answer yet", timeout=STARTING_MS)
        yield page


@pytest.fixture
def page(window, hubs) -> Page:
    """The same window with well-behaved servers, and what they were asked forgotten."""
    for hub in hubs:
        hub.behave, hub.n_sent = lambda handler: False, 0
        hub.asked.clear()
    window.asked.clear()
    window.locator("[data-address]").fill("")
    return window


def read(page: Page, address: str) -> str:
    """Type an address, press the button, and wait for the line of the verdict."""
    page.locator("[data-address]").fill(address)
    page.get_by_role("button", name=f"Ask {HUB}").click()
    status = page.locator(".instrument-status:not(:has(button))")
    expect(status).not_to_have_text("", timeout=ANSWER_MS)
    return status.inner_text()


def hosts(page: Page) -> set[str]:
    return {url.split("/")[2] for url in asked_elsewhere(page)}


def test_nobody_is_asked_before_a_press(page, hubs):
    """The page names whom it will ask; an address that is typed alone asks nobody."""
    expect(page.locator(".instrument-address")).to_contain_text(f"The button asks {HUB}")
    expect(page.locator(".instrument-address")).to_contain_text("a host of *.hf.co")
    page.locator("[data-address]").press_sequentially(f"hf:{REPO}/{FILE}")
    page.locator("[data-address]").press("Enter")
    page.wait_for_timeout(500)
    assert (asked_elsewhere(page), hubs[0].asked) == ([], [])


def test_a_press_reads_the_beginning_of_the_file(page, hubs, files):
    """The answer is that of the file: its tensors and its whole size, of which 1 MiB was sent, from the hosts named."""
    page.locator("[data-address]").fill(f"hf:{REPO}/{FILE}")
    answer = told(page, page.get_by_role("button", name=f"Ask {HUB}").click)
    model = read_gguf(files[FILE])
    assert answer["data"]["model"] == {
        "name": model.name,
        "n_params": model.n_params,
        "tensor_bytes": model.tensor_bytes,
    }
    assert hosts(page) == {HUB, FILES}
    assert hubs[0].n_sent == 0 < hubs[1].n_sent <= 2**20
    assert {token for hub in hubs for *_, token in hub.asked} == {None}


def test_a_repository_is_read_as_llama_cpp_would(page):
    """Of its files the usual type is read, and a choice has the others; another one is read at the next press."""
    page.locator("[data-address]").fill(f"https://{HUB}/{REPO}")
    told(page, page.get_by_role("button", name=f"Ask {HUB}").click)
    choice = page.locator("[data-choices]")
    assert choice.locator("option").all_text_contents() == [
        choice.locator("option").nth(0).text_content(),
        "Q4_K_M, 16.00 GiB",
    ]
    assert "(2 parts)" in choice.locator("option").nth(0).text_content()
    page.asked.clear()
    choice.select_option(index=0)
    page.wait_for_timeout(300)
    assert asked_elsewhere(page) == []
    assert page.locator("[data-address]").input_value() == f"hf:{REPO}/big/big-F16-00001-of-00002.gguf"
    answer = told(page, page.get_by_role("button", name=f"Ask {HUB}").click)
    assert answer["data"]["model"]["name"] == "llama"
    assert sum("/bytes/" in url for url in page.asked) == 2


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("https://example.org/model.gguf", "In a terminal: inferlab plan https://example.org/model.gguf"),
        ("https://huggingface.co.example.org/a/b/resolve/main/c.gguf", "Nobody was asked"),
        ("model.gguf", "is no address. Write hf:owner/repo"),
        ("", "There is no address"),
        ("hf:owner/../b.gguf", "is not of the form"),
    ],
)
def test_another_address_is_answered_with_the_command(page, address, said):
    """What the page may not ask for is not asked for."""
    assert said in read(page, address)
    assert asked_elsewhere(page) == []


@pytest.mark.parametrize(
    ("behave", "said"),
    [
        (page_of_a_file, "HTML page"),
        (sends_other_bytes, "sent other bytes than were asked for. In a terminal: inferlab plan hf:"),
        (tells(2**33), "the list of files tells 17,179,869,184 bytes, and its server 8,589,934,592"),
        (ends_early, "cas-bridge.xethub.hf.co broke off its answer, in 3 tries"),
        (answers(418), "was answered 418"),
        (answers(503), "answered 503"),
        (is_silent(3.0), "sent nothing for 10 seconds"),
        (drips(0.1), "was not read in 5 minutes. In a terminal: inferlab plan hf:"),
    ],
)
def test_a_bad_server_is_told(page, hubs, behave, said):
    """Each says what happened and what to do, and the next question is answered."""
    hubs[1].behave = of_files(behave)
    assert said in read(page, f"hf:{REPO}/{FILE}")
    hubs[1].behave = lambda handler: False
    page.locator("[data-address]").fill(f"hf:{REPO}/{FILE}")
    assert told(page, page.get_by_role("button", name=f"Ask {HUB}").click)["data"]["model"]["name"] == "llama"


def test_a_busy_server_is_asked_again(page, hubs):
    """Two failures and then the file are an answer."""
    hubs[1].behave = of_files(fails_first(2))
    page.locator("[data-address]").fill(f"hf:{REPO}/{FILE}")
    assert told(page, page.get_by_role("button", name=f"Ask {HUB}").click)["data"]["model"]["name"] == "llama"
    assert len(hubs[1].asked) == 3


def test_a_server_that_ignores_ranges_is_left(page, hubs):
    """It would send 16 GiB, and is left when the header is there."""
    hubs[1].behave = of_files(ignores_ranges)
    page.locator("[data-address]").fill(f"hf:{REPO}/{FILE}")
    assert told(page, page.get_by_role("button", name=f"Ask {HUB}").click)["data"]["model"]["name"] == "llama"
    assert hubs[1].n_sent < 256 * 2**20


@pytest.mark.parametrize("status", [401, 404])
def test_a_repository_that_may_not_be_read_is_told(page, hubs, status):
    """The Hub's refusal is shown with what a terminal can do, where the reader's token is."""
    hubs[0].behave = lambda handler: answers(status)(handler, Path()) is None
    said = read(page, f"hf:{REPO}/{FILE}")
    assert f"was answered {status}" in said
    assert f"A page sends no token; a terminal can: inferlab plan hf:{REPO}/{FILE}" in said


def test_a_redirect_elsewhere_is_refused_by_the_policy(page, hubs):
    """A host that the page does not name is not asked, and the reader is told which it was."""
    hubs[0].behave = lambda handler: (
        "/resolve/" in handler.path
        and (answers(302, Location="https://elsewhere.example.org/model.gguf")(handler, Path()) is None)
    )
    said = read(page, f"hf:{REPO}/{FILE}")
    assert "which this page may not ask" in said
    assert f"In a terminal: inferlab plan hf:{REPO}/{FILE}" in said


def test_reading_can_be_cancelled(page, hubs):
    """Cancel ends the request, and the next press starts anew."""
    hubs[1].behave = of_files(is_silent(8.0))
    page.locator("[data-address]").fill(f"hf:{REPO}/{FILE}")
    page.get_by_role("button", name=f"Ask {HUB}").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".instrument-said")).to_have_text("Cancelled. Nothing below has changed.")
    hubs[1].behave = lambda handler: False
    answer = told(page, page.get_by_role("button", name=f"Ask {HUB}").click)
    assert answer["data"]["model"]["name"] == "llama"


def test_a_file_without_an_ending_is_taken(page, tmp_path):
    """A blob of Ollama's, dropped or chosen; where they lie is said for each system."""
    blob = write_model(tmp_path / f"sha256-{'a' * 64}", "llama")
    answer = told(page, lambda: page.locator("[type=file]").set_input_files([blob]))
    assert answer["data"]["model"]["name"] == "llama"
    assert page.locator("[type=file]").get_attribute("accept") is None
    page.get_by_text("Where Ollama's files are").click()
    for place in ("~/.ollama/models/blobs", "/usr/share/ollama/.ollama/models/blobs", r"C:\Users\NAME\.ollama"):
        expect(page.locator(".instrument-own details")).to_contain_text(place)


def test_only_a_page_with_the_field_may_ask(own_browser, site):
    """The policy of every other page names no host but its own."""
    with watched_page(own_browser, f"{site}book/log-reader.html") as other:
        other.evaluate(f"fetch('https://{HUB}/').catch(() => null)")
        other.wait_for_timeout(300)
        assert any("connect-src" in error for error in other.errors)
