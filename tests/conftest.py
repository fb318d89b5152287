"""Fixtures that several test modules share: an engine, a second device, the built book, a browser to read it with.

A test that uses one of the first three gets the marker `engine`; others that need llama.cpp declare it themselves.
From a test without the marker llama_cpp is hidden, so that a missing marker fails in every run of the tests.
A test with the marker `timed` that failed is asked again in a quieter moment.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from lasting_browser import LastingBrowser, browsers_ended_after
from no_engine import sitecustomize

from handbook.chromium import find_chromium
from inferlab.engine.client import LlamaEngine
from inferlab.engine.loopback import LoopbackDevice, loopback_device

ROOT = Path(__file__).parents[1]
STRICT_BUILD = ["build", str(ROOT), "-n", "-W", "--keep-going"]
NEED_THE_ENGINE = {"engine", "device", "built_book"}
BROWSER_SECONDS = 600
"""How long one test and its fixtures may use a browser: many times what the slowest take."""
PAUSES_SECONDS = (1.0, 5.0, 20.0)
"""Before a failed test with the marker `timed` is asked again: another program may be busy for longer."""
NO_OTHER_HOST = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
LOOKED_FOR = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C through again where the tests were started in the background, which makes processes ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    folder = tempfile.TemporaryDirectory(prefix="inferlab-tests-")
    config.add_cleanup(folder.cleanup)
    config.stash[LOOKED_FOR] = Path(folder.name) / "looked-for-llama-cpp.txt"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests that use a fixture which starts llama.cpp, directly or through another fixture."""
    if NEED_THE_ENGINE & set(getattr(item, "fixturenames", ())):
        item.add_marker("engine")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Hide llama_cpp from a test without the marker `engine`; end a browser that stalls."""
    uses_browser = "browser" in getattr(item, "fixturenames", ())
    limit = browsers_ended_after(BROWSER_SECONDS, item.nodeid) if uses_browser else nullcontext()
    with limit, nullcontext() if item.get_closest_marker("engine") else without_llama_cpp(item):
        return (yield)


@pytest.hookimpl(specname="pytest_runtest_protocol", tryfirst=True)
def pytest_ask_again(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test with the marker `timed` until it passes, with its fixtures; only the last try is reported."""
    if not item.get_closest_marker("timed"):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    for number, seconds in enumerate(PAUSES_SECONDS, 1):
        if not (failed := [one for one in reports if one.failed]):
            break
        item.warn(pytest.PytestWarning(f"try {number} failed, so it is asked again: {failed[0].longreprtext[-500:]}"))
        time.sleep(seconds)
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@contextmanager
def without_llama_cpp(item: pytest.Item) -> Iterator[None]:
    """Hide llama_cpp from a test, and from the processes that it starts."""
    paths = [str(Path(sitecustomize.__file__).parent), os.environ.get("PYTHONPATH")]
    hidden = {sitecustomize.TEST: item.nodeid, sitecustomize.LOOKED_FOR: str(item.config.stash[LOOKED_FOR])}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "meta_path", [sitecustomize.NoLlamaCpp, *sys.meta_path])
        for name, value in {**hidden, "PYTHONPATH": os.pathsep.join(filter(None, paths))}.items():
            patch.setenv(name, value)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Fail where a fixture needed llama.cpp and the test that uses it has no marker."""
    try:
        return (yield)
    finally:
        require_marker(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail where a test needed llama.cpp and has no marker, whatever else became of it."""
    try:
        return (yield)
    finally:
        require_marker(item)


def require_marker(item: pytest.Item) -> None:
    """Fail if llama_cpp was looked for under a test without the marker `engine`: in this process or in a child."""
    looked_for = item.config.stash[LOOKED_FOR]
    if looked_for.exists():
        processes = looked_for.read_text(encoding="utf-8")
        looked_for.unlink()
        pytest.fail(
            f"{item.nodeid} needs llama.cpp and lacks the marker `engine`. Add `@pytest.mark.engine`.\n"
            f"llama_cpp was looked for by:\n{processes}",
            pytrace=False,
        )


@pytest.fixture(scope="module")
def engine() -> Iterator[LlamaEngine]:
    """One engine for a module; a test that ends its worker leaves it usable."""
    engine = LlamaEngine()
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def device() -> Iterator[LoopbackDevice]:
    """One second device for a module, over a direct link."""
    with loopback_device() as device:
        yield device


@pytest.fixture(scope="session")
def built_book(tmp_path_factory) -> Path:
    """The site's folder: the finished build named by INFERLAB_BUILT_BOOK, else a strict build made now."""
    if finished := os.environ.get("INFERLAB_BUILT_BOOK"):
        return Path(finished).resolve()
    output = tmp_path_factory.mktemp("book")
    command = [str(Path(sys.executable).with_name("jupyter-book")), *STRICT_BUILD, "--path-output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.fail(f"the strict build failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}", pytrace=False)
    return output / "_build" / "html"


@pytest.fixture(scope="session")
def browser() -> Iterator:
    """A headless Chromium; without one the test is skipped, except under CI=true, where it fails."""
    from playwright.sync_api import Browser, Error, sync_playwright

    with sync_playwright() as playwright:

        def start() -> Browser:
            return playwright.chromium.launch(
                executable_path=find_chromium(),
                args=["--no-sandbox", "--disable-gpu", "--disable-background-networking", NO_OTHER_HOST],
            )

        try:
            browser = LastingBrowser(start)
        except Error as missing:
            no_browser(str(missing).splitlines()[0])
        yield browser
        browser.close()


def no_browser(reason: str) -> None:
    """Fail under CI=true, skip elsewhere, and say how to get a browser."""
    text = f"No Chromium could be started ({reason}). Install one, or name it with CHROMIUM=path."
    if os.environ.get("CI") == "true":
        pytest.fail(text, pytrace=False)
    pytest.skip(text)
