"""The term for which a device had no room, and the smallest changes of one setting with which all would fit.

A change counts only where every term of the device is known after it, and no other device, model or context takes part
in the load. Bytes that the log prints stay for a term that the change cannot make larger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from inferlab.errors import InferlabError
from inferlab.log_reader.rules import name_in
from inferlab.model.ggml_types import CELL_STEP
from inferlab.prediction.search import largest_fitting
from inferlab.results.log_memory.asked import Asked
from inferlab.results.log_memory.logged import COMPUTE, KV_CACHE, NAMES, STATES, WEIGHTS, Logged, mib
from inferlab.results.log_memory.planned import Planned, Term
from inferlab.settings import UNQUANTIZED, Settings
from inferlab.units import MIB

ORDER = (WEIGHTS, KV_CACHE, STATES, COMPUTE)
"""The order in which llama.cpp allocates on a device."""
LEAST_UBATCH, SMALLER_TYPE = 32, "q8_0"
LESSENS = {"n_ubatch": COMPUTE, "n_seq_max": KV_CACHE, "type_k": KV_CACHE, "n_gpu_layers": WEIGHTS, "n_ctx": KV_CACHE}
"""The term that a change of each setting is for."""
MAY_GROW = ("type_k", "n_gpu_layers")
"""Settings with which the compute buffer may grow, so that the log's number says nothing about it."""

Terms = Mapping[tuple[str, str], Term]
Fits = Callable[[Settings], bool]


@dataclass(frozen=True)
class Change:
    """One setting changed so that everything fits, or everything up to the term that did not.

    setting      its name in `Settings`; value: the one that fits; text: it in the words of the program
    kind         the term that becomes smaller, with its bytes before and after; not exact: at most that many
    left_bytes   bytes left for a compute buffer of unknown size; None where everything fits
    """

    setting: str
    value: int | str
    text: str
    kind: str
    before_bytes: int
    after_bytes: int
    is_exact: bool
    left_bytes: int | None = None

    @property
    def after_text(self) -> str:
        return f"{'' if self.is_exact else 'at most '}{mib(self.after_bytes)}"

    @property
    def sentence(self) -> str:
        """What fits with it, on its own."""
        smaller = f"{NAMES[self.kind]} {verb(self.kind)}"
        if self.left_bytes is not None:
            left = f"{mib(self.left_bytes)} MiB are left for a compute buffer of unknown size"
            return f"With {self.text} the {smaller} {self.after_text} MiB, and {left}."
        return (
            f"It fits with {self.text}: the {smaller} then {self.after_text} MiB in place of {mib(self.before_bytes)}."
        )


@dataclass(frozen=True)
class TooMuch:
    """The first term for which a device had no room.

    n_bytes        of that term
    free_bytes     free on the device when the load began, in whole MiB as it is printed
    missing_bytes  what the device lacked for it
    failed         whether the log has the allocation that failed; else the device was filled beyond what was free
    changes        changes of one setting with which all fits, the one that costs least first
    """

    device: str
    kind: str
    n_bytes: int
    free_bytes: int
    missing_bytes: int
    failed: bool
    changes: tuple[Change, ...] = ()

    @property
    def sentences(self) -> tuple[str, ...]:
        """What is too large by how much, and what would fit."""
        was = "were" if verb(self.kind) == "are" else "was"
        missing, free = (f"{n_bytes / MIB:,.0f} MiB" for n_bytes in (self.missing_bytes, self.free_bytes))
        said = f"The {NAMES[self.kind]} of {mib(self.n_bytes)} MiB {was} {missing} " + (
            f"too much for {self.device}, which had {free} free"
            if self.failed
            else f"more than was free on {self.device}, which had {free}"
        )
        first = self.changes[0] if self.changes else None
        if first is None or first.kind != self.kind or first.left_bytes is not None:
            return (f"{said}.", *(change.sentence for change in self.changes))
        others = (change.sentence for change in self.changes[1:])
        it = "they are" if was == "were" else "it is"
        return (f"{said}; with {first.text} {it} {first.after_text}.", *others)


def verb(kind: str) -> str:
    return "are" if kind in (WEIGHTS, STATES) else "is"


def too_much(logged: Logged, planned: Planned, states: Mapping[tuple[str, str], str]) -> TooMuch | None:
    """The first device without room for a term; None where there is none, or the log does not tell.

    states  whether each term that log and plan both have agrees
    """
    for device in planned.asked.devices:
        found = device.free_bytes and _on_device(logged, device.name, device.free_bytes)
        if found:
            trusted = not any(state == "differs" for (name, _), state in states.items() if name == device.name)
            whole = len(planned.asked.devices) == 1 and not logged.has_other_models
            changes = Changes(logged, planned, found).found() if trusted and whole else ()
            return replace(found, changes=tuple(changes))
    return None


def _on_device(logged: Logged, name: str, free_bytes: int) -> TooMuch | None:
    """The term with which the sum of a device passes what was free on it."""
    total, failure = 0, logged.failure
    for kind in ORDER:
        n_bytes = _known_bytes(logged, name, kind)
        failed = failure is not None and (failure.device, failure.kind) == (name, kind)
        total += n_bytes or 0
        if n_bytes and total >= free_bytes + MIB and (failed or failure is None):
            return TooMuch(name, kind, n_bytes, free_bytes, total - free_bytes, failed)
        if failed:
            return None
    return None


def _known_bytes(logged: Logged, name: str, kind: str) -> int | None:
    """Bytes that a device has of a kind, as the log prints or asks for them."""
    printed, failure = logged.buffers.get(name, {}).get(kind), logged.failure
    if failure is None or (failure.device, failure.kind) != (name, kind):
        return printed.n_bytes if printed else None
    return failure.n_bytes + (printed.n_bytes if printed else 0)


# --- what would fit ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Changes:
    """The search for changes of one setting with which everything fits on a device."""

    logged: Logged
    planned: Planned
    lacking: TooMuch

    def found(self) -> list[Change]:
        """With which everything fits; without any, with which the cache fits at which a load failed."""
        whole = [*self._with(SEARCHES, ORDER)]
        if whole or not self.lacking.failed or self.lacking.kind not in (KV_CACHE, STATES):
            return whole
        return [*self._with(("n_seq_max", "type_k"), ORDER[:3])]

    def _with(self, settings: Iterable[str], kinds: tuple[str, ...]) -> Iterator[Change]:
        for setting in settings:
            if not name_in(setting, self.logged.seen.program.key):
                continue
            after = SEARCHES[setting](self.planned, self._fitting(setting, kinds))
            if after is not None:
                yield self._change(setting, after, kinds)

    def _fitting(self, setting: str, kinds: tuple[str, ...]) -> Fits:
        def fits(settings: Settings) -> bool:
            total = self._needed(setting, settings, kinds)
            if total is None or COMPUTE in kinds:
                return total is not None and total <= self.lacking.free_bytes
            compute = self.planned.but(settings).terms.get((self.lacking.device, COMPUTE), Term(0, 0))
            return total + compute.least <= self.lacking.free_bytes

        return fits

    def _needed(self, setting: str, settings: Settings, kinds: tuple[str, ...]) -> int | None:
        """Bytes of these kinds after a change that surely suffice; None where one is not known."""
        try:
            terms = self.planned.but(settings).terms
        except InferlabError:
            return None
        needed = [self._after(terms, kind, setting) for kind in kinds]
        known = [n_bytes for n_bytes in needed if n_bytes is not None]
        return sum(known) if len(known) == len(needed) else None

    def _after(self, terms: Terms, kind: str, setting: str) -> int | None:
        device = self.lacking.device
        term, before = terms.get((device, kind)), _known_bytes(self.logged, device, kind)
        if kind in (KV_CACHE, STATES):
            return term.most if term else 0
        if kind == WEIGHTS and setting != "n_gpu_layers":
            return before
        at_most = [term.most] if term else []
        if before is not None and kind == COMPUTE and setting not in MAY_GROW:
            at_most.append(before)
        return min(at_most, default=None)

    def _change(self, setting: str, after: Settings, kinds: tuple[str, ...]) -> Change:
        kind, value, device = LESSENS[setting], getattr(after, setting), self.lacking.device
        before = _known_bytes(self.logged, device, kind) or 0
        term = self.planned.but(after).terms.get((device, kind), Term(0, 0))
        left = None if COMPUTE in kinds else self.lacking.free_bytes - (self._needed(setting, after, kinds) or 0)
        text = _words(self.planned.asked, after, self.logged.seen.program.key)
        return Change(setting, value, text, kind, before, term.most, term.is_exact, left)


def _words(asked: Asked, after: Settings, program: str) -> str:
    """The settings that change, with their values, as one writes them in a program."""
    changed = [name for name in LESSENS | {"type_v": ""} if getattr(asked.settings, name) != getattr(after, name)]
    values = {name_in(name, program): getattr(after, name) for name in changed}
    if asked.sets_slot and "n_seq_max" in changed:
        values.pop(name_in("n_ctx", program), None)
    elif asked.sets_slot and "n_ctx" in changed:
        values[name_in("n_ctx", program)] //= after.n_seq_max
    if program == "cli":
        return "`" + " ".join(f"{name} {value}" for name, value in values.items()) + "`"
    if program == "lmstudio":
        return " and ".join(f"`{name}` at {value}" for name, value in values.items())
    return ", ".join(f"`{name}={value}`" for name, value in values.items())


def _smaller_ubatch(planned: Planned, fits: Fits) -> Settings | None:
    settings = planned.asked.settings
    while settings.n_ubatch // 2 >= max(LEAST_UBATCH, settings.n_seq_max):
        settings = settings.but(n_ubatch=settings.n_ubatch // 2)
        if fits(settings):
            return settings
    return None


def _one_slot(planned: Planned, fits: Fits) -> Settings | None:
    """One sequence with the context that each has now."""
    settings = planned.asked.settings
    n_ctx = settings.n_ctx if settings.kv_unified else (settings.n_ctx or 0) // settings.n_seq_max
    one = settings.but(n_seq_max=1, kv_unified=False, n_ctx=n_ctx)
    return one if settings.n_seq_max > 1 and fits(one) else None


def _smaller_type(planned: Planned, fits: Fits) -> Settings | None:
    settings = planned.asked.settings
    if settings.flash_attn == "off" or not {settings.type_k, settings.type_v} <= set(UNQUANTIZED):
        return None
    smaller = settings.but(type_k=SMALLER_TYPE, type_v=SMALLER_TYPE)
    return smaller if fits(smaller) else None


def _fewer_layers(planned: Planned, fits: Fits) -> Settings | None:
    settings = planned.asked.settings
    most = min(settings.n_gpu_layers, planned.model.n_layer + 1) - 1
    best = largest_fitting(lambda n: fits(settings.but(n_gpu_layers=n)), most) if most > 0 else 0
    return settings.but(n_gpu_layers=best) if best else None


def _shorter_context(planned: Planned, fits: Fits) -> Settings | None:
    settings = planned.asked.settings
    shared = settings.kv_unified and not planned.asked.sets_slot
    step = CELL_STEP * (1 if shared else settings.n_seq_max)
    most = (settings.n_ctx or 0) // step - 1
    best = largest_fitting(lambda n: fits(settings.but(n_ctx=n * step)), most) if most > 0 else 0
    return settings.but(n_ctx=best * step) if best else None


SEARCHES: dict[str, Callable[[Planned, Fits], Settings | None]] = {
    "n_ubatch": _smaller_ubatch,
    "n_seq_max": _one_slot,
    "type_k": _smaller_type,
    "n_gpu_layers": _fewer_layers,
    "n_ctx": _shorter_context,
}
"""From what costs least: speed of the prompt, slots, precision, speed, length."""
