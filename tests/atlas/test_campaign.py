"""Reference records: which stages a machine gets, what is kept when, and what a stage's time limit does."""

import json
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import BUFFERS, CARD, CPU_ONLY, WITH_GPU, ScriptedEngine, TurnedClock

from inferlab import cli
from inferlab.atlas import campaign, contribute
from inferlab.atlas.campaign import Bench, Extent, TimeLimitedEngine, chosen, name_of, record, run_llama_bench, stages
from inferlab.engine.loopback import LoopbackDevice
from inferlab.errors import ContributionRefused, InvalidSettings, OutOfTime, RecordError
from inferlab.machine import Device
from inferlab.measurement.batching import BatchedDecode, BatchPoint
from inferlab.measurement.cold_start import ColdStart
from inferlab.model.find import tiny_model
from inferlab.records import load
from inferlab.settings import Settings

SMALL = Extent(
    ("llama-3.2-1b",), prompts=(1, 2), depths=(4, 8), n_layer_steps=2, depth=4, n_prompt=4, n_gen=3, repeats=1
)
POINTS = BatchPoint(1, (0.1, 0.2)), BatchPoint(2, (0.3,))
FACTS = {"model": CARD, "machine": CPU_ONLY, "buffers": BUFFERS, "date": "2026-01-31"}
SERVED = BatchedDecode(**FACTS, settings=Settings(n_ctx=256), n_prompt=4, points=POINTS)
PRINTED = Path(__file__).parents[1] / "data" / "llama-bench.jsonl"


class NoDevice:
    """In the place of a loopback device: an address where nobody answers."""

    settings = LoopbackDevice.settings
    endpoint = "127.0.0.1:1"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    """Stages of tiny extent on the embedded model, a cache folder of the test's own, and no llama-bench."""
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(campaign, "WITHOUT_GPU", SMALL)
    monkeypatch.setattr(campaign, "built_program", lambda name: None)
    monkeypatch.setattr(campaign, "make_shape", lambda *_, **__: tiny_model())
    monkeypatch.setattr(campaign, "loopback_device", NoDevice)
    monkeypatch.setattr(campaign, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(campaign, "limit_vram", lambda *_: nullcontext())
    monkeypatch.setattr(campaign, "batched_decode", lambda *_, **__: SERVED)


def names(machine):
    return [stage.name for stage in stages(machine)]


# --- stages -----------------------------------------------------------------------------------


def test_a_gpu_gets_the_published_shapes_and_a_processor_a_smaller_one():
    """Every stage is there for each shape, under names that on_outcome shape and question."""
    assert names(WITH_GPU)[:3] == ["calibration", "mistral-7b-prefill", "mistral-7b-depth"]
    assert "llama-3.1-8b-layers" in names(WITH_GPU)
    assert {name.split("-")[0] for name in names(CPU_ONLY)} == {"calibration", "llama"}
    assert len(set(names(WITH_GPU))) == len(names(WITH_GPU))


def test_a_loopback_device_makes_no_gpu():
    """A second device that this machine only imitates does not bring the large shapes."""
    imitated = replace(CPU_ONLY, devices=(*CPU_ONLY.devices, Device("RPC0", "loopback device", "gpu", backend="RPC")))
    assert names(imitated) == names(CPU_ONLY)


@pytest.mark.parametrize(
    ("cpu", "card", "name"),
    [
        ("Intel(R) Xeon(R) Processor", None, "xeon-4c"),
        ("AMD Ryzen 9 9950X 16-Core Processor", None, "ryzen-9-9950x-4c"),
        ("Intel(R) Core(TM) i7-9750H CPU @ 2.60GHz", None, "core-i7-9750h-4c"),
        ("any", "NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("", None, "machine-4c"),
    ],
)
def test_a_machine_is_named_by_what_it_is(cpu, card, name):
    """Its card, or its processor and cores; never what somebody called it."""
    devices = (Device("CUDA0", card, "gpu", backend="CUDA"),) if card else ()
    assert name_of(replace(CPU_ONLY, cpu=cpu, devices=devices)) == name


def test_an_unknown_stage_is_refused_with_the_known_ones():
    """Nobody waits for a misspelt name."""
    with pytest.raises(InvalidSettings, match=r"no stage 'prefil'.*llama-3.2-1b-prefill"):
        chosen(stages(CPU_ONLY), ["prefil"])


# --- keeping ----------------------------------------------------------------------------------


def test_every_stage_is_kept_as_it_ends_and_not_measured_again(tmp_path, monkeypatch):
    """A failed stage has its reason, and the others are measured; the next call measures only what has no record."""
    monkeypatch.setattr(campaign, "calibrate", lambda **_: pytest.fail("it is recorded already"))
    monkeypatch.setattr(campaign, "cold_start", lambda *_: pytest.fail("it is recorded already"))
    folder = tmp_path / "box-4c"
    folder.mkdir()
    for name in ("calibration", "llama-3.2-1b-cold-start"):
        (folder / f"{name}.json").write_text("{}")
    heard = []
    done = record(tmp_path, machine_name="box-4c", engine=ScriptedEngine(), on_outcome=heard.append)
    assert tuple(heard) == done
    states = {outcome.stage.removeprefix("llama-3.2-1b-"): outcome.state for outcome in done}
    assert states == {
        "calibration": "skipped",
        "prefill": "kept",
        "depth": "kept",
        "layers": "kept",
        "attention": "kept",
        "kv-types": "kept",
        "weights": "kept",
        "sequences": "kept",
        "limited": "kept",
        "cold-start": "skipped",
        "llama-bench": "failed",
    }
    assert "llama-cpp-python installs none" in done[-1].reason
    again = record(tmp_path, machine_name="box-4c", engine=ScriptedEngine())
    assert {outcome.state for outcome in again[:-1]} == {"skipped"}


def test_what_is_kept_is_a_sweep_with_samples_that_may_be_shared(tmp_path):
    """Every point has its run with telemetry, models go by their file's name, and the schema accepts it."""
    record(tmp_path, ["llama-3.2-1b-weights", "llama-3.2-1b-kv-types"], "box-4c", engine=ScriptedEngine())
    weights, types = (load(tmp_path / "box-4c" / f"llama-3.2-1b-{name}.json") for name in ("weights", "kv-types"))
    assert weights.over == {"model": ("tiny.gguf",) * 3}
    assert all(run.sampling for run in weights.runs)
    assert len(types.runs) == 9
    text = (tmp_path / "box-4c" / "llama-3.2-1b-weights.json").read_text()
    assert contribute.problems(json.loads(text)) == []


def test_a_named_stage_is_measured_again(tmp_path):
    """Whoever doubts a record names its stage."""
    first, again = (record(tmp_path, ["llama-3.2-1b-depth"], "box-4c", engine=ScriptedEngine())[0] for _ in range(2))
    assert first.state == again.state == "kept"


def test_a_stage_without_one_run_is_no_record(tmp_path):
    """Where no point could be measured, nothing is kept, and the first point's reason is told."""
    done = record(tmp_path, ["llama-3.2-1b-depth"], "box-4c", seconds=1e-9, engine=ScriptedEngine())
    assert done[0].state == "failed"
    assert "OutOfTime" in done[0].reason
    assert not list(tmp_path.rglob("llama*.json"))


def test_a_folder_that_names_its_owner_is_refused(tmp_path):
    """The name becomes part of the repository, so it is looked at first."""
    with pytest.raises(ContributionRefused, match="no name for a machine's folder"):
        record(tmp_path, machine_name="My Laptop", engine=ScriptedEngine())


def test_layers_move_to_a_second_device_in_eight_steps(tmp_path, monkeypatch):
    """Without a GPU it is a loopback device; both ends of the range are among the steps."""
    bench = Bench(CPU_ONLY, campaign.WITHOUT_GPU, ScriptedEngine(), settle_seconds=0.0)
    steps = campaign._layers(bench, "llama-3.2-1b").over["n_gpu_layers"]
    assert list(steps) == [0, 8, 17]
    assert bench.engine.opened[0].rpc_servers == ("127.0.0.1:1",)


def made_start(settings, page_cache):
    """A finished cold start of two phases."""
    measured = {"phases": {"process": 0.1, "weights": 0.2}, "wall_seconds": 0.31}
    cached = {"page_cache": page_cache, "cached_before": 0.0, "cached_after": 1.0}
    return ColdStart(**FACTS, settings=settings, **measured, **cached)


def test_cold_starts_go_through_every_load_mode_and_are_read_again(tmp_path, monkeypatch):
    """Three rounds of every load mode, from an empty and from a full page cache."""
    monkeypatch.setattr(campaign, "cold_start", lambda path, settings, cache: made_start(settings, cache))
    record(tmp_path, ["llama-3.2-1b-cold-start"], "box-4c", engine=ScriptedEngine())
    starts = load(tmp_path / "box-4c" / "llama-3.2-1b-cold-start.json")
    assert len(starts) == 36
    assert {start.page_cache for start in starts} == {"empty", "full"}
    assert starts[0] == made_start(Settings(n_ctx=512, load_mode="auto", flash_attn="on", devices=()), "empty")


def test_several_sequences_are_kept_with_every_step(tmp_path):
    """What was measured of batches is read again as it was."""
    record(tmp_path, ["llama-3.2-1b-sequences"], "box-4c", engine=ScriptedEngine())
    assert load(tmp_path / "box-4c" / "llama-3.2-1b-sequences.json") == SERVED
    assert contribute.problems(json.loads((tmp_path / "box-4c" / "llama-3.2-1b-sequences.json").read_text())) == []


@pytest.mark.parametrize(("n_gib", "limited"), [(8, False), (24, True)])
def test_a_card_is_made_as_small_as_the_scenarios(n_gib, limited, monkeypatch):
    """Memory is limited on a larger card; a card with no more memory than the limit is not limited."""
    asked = []
    monkeypatch.setattr(campaign, "limit_vram", lambda *words: asked.append(words) or nullcontext())
    card = Device("CUDA0", "Example GPU", "gpu", n_gib * 2**30, backend="CUDA")
    bench = Bench(replace(CPU_ONLY, devices=(card,)), campaign.WITH_GPU, ScriptedEngine())
    with bench.limited(None):
        assert bool(asked) == limited
    assert not asked or asked[0][0] == "8GiB"


# --- the time limit ---------------------------------------------------------------------------


class SteadyEngine(ScriptedEngine):
    """An engine that takes a second a token."""

    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def generate(self, prompt, n_gen):
        self.clock.sleep(len(prompt) + n_gen)
        return super().generate(prompt, n_gen)


def test_a_pass_that_would_end_late_is_not_begun():
    """The last pass gives the estimate for the next one, in proportion to its tokens; a pass that fits is measured."""
    clock = TurnedClock()
    clocked = TimeLimitedEngine(SteadyEngine(clock), 100, clock.perf_counter)
    clocked.generate([1] * 9, 1)
    clocked.generate([1] * 39, 1)
    with pytest.raises(OutOfTime, match=r"about 80 s, and 50 s of the stage's 100 s were left"):
        clocked.generate([1] * 79, 1)
    clocked.generate([1] * 19, 1)
    clock.now = 101
    with pytest.raises(OutOfTime):
        clocked.open(tiny_model(), Settings())
    assert clocked.machine() == CPU_ONLY


# --- llama-bench ------------------------------------------------------------------------------


def a_program(folder, says):
    """A program that prints a row for its prompt, or one for its answer, or only an error."""
    path = folder / "llama-bench"
    path.write_text(f"#!{sys.executable}\nimport sys\n{says}")
    path.chmod(0o755)
    return path


@pytest.mark.skipif(sys.platform == "win32", reason="a script is no program there")
def test_llama_bench_runs_the_same_workload(tmp_path):
    """Its rows for a prompt and for the tokens after it become one run; its folder names do not stay."""
    program = a_program(tmp_path, f"rows = open({str(PRINTED)!r}).read().splitlines()\nprint(rows['-d' in sys.argv])")
    done = run_llama_bench(program, tiny_model(), gpu=False)
    assert [run.made_with for run in done.runs] == ["llama-bench"] * len(done.runs)
    ours = Bench(CPU_ONLY, SMALL, ScriptedEngine(), llama_bench=program)
    both = campaign._llama_bench(ours, "llama-3.2-1b")
    assert both.runs[-1].made_with is None


@pytest.mark.skipif(sys.platform == "win32", reason="a script is no program there")
def test_a_llama_bench_that_fails_says_so(tmp_path):
    """Its status and its last words are told, or that there is no such program."""
    with pytest.raises(RecordError, match=r"status 3. It said: no such device"):
        run_llama_bench(a_program(tmp_path, "print('no such device', file=sys.stderr)\nsys.exit(3)"), "x", False)
    with pytest.raises(RecordError, match="could not be run"):
        run_llama_bench(tmp_path / "none", "x", False)


# --- the command ------------------------------------------------------------------------------


def test_the_command_lists_its_stages(capsys):
    """--list names every stage and measures nothing."""
    assert cli.main(["reference", "--list"], ScriptedEngine()) == 0
    assert "llama-3.2-1b-kv-types" in capsys.readouterr().out


def test_the_command_saves_records_and_prints_outcomes(capsys, tmp_path):
    """A line a stage; a failed one makes the exit status 1."""
    command = ["reference", "--out", str(tmp_path), "--machine", "box-4c", "--stage", "llama-3.2-1b-prefill"]
    assert cli.main(command, ScriptedEngine()) == 0
    assert "llama-3.2-1b-prefill: kept" in capsys.readouterr().out
    assert cli.main([*command[:5], "--stage", "llama-3.2-1b-llama-bench"], ScriptedEngine()) == 1
    assert "failed" in capsys.readouterr().out


@pytest.mark.parametrize("seconds", ["0", "soon"])
def test_a_limit_is_a_number_of_seconds(seconds, capsys):
    """Anything else is refused with exit status 2."""
    with pytest.raises(SystemExit):
        cli.main(["reference", "--seconds", seconds])
    assert "no number of seconds" in capsys.readouterr().err
