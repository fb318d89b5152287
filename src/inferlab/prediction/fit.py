"""Does it fit, and what would: the largest context, the most layers, the KV cache type that allows both.

Every answer comes from plans (`plans.predict_memory`), each device's bytes held against its room: what is free
on the device minus a reserve, which is stated. Nothing is loaded. Where a plan is only a bound, an answer that
depends on the open part is "unsure", and a search takes the safe end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from inferlab.engine.registry import limit_on
from inferlab.errors import InvalidSettings, UnsupportedArchitecture
from inferlab.machine import Device, Machine, read_host
from inferlab.model.ggml_types import CELL_STEP
from inferlab.model.gguf import Model
from inferlab.model.named import model_named
from inferlab.prediction.memory import MemoryPlan
from inferlab.prediction.memory.planner import planned_devices
from inferlab.prediction.predict import predict_memory
from inferlab.settings import UNQUANTIZED, Settings
from inferlab.units import MIB, bytes_from_text, bytes_text

RESERVE_BYTES = 1024 * MIB
"""What stays free on each device: llama.cpp's own --fit leaves as much (fit_params_target, common/common.h:483)."""
DEFAULT_N_CTX = 4096
"""The context below which llama.cpp's --fit never goes (fit_params_min_ctx, common/common.h:480)."""
MOST_N_CTX = 2**20
CACHE_TYPES = ("f16", "q8_0", "q4_0")


@dataclass(frozen=True)
class Answer:
    """One setting that fits, or None; how many bytes it leaves in the tightest room, and why it is the last one."""

    question: str
    value: int | str | None
    margin_bytes: int | None
    reason: str
    settings: Settings | None = None


@dataclass(frozen=True)
class Fit:
    """A plan held against a machine, and what would fit instead.

    free_bytes      free on each device, "gpu0" ..., and on "host" where it is told; None: unknown
    reserve_bytes   what stays free on each
    largest_n_ctx   the longest context with the layers that were asked for
    most_layers     the most layers on devices with the context that was asked for
    cache_type      the most precise type of keys and values with which both fit
    """

    plan: MemoryPlan
    free_bytes: dict[str, int | None]
    reserve_bytes: int
    largest_n_ctx: Answer
    most_layers: Answer
    cache_type: Answer

    @property
    def fits(self) -> str:
        """"yes", "no" or "unsure" for the settings that were asked for."""
        return verdict(self.plan, self.room_bytes)

    @property
    def room_bytes(self) -> dict[str, int | None]:
        """What a plan may fill on each device."""
        return rooms(self.free_bytes, self.reserve_bytes)

    @property
    def margin_bytes(self) -> int | None:
        """Bytes left in the tightest room, negative where they are missing; None where a room is unknown."""
        return margin(self.plan, self.room_bytes)

    @property
    def compared_with(self) -> str:
        """What "fits" means here, in a sentence."""
        return compared_with(self.free_bytes, self.reserve_bytes)

    @property
    def answers(self) -> tuple[Answer, ...]:
        return self.largest_n_ctx, self.most_layers, self.cache_type


def fit(
    model: Model | str | Path,
    settings: Settings | None = None,
    machine: Machine | None = None,
    vram: int | str | None = None,
    reserve_bytes: int = RESERVE_BYTES,
) -> Fit:
    """Whether a model fits, the largest n_ctx, the most layers, and the KV cache type that makes both possible.

    model is a path, a known name or a `Model`; machine is the one compared with (default: this one); `vram`, in
    bytes or as "8GiB", stands in for its devices: one CUDA card with as much free. n_ctx defaults to 4096.
    Raises ModelError, InvalidSettings, UnsupportedArchitecture.
    """
    model, machine = model_named(model), machine_for(machine, vram)
    settings = asked(settings)
    free = free_bytes(machine, settings)
    search = _Search(model, settings, machine, rooms(free, reserve_bytes))
    return Fit(
        search.plan(settings), free, reserve_bytes, search.largest_n_ctx(), search.most_layers(), search.cache_type()
    )


def asked(settings: Settings | None) -> Settings:
    """The settings with a context, 4096 tokens if none was asked for."""
    settings = settings or Settings()
    return settings if settings.n_ctx is not None else settings.but(n_ctx=DEFAULT_N_CTX)


def machine_for(machine: Machine | None = None, vram: int | str | None = None) -> Machine:
    """The machine to plan for: as given, or this one; with `vram`, one CUDA card with so much and unknown RAM."""
    if vram is None:
        return machine or _this_machine()
    n_bytes = bytes_from_text(vram) if isinstance(vram, str) else vram
    if n_bytes <= 0:
        raise InvalidSettings(f"vram={vram!r} leaves no card to plan for. Give its bytes, or a text such as '8GiB'.")
    card = Device("CUDA0", f"a card with {bytes_text(n_bytes)}", "gpu", n_bytes, n_bytes, "CUDA")
    return replace(machine or read_host(), ram_bytes=None, devices=(card,))


def _this_machine() -> Machine:
    from inferlab.engine.session import this_machine

    return this_machine()


def free_bytes(machine: Machine, settings: Settings | None = None) -> dict[str, int | None]:
    """Free memory under the names of a plan for `settings`: of each device that it uses, and of the host if told.

    An RPC device has what it was limited to in this session, else what it tells, else an unknown amount.
    """
    used = planned_devices(settings or Settings(), machine)
    free = {f"gpu{i}": _free_far(device, machine) for i, device in enumerate(used)}
    cpu = next((d for d in machine.devices if d.kind == "cpu"), None)
    host = _free(cpu) if cpu else None
    host = machine.ram_bytes if host is None else host
    return free if free and host is None else {**free, "host": host}


def rooms(free: dict[str, int | None], reserve_bytes: int) -> dict[str, int | None]:
    """Free memory minus the reserve, of each device."""
    return {device: None if n is None else n - reserve_bytes for device, n in free.items()}


def verdict(plan: MemoryPlan, room_bytes: dict[str, int | None]) -> str:
    """ "yes" if the most that every device may need is within its room, "no" if one needs more in any case.

    "unsure" between the two: a bound that straddles the room, or a device that does not tell its memory.
    """
    if any(room is not None and _least(plan, device) > room for device, room in room_bytes.items()):
        return "no"
    told = all(room is not None and _most(plan, device) <= room for device, room in room_bytes.items())
    return "yes" if told and not any(_open(plan, device) for device in room_bytes) else "unsure"


def margin(plan: MemoryPlan, room_bytes: dict[str, int | None]) -> int | None:
    """Bytes left in the tightest room at the safe end of the plan; None where a room is unknown."""
    rooms_known = {device: room for device, room in room_bytes.items() if room is not None}
    if len(rooms_known) < len(room_bytes):
        return None
    return min(room - _most(plan, device) for device, room in rooms_known.items())


def compared_with(free: dict[str, int | None], reserve_bytes: int) -> str:
    """What "fits" means, in a sentence: free memory of each device minus the reserve."""
    told = ", ".join(f"{device} {bytes_text(n)} free" for device, n in free.items())
    return f"{told}, of which {bytes_text(reserve_bytes)} stay in reserve"


class _Search:
    """Plans for one model on one machine, varied in one setting until it stops fitting."""

    def __init__(self, model, settings: Settings, machine: Machine, room_bytes: dict[str, int | None]) -> None:
        self.model, self.settings, self.machine, self.room_bytes = model, settings, machine, room_bytes
        self.plans: dict[Settings, MemoryPlan] = {}

    def plan(self, settings: Settings) -> MemoryPlan:
        if settings not in self.plans:
            self.plans[settings] = predict_memory(self.model, settings, self.machine)
        return self.plans[settings]

    def fits(self, settings: Settings) -> bool:
        return verdict(self.plan(settings), self.room_bytes) == "yes"

    def largest_n_ctx(self) -> Answer:
        """In steps of 256 cells a sequence, because llama.cpp rounds up to them."""
        step = CELL_STEP * (1 if self.settings.kv_unified else self.settings.n_seq_max)
        best = last(lambda n: self.fits(self.settings.but(n_ctx=n * step)), MOST_N_CTX // step)
        return self._answer("the largest n_ctx with these layers", "n_ctx", best * step, step, MOST_N_CTX)

    def most_layers(self) -> Answer:
        """Counted as llama.cpp counts: the output layer first, then the blocks from the last one down."""
        blocks = sum(layer.index is not None for layer in self.plan(self.settings).layers)
        if list(self.room_bytes) == ["host"]:
            why = "There is no device here to put a layer on."
            return Answer("the most layers with this n_ctx", None, None, why)
        best = last(lambda n: self.fits(self.settings.but(n_gpu_layers=n)), blocks + 1)
        if not best and not self.fits(self.settings.but(n_gpu_layers=0)):
            best = -1
        return self._answer("the most layers with this n_ctx", "n_gpu_layers", best, 1, blocks + 1, least=0)

    def cache_type(self) -> Answer:
        """The most precise of f16, q8_0 and q4_0 for keys and values with which everything asked for fits.

        None where a plan with a quantized cache needs llama.cpp's simulation and there is none.
        """
        question = "the KV cache type for this n_ctx with these layers"
        try:
            return self._most_precise(question)
        except UnsupportedArchitecture as error:
            return Answer(question, None, None, str(error))

    def _most_precise(self, question: str) -> Answer:
        tried = [self._with_cache(name) for name in CACHE_TYPES]
        for settings in filter(None, tried):
            if self.fits(settings):
                left = margin(self.plan(settings), self.room_bytes)
                return Answer(question, settings.type_k, left, self._why_type(settings), settings)
        return Answer(question, None, None, self._why_no_type(tried))

    def _with_cache(self, name: str) -> Settings | None:
        """The settings with this type of keys and values; None where they rule it out."""
        if self.settings.flash_attn == "off" and name not in UNQUANTIZED:
            return None
        return self.settings.but(type_k=name, type_v=name)

    def _answer(self, question: str, setting: str, value: int, step: int, most: int, least: int = 1) -> Answer:
        if value < least:
            first = self.settings.but(**{setting: max(least, step) if setting == "n_ctx" else least})
            why = f"Not even {setting}={getattr(first, setting):,}: {self._short(first)}."
            return Answer(question, None, None, why)
        settings = self.settings.but(**{setting: value})
        left = margin(self.plan(settings), self.room_bytes)
        return Answer(question, value, left, self._why(settings, setting, value, step, most), settings)

    def _why(self, settings: Settings, setting: str, value: int, step: int, most: int) -> str:
        if value >= most:
            end = "all there are" if setting == "n_gpu_layers" else "more than any model here is trained for"
            return f"{setting}={value:,} is {end}; memory would allow it."
        over = self.settings.but(**{setting: value + step})
        return f"{setting}={value + step:,} is too much: {self._short(over)}."

    def _why_type(self, settings: Settings) -> str:
        wider = CACHE_TYPES[: CACHE_TYPES.index(settings.type_k)]
        if not wider:
            return "Keys and values fit at full 16 bits; nothing needs to be quantized."
        over = self._with_cache(wider[-1])
        return f"{wider[-1]} is too much: {self._short(over)}."

    def _why_no_type(self, tried: list[Settings | None]) -> str:
        last = [settings for settings in tried if settings is not None][-1]
        hint = "" if len(tried) == len([t for t in tried if t]) else " Quantized values need flash attention."
        return f"Not even {last.type_k}: {self._short(last)}.{hint}"

    def _short(self, settings: Settings) -> str:
        """What is missing on the tightest device under these settings, in a clause."""
        plan = self.plan(settings)
        unknown = [device for device, room in self.room_bytes.items() if room is None]
        if unknown:
            return f"{unknown[0]} does not tell how much memory is free"
        device = min(self.room_bytes, key=lambda d: self.room_bytes[d] - _most(plan, d))
        missing = bytes_text(_most(plan, device) - self.room_bytes[device])
        at_most = "up to " if device in plan.compute_range else ""
        return f"{device} would hold {_held(plan, device)}, {at_most}{missing} too much"


NAMES = {"weights": "weights", "kv_cache": "KV cache", "compute": "compute buffer", "output": "output"}


def last(fits: Callable[[int], bool], most: int) -> int:
    """The largest n of 1 to `most` that fits, by doubling and halving; 0 when none does. Assumes that more is worse."""
    if not fits(1):
        return 0
    low = 1
    while low < most and fits(min(2 * low, most)):
        low = min(2 * low, most)
    high = min(2 * low, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _held(plan: MemoryPlan, device: str) -> str:
    """What a plan puts on a device, kind by kind, in words; the compute buffer of a bound at its safe end."""
    parts = plan.devices[device].parts if device in plan.devices else {}
    told = [f"{bytes_text(n)} of {NAMES[kind]}" for kind, n in parts.items() if n]
    if device in plan.compute_range:
        told.append(f"up to {bytes_text(plan.compute_range[device][1])} of {NAMES['compute']}")
    return ", ".join(told)


def _least(plan: MemoryPlan, device: str) -> int:
    return plan.least_bytes(device) if device in plan.devices else 0


def _most(plan: MemoryPlan, device: str) -> int:
    return plan.most_bytes(device) if device in plan.devices else 0


def _open(plan: MemoryPlan, device: str) -> bool:
    """Whether the device has bytes of which the plan knows neither value nor range."""
    held = plan.devices.get(device)
    return held is not None and None in held.parts.values() and device not in plan.compute_range


def _free_far(device: Device, machine: Machine) -> int | None:
    """The same for a device that may be an RPC server's, of which a plan knows the endpoint alone."""
    if device.backend != "RPC":
        return _free(device)
    told = next((_free(found) for found in machine.devices if found.name == device.name), None)
    return limit_on(device.description) or told


def _free(device: Device) -> int | None:
    return device.free_bytes if device.free_bytes is not None else device.memory_bytes
