"""llama.cpp in a browser: a real run with its figure, table and file, its end by Cancel, and what it needs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from axe import violations
from instrument_page import asked_elsewhere, watched_page
from llvmpipe import llvmpipe_chromium
from playwright.sync_api import Browser, Locator, Page, expect
from servers import serving

from handbook.chromium import find_chromium
from handbook.delivery.serve import Handler
from inferlab.measurement.llama_bench import import_llama_bench
from inferlab.model.find import tiny_model
from inferlab.model.gguf import read_gguf

PAGE, BENCH = "book/your-numbers.html", "[data-instrument=browser-bench]"
RUN_MS = 90_000
SMALL = {"depths": "0, 48", "n_prompt": "8", "n_gen": "4", "repeats": "2"}
"""A run of seconds."""
MEASURED = re.compile(r"In this browser llama\.cpp processes .* million parameters and (?:.* and )?(\d+) threads?\.")
LEFT = re.compile(r"Round \d+ of 50: depth \d+, about \d+ (s|min) left … The rates below are those of the run before")
OF_A_START = ("llama.js", "wllama", "tiny.gguf", "pyodide", "inferlab.zip")
NO_JSPI = "delete WebAssembly.Suspending;\n"
SOFTWARE_GPU = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"]
STUBBED = """{
  const send = postMessage.bind(self);
  const answer = (cpu) => ({ gpu: %s, offloaded: [7, 7] });
  self.postMessage = (message, ...more) => {
    const check = message.results?.check;
    if (check) Object.assign(check, answer(check.cpu));
    send(message, ...more);
  };
}
"""
"""Another answer of the GPU in place of its own, where llama.js sends what it found."""
LONG_CHECK = """{
  addEventListener("message", ({ data: { plan } }) => (plan.n_checked = 400));
  self.Worker = class extends Worker {
    constructor(...options) {
      super(...options);
      this.addEventListener("message", ({ data }) => {
        const [text] = /offloaded .*/.exec(data.args?.[0]) ?? [];
        if (text) postMessage({ kind: "progress", text });
      });
    }
  };
}
"""
"""A self-test of so many tokens that it lasts, and llama.cpp's word about its layers as the status."""


def inside(page: Page, selector: str) -> Locator:
    """A part of the benchmark, on a page with another instrument."""
    return page.locator(f"{BENCH} {selector}")


@contextmanager
def bench(browser, site: str) -> Iterator[Page]:
    """A window with the benchmark, out of its fold."""
    with watched_page(browser, site + PAGE) as page:
        page.locator(".instrument-fold > summary").click()
        yield page


@pytest.fixture
def opened(browser) -> Iterator[Callable[[str], Page]]:
    """A function: such a window, of a site."""
    with ExitStack() as windows:
        yield lambda site: windows.enter_context(bench(browser, site))


def started(page: Page, **changes: str) -> None:
    """Fill in a small run, and press Start."""
    for name, value in {**SMALL, **changes}.items():
        control = page.locator(f"[name={name}]")
        control.select_option(value) if name == "backend" else control.fill(value)
    page.get_by_role("button", name="Start").click()


def finished(page: Page) -> int:
    """Wait for the end of a run; the number of its threads."""
    status = inside(page, ".instrument-status:not(:has(.instrument-cancel))")
    expect(status).to_have_text(MEASURED, timeout=RUN_MS)
    return int(MEASURED.match(status.inner_text())[1])


@pytest.fixture(scope="module")
def page(browser, site) -> Iterator[Page]:
    """A window in which a run with two threads has ended."""
    with bench(browser, site) as page:
        page.before = list(page.asked)
        started(page, n_threads="2")
        yield page


def test_llama_cpp_runs_in_the_page(page):
    """Rates of every test as a figure and as a table; nothing is asked for elsewhere, or refused by the policy."""
    assert finished(page) == min(2, page.evaluate("navigator.hardwareConcurrency"))
    assert inside(page, ".instrument-chart").count() == 2
    assert inside(page, ".instrument-chart circle.sample").count() == 8
    rates = inside(page, ".instrument-rates tbody tr")
    assert [row.split("\n")[0].split("\t")[0] for row in rates.all_inner_texts()] == ["0 tokens", "48 tokens"]
    assert inside(page, ".instrument-status").inner_text().count("a difference between depths may be chance.") == 1
    assert f"{read_gguf(tiny_model()).n_params:,} parameters" in inside(page, ".instrument-facts").inner_text()
    assert re.findall(r"\d tokens/s", rates.first.inner_text()) != []
    assert [*asked_elsewhere(page), *page.errors] == []
    assert page.evaluate("caches.keys()") == []


def test_nothing_of_it_is_loaded_before_a_start(page):
    """The open page has asked neither for llama.cpp nor for the model, nor for Python."""
    finished(page)
    assert [url for url in page.before if any(part in url for part in OF_A_START)] == []
    assert {name for name in OF_A_START if any(name in url for url in page.asked)} == {*OF_A_START}


def test_a_link_holds_the_plan_and_no_results(page):
    """Whoever opens it is shown what would be measured."""
    finished(page)
    assert "depths=0%2C+48" in page.url
    assert "results" not in page.url
    assert json.loads(page.locator("[name=results]").input_value())["plan"]["depths"] == [0, 48]


def test_the_saved_file_is_llama_benchs(page):
    """The library reads what the page has saved: a prefill, and a decode at each depth."""
    finished(page)
    with page.expect_download() as download:
        page.locator(BENCH).get_by_role("button", name="Save").click()
    assert download.value.suggested_filename == "browser-llama-bench.json"
    runs = import_llama_bench(Path(download.value.path()), leave_out=True)
    assert [(run.n_prompt, bool(run.prefill_tokens_per_second)) for run in runs] == [(8, True), (0, False), (48, False)]
    assert all(run.decode_tokens_per_second > 0 for run in runs[1:])


def test_the_answer_to_a_run_has_no_barrier(opened, site):
    """axe-core finds nothing in it, light and dark, wide and narrow; on a phone each row says that it is a depth."""
    page = opened(site)
    started(page)
    finished(page)
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert violations(page) == []
    label = "one => getComputedStyle(one, '::before').content"
    assert inside(page, ".instrument-rates tbody th").first.evaluate(label).replace('"', "").split() == ["Depth"]


def test_a_run_can_be_cancelled(page):
    """Cancel ends llama.cpp at once: the page computes no longer, and another run can start.

    The rates before stay until then, with their file and in the form; what is left of a run is said in seconds.
    """
    finished(page)
    rates, kept = rates_of(page), page.locator("[name=results]").input_value()
    started(page, repeats="50", n_threads="2")
    status = inside(page, ".instrument-status")
    expect(status).to_have_text(LEFT, timeout=RUN_MS)
    assert rates_of(page) == rates
    running = computing(page)
    page.get_by_role("button", name="Cancel").press("Enter")
    expect(inside(page, ".instrument-said")).to_have_text("Cancelled. Nothing below has changed.")
    expect(inside(page, ".instrument-status")).to_be_focused()
    assert computing(page) < running / 4
    assert (rates_of(page), page.locator("[name=results]").input_value()) == (rates, kept)
    page.locator("[name=repeats]").fill("49")
    expect(inside(page, ".instrument-answer")).to_contain_text("The form asks for another run by now")
    assert rates_of(page) == rates
    started(page, depths="0", n_threads="1")
    assert finished(page) == 1
    assert rates_of(page) != rates


@pytest.fixture
def forgetful(built_book) -> Iterator[tuple[str, set[str]]]:
    """Address of the site as `make serve` sends it, and names of files that it has no longer: a test adds them.

    A route of playwright's would do, but on one machine a page answered no more once a route had begun after a run.
    """
    forgotten: set[str] = set()

    class Forgetful(Handler):
        def do_GET(self) -> None:
            return self.send_error(404) if Path(self.path).name in forgotten else super().do_GET()

    with serving(built_book, Forgetful) as site:
        yield site, forgotten


def test_a_run_that_fails_leaves_the_rates_before(opened, forgetful):
    """They stay when llama.cpp cannot run, and come back when a refused plan is corrected."""
    site, forgotten = forgetful
    page = opened(site)
    started(page, depths="0")
    finished(page)
    rates = rates_of(page)
    forgotten.add("tiny.gguf")
    started(page, depths="0")
    status = inside(page, ".instrument-status")
    expect(status).to_contain_text("llama.cpp gave no result: tiny.gguf was not served: 404", timeout=RUN_MS)
    expect(status).to_contain_text("The rates below are those of the run before.")
    assert rates_of(page) == rates
    started(page, depths="5000")
    expect(inside(page, ".instrument-error")).to_contain_text("Depths: 5000 is not from 0")
    page.locator("[name=depths]").fill("0")
    finished(page)
    assert rates_of(page) == rates


def rates_of(page: Page) -> str:
    """The text of the table of rates."""
    return inside(page, ".instrument-rates").inner_text()


def computing(page: Page) -> float:
    """Seconds of processors that all threads of the page take in half a second."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    taken = []
    for _ in range(2):
        page.wait_for_timeout(500)
        metrics = session.send("Performance.getMetrics")["metrics"]
        taken.append(next(one["value"] for one in metrics if one["name"] == "ProcessTime"))
    session.detach()
    return taken[1] - taken[0]


def test_a_browser_without_jspi_takes_the_compatibility_build(opened, site):
    """It comes from the site, too."""
    page = opened(site)
    page.route("**/llama.js", lambda route: with_first_line(route, NO_JSPI))
    started(page, depths="0")
    finished(page)
    assert "older browsers" in inside(page, ".instrument-facts").inner_text()
    assert any("wllama/compat/wllama.wasm" in url for url in page.asked)
    assert [*asked_elsewhere(page), *page.errors] == []


def with_first_line(route, line: str) -> None:
    """Answer with what the server has, after a line of script."""
    answer = route.fetch()
    route.fulfill(response=answer, body=line + answer.text())


def test_a_host_without_isolation_gives_one_thread(opened, server):
    """A server that sends no headers serves the same page; the row of threads says why there is one."""
    page = opened(server)
    started(page, depths="0", n_threads="2")
    assert finished(page) == 1
    assert "not isolated" in inside(page, ".instrument-facts").inner_text()


def test_without_a_gpu_no_self_test_takes_place(opened, site):
    """The page says so, and says what to choose."""
    page = opened(site)
    if page.evaluate("async () => Boolean(await navigator.gpu?.requestAdapter())"):
        pytest.skip("This browser has a GPU by WebGPU.")
    started(page, backend="webgpu")
    expect(inside(page, ".instrument-status")).to_contain_text("no self-test took place", timeout=RUN_MS)
    assert "CPU and GPU write" in inside(page, ".instrument-answer").inner_text()


@pytest.fixture(scope="module")
def in_software(browser) -> Iterator[Browser]:
    """A browser whose WebGPU is SwiftShader: Chromium's own GPU in software, without 16-bit numbers."""
    launched = browser.browser_type.launch(executable_path=find_chromium(), args=SOFTWARE_GPU)
    yield launched
    launched.close()


@pytest.fixture(scope="module")
def on_llvmpipe(browser, tmp_path_factory) -> Iterator[Browser]:
    """A browser whose WebGPU is Mesa's llvmpipe, which has 16-bit numbers: llama.cpp puts its layers on it."""
    path = llvmpipe_chromium(tmp_path_factory.mktemp("chromium"))
    launched = browser.browser_type.launch(executable_path=path, args=SOFTWARE_GPU)
    yield launched
    launched.close()
    path.unlink()  # it is large


@contextmanager
def bench_in_software(software: Browser, site: str, first_line: str = "") -> Iterator[Page]:
    """The benchmark in such a browser, where it has an adapter; a line of script may come before llama.js."""
    with bench(software, site) as page:
        if not page.evaluate("async () => Boolean(await navigator.gpu?.requestAdapter())"):
            pytest.skip("This browser has no GPU in software.")
        page.route("**/llama.js", lambda route: with_first_line(route, first_line))
        yield page


def test_a_gpu_that_llama_cpp_cannot_use_is_not_measured(in_software, site):
    """A real self-test: the CPU writes the same text in the adapter's place, is found out, and what it lacks named."""
    with bench_in_software(in_software, site) as page:
        started(page, backend="webgpu")
        expected = "The software adapter is not measured: llama.cpp could not use it."
        expect(inside(page, ".instrument-status")).to_have_text(expected, timeout=RUN_MS)
        shown = inside(page, ".instrument-answer").inner_text()
        assert "a software adapter, google swiftshader, but llama.cpp's log has no layer on it, so the CPU" in shown
        assert "needs shader-f16, which this software adapter does not offer here." in shown


def test_an_adapter_that_agrees_with_the_cpu_is_measured(on_llvmpipe, site):
    """A real self-test on llvmpipe passes, and the measurement follows; all that is shown says software, not GPU."""
    with bench_in_software(on_llvmpipe, site) as page:
        started(page, backend="webgpu", n_threads="1")
        assert finished(page) == 1
        assert "and WebGPU in software, without a GPU, and" in inside(page, ".instrument-status").inner_text()
        facts = inside(page, ".instrument-facts").inner_text()
        assert "WebGPU in software, without a GPU: google swiftshader" in facts
        assert "passed: 24 of 24 tokens are the CPU's" in facts
        assert inside(page, ".instrument-chart circle.sample").count() == 8
        assert [*asked_elsewhere(page), *page.errors] == []


@pytest.mark.parametrize(
    ("gpu", "reason"),
    [
        ("cpu.map(([id, p], n) => [n < 5 ? id : id + 1, p])", "the software adapter wrote the first 5 as well."),
        ("cpu.map(([id, p]) => [id, p - 0.5])", "their probabilities lie up to 0.5 apart; 0.1 is allowed."),
    ],
    ids=["tokens", "probabilities"],
)
def test_a_gpu_that_computes_something_else_is_not_measured(in_software, site, gpu, reason):
    """The GPU's answer is stubbed where llama.js sends it, as no adapter here errs; what judges it is the page's own.

    The CPU's tokens are real, and so is the adapter: only `gpu` and the layers on it are put in.
    """
    with bench_in_software(in_software, site, STUBBED % gpu) as page:
        started(page, backend="webgpu")
        expected = "The software adapter is not measured: it computed something else than the CPU."
        expect(inside(page, ".instrument-status")).to_have_text(expected, timeout=RUN_MS)
        assert reason in inside(page, ".instrument-answer").inner_text()
        assert inside(page, ".instrument-rates").count() == 0


@pytest.mark.parametrize(
    ("line", "begun"), [(LONG_CHECK, "offloaded 7/7"), ("", "Round 1 of 50")], ids=["check", "run"]
)
def test_a_gpu_that_is_lost_ends_all_in_words(on_llvmpipe, site, line, begun):
    """Chromium's process for the GPU really crashes, in the self-test or in a run: nothing waits for it any longer."""
    with bench_in_software(on_llvmpipe, site, line) as page:
        started(page, backend="webgpu", repeats="50")
        status = inside(page, ".instrument-status")
        expect(status).to_contain_text(begun, timeout=RUN_MS)
        on_llvmpipe.new_browser_cdp_session().send("Browser.crashGpuProcess")
        expect(status).to_contain_text(
            "llama.cpp gave no result: WebGPU lost its device while llama.cpp used it", timeout=RUN_MS
        )
        assert inside(page, ".instrument-cancel").count() == 0
