"""Other engines beside llama.cpp: the harness, its processes and its record; no engine but llama.cpp is needed."""

import sys

import pytest

import inferlab as lab
from inferlab.errors import InvalidSettings, OtherEngineFailed
from inferlab.model.find import find_model
from studies.other_engines import engine_comparison
from studies.other_engines.engine_comparison import EngineRow, compare_engines, prompt
from studies.other_engines.engines import worker
from studies.other_engines.engines.client import OtherEngine
from studies.other_engines.engines.conversion import WEIGHTS, converted
from studies.other_engines.engines.protocol import Answer, Request

ECHO = """
import json, sys
print("a library greets", file=sys.stderr)
asked = json.loads(sys.stdin.readline())
print(json.dumps({"version": f"Echo of {asked['weights']}"}), flush=True)
for line in sys.stdin:
    one = json.loads(line)
    print(json.dumps({"tokens": one["tokens"][: one["n_gen"]], "seconds": [0.5] * one["n_gen"]}), flush=True)
"""
REQUEST = Request("MLX", "float16", find_model(None), 2, 256)
RECORDED = ("epyc-2c/engines-tiny", "epyc-2c/engines-shape")


@pytest.fixture
def echo():
    """A process that answers every prompt with its own beginning."""
    one = OtherEngine((sys.executable, "-c", ECHO))
    yield one
    one.close()


def test_a_process_opens_a_model_and_answers(echo):
    """Version and answers come back as they were sent; what a library prints is no answer."""
    assert echo.open(REQUEST) == "Echo of float16"
    assert echo.generate([7, 8, 9], 2) == Answer((7, 8), (0.5, 0.5))


def test_a_process_that_ends_is_reported_with_its_last_words():
    """The error has the last line of standard error, for the first request and for a later one."""
    failing = OtherEngine((sys.executable, "-c", "raise SystemExit('no such engine here')"))
    with pytest.raises(OtherEngineFailed, match="no such engine here"):
        failing.open(REQUEST)
    failing.close()


def test_an_engine_that_is_not_installed_ends_its_process():
    """The worker names what is missing."""
    one = OtherEngine((sys.executable, "-S", "-m", worker.__name__))
    with pytest.raises(OtherEngineFailed, match=r"No module named"):
        one.open(REQUEST)
    one.close()


def test_every_engine_of_the_table_has_its_module():
    """WEIGHTS and MODULES name the same engines."""
    assert set(WEIGHTS) == set(worker.MODULES)


def test_weights_that_are_not_compared_are_refused(tmp_path):
    """The error lists what there is."""
    with pytest.raises(InvalidSettings, match="bfloat16"):
        converted("transformers", "int3", tmp_path / "a.gguf", tmp_path)


def test_openvino_opens_the_gguf_file_itself(tmp_path):
    """Nothing is converted for it."""
    assert converted("OpenVINO", "Q4_0", tmp_path / "a.gguf", tmp_path) == tmp_path / "a.gguf"


@pytest.mark.parametrize("asked", [{"files": {}}, {"n_prompt": 1}, {"n_gen": 1}, {"repeats": 0}])
def test_nothing_to_compare_is_refused(tmp_path, asked):
    """The reference, two tokens and one turn are the least."""
    with pytest.raises(InvalidSettings, match="at least"):
        compare_engines(**{"files": {"F16": find_model(None)}, "folder": tmp_path, **asked})


def test_prompts_differ_between_turns_and_not_between_engines():
    """Random ids of the vocabulary, the same for the same turn."""
    assert prompt(4096, 64, 3) == prompt(4096, 64, 3) != prompt(4096, 64, 4)
    assert all(300 <= token < 4096 for token in prompt(4096, 500, 0))


@pytest.mark.engine
def test_llama_cpp_and_another_process_answer_in_turns(tmp_path, monkeypatch):
    """The reference agrees with itself, the other engine's times are its own, and one that fails is named."""
    monkeypatch.setattr(engine_comparison, "PAUSE_SECONDS", 0)
    monkeypatch.setattr(engine_comparison, "OtherEngine", lambda: OtherEngine((sys.executable, "-c", ECHO)))
    files = {"F16": find_model(None)}
    weights = {"OpenVINO": ("F16", "Q4_0"), "MLX": ("float32",)}
    monkeypatch.setattr(engine_comparison, "converted", converted_or_failing)
    found = compare_engines(files, tmp_path, n_prompt=8, n_gen=4, repeats=2, weights=weights)
    assert [row.name for row in found.rows] == ["llama.cpp, F16", "OpenVINO, F16"]
    assert found.missing == (
        ("OpenVINO", "Q4_0", "OpenVINO needs a file in Q4_0, and none was given."),
        ("MLX", "float32", "no converter here"),
    )
    assert found.of("llama.cpp", "F16").same == (4, 4)
    echoed = found.of("OpenVINO", "F16")
    assert (echoed.first, echoed.step, echoed.again) == (0.5, 0.0, 1.0)
    assert found.ratio(echoed, echoed, "first") == 1
    assert found.model.file == "tiny.gguf"


def converted_or_failing(engine, weights, gguf, folder):
    if engine == "MLX":
        raise OtherEngineFailed("no converter here")
    return gguf


@pytest.mark.parametrize("name", RECORDED)
def test_the_recorded_comparisons_are_whole(name):
    """At least four engines beside each other, fifteen turns, versions for all."""
    found = lab.load(name)
    assert len({row.engine for row in found.rows}) >= 4
    assert all(len(times) >= 15 for row in found.rows for times in (row.first_seconds, row.step_seconds, row.same))
    assert all(row.version and isinstance(row, EngineRow) for row in found.rows)
    assert not found.missing


def test_with_exact_weights_every_engine_gives_the_same_answers():
    """16 or 32 bits, the embedded model: the same tokens in every turn, but for weights that were rounded."""
    found = lab.load(RECORDED[0])
    exact = {"llama.cpp, F16", "transformers, float32", "OpenVINO, F16 exact", "ONNX Runtime, fp32", "MLX, float32"}
    whole = {row.name for row in found.rows if set(row.same) == {found.n_gen}}
    assert exact <= whole


def test_the_order_of_decode_is_that_of_the_bits_but_for_transformers():
    """What the page says of the recorded decode of the larger model."""
    bits = {"float32": 32, "fp32": 32, "F16 exact": 32, "F16": 16, "bfloat16": 16, "Q8_0": 8, "Q4_0": 4, "int4": 4}
    rows = lab.load(RECORDED[1]).rows
    pairs = [(one, other) for one in rows for other in rows if bits[one.weights] > bits[other.weights]]
    assert {late.name for early, late in pairs if early.step < late.step} == {"transformers, bfloat16"}
