"""What others published about graphics cards, in the form in which pages tell it: numbers, and rows of tables.

Rates come from `inferlab.results.public_rates`. The records of this folder have what that list has no room for: drafts,
several cards, limits of power, memory that spilled, one file under several settings, and caches of several types.
Nothing here was measured by this book, and nothing of it follows from two CPU cores.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from urllib.parse import quote

from inferlab.model.catalog import known_model
from inferlab.prediction.cards import known_card
from inferlab.results.public_rates import DECODE, PROMPT, PublicRate, of_card, one_row, public_rates

RECORDS = Path(__file__).parent / "records"
NAMES = ("attention", "drafts", "laptop", "power", "several_cards", "spill")
LAPTOP, ARC, LAST, PAIR = "rtx-4070-laptop", "arc-b580", "rtx-5090", "rtx-5060-ti-16gb"
LATENT = "glm-4.7-flash"
EMPTY, MIDDLE, DEEP = 0, 8192, 32768
NOT_STATED = "not stated"
Cell = str | int | float
Table = tuple[Sequence[str], list[Sequence[Cell]]]
"""The heads and the rows of `handbook.table`."""


# --- the records --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reported:
    """One published figure.

    repository, path, commit, line  where it stands; a thread has neither commit nor line
    who      whose it is
    card     a short name of devices.toml; n_cards of them worked together
    setting  what differs between the rows that a page compares
    depth    tokens in the cache before
    what     "decode" or "prompt", or what `value` counts in `unit`
    build    of llama.cpp, "" where it is not stated
    """

    repository: str
    path: str
    commit: str
    line: str
    who: str
    card: str
    n_cards: int
    model: str
    type: str
    setting: str
    depth: int
    what: str
    value: float
    unit: str
    build: str
    date: str

    @property
    def link(self) -> str:
        """Whose it is and when it was measured, as a link to it."""
        return f"[{self.who}, {self.date}]({self.address})"

    @property
    def address(self) -> str:
        """Where a reader can open it."""
        if not self.commit:
            return f"https://github.com/{self.repository}/{self.path}"
        return f"https://github.com/{self.repository}/blob/{self.commit}/{quote(self.path)}?plain=1#L{self.line}"


@cache
def reported(name: str) -> tuple[Reported, ...]:
    """The rows of a record, one of NAMES."""
    text = (RECORDS / f"{name}.csv").read_text(encoding="utf-8")
    return tuple(map(_row, csv.DictReader(text.splitlines())))


def _row(cells: Mapping[str, str]) -> Reported:
    texts = ("repository", "path", "commit", "line", "who", "card", "model", "type", "setting", "what", "unit", "build")
    return Reported(
        **{name: cells[name] for name in texts},
        n_cards=int(cells["n_cards"]),
        depth=int(cells["depth"]),
        value=float(cells["value"]),
        date=cells["date"],
    )


def _value(name: str, **wanted: object) -> float:
    return one_row(reported(name), **wanted).value


def _title(card: str) -> str:
    return known_card(card).title.removeprefix("GeForce ").removeprefix("Radeon ")


def _name(row: Reported | PublicRate) -> str:
    name = known_model(row.model).name
    return f"{name}, {row.type}" if row.type else name


# --- layers, experts and memory -----------------------------------------------------------------


def slow_numbers() -> dict[str, float]:
    """A layer in RAM, a driver that moved memory to RAM, and two models behind a long context."""
    layers = {"what": DECODE, "model": "qwen3.5-9b"}
    fits, over = {"setting": "draft 2, -c 16384"}, {"setting": "draft 2, -c 32768"}
    latent, plain = (_by_depth("rtx-4090", model, "Q4_K_M") for model in (LATENT, "qwen3.5-27b"))
    return {
        "layers_all": _value("laptop", setting="-ngl all", **layers),
        "layers_less": _value("laptop", setting="-ngl 32", **layers),
        "spill_fits": _value("spill", what=DECODE, **fits),
        "spill_over": _value("spill", what=DECODE, **over),
        "spill_fits_gb": _value("spill", what="to the card", **fits) / 1000,
        "spill_over_gb": _value("spill", what="to the card", **over) / 1000,
        "spill_fits_watts": _value("spill", what="power", **fits),
        "spill_over_watts": _value("spill", what="power", **over),
        "latent_empty": latent[EMPTY].rate,
        "latent_deep": latent[DEEP].rate,
        "plain_empty": plain[EMPTY].rate,
        "plain_deep": plain[DEEP].rate,
    }


def ubatch_table() -> Table:
    """One file on one laptop with four ubatches."""
    heads = ("settings", "prompt of 4,096 tokens, tokens/s", "decode, tokens/s", "source")
    rows = [row for row in reported("laptop") if row.setting.startswith("-ub")]
    return heads, [
        (f"`{row.setting}`", row.value, one_row(rows, setting=row.setting, what=DECODE).value, row.link)
        for row in rows
        if row.what == PROMPT
    ]


def expert_numbers() -> dict[str, float]:
    """Prompts with a small and a large ubatch; decode with more and fewer experts in RAM."""
    prompts = {"what": PROMPT, "model": "qwen3.6-35b-a3b"}
    rows = of_card(ARC)
    first = {"depth": EMPTY, "type_k": "f16"}
    return {
        "pub_prompt_512": _value("laptop", setting="-ub 512 -ncmoe 39", **prompts),
        "pub_prompt_2048": _value("laptop", setting="-ub 2048 -ncmoe 40", **prompts),
        "pub_more": one_row(rows, model="qwen3-30b-a3b", n_cpu_moe=30, **first).rate,
        "pub_fewer": one_row(rows, model="qwen3-30b-a3b", n_cpu_moe=19, **first).rate,
        "pub_small_more": one_row(rows, model="gpt-oss-20b", n_cpu_moe=24, **first).rate,
        "pub_small_fewer": one_row(rows, model="gpt-oss-20b", n_cpu_moe=2, **first).rate,
    }


def laptop_table() -> Table:
    """A card of 8 GB with models that fit it, and with a part in RAM."""
    heads = ("model on an RTX 4070 Laptop", "on the card", "prompt, tokens/s", "decode, tokens/s", "source")
    rows = of_card(LAPTOP)
    shown = (
        one_row(rows, model="llama-3.1-8b"),
        one_row(rows, place="fit-bench-results.csv:132"),
        one_row(rows, place="fit-bench-results.csv:142"),
        one_row(rows, place="fit-bench-results.csv:148"),
        one_row(rows, place="fit-bench-results.csv:154"),
        one_row(rows, place="fit-bench-results.csv:164"),
        one_row(rows, place="fit-bench-results.csv:388"),
    )
    return heads, [(_name(row), _placed(row), _prompt_of(row).rate, row.rate, row.link) for row in shown]


def _placed(row: PublicRate) -> str:
    n_layer = known_model(row.model).n_layer
    if row.n_cpu_moe:
        return f"all but the experts of {row.n_cpu_moe} of {n_layer} layers"
    return "all" if row.n_gpu_layers is None else f"{row.n_gpu_layers} of {n_layer + 1} layers"


def _prompt_of(row: PublicRate) -> PublicRate:
    return one_row(of_card(row.card, PROMPT), source=row.source, place=row.place, model=row.model)


# --- attention ----------------------------------------------------------------------------------


def cache_table() -> Table:
    """Decode with a cache in F16 and in q8_0, by the tokens in it."""
    heads = ("card and model", "tokens in the cache", "`f16`, tokens/s", "`q8_0`, tokens/s", "source")
    rows = reported("attention")
    card = [
        (f"{_title(row.card)}: {_name(row)}", row.depth, row.value, _q8_value(row), row.link)
        for row in rows
        if row.setting == "f16"
    ]
    f16, q8 = (
        one_row(of_card(ARC), depth=MIDDLE, model="qwen3-30b-a3b", n_cpu_moe=21, type_k=k) for k in ("f16", "q8_0")
    )
    what = f"{_title(ARC)}: {_name(f16)}, experts of {f16.n_cpu_moe} layers in RAM"
    return heads, [*card, (what, f16.depth, f16.rate, q8.rate, q8.link)]


def _q8_value(row: Reported) -> float:
    return _value("attention", setting="q8_0", depth=row.depth)


def latent_table() -> Table:
    """GLM 4.7 Flash, whose cache is latent, on three machines; and another model on the first of them."""
    heads = ("card and model", "build", "flash attention", "empty", "8,192", "32,768 tokens", "kept", "source")
    cases = (
        ("rtx-4090", LATENT, "Q4_K_M"),
        ("dgx-spark", LATENT, "Q8_0"),
        ("apple-m2-ultra", LATENT, "Q8_0"),
        ("rtx-4090", "qwen3.5-27b", "Q4_K_M"),
    )
    return heads, [_depth_row(_by_depth(*case)) for case in cases]


def _by_depth(card: str, model: str, type: str) -> dict[int, PublicRate]:
    rows = [row for row in of_card(card) if (row.model, row.type) == (model, type)]
    return {depth: one_row(rows, depth=depth) for depth in (EMPTY, MIDDLE, DEEP)}


def _depth_row(found: Mapping[int, PublicRate]) -> Sequence[Cell]:
    row = found[EMPTY]
    rates = [found[depth].rate for depth in (EMPTY, MIDDLE, DEEP)]
    kept = f"{100 * rates[-1] / rates[0]:.0f} %"
    switch = {None: NOT_STATED, True: "on", False: "off"}[row.flash_attn]
    return (f"{_title(row.card)}: {_name(row)}", row.build, switch, *rates, kept, row.link)


def attention_numbers() -> dict[str, float]:
    """A q8_0 cache behind a long context, a latent one, and every published pair with flash attention on and off."""
    pairs = flash_pairs()
    gains = sorted(on.rate / off.rate for on, off in pairs)
    by_card: dict[str, int] = defaultdict(int)
    for on, _ in pairs:
        by_card[on.card] += 1
    return {
        "pub_f16_deep": _value("attention", setting="f16", depth=DEEP),
        "pub_q8_deep": _value("attention", setting="q8_0", depth=DEEP),
        "pub_pairs": len(pairs),
        "pub_pairs_of_one": max(by_card.values()),
        "pub_flash_least": gains[0],
        "pub_flash_most": gains[-1],
    }


def flash_pairs() -> list[tuple[PublicRate, PublicRate]]:
    """Rates of decode with and without flash attention that differ in nothing else, of one source."""
    found: dict[tuple[object, ...], dict[bool, PublicRate]] = defaultdict(dict)
    for row in public_rates():
        if row.phase == DECODE and row.flash_attn is not None:
            found[_apart_from_flash(row)].setdefault(row.flash_attn, row)
    return [(both[True], both[False]) for both in found.values() if len(both) == 2]


def _apart_from_flash(row: PublicRate) -> tuple[object, ...]:
    what = (row.source, row.card, row.backend, row.build, row.model, row.type, row.n_bytes)
    how = (row.n_gpu_layers, row.n_cpu_moe, row.n_ubatch, row.type_k, row.type_v, row.depth, row.n_tokens)
    return what + how


# --- drafts, several cards, power ---------------------------------------------------------------


def draft_table() -> Table:
    """Qwen3.8 27B without a draft and with two proposals of its own layers."""
    heads = ("card", "type", "plain, tokens/s", "two proposals, tokens/s", "times", "source")
    return heads, [
        (_title(plain.card), plain.type, plain.value, drafted.value, drafted.value / plain.value, drafted.link)
        for plain, drafted in _drafts()
    ]


def _drafts() -> list[tuple[Reported, Reported]]:
    rows = reported("drafts")
    return [(row, one_row(rows, setting="draft 2", card=row.card)) for row in rows if row.setting == "plain"]


def draft_numbers() -> dict[str, float]:
    """The gains of `draft_table`, and those of one request and of two at once on two cards."""
    gains = sorted(drafted.value / plain.value for plain, drafted in _drafts())
    at_once = {n: _at_once(n) for n in (1, 2)}
    return {
        "pub_draft_cards": len(gains),
        "pub_draft_least": gains[0],
        "pub_draft_median": median(gains),
        "pub_draft_most": gains[-1],
        "pub_draft_one": at_once[1],
        "pub_draft_two": at_once[2],
    }


def _at_once(n: int) -> float:
    """How many times as fast each of n requests at once was with three proposals."""
    drafted, plain = (_value("drafts", setting=f"{how}, {n} at once") for how in ("draft 3", "plain"))
    return drafted / plain


def cards_table() -> Table:
    """One, two, four and eight cards with whole layers on each."""
    heads = ("RTX 4090 cards", "Llama 3 8B: prompt", "decode", "Llama 3 70B: prompt", "decode, tokens/s", "source")
    return heads, [_cards_row(n) for n in (1, 2, 4, 8)]


def _cards_row(n_cards: int) -> Sequence[Cell]:
    rows = [row for row in reported("several_cards") if (row.card, row.n_cards) == ("rtx-4090", n_cards)]
    found = {(row.model, row.what): row for row in rows}
    keys = [(model, what) for model in ("llama-3-8b", "llama-3-70b") for what in (PROMPT, DECODE)]
    # as text: where one card is too small there is no number
    rates = [f"{found[key].value:,.0f}" if key in found else "does not fit" for key in keys]
    return (n_cards, *rates, found[keys[1]].link)


def cards_numbers() -> dict[str, float]:
    """How many times as fast `tensor` was as `layer`, and more cards with `layer` as one."""
    numbers = {}
    for name, card in (("pair", PAIR), ("radeon", "rx-7900-xtx")):
        for what in (PROMPT, DECODE):
            tensor, layer = (_value("several_cards", card=card, what=what, setting=s) for s in ("tensor", "layer"))
            numbers[f"pub_{name}_{what}"] = tensor / layer
    rates = {n: _value("several_cards", card="rtx-4090", model="llama-3-8b", what=DECODE, n_cards=n) for n in (1, 2)}
    return numbers | {"pub_two_layer": rates[2] / rates[1]}


def power_numbers() -> dict[str, float]:
    """Decode of a card at its limit of power and at two thirds of it, and a dense model in Q6_K."""
    plain, drafted = ({w: _value("power", setting=f"{how}, {w} W") for w in (400, 600)} for how in ("plain", "draft 4"))
    return {
        "pub_power_plain": plain[600],
        "pub_power_plain_capped": plain[400],
        "pub_power_draft": drafted[600],
        "pub_power_draft_capped": drafted[400],
        "pub_dense": _value("drafts", card=LAST, setting="plain"),
    }
