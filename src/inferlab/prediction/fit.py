"""Does a model fit, and what is the largest context, number of layers and KV cache type that does?

Every answer compares memory plans (`predict.predict_memory`) with each device's usable bytes: free memory minus a
stated reserve. Nothing is loaded. Where a plan is only a bound, an answer that depends on the compute buffer is
"unsure", and a search uses the upper end of the bound.
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
"""Bytes left free on each device; llama.cpp's own --fit leaves as many (fit_params_target, common/common.h:483)."""
DEFAULT_N_CTX = 4096
"""The context below which llama.cpp's --fit never goes (fit_params_min_ctx, common/common.h:480)."""
MOST_N_CTX = 2**20
CACHE_TYPES = ("f16", "q8_0", "q4_0")


@dataclass(frozen=True)
class Answer:
    """One setting that fits, or None; the bytes it leaves on the fullest device, and why no larger value fits."""

    question: str
    value: int | str | None
    margin_bytes: int | None
    reason: str
    settings: Settings | None = None


@dataclass(frozen=True)
class Fit:
    """A plan compared with a machine's free memory, and the largest settings that fit.

    free_bytes      free on each device, "gpu0" ..., and on "host" where it is known; None: unknown
    reserve_bytes   bytes that stay free on each
    largest_n_ctx   the longest context with the requested layers
    most_layers     the most layers on devices with the requested context
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
        """ "yes", "no" or "unsure" for the requested settings."""
        return verdict(self.plan, self.room_bytes)

    @property
    def room_bytes(self) -> dict[str, int | None]:
        """Bytes that a plan may use on each device: free minus reserve."""
        return usable_bytes(self.free_bytes, self.reserve_bytes)

    @property
    def margin_bytes(self) -> int | None:
        """Bytes left on the fullest device, negative where bytes are missing; None where free memory is unknown."""
        return margin(self.plan, self.room_bytes)

    @property
    def compared_with(self) -> str:
        """The free memory and the reserve that the plan is compared with, in a sentence."""
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

    model is a path, a known name or a `Model`; machine is the one to compare with (default: this one); `vram`, in
    bytes or as "8GiB", replaces its devices by one CUDA card with as much free memory. n_ctx defaults to 4096.
    Raises ModelError, InvalidSettings, UnsupportedArchitecture.
    """
    model, machine = model_named(model), machine_for(machine, vram)
    settings = with_context(settings)
    free = free_bytes(machine, settings)
    search = _Search(model, settings, machine, usable_bytes(free, reserve_bytes))
    return Fit(
        search.plan(settings), free, reserve_bytes, search.largest_n_ctx(), search.most_layers(), search.cache_type()
    )


def with_context(settings: Settings | None) -> Settings:
    """The settings with a context: 4096 tokens where n_ctx is None."""
    settings = settings or Settings()
    return settings if settings.n_ctx is not None else settings.but(n_ctx=DEFAULT_N_CTX)


def machine_for(machine: Machine | None = None, vram: int | str | None = None) -> Machine:
    """The machine to plan for: as given, or this one; with `vram`, one CUDA card of that size and unknown RAM."""
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
    """Free bytes by the device names of a plan for `settings`: each device that it uses, and the host where known.

    An RPC device has its limit of this session, else the bytes that it reports, else None.
    """
    used = planned_devices(settings or Settings(), machine)
    free = {f"gpu{i}": _free_bytes_of(device, machine) for i, device in enumerate(used)}
    cpu = next((d for d in machine.devices if d.kind == "cpu"), None)
    host = _free_or_total(cpu) if cpu else None
    host = machine.ram_bytes if host is None else host
    return free if free and host is None else {**free, "host": host}


def usable_bytes(free: dict[str, int | None], reserve_bytes: int) -> dict[str, int | None]:
    """Free memory minus the reserve, of each device."""
    return {device: None if n is None else n - reserve_bytes for device, n in free.items()}


def verdict(plan: MemoryPlan, room_bytes: dict[str, int | None]) -> str:
    """ "yes" if every device has room for the most it may need, "no" if one lacks room for the least it needs.

    "unsure" otherwise: the usable bytes lie inside a bound, or a device does not report its memory.
    """
    if any(room is not None and _least_bytes(plan, device) > room for device, room in room_bytes.items()):
        return "no"
    fits = all(room is not None and _most_bytes(plan, device) <= room for device, room in room_bytes.items())
    return "yes" if fits and not any(_has_unknown_bytes(plan, device) for device in room_bytes) else "unsure"


def margin(plan: MemoryPlan, room_bytes: dict[str, int | None]) -> int | None:
    """Bytes left on the fullest device by the most that the plan may need; None where free memory is unknown."""
    known = {device: room for device, room in room_bytes.items() if room is not None}
    if len(known) < len(room_bytes):
        return None
    return min(room - _most_bytes(plan, device) for device, room in known.items())


def compared_with(free: dict[str, int | None], reserve_bytes: int) -> str:
    """Free memory of each device and the reserve, in a sentence."""
    texts = ", ".join(f"{device} {bytes_text(n)} free" for device, n in free.items())
    return f"{texts}, of which {bytes_text(reserve_bytes)} stay in reserve"


class _Search:
    """Plans for one model on one machine, with one setting increased until the model no longer fits."""

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
        """Searched in steps of 256 cells for each sequence, because llama.cpp rounds n_ctx up to them."""
        step = CELL_STEP * (1 if self.settings.kv_unified else self.settings.n_seq_max)
        best = largest_fitting(lambda n: self.fits(self.settings.but(n_ctx=n * step)), MOST_N_CTX // step)
        return self._answer("the largest n_ctx with these layers", "n_ctx", best * step, step, MOST_N_CTX)

    def most_layers(self) -> Answer:
        """Counted as n_gpu_layers: the output layer first, then the blocks from the last to the first."""
        blocks = sum(layer.index is not None for layer in self.plan(self.settings).layers)
        if list(self.room_bytes) == ["host"]:
            why = "There is no device here to put a layer on."
            return Answer("the most layers with this n_ctx", None, None, why)
        best = largest_fitting(lambda n: self.fits(self.settings.but(n_gpu_layers=n)), blocks + 1)
        if not best and not self.fits(self.settings.but(n_gpu_layers=0)):
            best = -1
        return self._answer("the most layers with this n_ctx", "n_gpu_layers", best, 1, blocks + 1, least=0)

    def cache_type(self) -> Answer:
        """The most precise of f16, q8_0 and q4_0 for keys and values with which the requested settings fit.

        None where a plan with a quantized cache needs llama.cpp's simulation and llama.cpp is not installed.
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
        """The settings with this type of keys and values; None where flash attention is off and the type needs it."""
        if self.settings.flash_attn == "off" and name not in UNQUANTIZED:
            return None
        return self.settings.but(type_k=name, type_v=name)

    def _answer(self, question: str, setting: str, value: int, step: int, most: int, least: int = 1) -> Answer:
        if value < least:
            first = self.settings.but(**{setting: max(least, step) if setting == "n_ctx" else least})
            why = f"Not even {setting}={getattr(first, setting):,}: {self._shortfall_text(first)}."
            return Answer(question, None, None, why)
        settings = self.settings.but(**{setting: value})
        left = margin(self.plan(settings), self.room_bytes)
        return Answer(question, value, left, self._why_not_more(settings, setting, value, step, most), settings)

    def _why_not_more(self, settings: Settings, setting: str, value: int, step: int, most: int) -> str:
        if value >= most:
            end = "all there are" if setting == "n_gpu_layers" else "more than any model here is trained for"
            return f"{setting}={value:,} is {end}; memory would allow it."
        over = self.settings.but(**{setting: value + step})
        return f"{setting}={value + step:,} is too much: {self._shortfall_text(over)}."

    def _why_type(self, settings: Settings) -> str:
        wider = CACHE_TYPES[: CACHE_TYPES.index(settings.type_k)]
        if not wider:
            return "Keys and values fit at full 16 bits; nothing needs to be quantized."
        over = self._with_cache(wider[-1])
        return f"{wider[-1]} is too much: {self._shortfall_text(over)}."

    def _why_no_type(self, tried: list[Settings | None]) -> str:
        largest_fitting = [settings for settings in tried if settings is not None][-1]
        hint = "" if len(tried) == len([t for t in tried if t]) else " Quantized values need flash attention."
        return f"Not even {largest_fitting.type_k}: {self._shortfall_text(largest_fitting)}.{hint}"

    def _shortfall_text(self, settings: Settings) -> str:
        """The bytes missing on the fullest device with these settings, in a clause."""
        plan = self.plan(settings)
        unknown = [device for device, room in self.room_bytes.items() if room is None]
        if unknown:
            return f"{unknown[0]} does not tell how much memory is free"
        device = min(self.room_bytes, key=lambda d: self.room_bytes[d] - _most_bytes(plan, d))
        missing = bytes_text(_most_bytes(plan, device) - self.room_bytes[device])
        at_most = "up to " if device in plan.compute_range else ""
        return f"{device} would hold {_contents_text(plan, device)}, {at_most}{missing} too much"


NAMES = {"weights": "weights", "kv_cache": "KV cache", "compute": "compute buffer", "output": "output"}


def largest_fitting(fits: Callable[[int], bool], most: int) -> int:
    """The largest n of 1 to `most` that fits, 0 when none does; by doubling, then bisection.

    Assumes that every number below one that fits also fits.
    """
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


def _contents_text(plan: MemoryPlan, device: str) -> str:
    """The bytes of each kind on a device, in words; for a bound the most that the compute buffer may need."""
    parts = plan.devices[device].parts if device in plan.devices else {}
    texts = [f"{bytes_text(n)} of {NAMES[kind]}" for kind, n in parts.items() if n]
    if device in plan.compute_range:
        texts.append(f"up to {bytes_text(plan.compute_range[device][1])} of {NAMES['compute']}")
    return ", ".join(texts)


def _least_bytes(plan: MemoryPlan, device: str) -> int:
    return plan.least_bytes(device) if device in plan.devices else 0


def _most_bytes(plan: MemoryPlan, device: str) -> int:
    return plan.most_bytes(device) if device in plan.devices else 0


def _has_unknown_bytes(plan: MemoryPlan, device: str) -> bool:
    """Whether the plan leaves bytes of the device open without a range."""
    planned = plan.devices.get(device)
    return planned is not None and None in planned.parts.values() and device not in plan.compute_range


def _free_bytes_of(device: Device, machine: Machine) -> int | None:
    """Free bytes of a planned device; an RPC device is found by its name, because a plan knows only its endpoint."""
    if device.backend != "RPC":
        return _free_or_total(device)
    reported = next((_free_or_total(found) for found in machine.devices if found.name == device.name), None)
    return limit_on(device.description) or reported


def _free_or_total(device: Device) -> int | None:
    return device.free_bytes if device.free_bytes is not None else device.memory_bytes
