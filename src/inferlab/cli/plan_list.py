"""What `inferlab plan --list` prints: what of all known models runs on a machine."""

from __future__ import annotations

import json
from collections.abc import Iterable

from inferlab.prediction.place import Place
from inferlab.prediction.what_runs import Placed, Runs, by_size, left_out
from inferlab.units import bytes_text, number_text

CONTEXT, RATE, WITH_RAM = "ctx ≥", "tok/s", "with RAM"


def print_runs(found: Iterable[Runs], place: Place, n_ctx: int, as_json: bool = False) -> None:
    """A row for each model, the largest that runs first, and what was compared."""
    listed = by_size(found)
    if as_json:
        print(json.dumps({"n_ctx": n_ctx, "models": [runs.to_dict() for runs in listed]}, indent=1))
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    beside = "" if place.shared or not place.ram else f" and {bytes_text(place.ram.n_bytes)} of RAM"
    sizes = " and ".join(map(bytes_text, place.sizes))
    cards = f"one {place.title}" if len(place.sizes) == 1 else f"{len(place.sizes)} cards with {sizes}"
    title = f"What runs on {cards}{beside}, with at least {n_ctx:,} tokens of context"
    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=0)
    for heading in ("model", "whole", CONTEXT, RATE, WITH_RAM, CONTEXT, RATE):
        least = {CONTEXT: 7, RATE: 5, WITH_RAM: 10}.get(heading)
        is_number = heading in (CONTEXT, RATE)
        table.add_column(
            heading, justify="right" if is_number else "left", no_wrap=heading != WITH_RAM, min_width=least
        )
    for runs in listed:
        if runs.whole or runs.in_ram:
            table.add_row(*map(Text, (runs.name, *cells(runs.whole), *cells(runs.in_ram))))
    Console().print(table)
    for sentence in left_out(listed):
        print(sentence)
    print(
        "whole: the largest weights that fit on the card. with RAM: larger ones, at most Q8_0, with what lies "
        "in RAM. ctx: a context that surely fits; a model's own plan finds the longest. tok/s: of a token at the "
        "beginning of the context, by public results on cards of the list; a plan names its band."
    )


def cells(placed: Placed | None) -> tuple[str, str, str]:
    """The type with what lies in RAM, the longest context and the expected rate; strokes without any."""
    if placed is None:
        return "-", "-", "-"
    weights = ", ".join(filter(None, (placed.type, placed.in_ram_text)))
    return weights, f"{placed.longest_n_ctx:,}", number_text(placed.rate) if placed.rate else "-"
