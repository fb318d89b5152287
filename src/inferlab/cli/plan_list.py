"""What `inferlab plan --list` prints: what of all known models runs on a machine."""

from __future__ import annotations

import json
from collections.abc import Iterable

from inferlab.prediction.place import Place
from inferlab.prediction.what_runs import Placed, Runs, by_size, left_out
from inferlab.units import bytes_text


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
    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("model", "whole", "context ≥", "with RAM", "context ≥", "in RAM"):
        is_number, is_name = heading == "context ≥", heading == "model"
        table.add_column(heading, justify="right" if is_number else "left", no_wrap=is_name, overflow="fold")
    for runs in listed:
        if runs.whole or runs.in_ram:
            in_ram = runs.in_ram.in_ram_text if runs.in_ram else ""
            table.add_row(*map(Text, (runs.name, *cells(runs.whole), *cells(runs.in_ram), in_ram)))
    Console().print(table)
    for sentence in left_out(listed):
        print(sentence)
    print(
        "whole: the largest weights that fit on the card. with RAM: larger ones, at most Q8_0, where a part lies "
        "in RAM. context: one that surely fits; a model's own plan finds the longest."
    )


def cells(placed: Placed | None) -> tuple[str, str]:
    """The type and the longest context; strokes without any."""
    return (placed.type, f"{placed.longest_n_ctx:,}") if placed else ("-", "-")
