"""The markers: what has `engine` and cannot be without it, and how often a test with `timed` is asked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLES = """
import subprocess
import sys
from contextlib import suppress

import pytest

from inferlab.engine import libraries
from inferlab.engine.client import LlamaEngine


@pytest.fixture
def started():
    engine = LlamaEngine()
    engine.ready()
    yield engine
    engine.close()


def test_starts_a_worker():
    LlamaEngine().ready()


def test_swallows_the_failure():
    with suppress(Exception):
        LlamaEngine().ready()


def test_starts_a_process_that_imports_llama_cpp():
    subprocess.run([sys.executable, "-c", "import llama_cpp"], stderr=subprocess.DEVNULL)


def test_starts_a_worker_from_another_process():
    code = "from inferlab.engine.client import LlamaEngine; LlamaEngine().ready()"
    subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL)


def test_starts_a_worker_in_a_fixture(started):
    pass


def test_asks_for_a_library():
    with suppress(Exception):
        libraries.shared_library("ggml")


def test_needs_nothing():
    subprocess.run([sys.executable, "-c", "import inferlab"], check=True)


@pytest.mark.engine
def test_declares_it(started):
    assert started.pid


def test_uses_the_shared_engine(engine):
    engine.ready()
"""
TIMED = """
import conftest
import pytest

conftest.PAUSES_SECONDS = (0.0, 0.0)
asked = []


@pytest.fixture
def n_asked(request):
    asked.append(request.node.name)
    return asked.count(request.node.name)


@pytest.mark.timed
def test_disturbed_twice(n_asked):
    assert n_asked == 3


@pytest.mark.timed
def test_always_too_slow(n_asked):
    assert n_asked == 4


@pytest.mark.timed
def test_quiet(n_asked):
    assert n_asked == 1


def test_measures_no_time(n_asked):
    assert n_asked == 2
"""
MARKED = {"declares_it", "uses_the_shared_engine"}
LACKING = (
    "starts_a_worker",
    "swallows_the_failure",
    "starts_a_process_that_imports_llama_cpp",
    "starts_a_worker_from_another_process",
    "starts_a_worker_in_a_fixture",
    "asks_for_a_library",
)


def printed_by_pytest(folder: Path, *options: str, samples: str = SAMPLES) -> list[str]:
    """The lines that pytest prints about the samples, in a process with the tests' conftest."""
    (folder / "test_samples.py").write_text(samples)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    engine\n    timed\n")
    here = str(Path(__file__).parent)
    paths = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", *options, "."]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    return done.stdout.splitlines()


@pytest.mark.engine
def test_a_missing_marker_fails_and_is_named(tmp_path):
    """Whoever looks for llama_cpp without the marker fails, wherever it happens and whatever is done with the error."""
    printed = printed_by_pytest(tmp_path, "-v")
    passed = {line.split()[0].split("::test_")[1] for line in printed if " PASSED " in line}
    assert passed == {"needs_nothing", *MARKED}
    for name in LACKING:
        said = f"test_samples.py::test_{name} needs llama.cpp and lacks the marker `engine`. Add `@pytest.mark.engine`."
        assert said in printed


@pytest.mark.parametrize(
    ("selected", "expected"), [("engine", MARKED), ("not engine", {"needs_nothing", *LACKING})], ids=["with", "without"]
)
def test_the_marker_selects_what_declares_it_and_what_uses_a_shared_fixture(tmp_path, selected, expected):
    """A test that uses the fixture `engine` has the marker without saying so."""
    printed = printed_by_pytest(tmp_path, "-m", selected, "--collect-only", "-q")
    assert {line.split("::test_")[1] for line in printed if "::test_" in line} == expected


def test_what_measures_time_is_asked_again_and_can_fail(tmp_path):
    """Up to a try after the last pause, and a disturbance is told; a test without the marker is asked once."""
    printed = printed_by_pytest(tmp_path, "-v", samples=TIMED)
    outcomes = {line.split()[0].split("::test_")[1]: line.split()[1] for line in printed if "%]" in line}
    assert outcomes == {
        "disturbed_twice": "PASSED",
        "always_too_slow": "FAILED",
        "quiet": "PASSED",
        "measures_no_time": "FAILED",
    }
    assert sum("try 2 failed, so it is asked again" in line for line in printed) == 2
    assert any("E       assert 3 == 4" in line for line in printed)
