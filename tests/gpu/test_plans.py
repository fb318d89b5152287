"""Plans of memory against real loads on the device: every small model of llama.cpp's own, at ten settings.

`--record FILE` writes what was counted, as `studies/amd_and_intel/records/plans.csv` has it.
"""

import csv
from dataclasses import dataclass
from importlib.metadata import version

import pytest
from architecture_files import unpack
from small_models import write_model

from inferlab.engine.client import LlamaEngine
from inferlab.errors import EngineError, InvalidSettings
from inferlab.model.gguf import read_gguf
from inferlab.prediction.compare import measured_bytes
from inferlab.prediction.memory.placement import has_experts
from inferlab.prediction.predict import predict_memory
from inferlab.settings import Settings
from inferlab.units import MIB

PRINTED = 0.0051 * MIB
"""llama.cpp prints a buffer to 0.01 MiB; a number of a plan is the sum of up to three lines."""
ASKED = {
    "all layers": {},
    "two layers": {"n_gpu_layers": 2},
    "one layer": {"n_gpu_layers": 1},
    "no layer": {"n_gpu_layers": 0},
    "cache in RAM": {"offload_kqv": False},
    "cache in q8_0": {"type_k": "q8_0", "type_v": "q8_0"},
    "no flash attention": {"flash_attn": "off"},
    "two sequences": {"n_ctx": 2048, "n_seq_max": 2},
    "experts in RAM": {"n_cpu_moe": 1},
    "a file that is mapped": {"load_mode": "mmap"},
}
REFUSED = {"grok-moe", "kimi-linear-moe", "laguna-moe"}
"""What llama.cpp itself refuses, or ends at: values that need flash attention, a graph that it cannot build."""
UNLIKE = {("grok-moe", "cache in RAM"), ("minimax-01-moe", "two sequences")}
"""Loads whose compute buffers differ from llama.cpp's own simulation; nobody followed why."""
WIDTHS = {
    "an output matrix by its product": ("llama", {"n_vocab": 70000}),
    "a tied output matrix": ("gemma3", {"n_vocab": 262144}),
    "a tied output matrix that is repacked": ("gemma3", {"n_vocab": 262144, "type": "Q4_0"}),
    "experts": ("llama-moe", {"n_ff": 32768, "n_ff_exp": 32768, "n_expert": 16}),
}
"""What a device may refuse."""


@dataclass(frozen=True)
class Number:
    """One number of a plan and of a load; `ends` are least and most, equal where the plan is exact."""

    model: str
    asked: str
    way: str
    device: str
    kind: str
    ends: tuple[int, int]
    logged: int

    @property
    def agrees(self) -> bool:
        room = 3 * PRINTED
        return self.ends[0] - room <= self.logged <= self.ends[1] + room

    @property
    def ratio(self) -> float:
        """The load's bytes over the nearest that the plan allows."""
        return self.logged / min(max(self.logged, self.ends[0]), self.ends[1])


def settings_of(model):
    """The settings by name that a model can take."""
    skipped = () if has_experts(model) else ("experts in RAM",)
    common = {"n_ctx": 1024, "load_mode": "none"}
    return {name: Settings(**{**common, **more}) for name, more in ASKED.items() if name not in skipped}


def numbers(engine, machine, name, model, asked, settings):
    """Every number of the plans of one load, with the log's: with llama.cpp's simulation, and by formulas for CUDA."""
    plans = {
        "simulated": predict_memory(model, settings, machine),
        "by formulas, as CUDA's": predict_memory(model, settings, machine, simulate=False, as_cuda=True),
    }
    told = measured_bytes(engine.open(model.path, settings).buffers)
    for way, plan in plans.items():
        for device, held in plan.devices.items():
            for kind, planned in held.parts.items():
                ends = plan.compute_range[device] if planned is None else (planned, planned)
                yield Number(name, asked, way, device, kind, ends, told.get((device, kind), 0))


@pytest.fixture(scope="module")
def grid(machine, tmp_path_factory):
    """(all numbers of the grid, loads that llama.cpp refused)."""
    found, refused, engine = [], [], LlamaEngine()
    for name, model in unpack(tmp_path_factory.mktemp("models")).items():
        for asked, settings in settings_of(model).items():
            try:
                found += numbers(engine, machine, name, model, asked, settings)
            except (EngineError, InvalidSettings):
                refused.append((name, asked))
    engine.close()
    return found, refused


def test_weights_and_cache_are_planned_to_the_byte(grid, record_property):
    """By formulas alone, whatever the settings: 0 bytes apart at the 0.01 MiB that llama.cpp prints."""
    found, refused = grid
    exact = [one for one in found if one.kind != "compute"]
    record_property("found", f"{len(exact)} numbers of weights, cache and output, {len(set(refused))} loads refused")
    assert [one for one in exact if not one.agrees] == []
    assert {name for name, _ in refused} <= REFUSED
    assert len({(one.model, one.asked) for one in exact}) > 1000


def test_compute_buffers_are_exact_where_llama_cpp_simulates_them(grid, record_property):
    """The plan of a machine whose device is there."""
    compute = [one for one in grid[0] if one.kind == "compute" and one.way == "simulated"]
    differ = {(one.model, one.asked) for one in compute if not one.agrees}
    record_property("found", f"{len(compute)} compute buffers, {len(differ)} loads differ: {sorted(differ)}")
    assert differ <= UNLIKE


def test_compute_buffers_by_cudas_formulas_are_near_those_of_another_backend(grid, gpu, pytestconfig, record_property):
    """Backends order a graph as they like: what a plan for an absent card of another backend may be off by."""
    rows = counted(grid[0], gpu)
    (row,) = [row for row in rows if row["kind"] == "compute" and row["way"] != "simulated"]
    record_property("found", "{backend}: {agree} of {n} lie inside; {least} to {most} times the near end".format(**row))
    if path := pytestconfig.getoption("record"):
        with path.open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, row.keys(), lineterminator="\n")
            table.writeheader()
            table.writerows(rows)
    assert 0.7 < row["least"] <= row["most"] < 1.3


def counted(found, gpu):
    """By way of planning and kind of memory: how many buffers of the device agree, and the ends of their ratios."""
    groups = {}
    for one in found:
        if one.device == "gpu0" and one.logged:
            groups.setdefault((one.way, one.kind), []).append(one)
    return [counted_row(group, gpu) for group in groups.values()]


def counted_row(group, gpu):
    """One row of the record; a number that agrees to what the log prints counts as 1."""
    ratios = [1.0 if one.agrees else round(one.ratio, 3) for one in group]
    return {
        "backend": gpu.backend,
        "driver": gpu.description,
        "llama_cpp_python": version("llama-cpp-python"),
        "models": len({one.model for one in group}),
        "settings": len({one.asked for one in group}),
        "way": group[0].way,
        "kind": group[0].kind,
        "n": len(group),
        "agree": sum(one.agrees for one in group),
        "least": min(ratios),
        "most": max(ratios),
    }


@pytest.mark.parametrize("what", WIDTHS)
@pytest.mark.parametrize("more", [{"load_mode": "none"}, {"load_mode": "mmap"}, {"n_gpu_layers": 2}, {"no_host": True}])
def test_what_the_device_refuses_is_planned_on_the_host(what, more, machine, gpu, engine, tmp_path):
    """llama.cpp says that all layers are offloaded; the plan says which matrices are not, and why."""
    family, dimensions = WIDTHS[what]
    model, settings = (
        read_gguf(write_model(tmp_path / "model.gguf", family, **dimensions)),
        Settings(n_ctx=1024, **more),
    )
    found = [one for one in numbers(engine, machine, what, model, "", settings) if one.kind != "compute"]
    assert [one for one in found if not one.agrees] == []
    plan = predict_memory(model, settings, machine)
    assert bool(plan.moved) == (gpu.largest_tensor_bytes is not None)


def test_a_cache_that_the_device_refuses_ends_the_load_as_planned(machine, gpu, engine, tmp_path):
    """The engine's process ends, the session does not, and the next load works."""
    if gpu.largest_tensor_bytes is None:
        pytest.skip("This device takes a tensor of any size.")
    model = read_gguf(write_model(tmp_path / "model.gguf", "llama", n_vocab=512))
    long = Settings(n_ctx=2**20, load_mode="none")
    assert predict_memory(model, long, machine).aborts
    with pytest.raises(EngineError, match="stopped itself"):
        engine.open(model.path, long)
    assert engine.open(model.path, long.but(n_ctx=1024)).buffers
