"""`inferlab measure`: prefill and decode, timed."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from inferlab.cli.options import add_placement, add_workload, limit, loopback, settings_from
from inferlab.machine import device_names
from inferlab.measurement.llama_bench import json_fields, to_rows
from inferlab.measurement.run import Run, measure
from inferlab.statistics import ENOUGH
from inferlab.units import bytes_text, rate_text, seconds_text

SHOWN = (
    ("time to first token", "ttft_seconds", seconds_text),
    ("engine's part of it", "prefill_seconds", seconds_text),
    ("prefill", "prefill_tokens_per_second", rate_text),
    ("decode", "decode_tokens_per_second", rate_text),
    ("between tokens", "inter_token_seconds", seconds_text),
)


def add_measure(commands: Any) -> None:
    command = commands.add_parser(
        "measure",
        help="prefill and decode, timed",
        description="Prefill random prompt tokens, decode after them, and time both through llama.cpp.",
    )
    command.set_defaults(command=run_measure)
    command.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="a .gguf file, `tiny`, `smollm2`, or hf:owner/repo/file.gguf (default: INFERLAB_MODEL, else tiny)",
    )
    add_workload(command, n_prompt=512, n_gen=128, repeats=5)
    add_placement(command)
    instead = command.add_mutually_exclusive_group()
    instead.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    instead.add_argument("--llama-bench", action="store_true", help="print llama-bench's JSON rows instead")


def run_measure(options: argparse.Namespace) -> None:
    settings = settings_from(options)
    with loopback(options) as device, limit(options, device):
        settings = device.settings(settings) if device else settings
        run = measure(options.model, settings, options.n_prompt, options.n_gen, options.repeats, engine=options.engine)
    if options.json:
        print(json.dumps(json_fields(run), indent=1))
    elif options.llama_bench:
        print(json.dumps(to_rows(run), indent=1))
    else:
        print_table(run)


def span_text(pair: tuple[float, float] | None, text: Callable[[float], str]) -> str:
    """`12.1 to 12.9 ms`, the unit once if it is the same; empty for None."""
    if pair is None:
        return ""
    low, high = (text(value).split(" ") for value in pair)
    return " ".join([*(low[:1] if low[1:] == high[1:] else low), "to", *high])


def print_table(run: Run) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    title = Text(f"{run.model.name}: {run.n_prompt} prompt tokens, {run.n_gen} generated")
    table = Table(title=title)
    for heading in ("", "median", "range", "95 % interval")[: 4 if len(run.passes) >= ENOUGH else 3]:
        table.add_column(heading)
    for name, of, text in SHOWN:
        spread = [span_text(pair, text) for pair in (run.ranges.get(of), run.interval(of))]
        table.add_row(name, text(getattr(run, of)), *spread[: len(table.columns) - 2])
    table.add_row("load", seconds_text(run.load_seconds))
    names = device_names(b.device for b in run.buffers)
    for b in run.buffers:
        table.add_row(f"{b.kind.replace('_', ' ')} on {names[b.device]}", bytes_text(b.n_bytes))
    console = Console()
    console.print(table)
    console.print(f"Medians of {len(run.passes)} passes; {run.badge}.", markup=False)
    if run.settled is False:
        console.print("The warm-up never settled within 2 %: something else may be using this machine.", style="yellow")
