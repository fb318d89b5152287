"""Plans for two devices beside what they allocated: every split mode, share, and side of layers, cache and experts.

The devices are loopback devices, and the bytes are those of the RPC protocol (measurement.several_cards). A plan is
made for devices of the same kind before the model is opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import product

from inferlab.engine.loopback import loopback_device
from inferlab.engine.session import this_machine
from inferlab.errors import InferlabError
from inferlab.machine import Machine
from inferlab.model.gguf import read_gguf
from inferlab.model.synthetic_model import make_shape
from inferlab.prediction.memory import MemoryPlan
from inferlab.prediction.memory.planner import MemoryPlanner, planned_devices
from inferlab.prediction.predict import predict_memory
from inferlab.settings import Settings
from inferlab.shown import Shown
from studies.several_cards.device_use import Pair, Use, pair_of_devices

KINDS = ("weights", "kv_cache", "compute")
BASE = Settings(n_ctx=1024, n_batch=128, n_ubatch=64, flash_attn="on", n_threads=1, use_extra_bufts=False)
HALF = {"n_embd": 2048, "n_head": 16, "n_head_kv": 4, "n_ff": 7168}  # of Llama 3.1 8B in each dimension
SHAPES = {
    "grouped heads": ("llama-3.1-8b", HALF | {"n_layer": 4, "n_vocab": 4096}),
    "tied embedding": ("qwen3-0.6b", {"n_layer": 6, "n_vocab": 16384}),
    "experts": ("granite-3.1-1b-a400m", {"n_layer": 4, "n_vocab": 4096}),
}
"""What a shape stands for -> a known model and its dimensions; each is small enough to be opened in a second or two."""
MIX = "Q4_K_M"
SHARES = ((1.0, 1.0), (3.0, 1.0), (1.0, 0.0))
PART = 3  # layers on the devices, where not all are


@dataclass(frozen=True)
class Case:
    """One request: what was planned for each device, and what it held; or why there is no load.

    shape    a key of SHAPES
    changes  the settings that differ from BASE
    planned  bytes of weights, KV cache and compute of each device; None where the plan has a range
    compute_range  least and most compute bytes of each device, equal where the plan is exact
    method   of the plan
    sums_bytes  planned for the buffers that the log does not have
    refused  the error, where the request was refused
    """

    shape: str
    changes: dict[str, object]
    planned: tuple[tuple[int | None, ...], ...] = ()
    compute_range: tuple[tuple[int, int], ...] = ()
    method: str = ""
    sums_bytes: int = 0
    use: Use | None = None
    refused: str = ""

    def differences(self, kind: str) -> tuple[int, ...]:
        """Allocated less planned bytes of one kind on each device; () where nothing was loaded or planned."""
        at = KINDS.index(kind)
        if self.use is None:
            return ()
        held = [getattr(device, f"{kind}_bytes") for device in self.use.devices]
        return tuple(n - planned[at] for n, planned in zip(held, self.planned, strict=True) if planned[at] is not None)


    @property
    def ranged(self) -> tuple[bool, ...]:
        """Whether each compute buffer that was planned as a range lies in it."""
        if self.use is None:
            return ()
        ends = zip(self.use.devices, self.compute_range, strict=True)
        return tuple(least <= held.compute_bytes <= most for held, (least, most) in ends if least != most)


@dataclass(frozen=True, kw_only=True)
class SeveralCards(Shown):
    """All cases, on one machine with one llama.cpp."""

    machine: Machine
    date: str
    cases: tuple[Case, ...]

    @property
    def badge(self) -> str:
        return self.machine.badge(self.date, synthetic=True, far_devices="two loopback devices")

    @property
    def loaded(self) -> tuple[Case, ...]:
        """The cases that llama.cpp loaded."""
        return tuple(case for case in self.cases if case.use)

    def largest_difference(self, kind: str) -> int:
        """The largest absolute difference of allocated and planned bytes of one kind, over all loads and devices."""
        return max((abs(n) for case in self.loaded for n in case.differences(kind)), default=0)

    def at(self, shape: str, **changes: object) -> Case:
        """The case of a shape whose changes are these and no others."""
        return next(case for case in self.cases if case.shape == shape and case.changes == changes)


def compare_placements(cases: Sequence[tuple[str, dict[str, object]]] = ()) -> SeveralCards:
    """Plan and load every case; all of `all_cases` where none are given. Raises DeviceUnavailable."""
    left, found = list(cases or all_cases()), []
    with loopback_device(n_threads=1) as one, loopback_device(n_threads=1) as other:
        while left:
            with pair_of_devices() as pair:
                while left and pair.alive:
                    found.append(placed(*left.pop(0), pair, (one.endpoint, other.endpoint)))
    return SeveralCards(machine=this_machine(), date=date.today().isoformat(), cases=tuple(found))


def placed(shape: str, changes: dict[str, object], pair: Pair, planned_for: Sequence[str]) -> Case:
    """One case: the plan for two devices that nobody uses, then the load on two others of the same kind."""
    name, dimensions = SHAPES[shape]
    path = make_shape(name, MIX, progress=False, **dimensions)
    try:
        settings = BASE.but(**changes)
        asked = settings.but(rpc_servers=tuple(planned_for))
        plan = predict_memory(path, asked, this_machine())
        use = pair.use(path, settings)
    except InferlabError as error:
        return Case(shape, changes, refused=f"{type(error).__name__}: {error}".splitlines()[0])
    names = _planned_names(plan, settings)
    planned = (tuple(plan.devices[name].parts[kind] for kind in KINDS) if name else (0,) * len(KINDS) for name in names)
    ends = (_compute_range(plan, name) if name else (0, 0) for name in names)
    return Case(shape, changes, tuple(planned), tuple(ends), plan.method, _sums(path, asked), use)


def _planned_names(plan: MemoryPlan, settings: Settings) -> list[str | None]:
    """The plan's name of both devices; None for a device that the request does not use."""
    names = [name for name in plan.devices if name != "host"]
    return names if len(names) > 1 else [None] * settings.main_gpu + names + [None] * (1 - settings.main_gpu)


def _compute_range(plan: MemoryPlan, name: str) -> tuple[int, int]:
    exact = plan.devices[name].compute_bytes
    return plan.compute_range[name] if exact is None else (exact, exact)


def _sums(path, settings: Settings) -> int:
    """Planned bytes of the buffers for partial sums on each device."""
    planner = MemoryPlanner(read_gguf(path), settings, planned_devices(settings, this_machine()), False)
    return planner.sums_bytes


def all_cases() -> Iterator[tuple[str, dict[str, object]]]:
    """Every combination of the settings, for each shape."""
    for shape in SHAPES:
        experts = ({}, {"n_cpu_moe": 3}) if shape == "experts" else ({},)
        yield shape, {"split_mode": "row"}
        for mode in _modes():
            for part, cache, moved in product(({}, {"n_gpu_layers": PART}), ({}, {"offload_kqv": False}), experts):
                yield shape, {**mode, **part, **cache, **moved}


def _modes() -> Iterator[dict[str, object]]:
    yield from ({"split_mode": "none", "main_gpu": device} for device in (0, 1))
    yield from ({"split_mode": mode, "tensor_split": shares} for mode in ("layer", "tensor") for shares in SHARES)
