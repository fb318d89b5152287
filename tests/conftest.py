"""Fixtures that several test modules share: an engine, a second device, the built book, a browser to read it with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from handbook.diagrams import find_chromium
from inferlab.engine.client import LlamaEngine
from inferlab.engine.loopback import LoopbackDevice, loopback_device

ROOT = Path(__file__).parents[1]
STRICT_BUILD = ["build", str(ROOT), "-n", "-W", "--keep-going"]


def pytest_configure() -> None:
    """Let Ctrl-C through again where the tests were started in the background, which makes processes ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
    from playwright.sync_api import Error, sync_playwright

    with sync_playwright() as playwright:
        try:
            chromium = playwright.chromium.launch(
                executable_path=find_chromium(),
                args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
            )
        except Error as missing:
            no_browser(str(missing).splitlines()[0])
        yield chromium
        chromium.close()


def no_browser(reason: str) -> None:
    """Fail under CI=true, skip elsewhere, and say how to get a browser."""
    text = f"No Chromium could be started ({reason}). Install one, or name it with CHROMIUM=path."
    if os.environ.get("CI") == "true":
        pytest.fail(text, pytrace=False)
    pytest.skip(text)
