"""Chooses a model of the list for a machine and a purpose, with the rate to expect and the line to paste.

    candidates = models of the last MONTHS in their usual weights, of which the context of the purpose fits, and whose
                 expected rate is at least LEAST_RATE
    choice     = the candidate with the most weights; of equally many, the newest

Quality is not among the rules, because nothing in the book measures it. For a CPU no rate is expected: its bound, by
the rated bandwidth of RAM, must be CPU_TIMES as high.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from html import escape
from typing import Any
from urllib.parse import urlencode

from inferlab.facts import read_table
from inferlab.machine import Machine
from inferlab.model.catalog import KnownModel, known_models
from inferlab.model.gguf import Model
from inferlab.model.synthetic_model import shape
from inferlab.prediction.card_work import CardWork
from inferlab.prediction.decode_bound import token_bytes
from inferlab.prediction.expected import ExpectedRates, expected_decode, expected_prompt, question_of, rows_text
from inferlab.prediction.fit import RESERVE_BYTES, Fit, fit
from inferlab.prediction.free_memory import HostRam
from inferlab.prediction.link_rates import Rung, cited_rungs
from inferlab.prediction.memory.cache import kv_cache_bytes
from inferlab.prediction.paste import lines_for, nearest
from inferlab.prediction.place import DEFAULT_RAM_BYTES, Place, place_of_card
from inferlab.results.public_rates import of_card
from inferlab.settings import Settings
from inferlab.units import GB, GIB

MONTHS = 12
"""How long before the last look at the list a candidate may have been released."""
LEAST_RATE = 15.0
"""Tokens per second."""
CPU_TIMES = 2
"""A CPU reaches a part of its bound, so that must be so many times LEAST_RATE."""
FOR_CODE = re.compile(r"\bcode\b|coder|codestral|devstral", re.IGNORECASE)
"""In the names of models that are made for code."""
SAME = re.compile(r" with MTP$| VL ")
"""In the names of models whose text model the list has too: with a layer that drafts, or with pictures."""
RAM_NAME = "DDR5-5600, two channels"
CPUS = {"cpu-16": 16, "cpu-32": 32}
"""Machines without a card, by their GiB of RAM."""
MACHINES = (
    *("rtx-4060", "rtx-3060", "rtx-5060-ti-16gb", "rtx-3090"),
    *("apple-m4:16", "apple-m4-pro:24", "apple-m4-max-40:64", "apple-m4-max-40:128", "ryzen-ai-max-395:128"),
    *CPUS,
)
"""The machines of the page: cards by their names in `sized_cards`, and CPUS."""
NAMELESS = Machine("", None, None, "", "")
"""A host without devices, of which only the RAM counts."""


@dataclass(frozen=True)
class Purpose:
    """What a model is for, and what must fit.

    cache   the type of cached keys and values
    at_end  whether the rate must be reached at the end of the context, too
    code    whether a model made for code comes first
    in_ram  whether it is the largest mixture with experts in RAM
    """

    name: str
    n_ctx: int
    cache: str = "f16"
    at_end: bool = False
    code: bool = False
    in_ram: bool = False

    @property
    def settings(self) -> Settings:
        return Settings(n_ctx=self.n_ctx, type_k=self.cache, type_v=self.cache)


CHAT = Purpose("chat", 8192)
LONG = Purpose("long documents", 65_536, "q8_0", at_end=True)
CODE = Purpose("code", 32_768, code=True)
LARGER = Purpose("experts in RAM", 32_768, in_ram=True)


# --- machines ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spot:
    """A machine of the page: a place of the planner, or None for a CPU alone, with its RAM."""

    name: str
    place: Place | None
    ram: HostRam

    @property
    def purposes(self) -> tuple[Purpose, ...]:
        has_both = self.place is not None and not self.place.shared
        return (CHAT, LONG, CODE, LARGER) if has_both else (CHAT, LONG, CODE)

    @property
    def room_bytes(self) -> int:
        """Bytes for weights and cache on the card, in the memory that it shares, or in RAM.

        Where no limit of the GPU's part is known, no more than a public result there had of weights.
        """
        if self.place is None:
            return self.ram.usable_bytes
        usable = self.place.sizes[0] - RESERVE_BYTES
        if not self.place.shared:
            return usable
        shown = [row.n_bytes for row in of_card(self.place.card.name)] if self.place.card else []
        most = usable if self.place.limit else int(max(shown, default=usable))
        return min(usable, self.ram.usable_bytes, most)

    def planned(self, model: Model, settings: Settings) -> Fit:
        """The plan of a model here, as the planner has it."""
        devices: dict[str, Any] = self.place.devices if self.place else {"machine": NAMELESS}
        return fit(model, settings, ram=self.ram, simulate=False, within_trained=True, **devices)


@cache
def spot(name: str) -> Spot:
    """The machine of a name in MACHINES."""
    if name in CPUS:
        return Spot(name, None, HostRam(CPUS[name] * GIB))
    place = place_of_card(name)
    return Spot(name, place, place.ram or HostRam(place.sizes[0]))


def cpu_ram() -> Rung:
    """The RAM by which a CPU's bound is computed."""
    return next(rung for rung in cited_rungs() if rung.name == RAM_NAME)


# --- candidates -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """A model of the list in its usual weights, released in the month `date`."""

    name: str
    known: KnownModel
    date: str

    @cached_property
    def model(self) -> Model:
        return shape(self.name, self.known.usual_type)

    @property
    def for_code(self) -> bool:
        return bool(FOR_CODE.search(self.known.name))

    @property
    def weights_text(self) -> str:
        """Billions of weights, of a mixture those that a token uses, too, and their GiB."""
        billions, used = f"{self.model.n_params / 1e9:.3g}", CardWork(self.model).token(0).weights
        told = f"{used / 1e9:.2g} of {billions}" if self.known.n_expert else billions
        return f"{told} B, {self.model.tensor_bytes / GIB:.1f} GiB"

    def needed_bytes(self, settings: Settings) -> int:
        """Bytes of weights and cache: less than any plan needs."""
        return self.model.tensor_bytes + kv_cache_bytes(self.model, settings)


@cache
def candidates() -> tuple[Candidate, ...]:
    """The models that can be chosen, those with the most weights first, of equally many the newest."""
    dates = {name: entry["date"] for name, entry in read_table("models").items() if isinstance(entry, dict)}
    last = _months(known_models().last_look)
    recent = [name for name in known_models() if last - _months(dates[name]) < MONTHS]
    named = (Candidate(name, known_models()[name], dates[name]) for name in recent)
    found = [one for one in named if not SAME.search(one.known.name)]
    return tuple(sorted(found, key=lambda one: (one.model.n_params, one.date), reverse=True))


def _months(date: str) -> int:
    year, month = date.split("-")[:2]
    return 12 * int(year) + int(month)


# --- choices ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rates:
    """Tokens per second at the beginning and at the end of the context, and the least that is asked.

    expected  with their bands; None on a CPU, whose rates are bounds
    """

    start: float
    end: float
    least: float
    expected: ExpectedRates | None = None

    def pass_for(self, purpose: Purpose) -> bool:
        return (self.end if purpose.at_end else self.start) >= self.least

    @property
    def texts(self) -> tuple[str, str]:
        """Both rates, and how long a prompt takes that fills the context."""
        full = f"; full: {self.end:.0f}"
        if self.expected is None:
            return f"at most {self.start:.0f}{full}", "–"
        start, prompt, n = self.expected.start, self.expected.prompt, self.expected.n_prompt
        seconds = f"{_duration(n / prompt.high)} to {_duration(n / prompt.low)}" if prompt.is_told else "not told"
        return f"{start.rate:.0f} ({start.low:.0f}–{start.high:.0f}){full}", seconds


@dataclass(frozen=True)
class Choice:
    """A model that was chosen, with its plan, and the settings of the purpose or those with experts in RAM."""

    spot: Spot
    purpose: Purpose
    candidate: Candidate
    fit: Fit
    settings: Settings
    rates: Rates

    @property
    def line(self) -> str:
        """For llama-server; a name stands for the path of the file."""
        file = f"{self.candidate.name}-{self.candidate.known.usual_type}.gguf"
        return lines_for(self.fit, "llama-server", file, self.candidate.known.n_ctx_train).parts[0].text

    @property
    def question(self) -> dict[str, str]:
        """The same question to the planner, in the fields of its form; it has none of a CPU alone."""
        asked = {"model": self.candidate.name, "card": self.spot.name, "n_ctx": f"{self.purpose.n_ctx}"}
        types = {"type_k": self.purpose.cache, "type_v": self.purpose.cache} if self.purpose.cache != "f16" else {}
        experts = {"n_cpu_moe": f"{self.settings.n_cpu_moe}"} if self.settings.n_cpu_moe else {}
        return {**asked, **types, **experts, "offload_kqv": "on"}

    @property
    def cells(self) -> tuple[str, ...]:
        """Cells of the table after the purpose."""
        known, longest = self.candidate.known, self.fit.largest_n_ctx.value
        address = f"planner.html?{escape(urlencode(self.question))}"
        link = f'<a href="{address}">{escape(known.name)}</a>' if self.spot.place else escape(known.name)
        context = f"{self.purpose.n_ctx:,}" + (f" of {longest:,}" if longest else "")
        return link, self.candidate.weights_text, context, *self.rates.texts


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


@cache
def choice(name: str, purpose: Purpose) -> Choice | None:
    """The choice for a machine and a purpose; None where no candidate passes."""
    here, every = spot(name), candidates()
    if purpose.in_ram:
        whole = choice(name, CHAT)
        least = whole.candidate.model.n_params if whole else 0
        return _first(here, purpose, (one for one in every if one.known.n_expert and one.model.n_params > least))
    for_code = [one for one in every if one.for_code and purpose.code]
    return _first(here, purpose, for_code) or _first(here, purpose, (one for one in every if not one.for_code))


def _first(here: Spot, purpose: Purpose, some: Iterable[Candidate]) -> Choice | None:
    """The first candidate that passes; one with too many bytes for any plan is not planned."""
    room = here.room_bytes + (here.ram.usable_bytes if purpose.in_ram else 0)
    chosen = _with_experts_in_ram if purpose.in_ram else _whole
    small = (one for one in some if one.needed_bytes(purpose.settings) <= room)
    return next(filter(None, (chosen(here, purpose, one) for one in small)), None)


def _whole(here: Spot, purpose: Purpose, one: Candidate) -> Choice | None:
    """A candidate whole on the card, or in RAM without one; None where it is too slow or does not fit."""
    rates = _rates(here, purpose, CardWork(one.model))
    if not rates.pass_for(purpose):
        return None
    planned = here.planned(one.model, purpose.settings)
    return Choice(here, purpose, one, planned, purpose.settings, rates) if planned.fits == "yes" else None


def _with_experts_in_ram(here: Spot, purpose: Purpose, one: Candidate) -> Choice | None:
    """A candidate with the experts of some layers in RAM; None where it is too slow, or does not fit so."""
    planned = here.planned(one.model, purpose.settings)
    near = nearest(planned)
    if near.settings is None or not near.settings.n_cpu_moe:
        return None
    rates = _rates(here, purpose, CardWork(one.model, near.plan.layer_devices, near.plan.moved))
    return Choice(here, purpose, one, planned, near.settings, rates) if rates.pass_for(purpose) else None


def _rates(here: Spot, purpose: Purpose, work: CardWork) -> Rates:
    """What a placed model should reach with the context of a purpose."""
    depths = 0, purpose.n_ctx - 1
    if here.place is None or here.place.card is None:
        per_token = (token_bytes(work.model, purpose.cache, purpose.cache, depth) for depth in depths)
        first, last = map(cpu_ram().most_tokens_per_second, per_token)
        return Rates(first, last, CPU_TIMES * LEAST_RATE)
    asked = question_of(work, here.place.card, purpose.settings)
    start, end = (expected_decode(asked, depth) for depth in depths)
    expected = ExpectedRates(start, end, expected_prompt(asked, purpose.n_ctx), purpose.n_ctx, asked)
    return Rates(start.rate, end.rate, LEAST_RATE, expected)


# --- what the page shows ----------------------------------------------------------------------------

HEADS = ("for", "model", "weights", "context", "tokens/s", "prompt of that length")


Table = tuple[Sequence[str], list[Sequence[str]]]
"""The heads and the rows of `handbook.table`."""


def choices(name: str) -> dict[Purpose, Choice | None]:
    """The choice of a machine for each of its purposes."""
    return {purpose: choice(name, purpose) for purpose in spot(name).purposes}


def table(name: str) -> Table:
    """A row for each purpose of a machine."""
    nothing = ("no candidate passes", *["–"] * (len(HEADS) - 2))
    return HEADS, [(purpose.name, *(one.cells if one else nothing)) for purpose, one in choices(name).items()]


@dataclass(frozen=True)
class Lines:
    """What stands below the table of a machine: where its rates come from, and the lines to paste."""

    name: str

    @property
    def source(self) -> str:
        """From how many public results the rates of a card are, or by which memory a CPU's bound is, in a sentence."""
        expected = next((one.rates.expected for one in choices(self.name).values() if one), None)
        if expected:
            return rows_text(expected)
        ram = cpu_ram()
        return f"Bounds by {ram.name}: {ram.bytes_per_second / GB:.1f} GB/s {{cite}}`{ram.source}`."

    @property
    def text(self) -> str:
        """The lines for llama-server, each below its purpose."""
        chosen = (one for one in choices(self.name).values() if one)
        return "\n".join(f"# {one.purpose.name}\n{one.line}" for one in chosen)

    def _repr_markdown_(self) -> str:
        """As the last line of a page's cell."""
        return f"{self.source}\n\n```sh\n{self.text}\n```"


def numbers() -> dict[str, float | str]:
    """The rules in numbers, and the choices that *In short* names."""
    numbers: dict[str, float | str] = {
        **{"months": MONTHS, "least": LEAST_RATE, "cpu_times": CPU_TIMES, "n_candidates": len(candidates())},
        **{"chat_ctx": CHAT.n_ctx, "long_ctx": LONG.n_ctx, "code_ctx": CODE.n_ctx, "ram_ctx": LARGER.n_ctx},
        **{"reserve_gib": RESERVE_BYTES / GIB, "ram_gib": DEFAULT_RAM_BYTES / GIB},
        "last_look": known_models().last_look,
    }
    for key, name in (("small", "rtx-4060"), ("large", "rtx-3090")):
        chosen = choice(name, CHAT)
        numbers[f"{key}_model"] = chosen.candidate.known.name if chosen else "no model"
        numbers[f"{key}_rate"] = chosen.rates.start if chosen else 0.0
    return numbers
