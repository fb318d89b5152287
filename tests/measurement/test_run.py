"""Measuring: how each number is defined, when a warm-up has settled, which requests are refused."""

import subprocess
import sys
from dataclasses import replace
from statistics import median
from threading import Thread

import pytest
from fakes import ScriptedEngine, made_run, scripted_pass

from inferlab.engine import cpu_time
from inferlab.engine.client import LlamaEngine
from inferlab.engine.log import Buffer
from inferlab.engine.protocol import Pass
from inferlab.errors import EngineCrashed, InvalidSettings, ModelNotFound
from inferlab.machine import Link
from inferlab.measurement import run as run_module
from inferlab.measurement.base import with_context
from inferlab.measurement.run import Run, measure, measure_each, measure_in_turns, warm_up
from inferlab.model.find import tiny_model
from inferlab.model.gguf import read_gguf
from inferlab.settings import Settings


def measured(engine=None, **request) -> Run:
    """A measurement of the embedded model's name with a scripted engine."""
    request = {"n_prompt": 8, "n_gen": 3, "repeats": 2} | request
    return measure(tiny_model(), engine=engine or ScriptedEngine(), progress=False, **request)


# --- definitions ------------------------------------------------------------------------------

ONE = Pass(prefill_seconds=0.4, token_seconds=(0.5, 0.7, 1.1), decode_seconds=(0.15, 0.35), tokens=(1, 2, 3))


def test_each_number_is_that_of_its_definition():
    """TTFT and time between tokens include sampling; rates count engine time, and the first token is the prefill's."""
    run = made_run(passes=(ONE,), n_prompt=8)
    assert (run.ttft_seconds, run.prefill_seconds) == (0.5, 0.4)
    assert run.inter_token_seconds == pytest.approx((1.1 - 0.5) / 2)
    assert run.prefill_tokens_per_second == pytest.approx(8 / 0.4)
    assert run.decode_tokens_per_second == pytest.approx(2 / 0.5)


def test_one_token_has_no_decode():
    """With a single generated token, rates, ranges and intervals of decoding are unknown and not 0."""
    run = made_run(passes=(scripted_pass(gaps=()),) * 10, n_gen=1)
    assert (run.decode_tokens_per_second, run.inter_token_seconds) == (None, None)
    assert "decode_tokens_per_second" not in run.ranges
    assert run.interval("decode_tokens_per_second") is None
    assert run.ttft_seconds == 0.5


def test_every_number_is_a_median_over_the_passes():
    """One slow pass among three moves nothing, and all three are kept."""
    passes = tuple(scripted_pass(ttft, (gap,)) for ttft, gap in ((0.5, 0.1), (9.0, 7.0), (0.6, 0.2)))
    run = made_run(passes=passes)
    assert run.ttft_seconds == 0.6
    assert run.inter_token_seconds == pytest.approx(0.2)
    assert run.decode_tokens_per_second == pytest.approx(median([1 / 0.08, 1 / 5.6, 1 / 0.16]))
    assert run.passes == passes


def test_bytes_are_added_up_over_the_devices():
    """Weights on a GPU and on the CPU count together; a kind that is absent takes nothing."""
    run = made_run()
    assert run.bytes_on("weights") == 12 * 2**20
    assert run.bytes_on("output") == 0
    assert run.place == "CUDA0, CPU"
    assert made_run(buffers=()).place == "unknown"


def test_the_badge_says_who_measured_when_and_with_what():
    """Processor, date and build; synthetic weights are never passed over."""
    assert made_run().badge.startswith("measured: Example CPU, 2026-01-31, llama.cpp b1234")
    assert "synthetic weights" in made_run(model=replace(made_run().model, synthetic=True)).badge


NEAR = [Buffer("CPU", "weights", 1), Buffer("RPC0[127.0.0.1:4000]", "weights", 2)]
LINK = Link("127.0.0.1:4000", 1.0, None, 0.98, 2e-5)


def test_the_loopback_device_goes_by_its_name():
    """In the place and in the badge, with its link where that was slowed; a device elsewhere goes by its address."""
    run = made_run(buffers=tuple(NEAR), links=(LINK,))
    assert run.place == "CPU, loopback device"
    assert "Example CPU, loopback device, link 0.98 GB/s (asked: 1 GB/s), 2026" in run.badge
    two = made_run(buffers=(*NEAR, Buffer("RPC0[127.0.0.1:5000]", "weights", 2)))
    assert two.place == "CPU, loopback device 1, loopback device 2"
    assert made_run(buffers=(Buffer("RPC0[10.0.0.7:4000]", "weights", 2),)).place == "RPC device at 10.0.0.7"


# --- the request ------------------------------------------------------------------------------


def test_a_run_says_what_was_asked_and_what_the_engine_chose():
    """Model, workload, the engine's own settings, buffers, load phases and machine are in the record."""
    engine = ScriptedEngine()
    run = measured(engine, settings=Settings(type_k="q8_0"))
    assert (run.n_prompt, run.n_gen, len(run.passes)) == (8, 3, 2)
    assert (run.settings.type_k, run.settings.n_threads) == ("q8_0", 4)
    assert run.model.name == read_gguf(tiny_model()).name
    assert (run.buffers, run.machine) == (engine.buffers, engine.machine())
    assert run.load_seconds == 1.25
    assert run.text == "x xx xxx"
    assert len(run.date) == 10


@pytest.mark.parametrize(
    ("asked", "n_prompt", "n_gen", "n_ctx"),
    [(None, 1, 1, 256), (None, 200, 56, 256), (None, 200, 57, 512), (None, 512, 128, 768), (1000, 8, 8, 1000)],
)
def test_the_context_is_just_enough(asked, n_prompt, n_gen, n_ctx):
    """Without n_ctx the cache gets the next multiple of 256 cells, as llama.cpp pads it; an n_ctx is kept."""
    assert with_context(Settings(n_ctx=asked), n_prompt, n_gen).n_ctx == n_ctx


def test_a_context_too_small_is_refused_before_loading():
    """The message says what would fit."""
    engine = ScriptedEngine()
    with pytest.raises(InvalidSettings, match="Ask for n_ctx=11 or more"):
        measured(engine, settings=Settings(n_ctx=10))
    assert engine.opened == []


@pytest.mark.parametrize("request_", [{"n_prompt": 0}, {"n_gen": 0}, {"repeats": 0}, {"n_gen": 1.5}, {"repeats": True}])
def test_an_empty_workload_is_refused(request_):
    """Prompt, generation and repeats are whole numbers of at least one, and measure_each has a length of prompt."""
    with pytest.raises(InvalidSettings, match="must be a whole number of at least 1"):
        measured(**request_)
    with pytest.raises(InvalidSettings, match="n_prompt=0"):
        measure_each(tiny_model(), n_prompts=(), engine=ScriptedEngine())


def test_a_text_can_be_the_prompt():
    """n_prompt is then what the vocabulary makes of the text, which must be a token at least; the run keeps it."""
    engine = ScriptedEngine()
    run = measured(engine, prompt="what is a cache")
    assert (run.n_prompt, run.prompt) == (4, "what is a cache")
    assert engine.asked[0] == ([4, 2, 1, 5], 3)
    with pytest.raises(InvalidSettings, match="gives no tokens"):
        measured(engine, prompt="")


def test_a_missing_model_is_noticed_before_the_engine_starts():
    """Nothing is opened for a file that is not there."""
    engine = ScriptedEngine()
    with pytest.raises(ModelNotFound):
        measure("no-such.gguf", engine=engine)
    assert engine.opened == []


def test_after_a_crash_the_next_measurement_works():
    """An error of the engine reaches the caller, and the same engine measures again."""
    engine = ScriptedEngine(fails=EngineCrashed("died"))
    with pytest.raises(EngineCrashed):
        measured(engine)
    assert len(measured(engine).passes) == 2


def test_several_prompt_lengths_share_one_context():
    """measure_each loads once: every run has the context that the longest prompt needs."""
    engine = ScriptedEngine()
    runs = measure_each(tiny_model(), n_prompts=(8, 300), n_gen=3, repeats=1, engine=engine)
    assert [run.n_prompt for run in runs] == [8, 300]
    assert {settings.n_ctx for settings in engine.opened} == {512}


# --- warm-up ----------------------------------------------------------------------------------


def test_choices_take_turns():
    """Each round opens every choice once and keeps one pass of it, after a warm-up that is not kept."""
    engine = ScriptedEngine()
    choices = [Settings(flash_attn=switch) for switch in ("on", "off")]
    runs = measure_in_turns(tiny_model(), choices, n_prompt=8, n_gen=3, rounds=2, engine=engine, progress=False)
    assert [settings.flash_attn for settings in engine.opened] == ["on", "off", "off", "on"]
    assert [run.settings.flash_attn for run in runs] == ["on", "off"]
    assert [(len(run.passes), run.warmups, run.settled) for run in runs] == [(2, (), None)] * 2


def ending_at(*seconds):
    return ScriptedEngine([scripted_pass(0.1, (total - 0.1,)) for total in seconds])


@pytest.mark.parametrize(
    ("seconds", "n_passes", "settled"),
    [
        ((0.2, 0.2), 2, True),
        ((0.2, 0.20399), 2, True),
        ((0.206, 0.2, 0.2), 3, True),
        ((0.8, 0.4, 0.2, 0.202), 4, True),
        ((0.11, 0.2) * 4, 8, False),
        ((0.11, 0.2) * 3 + (0.2, 0.2), 7, True),
        ((1.0, 1.1, 0.2), 2, False),
        ((0.6, 0.8, 0.7, 0.7), 3, False),
        ((2.5, 2.5), 1, None),
    ],
)
def test_a_warm_up_ends_when_two_passes_in_a_row_agree_within_two_percent(seconds, n_passes, settled):
    """At most eight passes run, and none after two seconds of them; whether they settled is told, if two ran."""
    warmups, agreed = warm_up(ending_at(*seconds), [1, 2], 2)
    assert (len(warmups), agreed) == (n_passes, settled)


def test_warm_ups_are_kept_beside_the_counted_passes():
    """A run that never settled is marked, and its warm-ups are not among its passes."""
    run = measured(ending_at(*(0.11, 0.2) * 4, 1.5), n_gen=2)
    assert (len(run.warmups), len(run.passes), run.settled) == (8, 2, False)
    assert {p.token_seconds[-1] for p in run.passes} == {1.5}


@pytest.mark.parametrize(
    ("totals", "others", "disturbed"),
    [((1.0, 2.0) * 4, 30.0, [0.3]), ((1.0, 2.0) * 4, 20.0, []), ((1.0, 1.0), 30.0, [])],
    ids=["never settled beside others", "never settled alone", "settled beside others"],
)
def test_a_warm_up_is_disturbed_when_it_never_settles_beside_others(monkeypatch, totals, others, disturbed):
    """Whoever asked hears how many processors the others used, more than a quarter of one; noise alone is none."""
    told, clock, readings = [], iter((100.0, 200.0, 200.0)), iter((1000.0, 1000.0 + others))
    monkeypatch.setattr(run_module.time, "perf_counter", clock.__next__)
    monkeypatch.setattr(cpu_time, "other_seconds", readings.__next__)
    monkeypatch.setattr(run_module, "on_disturbed", told.append)
    measured(ending_at(*totals), n_gen=2)
    assert told == pytest.approx(disturbed)


def test_nobody_looks_at_the_others_unless_asked(monkeypatch):
    """For a user of the library a warm-up that never settled is marked, and that is all."""
    monkeypatch.delattr(cpu_time, "other_seconds")
    assert measured(ending_at(*(1.0, 2.0) * 4), n_gen=2).settled is False


# --- for real ---------------------------------------------------------------------------------

SCRIPT = """
import inferlab as lab
run = lab.measure(lab.tiny_model(), n_prompt=32, n_gen=8, repeats=2)
assert run.prefill_seconds < run.ttft_seconds < max(one.token_seconds[-1] for one in run.passes)
assert run.decode_tokens_per_second > 1 / run.inter_token_seconds
print(run.n_prompt, len(run.passes), len(run.passes[0].tokens), run.bytes_on("kv_cache"))
"""


@pytest.mark.engine
def test_a_script_without_a_main_guard_can_measure(tmp_path):
    """Three lines in a file are enough: the worker is no copy of the script."""
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    n_cells, n_layers, n_embd_kv, n_bytes_f16 = 256, 6, 128, 2
    assert done.stdout.split() == ["32", "2", "8", str(2 * n_cells * n_layers * n_embd_kv * n_bytes_f16)]


@pytest.mark.engine
def test_two_threads_measure_one_after_the_other():
    """A measurement keeps the engine to itself: the passes of two threads never mix."""
    engine = LlamaEngine()
    runs = {}

    def measure_with(n_ubatch):
        runs[n_ubatch] = measure(None, Settings(n_ubatch=n_ubatch), 64, 16, repeats=3, engine=engine)

    threads = [Thread(target=measure_with, args=(size,)) for size in (32, 64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    engine.close()
    assert {size: run.settings.n_ubatch for size, run in runs.items()} == {32: 32, 64: 64}
