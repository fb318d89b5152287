"""What the planner shows of all known models: a table to sort, each model a button that plans it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inferlab.instruments import forms
from inferlab.instruments.planner_view import code
from inferlab.instruments.views import element, paragraph
from inferlab.prediction.memory.cache import n_ctx_of
from inferlab.prediction.place import Place
from inferlab.prediction.steps import WEIGHT_TYPES
from inferlab.prediction.what_runs import Placed, Runs, left_out
from inferlab.settings import Settings
from inferlab.units import bytes_text, count_text, number_text

CONTEXT, RATE = "Context, at least", "Tokens/s, about"
HEADS = ("Model", "Weights, all on the card", CONTEXT, RATE, "Larger, partly in RAM", "In RAM", CONTEXT, RATE)
SHARED_HEADS = ("Model", "Weights", CONTEXT, RATE)
TOLD = (
    f"For each model the largest weights that fit with the context you ask for; tried are {', '.join(WEIGHT_TYPES)}. "
    "The context beside them surely fits, up to the one that the model was trained for; its plan finds the longest. "
    "Tokens/s are of a token at the beginning of the context, by public results on cards of the list; the plan of a "
    "model says by how many, and how far they may be off. A name plans that model, and a head sorts."
)
IN_RAM = (
    " Larger weights plan it with a part in RAM. Those are Q8_0 at most, whose perplexity is nearly F16's: ",
    element("a", {"href": "./optimization/quantization.html#sec-quantization-choosing"}, "how to choose"),
    ". They are not needed if the weights on the card are already so large.",
)


def list_summary(found: Sequence[Runs], place: Place, settings: Settings) -> str:
    """How many of all known models run, in a sentence; and how those count that were trained for less than is asked."""
    whole = sum(runs.whole is not None for runs in found)
    in_ram = sum(runs.whole is None and runs.in_ram is not None for runs in found)
    beside = f", {in_ram} more with a part in RAM" if in_ram else ""
    where = "in this memory" if place.shared else "whole on the card"
    asked = f"with {n_ctx_of(settings):,} tokens of context"
    shorter = sum(best.longest_n_ctx < n_ctx_of(settings) for runs in found if (best := runs.whole or runs.in_ram))
    less = f" {shorter} of them were trained for less, and are counted with that." if shorter else ""
    return f"Of {count_text(len(found), 'model')}, {whole} fit {where}{beside}, on {place.title} {asked}.{less}"


def list_view(found: Sequence[Runs], place: Place, settings: Settings, command: str) -> list[Any]:
    """The table, what it says, and the same question to the command line."""
    heads = SHARED_HEADS if place.shared else HEADS
    asked = n_ctx_of(settings)
    rows = (element("tr", {}, *_cells(runs, heads, asked)) for runs in found if runs.whole or runs.in_ram)
    head = element("thead", {}, element("tr", {}, *map(_head, heads)))
    return element(
        "div",
        {},
        paragraph(TOLD, *(() if place.shared else IN_RAM)),
        element("table", {"class": "table instrument-list"}, head, element("tbody", {}, *rows)),
        *map(paragraph, left_out(found)),
        paragraph("The same on the command line; add --json for all numbers:"),
        code(command),
    )


def _head(text: str) -> list[Any]:
    return element("th", {"scope": "col"}, element("button", {"type": "button", "data-sort": True}, text))


def _cells(runs: Runs, heads: Sequence[str], asked: int) -> list[Any]:
    """The cells of a model; numbers to sort by are bytes of the weights and tokens.

    asked  tokens of context that are asked for
    """
    best = runs.whole or runs.in_ram
    name = _plan(runs.title, runs, best, asked) if best else runs.title
    name = element("th", {"scope": "row", "data-label": heads[0]}, name)
    texts = _texts(runs.whole, asked)
    if len(heads) > len(SHARED_HEADS):
        none = "not needed" if runs.is_largest else "no"
        (weights, n_bytes), *others = _texts(runs.in_ram, asked, in_ram=True, none=none)
        pressed = _plan(weights, runs, runs.in_ram, asked) if runs.whole and runs.in_ram else weights
        texts += [(pressed, n_bytes), *others]
    labelled = zip(heads[1:], texts, strict=True)
    return [name, *(element("td", {"data-label": head, "data-value": value}, text) for head, (text, value) in labelled)]


def _texts(placed: Placed | None, asked: int, *, in_ram: bool = False, none: str = "no") -> list[tuple[Any, float]]:
    if placed is None:
        return [(none, 0), *[("–", 0)] * (2 + in_ram)]
    weights = f"{placed.type}, {bytes_text(placed.weights_bytes)}"
    middle = [(placed.in_ram_text, placed.n_cpu_moe or placed.n_layers - placed.n_gpu_layers)] * in_ram
    longest = f"{placed.longest_n_ctx:,}{', as trained' if placed.longest_n_ctx < asked else ''}"
    rate = (number_text(placed.rate), placed.rate) if placed.rate else ("–", 0)
    return [(weights, placed.weights_bytes), *middle, (longest, placed.longest_n_ctx), rate]


def _plan(label: str, runs: Runs, placed: Placed, asked: int) -> list[Any]:
    """A button that plans a model so, with the context that it was trained for if that is shorter."""
    shorter = {"n_ctx": f"{placed.longest_n_ctx}"} if placed.longest_n_ctx < asked else {}
    layers = "" if placed.n_gpu_layers < 0 else f"{placed.n_gpu_layers}"
    return forms.asking(
        label,
        list="",
        model=runs.name,
        type=placed.type,
        n_gpu_layers=layers,
        n_cpu_moe=f"{placed.n_cpu_moe or ''}",
        override_tensor="",
        **shorter,
    )
