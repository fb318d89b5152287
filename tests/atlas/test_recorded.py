"""What is called recorded: raw samples in the file, from which the numbers that are shown come out again."""

import json
from statistics import median

import pytest

from inferlab.atlas.entries import model_of
from inferlab.machine import Machine
from inferlab.measurement.base import Measurement
from inferlab.model.repacking import processor_kind
from inferlab.prediction.compare import measured_bytes
from inferlab.prediction.memory.host_weights import host_weights
from inferlab.prediction.memory.placement import placed_layers
from inferlab.prediction.memory.planner import planned_devices
from inferlab.records import KINDS, RECORDED, class_of, from_record
from inferlab.units import MIB

FILES = {path: json.loads(path.read_text(encoding="utf-8")) for path in sorted(RECORDED.rglob("*.json"))}
KINDS_HERE = sorted({data["record"] for data in FILES.values()})
NO_MODEL = ("attention timings", "calibration", "repacking", "speed point", "sweep")


def files_of(kind):
    """Name and JSON of every file of a kind."""
    return {"/".join(path.parts[-2:]): data for path, data in FILES.items() if data["record"] == kind}


def runs_in(data):
    """The plain JSON of every run in a file: a run, or the points and anchors of a sweep."""
    if data["record"] == "run":
        return [data]
    return [point["run"] for point in data.get("points", ()) if "run" in point] + data.get("anchors", [])


def objects_in(data):
    """What a file holds, one by one."""
    found = from_record(data)
    return found if isinstance(found, tuple) else (found,)


def says_who(found):
    """Whether machine, date, build and the kind of the weights are told."""
    assert found.machine.cpu
    assert found.machine.llama_cpp
    assert len(found.date) == 10
    assert found.model.synthetic == ("shape" in found.model.name)
    return True


@pytest.mark.parametrize("kind", KINDS_HERE)
def test_every_file_of_a_kind_is_read_as_its_class(kind):
    """No field is unknown, missing or of another type, and a file of several has at least one."""
    read = [one for data in files_of(kind).values() for one in objects_in(data)]
    assert read
    assert {type(one) for one in read} == {class_of(kind)}


@pytest.mark.parametrize("kind", ["run", "sweep"])
def test_the_median_comes_out_of_the_samples(kind):
    """Prefill and decode rates, computed from the raw seconds, are those that a figure shows, for every run."""
    for name, data in files_of(kind).items():
        found = from_record(data)
        shown = [found] if kind == "run" else [*found.runs, *found.anchors]
        assert len(shown) == len(runs_in(data)) > 0, name
        for run, raw in zip(shown, runs_in(data), strict=True):
            prefill = median(raw["n_prompt"] / one["prefill_seconds"] for one in raw["passes"])
            assert run.prefill_tokens_per_second == pytest.approx(prefill), name
            timed = [one["decode_seconds"] for one in raw["passes"] if one["decode_seconds"]]
            rates = [len(seconds) / sum(seconds) for seconds in timed]
            assert run.decode_tokens_per_second == (pytest.approx(median(rates)) if rates else None), name


@pytest.mark.parametrize("kind", ["run", "sweep"])
def test_a_run_says_where_when_and_with_what(kind):
    """Machine, date, build and the kind of the weights are in the record of every run."""
    for data in files_of(kind).values():
        found = from_record(data)
        for run in [found] if kind == "run" else [*found.runs, *found.anchors]:
            assert says_who(run)
            assert run.passes


@pytest.mark.parametrize("kind", sorted(set(KINDS_HERE) - set(NO_MODEL)))
def test_a_measurement_says_where_when_and_with_what(kind):
    """So do all other kinds that measure a model."""
    assert issubclass(class_of(kind), Measurement)
    assert all(says_who(one) for data in files_of(kind).values() for one in objects_in(data))


def test_what_measures_no_model_names_its_machine():
    """A calibration and timings of attention say which machine, and when."""
    for kind in ("calibration", "attention timings"):
        for data in files_of(kind).values():
            assert isinstance(from_record(data).machine, Machine)
            assert len(from_record(data).date) == 10
    assert set(KINDS_HERE) <= set(KINDS)


def test_host_weights_of_every_run_are_as_planned():
    """The mapped part of the file and the repacked copies, at the 0.01 MiB that the log prints for each."""
    differ = []
    for name, data in {**files_of("run"), **files_of("sweep")}.items():
        for run in [from_record(data)] if data["record"] == "run" else from_record(data).runs:
            model = model_of(run.model)
            gpus = planned_devices(run.settings, run.machine)
            if model is None or len(gpus) > 1:
                continue  # its header is not here, or the shares of its devices are not
            layers = placed_layers(model.n_layer, run.settings, [1.0] * len(gpus))
            held = host_weights(model, layers, run.settings, gpus, processor_kind(run.machine.instruction_sets))
            logged = measured_bytes(run.buffers, run.settings.rpc_servers)["host", "weights"]
            copied = sum(b.n_bytes for b in run.buffers if b.kind == "weights" and b.device in ("CPU_REPACK", "AMX"))
            best = min(held.values(), key=lambda one, copied=copied: abs(one.repacked_bytes - copied))
            off = max(abs(best.n_bytes - logged), abs(best.repacked_bytes - copied))
            differ += [(name, off / MIB)] if off > 2 * 0.0051 * MIB else []
    assert not differ
