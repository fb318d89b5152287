"""What is called recorded: raw samples in the file, from which the numbers that are shown come out again."""

import json
from statistics import median

import pytest
from bench_rows import on_card

from inferlab.atlas.entries import model_of
from inferlab.machine import Machine
from inferlab.measurement.base import Measurement
from inferlab.model.repacking import processor_kind
from inferlab.prediction.compare import measured_bytes
from inferlab.prediction.memory.host_weights import host_weights
from inferlab.prediction.memory.placement import placed_layers
from inferlab.prediction.memory.request import planned_devices
from inferlab.records import SEQUENCE, class_of, from_record, kinds, shipped
from inferlab.results.contribution import contribution
from inferlab.units import MIB

FILES = {path: json.loads(path.read_text(encoding="utf-8")) for path in shipped().values()}
KINDS_HERE = sorted({data["record"] for data in FILES.values()})
NO_MODEL = {kind for kind in kinds() if not issubclass(class_of(kind), Measurement)}
"""Kinds that are no `Measurement` of one model with one list of settings."""


def files_of(kind):
    """Name and JSON of every file of a kind."""
    return {"/".join(path.parts[-2:]): data for path, data in FILES.items() if data["record"] == kind}


def runs_in(data):
    """The plain JSON of every run in a file: one or several runs, two sides, or the points and anchors of a sweep."""
    if data["record"] == "run":
        return data.get(SEQUENCE, [data])
    if data["record"] == "pairs":
        return [*data["before"], *data["after"]]
    return [point["run"] for point in data.get("points", ()) if "run" in point] + data.get("anchors", [])


def objects_in(data):
    """What a file holds, one by one."""
    found = from_record(data)
    return found if isinstance(found, tuple) else (found,)


def shown_runs(data):
    """The same runs as the library reads them."""
    found = from_record(data)
    if data["record"] == "pairs":
        return [*found.before, *found.after]
    return list(objects_in(data)) if data["record"] == "run" else [*found.runs, *found.anchors]


def says_who(found):
    """Whether machine, date, build and the kind of the weights are told; of llama-bench's builds the commit."""
    assert found.machine.cpu
    assert found.machine.llama_cpp_commit if of_llama_bench(found) else found.machine.llama_cpp
    assert len(found.date) == 10
    assert found.model.synthetic == ("shape" in found.model.name)
    return True


def of_llama_bench(found):
    """Whether llama-bench timed it: all tokens of a repetition together, prompts alone or tokens alone, no buffers."""
    return getattr(found, "made_with", None) == "llama-bench"


def has_its_rates(run, raw):
    """Whether prefill and decode rates, computed from the raw seconds of a run, are those that a figure shows."""
    prefills = [one["prefill_seconds"] for one in raw["passes"]]
    timed = [one["decode_seconds"] for one in raw["passes"]]
    decodes = [(len(seconds), sum(seconds)) for seconds in timed if seconds]
    if of_llama_bench(run):
        prefills = [seconds for seconds in prefills if seconds]
        decodes = [one["decoded"] for one in raw["passes"] if one["decoded"]]
    assert prefills or (of_llama_bench(run) and decodes)
    prefill = median(raw["n_prompt"] / seconds for seconds in prefills) if prefills else None
    assert run.prefill_tokens_per_second == (pytest.approx(prefill) if prefills else None)
    rates = [n / seconds for n, seconds in decodes]
    assert run.decode_tokens_per_second == (pytest.approx(median(rates)) if rates else None)
    return True


@pytest.mark.parametrize("kind", KINDS_HERE)
def test_every_file_of_a_kind_is_read_as_its_class(kind):
    """No field is unknown, missing or of another type, and a file of several has at least one."""
    read = [one for data in files_of(kind).values() for one in objects_in(data)]
    assert read
    assert {type(one) for one in read} == {class_of(kind)}


@pytest.mark.parametrize("kind", ["pairs", "run", "sweep"])
def test_the_median_comes_out_of_the_samples(kind):
    """Prefill and decode rates, computed from the raw seconds, are those that a figure shows, for every run."""
    for name, data in files_of(kind).items():
        shown = shown_runs(data)
        assert len(shown) == len(runs_in(data)) > 0, name
        assert all(has_its_rates(run, raw) for run, raw in zip(shown, runs_in(data), strict=True)), name


@pytest.mark.parametrize("kind", ["pairs", "run", "sweep"])
def test_a_run_says_where_when_and_with_what(kind):
    """Machine, date, build and the kind of the weights are in the record of every run."""
    for data in files_of(kind).values():
        for run in shown_runs(data):
            assert says_who(run)
            assert run.passes


@pytest.mark.parametrize("kind", sorted(set(KINDS_HERE) - set(NO_MODEL)))
def test_a_measurement_says_where_when_and_with_what(kind):
    """So do all other kinds that measure a model."""
    assert issubclass(class_of(kind), Measurement)
    assert all(says_who(one) for data in files_of(kind).values() for one in objects_in(data))


def test_what_llama_bench_timed_is_taken():
    """A record that the page Your numbers saves passes the same tests: prompts, decodes after them, decodes alone."""
    record, left_out = contribution(("a.json", row) for row in [*on_card(), {**on_card()[1], "n_gen": 7}])
    assert left_out == ()
    runs, raws = shown_runs(record), runs_in(record)
    assert len(runs) == len(raws) == 2
    assert all(has_its_rates(run, raw) and says_who(run) for run, raw in zip(runs, raws, strict=True))


@pytest.mark.parametrize(("part", "value"), [("decoded", [127, 1.0]), ("prefill_seconds", 1.0)])
def test_a_rate_that_is_not_of_the_samples_is_noticed(part, value):
    """The check of llama-bench's runs can fail: on raw seconds other than those behind the rate."""
    record, _ = contribution(("a.json", row) for row in on_card())
    (run,), raw = shown_runs(record), json.loads(json.dumps(runs_in(record)[0]))
    for one in raw["passes"]:
        one[part] = value
    with pytest.raises(AssertionError):
        has_its_rates(run, raw)


def test_what_measures_no_model_names_its_machine():
    """A calibration, timings of attention and rates of links say which machine, and when."""
    for kind in ("calibration", "attention timings", "fits", "link rates"):
        for data in files_of(kind).values():
            assert isinstance(from_record(data).machine, Machine)
            assert len(from_record(data).date) == 10
    assert set(KINDS_HERE) <= set(kinds())


def test_host_weights_of_every_run_are_as_planned():
    """The mapped part of the file and the repacked copies, at the 0.01 MiB that the log prints for each."""
    differ = []
    for name, data in {**files_of("run"), **files_of("sweep")}.items():
        for run in objects_in(data) if data["record"] == "run" else from_record(data).runs:
            if of_llama_bench(run):
                continue  # it prints no buffers
            model = model_of(run.model)
            gpus = planned_devices(run.settings, run.machine)
            if model is None or len(gpus) > 1:
                continue  # its header is not here, or the shares of its devices are not
            layers = placed_layers(model.n_layer, run.settings, [1.0] * len(gpus))
            held = host_weights(model, layers, run.settings, gpus, processor_kind(run.machine.instruction_sets), {})
            logged = measured_bytes(run.buffers, run.settings.rpc_servers)["host", "weights"]
            copied = sum(b.n_bytes for b in run.buffers if b.kind == "weights" and b.device in ("CPU_REPACK", "AMX"))
            best = min(held.values(), key=lambda one, copied=copied: abs(one.repacked_bytes - copied))
            off = max(abs(best.n_bytes - logged), abs(best.repacked_bytes - copied))
            differ += [(name, off / MIB)] if off > 2 * 0.0051 * MIB else []
    assert not differ
