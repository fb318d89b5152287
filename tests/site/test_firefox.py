"""The site in Firefox, where one is installed: scripts run under the policy, and Python runs in a worker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
from bench_rows import as_bytes, on_card
from firefox import Firefox, find_firefox, started_firefox
from instrument_page import DROP

from inferlab import instruments
from inferlab.instruments.dropped import DroppedFiles
from inferlab.instruments.planner import DEFAULTS

CHAPTER = "book/foundations/anatomy.html"
PRESS = """
const refused = [];
addEventListener("securitypolicyviolation", (event) => refused.push([event.effectiveDirective, event.blockedURI]));
async function until(condition) {
  for (let tries = 0; !condition(); tries++) {
    if (tries > 200) throw new Error(`not within 20 s: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
const root = document.documentElement, before = root.dataset.mode;
document.querySelector(".theme-switch-button").click();
await until(() => root.dataset.mode !== before);
const box = document.querySelector(".lab-figure");
box.querySelector("button").click();
await until(() => box.dataset.drawn === "yes");
document.querySelector(".search-button__button").click();
const field = document.querySelector("#pst-search-dialog input");
field.value = "flash attention";
field.dispatchEvent(new Event("input", { bubbles: true }));
await until(() => document.querySelector("#pst-search-dialog .search-list a"));
return refused;
"""
FETCHED_AHEAD = """
const next = document.querySelector("link[rel=next]").href;
for (let tries = 0; !performance.getEntriesByName(next).length; tries++) {
  if (tries > 200) throw new Error(`not within 20 s: ${next}`);
  await new Promise((resolve) => setTimeout(resolve, 100));
}
"""
START = """
return new Promise((resolve) => {
  const worker = new Worker(new URL(given[0], location.href), { type: "module" });
  worker.onerror = (event) => { event.preventDefault(); resolve(["error"]); };
  worker.onmessage = ({ data }) => {
    if (data.kind === "progress") return;
    worker.terminate();
    resolve([data.kind, data.text ?? ""]);
  };
});
"""
ANSWERED = """
const status = document.querySelector(`${given[1] ?? ".instrument"} .instrument-status`);
for (let tries = 0; !status.textContent.includes(given[0]); tries++) {
  if (tries > 900) throw new Error(`not within 90 s: ${status.textContent}`);
  await new Promise((resolve) => setTimeout(resolve, 100));
}
return status.textContent;
"""
CONTROLS_ON = """
for (let tries = 0; document.querySelector(".instrument fieldset[disabled]"); tries++) {
  if (tries > 200) throw new Error("the controls are not on within 20 s");
  await new Promise((resolve) => setTimeout(resolve, 100));
}
"""
START_RUN = """
for (const [name, value] of Object.entries(given[0])) document.querySelector(`[name=${name}]`).value = value;
document.querySelector("[data-run]").click();
"""
CHOOSE = """
return new Promise((resolve) => {
  const answered = ({ detail }) => resolve(detail.data);
  document.querySelector(".instrument").addEventListener("answered", answered, { once: true });
  document.querySelector(given[0]).click();
});
"""
WORKER = "../../_static/instruments/worker.js"


@pytest.fixture(scope="module")
def firefox(tmp_path_factory) -> Iterator[Firefox]:
    """A headless Firefox with a fresh profile."""
    path = find_firefox()
    if path is None:
        pytest.skip("No Firefox is installed: on Debian `apt-get install firefox-esr`.")
    with started_firefox(path, tmp_path_factory.mktemp("profile")) as firefox:
        yield firefox


def test_controls_work_under_the_policy(site, firefox):
    """The theme changes, a figure becomes interactive, and the search finds pages; nothing is refused."""
    firefox.open(f"{site}{CHAPTER}")
    assert firefox.run(PRESS) == []


def test_the_next_chapter_is_fetched_ahead(site, firefox):
    """The policy allows what Firefox does of its own accord where it has nothing else to do."""
    firefox.open(f"{site}{CHAPTER}")
    firefox.run(FETCHED_AHEAD)


def test_python_starts_in_a_worker(site, firefox):
    """From `make serve` a worker has Python, and memory that threads share."""
    firefox.open(f"{site}{CHAPTER}")
    assert firefox.run(START, WORKER) == ["ready", ""]
    assert firefox.run("return [crossOriginIsolated, typeof SharedArrayBuffer]") == [True, "function"]


def test_the_planner_answers_a_link(site, firefox, tmp_path):
    """What a link asks is answered with the words of the library."""
    question = {**DEFAULTS, "n_ctx": "4096", "model": "llama-3.1-8b"}
    firefox.open(f"{site}book/planner.html?{urlencode(question)}")
    expected = instruments.answered("planner", question, DroppedFiles(tmp_path))["summary"]
    assert firefox.run(ANSWERED, "4,096 tokens") == expected


def test_llama_cpp_runs_in_the_page(site, firefox):
    """The browser benchmark ends with rates, with two threads where there are two processors, and names its limit."""
    firefox.open(f"{site}book/your-numbers.html")
    firefox.run(START_RUN, {"depths": "0, 32", "n_prompt": "8", "n_gen": "4", "repeats": "1", "n_threads": "2"})
    told = firefox.run(ANSWERED, "In this browser llama.cpp processes", "[data-instrument=browser-bench]")
    n_threads = min(2, firefox.run("return navigator.hardwareConcurrency"))
    threads = f"parameters and {n_threads} thread{'s' if n_threads > 1 else ''}."
    assert told.endswith(f"{threads} With 1 repetition, a difference between depths may be chance.")


def test_dropped_files_are_compared(site, firefox, tmp_path):
    """Your numbers reads two files, and answers with the words of the library."""
    files = {"slow.json": as_bytes(on_card(slower=16)), "fast.json": as_bytes(on_card())}
    kept = DroppedFiles(tmp_path)
    for name, data in files.items():
        kept.keep(name, len(data), 0, data)
    expected = instruments.answered("your-numbers", {"files": json.dumps([*files])}, kept)["summary"]
    firefox.open(f"{site}book/your-numbers.html")
    firefox.run(CONTROLS_ON)
    firefox.run(f"({DROP})(given[0]);", [[name, data.decode()] for name, data in files.items()])
    assert firefox.run(ANSWERED, "4 tests of 2 files") == expected
    assert firefox.run(CHOOSE, "#first-2")["read"]["comparison"] is None
    assert firefox.run(CHOOSE, "#second-1")["read"]["comparison"]["decode"]["n_faster"] == 0


def test_from_disk_no_worker_starts(built_book, firefox):
    """Firefox refuses the worker's script, as Chromium does, so that a page has to say what to do instead."""
    firefox.open((built_book / CHAPTER).as_uri())
    assert firefox.run("return location.protocol") == "file:"
    assert firefox.run(START, WORKER) == ["error"]
