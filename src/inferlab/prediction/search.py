"""Searches the largest settings with which a model fits: one setting is raised until the plan is too large."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from inferlab.errors import EngineRefused, InvalidSettings, UnsupportedArchitecture
from inferlab.machine import HOST_DEVICE
from inferlab.model.ggml_types import CELL_STEP
from inferlab.prediction.free_memory import room_for
from inferlab.prediction.memory import MemoryPlan
from inferlab.prediction.memory.cache import n_ctx_of
from inferlab.prediction.memory.plan import SHARED, MemoryBytes
from inferlab.settings import UNQUANTIZED, Settings
from inferlab.units import count_text

MOST_N_CTX = 2**20
CACHE_TYPES = ("f16", "q8_0", "q4_0")

PlanFor = Callable[[Settings], MemoryPlan]


@dataclass(frozen=True)
class SettingThatFits:
    """One setting that fits, or None; the bytes it leaves in the fullest memory, and why no larger value is named.

    plan                the plan of those settings
    memory_allows_more  whether something else ends the search, such as the context that the model was trained for
    """

    question: str
    value: int | str | None
    margin_bytes: int | None
    reason: str
    settings: Settings | None = None
    plan: MemoryPlan | None = None
    memory_allows_more: bool = False

    @property
    def text(self) -> str:
        """The value as people write it; without one the reason."""
        return f"{self.value:,}" if isinstance(self.value, int) else self.value or self.reason


class Search:
    """Plans for one model, each made once, and the largest settings whose plan fits into the usable memory.

    plan_for     makes the plan of any settings; `planned` is that of the requested `settings`
    quick_for    makes one in less time with wider ranges; it is asked first, if its range for the requested settings
                 has that of `planned` inside, and `plan_for` confirms what is found
    n_ctx_train  the context that the model was trained for, at which `largest_n_ctx` ends; None: at MOST_N_CTX
    """

    def __init__(
        self,
        plan_for: PlanFor,
        settings: Settings,
        planned: MemoryPlan,
        usable_bytes: MemoryBytes,
        n_ctx_train: int | None = None,
        quick_for: PlanFor | None = None,
    ) -> None:
        self.plan_for, self.settings, self.planned, self.usable_bytes = plan_for, settings, planned, usable_bytes
        self.n_ctx_train = n_ctx_train
        self.plans = {settings: planned}
        quick = cache(quick_for) if quick_for else self.plan
        self.quick_for = quick if _holds(quick(settings), planned) else self.plan

    def plan(self, settings: Settings) -> MemoryPlan:
        if settings not in self.plans:
            self.plans[settings] = self.plan_for(settings)
        return self.plans[settings]

    def fits(self, settings: Settings) -> bool:
        return self._fit(settings, lambda plan: plan.fits(room_for(plan, self.usable_bytes)))

    def fits_on_card(self, settings: Settings) -> bool:
        """Whether every memory but RAM is large enough; with more layers there, RAM holds less."""
        cards = {memory: n for memory, n in self.usable_bytes.items() if memory != HOST_DEVICE}
        return self._fit(settings, lambda plan: plan.fits(cards)) if cards else self.fits(settings)

    def _confirmed(
        self,
        find: Callable[[Callable[[int], bool]], int],
        settings_of: Callable[[int], Settings],
        fits: Callable[[Settings], bool],
    ) -> int:
        """What a search finds with quick plans; what it finds without them, where the plan of that does not fit."""
        best = find(lambda n: fits(settings_of(n)))
        if best > 0:
            self.plan(settings_of(best))
            if not fits(settings_of(best)):
                self.quick_for = self.plan
                best = find(lambda n: fits(settings_of(n)))
        return best

    def _fit(self, settings: Settings, verdict: Callable[[MemoryPlan], str]) -> bool:
        """Whether a plan fits, by the quick one where that is sure."""
        quick = "unsure" if settings in self.plans else verdict(self.quick_for(settings))
        return (verdict(self.plan(settings)) if quick == "unsure" else quick) == "yes"

    def _plan_fits(self, plan: MemoryPlan) -> bool:
        return plan.fits(room_for(plan, self.usable_bytes)) == "yes"

    def margin(self, plan: MemoryPlan) -> int | None:
        """Bytes that a plan leaves in the fullest memory."""
        return plan.margin(room_for(plan, self.usable_bytes))

    def _shortfall(self, plan: MemoryPlan) -> str:
        return plan.shortfall(room_for(plan, self.usable_bytes))

    @property
    def n_blocks(self) -> int:
        return sum(layer.index is not None for layer in self.planned.layers)

    @property
    def has_gpu(self) -> bool:
        return any(device != HOST_DEVICE for device in self.planned.devices)

    @property
    def context_step(self) -> int:
        """256 cells for each sequence that has its own, because llama.cpp rounds n_ctx up to them."""
        return CELL_STEP * (1 if self.settings.kv_unified else self.settings.n_seq_max)

    @property
    def trained_n_ctx(self) -> int | None:
        """The n_ctx with which every sequence has the context that the model was trained for; None: not known."""
        if not self.n_ctx_train:
            return None
        step, n_own = self.context_step, 1 if self.settings.kv_unified else self.settings.n_seq_max
        return -(-self.n_ctx_train * n_own // step) * step

    def largest_n_ctx(self) -> SettingThatFits:
        """Searched in steps of `context_step`, from the one that is asked for: bytes need not grow with every step."""
        step, asked = self.context_step, n_ctx_of(self.settings)
        most = min(self.trained_n_ctx or MOST_N_CTX, MOST_N_CTX // step * step)
        best = self._confirmed(
            lambda fits: largest_from(asked // step, most // step, lambda n: not n or fits(n)),
            lambda n: self.settings.but(n_ctx=n * step),
            self.fits,
        )
        return self._answer("the largest n_ctx with these layers", "n_ctx", best * step, step, most)

    def most_layers(self) -> SettingThatFits:
        """Counted as n_gpu_layers: the output layer first, then the blocks from the last to the first."""
        question, every = "the most layers with this n_ctx", self.n_blocks + 1
        if not self.has_gpu:
            return SettingThatFits(question, None, None, "There is no device here to put a layer on.")
        if SHARED in self.usable_bytes and not self.fits(self.settings.but(n_gpu_layers=every)):
            why = "Host and GPU share one memory: fewer layers on the GPU free none of it."
            return SettingThatFits(question, None, None, why)
        best = self._confirmed(lambda fits: largest_fitting(fits, every), self.with_layers, self.fits_on_card)
        most = self.with_layers(best)
        if not self.fits(most):
            why = f"Not even n_gpu_layers={best}{self._too_much(most)}{self._open_end(most, 'n_gpu_layers', 1, every)}"
            return SettingThatFits(question, None, None, why)
        return self._answer(question, "n_gpu_layers", best, 1, every, least=0)

    def expert_layers(self) -> SettingThatFits:
        """The fewest layers whose experts must be in RAM so that all layers fit on the card; counted as n_cpu_moe.

        Where not all layers fit even without any experts, the answer has no value, and the settings with all experts in
        RAM and as many layers as fit then, if these are more than with their experts.
        """
        question, n = "the fewest layers with experts in RAM, all layers on the card", self.n_blocks
        if not self.has_gpu:
            return SettingThatFits(question, None, None, "There is no device here to put a layer on.")
        if SHARED in self.usable_bytes:
            why = "Host and GPU share one memory: experts in RAM free none of it."
            return SettingThatFits(question, None, None, why)
        whole = self.settings.but(n_gpu_layers=-1, n_cpu_moe=0, cpu_moe=False)
        on_card = (
            n + 1
            if self.fits_on_card(whole)
            else self._confirmed(
                lambda fits: largest_fitting(fits, n),
                lambda kept: whole.but(n_cpu_moe=n + 1 - kept),
                self.fits_on_card,
            )
        )
        if not on_card:
            return self._all_experts_in_ram(question, whole.but(cpu_moe=True))
        settings = whole.but(n_cpu_moe=n + 1 - on_card)
        if not self.fits(settings):
            return SettingThatFits(
                question, None, None, f"Not even n_cpu_moe={settings.n_cpu_moe}{self._too_much(settings)}"
            )
        if on_card == n + 1:
            why = "Everything fits on the card."
        else:
            why = f"n_cpu_moe={settings.n_cpu_moe - 1} is too few: {self._shortfall_text(_one_expert_more(settings))}."
        return self._found(question, settings.n_cpu_moe, why, settings)

    def _all_experts_in_ram(self, question: str, without: Settings) -> SettingThatFits:
        """That not all layers fit even without experts, and the most that do then."""
        why = f"Not even with the experts of all layers in RAM{self._too_much(without)}"
        search = Search(self.plan_for, without, self.plan(without), self.usable_bytes, quick_for=self.quick_for)
        layers = search.most_layers()
        with_experts = None if self.settings.cpu_moe else self.most_layers().settings
        fewest = with_experts.n_gpu_layers if with_experts else 0
        if layers.settings is None or layers.settings.n_gpu_layers <= fewest:
            return SettingThatFits(question, None, None, why)
        why += f" With all experts in RAM, {count_text(layers.settings.n_gpu_layers, 'layer')} fit on the card."
        return replace(layers, question=question, value=None, reason=why)

    def with_layers(self, n: int) -> Settings:
        """The settings with so many layers on devices; experts that are in RAM with their layers are not named."""
        n_on_host = self.n_blocks + 1 - n
        needless = n_on_host >= (self.settings.n_cpu_moe or self.n_blocks)
        return self.settings.but(n_gpu_layers=n, **({"n_cpu_moe": 0, "cpu_moe": False} if needless else {}))

    def cache_type(self) -> SettingThatFits:
        """The most precise of f16, q8_0 and q4_0 for keys and values with which the requested settings fit.

        None where a plan with a quantized cache needs llama.cpp's simulation, and llama.cpp is not asked or stops.
        """
        question = "the KV cache type for this n_ctx with these layers"
        try:
            return self._most_precise(question)
        except (InvalidSettings, UnsupportedArchitecture, EngineRefused) as error:
            return SettingThatFits(question, None, None, str(error).splitlines()[0])

    def weights_type(self, weights: Mapping[str, PlanFor]) -> SettingThatFits:
        """The largest type of weights with which all layers fit on the card, with the requested n_ctx.

        weights  plans of the same model by the type of its weights, the largest first, each made once
        """
        question = "the largest weights with this n_ctx and all layers on the card"
        whole, smallest_first = self.settings.but(n_gpu_layers=-1), tuple(weights)[::-1]

        def plan(n: int) -> MemoryPlan:
            return weights[smallest_first[n - 1]](whole)

        def shortfall(n: int) -> str:
            return self._shortfall(plan(n))

        try:
            best = largest_fitting(lambda n: self._plan_fits(plan(n)), len(weights))
        except (InvalidSettings, UnsupportedArchitecture) as error:
            return SettingThatFits(question, None, None, str(error))
        if not best:
            return SettingThatFits(question, None, None, f"Not even {smallest_first[0]}: {shortfall(1)}.")
        why = "It is the largest type of the list."
        if best < len(weights):
            why = f"{smallest_first[best]} is too much: {shortfall(best + 1)}."
        return SettingThatFits(question, smallest_first[best - 1], self.margin(plan(best)), why, whole, plan(best))

    def with_cache(self, name: str) -> Settings | None:
        """The settings with this type of keys and values; None where flash attention is off and the type needs it."""
        if self.settings.flash_attn == "off" and name not in UNQUANTIZED:
            return None
        return self.settings.but(type_k=name, type_v=name)

    def _most_precise(self, question: str) -> SettingThatFits:
        tried = [settings for name in CACHE_TYPES if (settings := self.with_cache(name))]
        why = "Keys and values fit at full 16 bits; nothing needs to be quantized."
        for settings in tried:
            if self.fits(settings):
                return self._found(question, settings.type_k, why, settings)
            why = f"{settings.type_k} is too much: {self._shortfall_text(settings)}."
        smallest = tried[-1]
        hint = "" if len(tried) == len(CACHE_TYPES) else " Quantized values need flash attention."
        return SettingThatFits(question, None, None, f"Not even {smallest.type_k}{self._too_much(smallest)}{hint}")

    def _answer(self, question: str, setting: str, value: int, step: int, most: int, least: int = 1) -> SettingThatFits:
        if value < least:
            first = self._with(setting, max(least, step) if setting == "n_ctx" else least)
            why = f"Not even {setting}={getattr(first, setting):,}{self._too_much(first)}"
            return SettingThatFits(question, None, None, why + self._open_end(first, setting, step, most))
        allows = setting == "n_ctx" and value >= most and self._allows_longer(value, step)
        why = self._why_the_longest(value) if allows else self._why_not_more(setting, value, step, most)
        return replace(self._found(question, value, why, self._with(setting, value)), memory_allows_more=allows)

    def _found(self, question: str, value: int | str, why: str, settings: Settings) -> SettingThatFits:
        """An answer with settings that fit, and what they leave."""
        plan = self.plan(settings)
        return SettingThatFits(question, value, self.margin(plan), why, settings, plan)

    def _with(self, setting: str, value: int) -> Settings:
        return self.with_layers(value) if setting == "n_gpu_layers" else self.settings.but(**{setting: value})

    def _open_end(self, first: Settings, setting: str, step: int, most: int) -> str:
        """Where compute buffers are unknown, the most that weights and cache alone would allow, in a sentence."""

        def may_fit(n: int) -> bool:
            return self.plan(self._with(setting, n * step)).fits(self.usable_bytes) != "no"

        if not any(self.plan(first).is_open(memory) for memory in self.usable_bytes) or not may_fit(1):
            return ""
        limit = largest_fitting(may_fit, most // step) * step
        return f" Weights and KV cache alone leave room for {setting}={limit:,}."

    def _allows_longer(self, n_ctx: int, step: int) -> bool:
        """Whether memory is not what ends the search at the longest context that is tried."""
        return n_ctx != self.trained_n_ctx or self.fits(self.settings.but(n_ctx=n_ctx + step))

    def _why_not_more(self, setting: str, value: int, step: int, most: int) -> str:
        if value >= most and setting == "n_gpu_layers":
            return "These are all layers of the model; the output layer counts as one."
        over = self._with(setting, value + step)
        return f"{setting}={value + step:,} is too much: {self._shortfall_text(over)}."

    def _why_the_longest(self, n_ctx: int) -> str:
        if n_ctx == self.trained_n_ctx:
            return f"The model was trained for {self.n_ctx_train:,} tokens; memory would allow more."
        return "No longer context was tried; memory would allow more."

    def _too_much(self, settings: Settings) -> str:
        """Why the smallest that was tried is not known to fit: the end of a sentence."""
        plan = self.plan(settings)
        sure = " is sure to fit" if plan.fits(room_for(plan, self.usable_bytes)) == "unsure" else ""
        return f"{sure}: {self._shortfall_text(settings)}."

    def _shortfall_text(self, settings: Settings) -> str:
        return self._shortfall(self.plan(settings))


def _holds(quick: MemoryPlan, planned: MemoryPlan) -> bool:
    """Whether the range of each device has the other plan's inside."""
    return all(
        quick.least_bytes(name) <= planned.least_bytes(name) and planned.most_bytes(name) <= quick.most_bytes(name)
        for name in planned.devices
    )


def _one_expert_more(settings: Settings) -> Settings:
    """The settings with the experts of one layer more on the card."""
    return settings.but(n_cpu_moe=settings.n_cpu_moe - 1)


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


def largest_from(guess: int, most: int, fits: Callable[[int], bool]) -> int:
    """The largest n of 0 to `most` that fits, -1 where none does; few tries where the guess is near.

    Assumes that every number below one that fits also fits.
    """
    at, stride = min(max(guess, 0), most), 1
    if fits(at):
        low, high = at, at + stride
        while high <= most and fits(high):
            low, stride = high, 2 * stride
            high = low + stride
        high = min(high, most + 1)
    else:
        low, high = at - stride, at
        while low >= 0 and not fits(low):
            high, stride = low, 2 * stride
            low = high - stride
        low = max(low, -1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
