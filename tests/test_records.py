"""Records on disk: every kind whole or not at all, back again unchanged, and old formats still read."""

import json
import os
import runpy
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from fakes import (
    BUFFERS,
    CARD,
    CPU_ONLY,
    WITH_GPU,
    BatchEngine,
    made_fidelity,
    made_graph_trace,
    made_link_rates,
    made_load,
    made_run,
)
from measurement_http import a_serving, a_stream, watched

import inferlab as lab
from inferlab.atlas.contribute import problems, schema
from inferlab.engine.llama_server import Launch
from inferlab.engine.protocol import Sampler
from inferlab.errors import RecordError
from inferlab.machine import CpuState, Link
from inferlab.measurement import batching, depth
from inferlab.measurement.base import Measurement
from inferlab.measurement.cold_start import ColdStart
from inferlab.measurement.fidelity import Estimate
from inferlab.measurement.paired import Paired
from inferlab.measurement.run import Run
from inferlab.measurement.same_answer import Compared, SameAnswers
from inferlab.measurement.surroundings import Surrounding
from inferlab.measurement.sweep import Sweep, from_runs
from inferlab.prediction.calibration import Calibration
from inferlab.prediction.rates import DeviceRates, MatrixRates
from inferlab.prediction.validation import Point
from inferlab.records import class_of, from_json, from_record, kind_of, kinds, load, save, to_json, to_record
from inferlab.records_v1 import upgrade
from inferlab.settings import Settings
from studies.agents.study import Asked, Replay, SlotFiles
from studies.attention.study import Timing, Timings
from studies.cache_and_batch import continuous_batching, prefix_cache
from studies.cache_and_batch.continuous_batching import Request
from studies.fit_params.study import BASE, BothAnswers, FitAnswers, Placement, Question
from studies.journey.study import Journey
from studies.kernels.study import Pairs
from studies.kernels.type_rates import TypeRate, TypeRates
from studies.operating_system import study as operating_system
from studies.other_engines.study import EngineComparison, EngineRow
from studies.quantization.study import Loss, MatrixLosses
from studies.same_answer.study import ServedAnswers
from studies.sampling_cost.study import BenchmarkPrograms, ChainTimes, JsonAnswers, JsonCase, Sampling
from studies.several_cards.study import Case, DeviceUse, SeveralCards, Use
from studies.speculation import speculative
from studies.speculation.speculative import PromptLookup
from studies.speculation.study import Acceptance, AcceptanceCase, DraftedAnswer, ServedCase, ServedSpeculation
from studies.speculation.trained import SeenCase, SeenDrafts, TrainedCase, TrainedDrafts
from studies.training.study import LedgerRow, TrainingLedger
from studies.windows_and_states.study import KeptPrompts, KeptTurn

WAITED = (
    operating_system.Case("idle", 100, (10.0, None), (5.0, None)),
    operating_system.Case("idle", None, (1.0, 2.0), (3.0, 4.0)),
)
LINK = Link("127.0.0.1:4000", 1.0, 0.001, 0.98, 2e-3)
OLD = json.loads((Path(__file__).parent / "data" / "records-v1.json").read_text(encoding="utf-8"))


def a_journey():
    run = made_run()
    facts = {"model": run.model, "settings": run.settings, "machine": CPU_ONLY, "case": "as is", "page_cache": "full"}
    return Journey(**facts, n_prompt=16, n_gen=4, loads=({"process_seconds": 0.1},), passes=run.passes[:1])


def kept_prompts():
    facts = {"model": CARD, "settings": Settings(n_ctx=512), "machine": CPU_ONLY, "options": ("-ctxcp", "0")}
    turn = KeptTurn("new", 100, 0, 0.5, 0.4, False, True, (1024, 2048), 1, 4096, None)
    return KeptPrompts(**facts, n_gen=4, turns=(turn,))


def served(kind):
    drafted = {"n_drafted": (3,), "n_accepted": (2,), "n_same": (4,), "n_repeated": (1,)}
    return {"kind": kind, "plain_seconds": (0.4,), "seconds": (0.2,), **drafted}


def trained_drafts():
    facts = {"model": CARD, "settings": Settings(n_ctx=512), "machine": CPU_ONLY, "n_gen": 4}
    case = TrainedCase(**served("ngram-simple"), text="code", n_prompt=(9,), n_plain=(4,), n_tokens=(4,))
    return TrainedDrafts(**facts, cases=(case,))


def seen_drafts():
    facts = {"model": CARD, "settings": Settings(n_ctx=512), "machine": CPU_ONLY, "n_gen": 4}
    return SeenDrafts(**facts, cases=(SeenCase("code", 4, 8, (3, 1), 1),))


def json_answers():
    facts = {"model": CARD, "settings": Settings(n_ctx=512), "machine": CPU_ONLY, "n_gen": 4}
    return JsonAnswers(**facts, cases=(JsonCase("asked", (4,), (1,), (20.0,), (19.0,)),))


def a_replay():
    asked = Asked(2, "main", 100, 10, 4, 40, 60, 3, 0.5, 0.4, 1, 4096, 80, 2048, 1.5, (512,), ("restored",))
    facts = {"model": CARD, "settings": Settings(n_ctx=512), "machine": CPU_ONLY, "options": ("-np", "1")}
    return Replay(
        **facts, setting="one", scale=10, metric_read=40, metric_kept=60, requests=(asked, Asked(3, "t", 9, 9, 4))
    )


def slot_files():
    facts = {"model": CARD, "settings": Settings(n_ctx=512), "machine": CPU_ONLY, "options": ("-np", "1")}
    return SlotFiles(
        **facts,
        n_tokens=9,
        n_bytes=99,
        n_first=8,
        first_seconds=0.5,
        save_ms=1.5,
        restore_ms=2.5,
        n_next=12,
        n_read=3,
        n_back=10,
        n_back_read=2,
    )


def several_cards():
    use = Use((DeviceUse(1, 2, 3, 4, 5.5, 6.25), DeviceUse(1, 0, 3)), BUFFERS, (7, 8), True)
    changes = {"split_mode": "layer", "tensor_split": (3.0, 1.0), "n_gpu_layers": 3}
    loaded = Case("experts", changes, ((1, 2, None), (1, 0, 3)), ((2, 4), (3, 3)), "bound", 4, use)
    cases = loaded, Case("experts", {"split_mode": "row"}, refused="no")
    return SeveralCards(machine=CPU_ONLY, date="2026-01-31", cases=cases)


def fit_answers():
    placed = Placement(BASE.but(n_ctx=512, override_tensor=(r"blk\.1\.ffn_down.*=CPU",)), 3, 2, 1)
    both = BothAnswers(Question("llama-3.1-8b", "Q4_K_M", 100), "-c 512 -ngl -1", placed, placed)
    return FitAnswers(machine=CPU_ONLY, date="2026-01-31", answers=(both,))


def a_start():
    facts = {"model": CARD, "settings": Settings(n_ctx=256), "machine": CPU_ONLY, "buffers": BUFFERS, "links": (LINK,)}
    cached = {"page_cache": "full", "cached_before": 1.0, "cached_after": None}
    return ColdStart(**facts, phases={"process": 0.1}, wall_seconds=0.31, **cached)


def a_calibration():
    rates = DeviceRates("host", 2, True, 1e10, {"F16": MatrixRates(1e-10, 2e-11)}, {})
    return Calibration(CPU_ONLY, "2026-01-31", {"host/2": rates}, context_bytes={"CUDA0": 5})


def a_ledger():
    rows = (LedgerRow("engine_decode", {"weights": 10}, (0.1, 0.2), 12), LedgerRow("training", {"saved": 3}, (1.0,)))
    facts = {"model": CARD, "settings": Settings(n_ctx=256), "machine": CPU_ONLY, "buffers": BUFFERS, "torch": "2.0"}
    return TrainingLedger(**facts, n_tokens=8, logits_difference=1e-5, largest_logit=20.0, same_picks=7, rows=rows)


def an_engine_comparison():
    row = EngineRow("MLX", "float16", "MLX 1.0", 10, (0.2, 0.3), (0.01, 0.02), (0.2, 0.3), (4, 2))
    facts = {"model": CARD, "settings": Settings(n_ctx=256), "machine": CPU_ONLY, "buffers": BUFFERS}
    return EngineComparison(**facts, n_prompt=8, n_gen=4, rows=(row,), missing=(("OpenVINO", "F16", "not there"),))


def shared():
    """The fields that every measurement has."""
    return {"model": CARD, "settings": Settings(n_ctx=256), "machine": CPU_ONLY, "buffers": BUFFERS}


def compared_answers():
    return {"n_prompt": 8, "n_gen": 4, "compared": (Compared("nothing", (0.0, 1e-9), (4, 2)),)}


def a_sampling():
    chain = ChainTimes("cut", (Sampler("top_k", (40.0,)), Sampler("greedy")), 2.0, (1e-5, 2e-5))
    facts = {"model": CARD, "settings": Settings(n_ctx=256), "machine": CPU_ONLY, "buffers": BUFFERS}
    return Sampling(**facts, n_vocab=1000, n_prompt=8, chains=(chain,), decode_seconds=(0.1, 0.2))


def tuned():
    over = {"n_ubatch": (64,), "tensor_split": ((3.0, 1.0),)}
    return lab.tune("tiny", budget_seconds=1, over=over, n_prompt=8, n_gen=4, engine=BatchEngine(), progress=False)


def an_acceptance():
    answer = DraftedAnswer((1, 1), (1,), (1,), 4, 0, 0.3, 0.1, 0.2, (0.1, 0.1))
    cases = (AcceptanceCase("prose", "lookup", (answer,)),)
    return Acceptance(**shared(), n_draft=1, n_prompt=8, n_gen=4, cases=cases)


def a_served_speculation():
    case = ServedCase(**served("ngram-mod"), task="prose")
    return ServedSpeculation(**shared(), n_prompt=8, n_gen=4, cases=(case,))


EXAMPLES = {
    "JSON answers": json_answers,
    "seen drafts": seen_drafts,
    "trained drafts": trained_drafts,
    "acceptance": an_acceptance,
    "agent replay": a_replay,
    "attention timings": lambda: Timings(CPU_ONLY, "2026-01-31", "2.0", 8, 64, (Timing("flash", 64, (0.1,), None),)),
    "batched decode": lambda: batching.batched_decode(
        "tiny", sizes=(1, 2), n_gen=2, engine=BatchEngine(), progress=False
    ),
    "benchmark programs": lambda: BenchmarkPrograms(**shared(), n_prompt=8, n_gen=4, rates={"one: decode": (1.0, 2.0)}),
    "calibration": a_calibration,
    "cold start": a_start,
    "depth scaling": lambda: depth.decode_at_depths("tiny", cells=(256, 512), n_gen=2, engine=BatchEngine()),
    "engine comparison": an_engine_comparison,
    "fidelity": lambda: made_fidelity((1.0, 2.0), (0.1, 0.2), (True, False)),
    "fits": fit_answers,
    "graph trace": made_graph_trace,
    "journey": a_journey,
    "kept prompts": kept_prompts,
    "link rates": made_link_rates,
    "load memory": made_load,
    "http serving": lambda: a_serving([a_stream(), a_stream(slot=1)], [Launch(10.2, 0)]),
    "matrix losses": lambda: MatrixLosses(
        model=made_run().model,
        machine=CPU_ONLY,
        date="2026-11-26",
        n_tokens=255,
        losses=(
            Loss("Q2_K", "", 5000, Estimate(0.1, 0.01), Estimate(0.05, 0.01), Estimate(0.7, 0.02)),
            Loss("Q2_K", "training", 5000, *[Estimate(0.08, 0.01)] * 3, Estimate(-0.02, 0.003)),
        ),
    ),
    "pairs": lambda: Paired(
        (made_run(),),
        (made_run(),),
        (Surrounding(), Surrounding(cores=(0, 1), bound=True, neighbor_nice=10, neighbor_cores=(1,), build="-DA=off")),
        "pin-busy",
        CpuState(False, 1, ("performance",)),
    ),
    "prefix reuse": lambda: prefix_cache.reuse_prefix("tiny", n_shared=(8,), n_own=4, engine=BatchEngine()),
    "repacking": lambda: Pairs("Q4_0", (made_run(),), (made_run(settings=Settings(use_extra_bufts=False)),)),
    "run": lambda: made_run(links=(LINK, replace(LINK, latency_seconds=None))),
    "sampling": a_sampling,
    "same answers": lambda: SameAnswers(**shared(), **compared_answers()),
    "several cards": several_cards,
    "slot files": slot_files,
    "served answers": lambda: ServedAnswers(**shared(), **compared_answers()),
    "served speculation": a_served_speculation,
    "schedule": lambda: continuous_batching.schedule(
        [Request(4, 2), Request(3, 5)], "tiny", n_slots=2, engine=BatchEngine()
    ),
    "speculation": lambda: speculative.speculate("one two", PromptLookup(), "tiny", n_gen=4, engine=BatchEngine()),
    "speed point": lambda: Point("qwen2.5-0.5b", "Q8_0", {"n_layer": 4}, Settings(), 8, 4, LINK, (0.5,), (0.1, 0.2)),
    "sweep": lambda: from_runs([made_run(), made_run(settings=Settings(n_ctx=256, tensor_split=(1.0, 2.0)))]),
    "training ledger": a_ledger,
    "tuning": tuned,
    "type rates": lambda: TypeRates(
        model=made_run().model,
        machine=CPU_ONLY,
        date="2026-11-26",
        n_prompt=8,
        n_gen=4,
        rates=(TypeRate("Q8_0", 5000, (0.1, 0.2), (0.3, 0.4), {"tiled": 0.7, "plain": 0.3}, {"plain": 1.0}),),
    ),
    "verification cost": lambda: speculative.time_verification("tiny", sizes=(1, 2), repeats=2, engine=BatchEngine()),
    "waiting threads": lambda: operating_system.Waiting(
        **shared(), n_prompt=8, n_gen=4, limit_seconds=6.0, cases=WAITED
    ),
    "watched serving": watched,
}


# --- every kind -------------------------------------------------------------------------------


def test_every_kind_has_an_example_here():
    """A new kind of record is not added without a test."""
    assert set(EXAMPLES) == set(kinds())


@pytest.mark.parametrize("kind", kinds())
def test_a_record_comes_back_as_it_was(kind, tmp_path):
    """Everything that a figure reads survives the file, and its JSON fits the schema of contributions."""
    made = EXAMPLES[kind]()
    path = save(made, tmp_path / "one.json")
    assert load(path) == load(path, class_of(kind)) == made
    data = json.loads(path.read_text(encoding="utf-8"))
    assert (kind_of(data), data["record"], data["schema"]) == (kind, kind, 2)
    assert problems(data) == []


@pytest.mark.parametrize("kind", kinds())
def test_several_of_a_kind_go_into_one_file(kind, tmp_path):
    """They come back as a tuple, in their order."""
    several = (EXAMPLES[kind](),) * 2
    path = save(several, tmp_path / "two.json")
    assert load(path) == several
    assert problems(json.loads(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "run",
    [
        made_run(machine=WITH_GPU, settings=Settings(n_ctx=512, tensor_split=(3.0, 1.0), devices=("CUDA0",))),
        made_run(links=(LINK, Link("127.0.0.1:4001", None, 0.1, 1.5, 0.2))),
        made_run(warmups=(), buffers=(), load={}, settled=False, prompt="why?", text="because 东京\n"),
        made_run(settled=None, made_with="llama-bench"),
    ],
)
def test_a_run_comes_back_as_it_was(tmp_path, run):
    """Empty parts, devices by name and any text too; None where the default is another value stays None."""
    assert load(save(run, tmp_path / "run.json"), Run) == run


def test_a_record_is_readable_text(tmp_path):
    """A record is JSON in UTF-8 under the names of the objects, and says its kind and schema first."""
    text = save(made_run(), tmp_path / "run.json").read_text(encoding="utf-8")
    data = json.loads(text)
    assert text.startswith('{\n"record": "run",\n"schema": 2,\n"model": ')
    assert data["passes"][0]["token_seconds"] == list(made_run().passes[0].token_seconds)
    assert data["machine"]["cpu"] == "Example CPU"
    assert "prompt" not in data  # None, as without it


def test_measurements_are_all_of_one_kind():
    """A measurement of a model derives from `Measurement`, whose badge and fields it shares."""
    apart = {
        "attention timings",
        "calibration",
        "fits",
        "link rates",
        "matrix losses",
        "pairs",
        "repacking",
        "several cards",
        "speed point",
        "sweep",
        "type rates",
    }
    assert {kind for kind in kinds() if not issubclass(class_of(kind), Measurement)} == apart


@pytest.mark.parametrize("thing", [Settings(), {}, (), [], "run", (made_run(), made_fidelity((1.0,), (0.0,), (True,)))])
def test_what_is_no_record_is_not_written(tmp_path, thing):
    """Other objects, nothing at all, and things of different kinds are refused with the kinds that there are."""
    with pytest.raises(RecordError, match=r"cannot be kept as a record\. Give one of: .*attention timings"):
        save(thing, tmp_path / "one.json")
    assert list(tmp_path.iterdir()) == []


def test_records_need_no_package():
    """`import inferlab.records` works where only Python's standard library is installed."""
    source = str(Path(lab.__file__).parents[1])
    code = f"import sys; sys.path.insert(0, {source!r}); import inferlab.records; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.split() if name.startswith("inferlab")}
    assert loaded == {"inferlab", "inferlab.errors", "inferlab.records", "inferlab.records_v1"}


# --- from before schema 2 ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", OLD)
def test_an_old_record_is_still_read(kind, tmp_path):
    """Each format of before gives its class, with every number it had, and may be contributed."""
    path = tmp_path / "old.json"
    path.write_text(json.dumps(OLD[kind]), encoding="utf-8")
    found = load(path, class_of(kind))
    assert problems(OLD[kind]) == []
    assert from_record(to_record(found)) == found
    if kind != "calibration":  # whose rates are converted, see test_rates_of_types_become_rates_of_matrices
        assert numbers(to_record(found)) == numbers({**OLD[kind], "schema": 2})


def test_rates_of_types_become_rates_of_matrices():
    """A value that enters or leaves costs the same; a head's cell costs 2 * 64 values, or as many as the key says."""
    weights = {"seconds_per_byte": 1.0, "seconds_per_weight_token": 2.0, "seconds_per_value_token": 3.0}
    known = {
        "types": {"F16": weights},
        "attention": {
            way: {"seconds_per_value": 4.0, "seconds_per_batch_value": 5.0} for way in ("f16/flash", "f16/flash/128")
        },
        "name": "host",
    }
    new = upgrade({"record": "calibration", "schema": 2, "devices": {"host/1": known}})["devices"]["host/1"]
    assert new["matrices"]["F16"] == {
        "seconds_per_byte": 1.0,
        "seconds_per_weight_token": 2.0,
        "seconds_per_input": 3.0,
        "seconds_per_output": 3.0,
    }
    assert {key: one["seconds_per_head_cell"] for key, one in new["attention"].items()} == {
        "f16/flash/64": 512.0,
        "f16/flash/128": 1024.0,
    }
    assert new["name"] == "host"


NOT_THEN = ("format", "schema", "n_cpu_moe")


def numbers(data):
    """Every number in some JSON but those that count formats, and of younger settings, in order of their size."""
    told = data.items() if isinstance(data, dict) else enumerate(data if isinstance(data, list) else ())
    found = [data] if isinstance(data, int | float) and not isinstance(data, bool) else []
    return sorted(found + [n for name, value in told if name not in NOT_THEN for n in numbers(value)])


def test_the_tool_writes_old_records_anew(tmp_path):
    """A folder of old files is of schema 2 afterwards, every number kept; a second time changes nothing."""
    for kind, data in OLD.items():
        (tmp_path / f"{kind}.json").write_text(json.dumps(data), encoding="utf-8")
    tool = runpy.run_path(str(Path(__file__).parents[1] / "tools" / "upgrade_records.py"))["main"]
    tool([tmp_path])
    texts = {path.stem: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    kept = {kind: numbers(data) for kind, data in OLD.items() if kind != "calibration"}
    assert {kind: numbers(json.loads(text)) for kind, text in texts.items() if kind in kept} == kept
    tool([tmp_path / f"{kind}.json" for kind in OLD])
    assert {path.stem: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()} == texts


def test_only_old_records_are_upgraded():
    """What is of schema 2, or no record, comes back as it is."""
    for data in (to_record(made_run()), {}, [], None, 3, {"format": 3}, {"format": [1]}, {"format": 1}):
        assert upgrade(data) == data
    assert upgrade(OLD["run"])["record"] == "run"
    assert "format" in OLD["run"]


def test_a_record_from_before_links_were_recorded_has_none():
    """A field that was not known then has its default."""
    old = {name: value for name, value in OLD["run"].items() if name not in ("links", "samples", "sampling")}
    assert from_record(old).links == from_record(old).samples == ()


# --- files ------------------------------------------------------------------------------------


def test_missing_folders_are_made(tmp_path):
    """A record goes where it was sent."""
    assert save(made_run(), tmp_path / "a" / "b" / "run.json").is_file()


def test_an_interrupted_writing_leaves_the_old_record(tmp_path, monkeypatch):
    """The file is replaced at once or not at all, and nothing unfinished stays behind."""
    path = save(made_run(), tmp_path / "run.json")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(RecordError, match=r"No space left on device.*Nothing was overwritten"):
        save(made_run(text="new"), path)
    assert load(path) == made_run()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_told(tmp_path):
    """The first write that does not fit is a RecordError."""
    (tmp_path / "run.json.part").symlink_to("/dev/full")
    with pytest.raises(RecordError, match="No space left"):
        save(made_run(), tmp_path / "run.json")


def test_a_file_where_a_folder_should_be_is_told(tmp_path):
    """A path that cannot be is a RecordError, not an OSError."""
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match="could not be written"):
        save(made_run(), tmp_path / "file" / "run.json")


def test_an_unknown_name_is_neither_file_nor_record():
    """The message says where was looked."""
    with pytest.raises(RecordError, match="no record 'nobody/nothing': neither a file nor a name"):
        load("nobody/nothing")


def test_a_recorded_file_is_found_by_its_name():
    """Without a path it is looked for under data/records."""
    assert load("xeon-2c/split-layers", Sweep).runs


def test_a_record_of_another_kind_is_refused(tmp_path):
    """An error names both kinds: the expected sweep and the given run."""
    path = save(made_run(), tmp_path / "run.json")
    with pytest.raises(RecordError, match=r"run\.json is a record of the kind 'run', not 'sweep'"):
        load(path, Sweep)


# --- damaged files ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "Expecting value"),
        ("{", "Expecting"),
        ("[]", "no kind"),
        ("3", "no kind"),
        ("null", "no kind"),
        ('{"format": 2, "x": 1}', "unknown field 'x' of Calibration"),
        ("[" * 100_000, "recursion"),
        ("\x00", "Expecting"),
        ('[["format", 1]]', "no kind"),
        ('{"format": 1, "a": 2}', "no kind"),
        ('{"record": "walk"}', "must be one of"),
        ('{"record": ["run"]}', "no kind"),
        ('{"record": "run"}', '"schema" is None, not 2'),
        ('{"record": "run", "schema": 3}', "with the inferlab that wrote it"),
        ('{"record": "run", "schema": 2}', "missing field 'model' of Run"),
        ('{"record": "run", "schema": 2, "sequence": []}', "at least one"),
        ('{"record": "run", "schema": 2, "sequence": 5}', "sequence: expected list, found 5"),
        ('{"record": "run", "schema": 2, "sequence": [{}]}', "sequence/0: missing field 'model' of Run"),
    ],
)
def test_a_damaged_file_is_no_record(tmp_path, text, found):
    """Whatever is wrong with the file, the answer is RecordError, and says what."""
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(RecordError, match=f"is not a record of this version: .*{found}"):
        load(tmp_path / "run.json")


def test_a_folder_is_no_record(tmp_path):
    """Neither is a folder."""
    with pytest.raises(RecordError):
        load(tmp_path)


@pytest.mark.parametrize("key", list(to_record(made_run())))
def test_a_record_with_a_part_missing_or_of_another_kind_breaks_nothing(tmp_path, key):
    """Whatever one field was replaced by, the run loads or the answer is RecordError."""
    whole = to_record(made_run())
    path, fields = tmp_path / "run.json", {name: value for name, value in whole.items() if name != key}
    for damaged in (fields, *({**whole, key: wrong} for wrong in (None, 3, 0.5, "x", [3], {"x": 3}, [[]], True))):
        path.write_text(json.dumps(damaged))
        with suppress(RecordError):
            load(path)


# --- type hints -------------------------------------------------------------------------------


class Pair(NamedTuple):
    left: int
    right: float | None = None


@dataclass(frozen=True)
class Box:
    """One field of every sort that a record may have."""

    pair: Pair
    by_number: dict[int, tuple[float, ...]]
    two: tuple[int, str]
    either: int | str | None = None
    open: Any = None
    unset: int | None = 7


BOX = Box(Pair(1, 0.5), {-3: (0.1, 1.5), 256: ()}, (4, "x"), "text", {"a": (1, (None, True))}, None)


def test_every_sort_of_field_survives_json():
    """Tuples, NamedTuples, whole numbers as names, unions, open fields; None is kept where it is not the default."""
    data = json.loads(json.dumps(to_json(BOX)))
    assert data["pair"] == {"left": 1, "right": 0.5}
    assert data["by_number"] == {"-3": [0.1, 1.5], "256": []}
    assert data["unset"] is None
    assert from_json(Box, data) == BOX
    assert type(from_json(Box, data).pair) is Pair
    assert "either" not in to_json(replace(BOX, either=None))


def test_a_new_kind_is_a_dataclass_and_a_line(tmp_path, monkeypatch):
    """With its line in the table any dataclass is saved, loaded and checked."""
    monkeypatch.setitem(kinds(), "box", f"{__name__}:Box")
    box = replace(BOX, open=(1, "text"))
    path = save(box, tmp_path / "box.json")
    assert load(path) == box
    assert problems(json.loads(path.read_text(encoding="utf-8"))) == []
    assert problems(to_record(replace(box, pair=Pair("x")))) == ["pair/left: 'x' is not of type 'integer'"]


def test_numbers_of_other_libraries_become_pythons():
    """A sweep over NumPy's numbers or over paths can be kept; anything else is refused by its name."""
    assert to_json({"a": np.int64(3), "b": np.float32(0.5), "c": Path("a.gguf")}) == {"a": 3, "b": 0.5, "c": "a.gguf"}
    with pytest.raises(RecordError, match="complex cannot be kept"):
        to_json(Box(Pair(1), {}, (1, "x"), open=1j))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"pair": {"left": 1, "up": 2}}, "pair: unknown field 'up' of Pair"),
        ({"pair": {}}, "pair: missing field 'left' of Pair"),
        ({"pair": {"left": 1.5}}, "pair/left: expected int, found 1.5"),
        ({"pair": {"left": True}}, "pair/left: expected int, found True"),
        ({"pair": [1, 0.5]}, "pair: expected dict"),
        ({"by_number": {"a": []}}, "by_number/a: expected a number as the name"),
        ({"by_number": {"0.5": []}}, "by_number/0.5: expected int, found 0.5"),
        ({"by_number": {"3": [0.1, "x"]}}, "by_number/3/1: expected float, found 'x'"),
        ({"two": [1]}, "two: expected 2 values, found 1"),
        ({"two": [1, 2]}, "two/1: expected str, found 2"),
        ({"either": []}, "either: expected str"),
        ({"three": 3}, "the top: unknown field 'three' of Box"),
    ],
)
def test_a_wrong_field_is_refused_with_its_place(change, found):
    """Whoever has to correct a record learns where."""
    with pytest.raises(RecordError, match=found):
        from_json(Box, {**to_json(BOX), **change})


def test_what_a_class_refuses_is_refused_with_its_place():
    """A value that llama.cpp does not know is found when the record is read."""
    data = to_record(made_run())
    data["settings"]["flash_attn"] = "perhaps"
    with pytest.raises(RecordError, match="settings: flash_attn='perhaps' is not one of"):
        from_record(data)


def test_the_schema_knows_every_kind():
    """One object or a sequence of each."""
    found = [one["properties"]["record"]["const"] for one in schema()["anyOf"]]
    assert sorted(found) == sorted([*kinds(), *kinds()])
