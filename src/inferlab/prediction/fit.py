"""Does a model fit, and what is the largest context, number of layers and KV cache type that does?

Of a mixture of experts also: the experts of how few layers must be in RAM, so that all layers fit on the card.

Every answer compares memory plans (`predict.plan_of`) with the usable bytes of each memory: free bytes minus a
stated reserve. Nothing is loaded. Where a plan is only a bound, an answer that depends on the compute buffer is
"unsure", and a search uses the upper end of the bound. `free_memory` compares, `search` and `steps` try other settings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from inferlab.errors import InvalidSettings
from inferlab.machine import HOST_DEVICE, Machine
from inferlab.model.catalog import KnownModel, known_models
from inferlab.model.gguf import Model, Shape
from inferlab.model.named import model_named
from inferlab.model.quant_mixes import MIXES
from inferlab.model.synthetic_model import shape
from inferlab.prediction.free_memory import (
    DEFAULT_BACKEND,
    PROMPT_CACHE_BYTES,
    HostRam,
    Size,
    compared_with,
    free_bytes,
    machine_for,
    room_for,
    size_in_bytes,
    usable_bytes,
)
from inferlab.prediction.memory import MemoryPlan
from inferlab.prediction.memory.cache import may_have_windows
from inferlab.prediction.memory.placement import has_experts
from inferlab.prediction.memory.plan import SHARED
from inferlab.prediction.memory.request import MemoryRequest, request_for
from inferlab.prediction.predict import plan_of
from inferlab.prediction.search import PlanFor, Search, SettingThatFits
from inferlab.prediction.steps import SettingStep, neighbouring_types, steps, weight_types
from inferlab.settings import Settings
from inferlab.shown import Shown
from inferlab.units import MIB, bytes_text

RESERVE_BYTES = 1024 * MIB
"""Bytes left free on each device; llama.cpp's own --fit leaves as many (fit_params_target, common/common.h:483)."""
DEFAULT_N_CTX = 4096
"""The context below which llama.cpp's --fit never goes (fit_params_min_ctx, common/common.h:480)."""


@dataclass(frozen=True)
class Fit(Shown):
    """A plan compared with a machine's free memory, and the largest settings that fit.

    free_bytes      free in each memory, "gpu0" ..., and "host" where it is known; or in "shared", one memory for all
                    devices; None: unknown
    reserve_bytes   bytes that stay free in each, but in RAM that is given as a whole
    ram             the RAM of the machine where that is given, and what of it is not for the model
    has_windows     whether layers of the model attend to a sliding window, as far as is known
    largest_n_ctx   the longest context with the requested layers
    most_layers     the most layers on devices with the requested context
    cache_type      the most precise type of keys and values with which both fit
    expert_layers   the fewest layers whose experts must be in RAM so that all layers fit on the card; None for a model
                    without experts
    steps           what one step of each setting would cost or free, where that was asked for
    weights_type    the largest type of weights with which the whole model fits on devices with the requested context;
                    None where steps were not asked for, and for a file, which has its types
    """

    plan: MemoryPlan
    free_bytes: dict[str, int | None]
    reserve_bytes: int
    largest_n_ctx: SettingThatFits
    most_layers: SettingThatFits
    cache_type: SettingThatFits
    expert_layers: SettingThatFits | None = None
    steps: tuple[SettingStep, ...] = ()
    weights_type: SettingThatFits | None = None
    ram: HostRam | None = None
    has_windows: bool = False

    @property
    def summary(self) -> tuple[str, list[tuple[str, str]]]:
        """Whether it fits, the bytes of each device, the memory they are compared with, and every answer."""
        says = {"yes": "fits", "no": "does not fit", "unsure": "may fit"}[self.fits]
        title = f"{self.plan.model.name} with n_ctx={self.plan.settings.n_ctx} {says}: {self.compared_with}"
        place = ("planned for", self.plan.planned_for)
        return title, [*self.plan.device_rows, place, *((answer.question, answer.text) for answer in self.answers)]

    @property
    def fits(self) -> str:
        """ "yes", "no" or "unsure" for the requested settings."""
        return self.plan.fits(room_for(self.plan, self.usable_bytes))

    @property
    def usable_bytes(self) -> dict[str, int | None]:
        """Bytes that a plan may use in each memory: free minus reserve."""
        return usable_bytes(self.free_bytes, self.reserve_bytes, self.ram)

    @property
    def margin_bytes(self) -> int | None:
        """Bytes left in the fullest memory, negative where bytes are missing; None where free memory is unknown."""
        return self.plan.margin(room_for(self.plan, self.usable_bytes))

    @property
    def fullest_memory(self) -> str:
        """The memory that decides: of which least is left."""
        return self.plan.fullest_memory(room_for(self.plan, self.usable_bytes))

    @property
    def compared_with(self) -> str:
        """The free memory and the reserve that the plan is compared with, in a sentence."""
        return compared_with(self.free_bytes, self.reserve_bytes, self.ram)

    def prompt_cache_bytes(self, plan: MemoryPlan) -> int | None:
        """Bytes that llama-server's cache of prompts may grow to beside a plan, in whole MiB; None: RAM is not known.

        As many as were set aside for it; else what the plan leaves, at most the server's own limit.
        """
        if self.ram and self.ram.prompt_cache_bytes is not None:
            return self.ram.prompt_cache_bytes
        room = room_for(plan, self.usable_bytes)
        memory = next((memory for memory in (HOST_DEVICE, SHARED) if room.get(memory) is not None), None)
        if memory is None:
            return None
        whole = self.ram.usable_bytes if self.ram and memory == SHARED else room[memory] or 0
        left = max(0, whole - plan.most_bytes(memory))
        return min(PROMPT_CACHE_BYTES, left // MIB * MIB)

    @property
    def answers(self) -> tuple[SettingThatFits, ...]:
        answers = self.largest_n_ctx, self.most_layers, self.expert_layers, self.cache_type, self.weights_type
        return tuple(answer for answer in answers if answer is not None)


def fit(
    model: Model | KnownModel | str | Path,
    settings: Settings | None = None,
    machine: Machine | None = None,
    vram: Size | Sequence[Size] | None = None,
    reserve_bytes: int = RESERVE_BYTES,
    *,
    unified: Size | None = None,
    backend: str = DEFAULT_BACKEND,
    ram: HostRam | Size | None = None,
    simulate: bool = True,
    with_steps: bool = False,
    within_trained: bool = False,
) -> Fit:
    """Whether a model fits, the largest n_ctx, the most layers, and the KV cache type that makes both possible.

    model       a path, a `Model`, or a known model, itself or by name
    machine     the one to compare with (default: this one)
    vram        in bytes or as "8GiB": replaces its devices by one card with as much free memory; a sequence of sizes by
                as many cards
    unified     memory that host and GPU share, in place of vram
    backend     of those cards: cuda, rocm, metal, vulkan or sycl; all are planned as CUDA's, with a note
    ram         all RAM of the machine, of which `HostRam` takes off what is not for the model. Without it RAM is that
                of this machine, or with `vram` or `unified` not compared
    simulate    whether llama.cpp may be asked where no formula is exact; else those plans are bounds or partial
    with_steps  also tries one step of each setting up and down, and for a known model other types of weights
    within_trained  whether the largest n_ctx ends at the context that the model was trained for; else memory decides
    n_ctx defaults to 4096. Raises ModelError, InvalidSettings, UnsupportedArchitecture.
    """
    model, settings = model_named(model), with_context(settings)
    machine = machine_for(machine, vram, unified, backend)
    request = request_for(model, settings, machine, simulate=simulate, as_cuda=backend != DEFAULT_BACKEND)
    host_ram = ram if isinstance(ram, HostRam) or ram is None else HostRam(size_in_bytes(ram))
    free = free_bytes(machine, request.gpus, unified, host_ram)
    if vram is not None or unified is not None:
        _require_room(free, reserve_bytes)
    plan, plan_for = plan_of(request), partial(_plan_for, request)
    n_ctx_train = model.n_ctx_train if within_trained else None
    usable, quick_for = usable_bytes(free, reserve_bytes, host_ram), partial(_plan_for, replace(request, follow=False))
    search = Search(partial(plan_for, model), settings, plan, usable, n_ctx_train, partial(quick_for, model))
    experts = search.expert_layers() if has_experts(model) else None
    answers = search.largest_n_ctx(), search.most_layers(), search.cache_type(), experts
    types = _types_of_weights(model, plan_for) if with_steps else {}
    quick = _types_of_weights(model, quick_for) if with_steps else {}
    neighbours = {type: (quick[type], types[type]) for type in _neighbours(model) if type in types}
    each_step = steps(search, neighbours) if with_steps else ()
    largest = search.weights_type(types) if types else None
    return Fit(plan, free, reserve_bytes, *answers, each_step, largest, host_ram, may_have_windows(model))


def _require_room(free: dict[str, int | None], reserve_bytes: int) -> None:
    """Raise InvalidSettings where the reserve leaves nothing of a memory that was named."""
    small = [n for memory, n in free.items() if memory != HOST_DEVICE and n is not None and n < reserve_bytes]
    if small:
        raise InvalidSettings(
            f"reserve_bytes={reserve_bytes}: {bytes_text(reserve_bytes)} kept free of {bytes_text(min(small))} leave "
            "nothing for a model. Keep less free."
        )


def _plan_for(request: MemoryRequest, model: Model, settings: Settings) -> MemoryPlan:
    """The plan of a model with settings on the devices of a request."""
    return plan_of(replace(request, model=model, settings=settings))


def with_context(settings: Settings | None) -> Settings:
    """The settings with a context: 4096 tokens where n_ctx is None."""
    settings = settings or Settings()
    return settings if settings.n_ctx is not None else settings.but(n_ctx=DEFAULT_N_CTX)


def _types_of_weights(model: Model, plan_for: Callable[..., MemoryPlan]) -> dict[str, PlanFor]:
    """Plans of a known model by type of weights, the largest first, each made once; none for any other model."""
    if model.shape is None:
        return {}
    types = weight_types(known_models()[model.shape.name])
    return {type: cache(partial(_plan_with, plan_for, model.shape, type)) for type in types}


def _plan_with(plan_for: Callable[..., MemoryPlan], made: Shape, type: str, settings: Settings) -> MemoryPlan:
    return plan_for(shape(made.name, type, **made.dimensions), settings)


def _neighbours(model: Model) -> tuple[str, ...]:
    return neighbouring_types(model.shape.mix) if model.shape and model.shape.mix in MIXES else ()
