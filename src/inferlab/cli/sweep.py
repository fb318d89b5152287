"""`inferlab sweep`: a grid of requests, measured point by point."""

from __future__ import annotations

import argparse
import json
from typing import Any

from inferlab.cli.options import add_placement, add_workload, limit, loopback, settings_from
from inferlab.measurement.llama_bench import to_rows
from inferlab.measurement.sweep import Point, Sweep, row, sweep
from inferlab.records import save
from inferlab.units import bytes_text, rate_text, seconds_text


def add_sweep(commands: Any) -> None:
    command = commands.add_parser(
        "sweep",
        help="many measurements, over every combination of values",
        description="Measure every combination of the values given with --over. Ctrl-C keeps the points that are done; "
        "the same command continues from there.",
    )
    command.set_defaults(command=run_sweep)
    command.add_argument("model", nargs="?", metavar="MODEL", help="as for `measure`")
    command.add_argument(
        "--over",
        action="append",
        required=True,
        type=named_values,
        metavar="NAME=V1,V2",
        help="a setting, n_prompt, n_gen or model, with its values; may be given several times",
    )
    add_workload(command, n_prompt=128, n_gen=32, repeats=3)
    add_placement(command)
    command.add_argument("--budget", type=float, metavar="SECONDS", help="begin no point that would probably end later")
    command.add_argument("-o", "--output", metavar="PATH", help="keep the sweep with every raw sample")
    instead = command.add_mutually_exclusive_group()
    instead.add_argument("--json", action="store_true", help="print a JSON list of points instead of a table")
    instead.add_argument("--llama-bench", action="store_true", help="print llama-bench's JSON rows instead")


def named_values(text: str) -> tuple[str, list[Any]]:
    """`n_gpu_layers=0,8` as a name and its values; true, false, none and whole numbers become Python's."""
    name, equals, values = text.partition("=")
    if not (name and equals and values):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=V1,V2")
    return name.strip().replace("-", "_"), [value_of(value.strip()) for value in values.split(",")]


def value_of(text: str) -> Any:
    known = {"true": True, "false": False, "none": None}
    if text.lower() in known:
        return known[text.lower()]
    return int(text) if text.lstrip("-").isdigit() else text


def run_sweep(options: argparse.Namespace) -> None:
    settings = settings_from(options)
    with loopback(options) as device, limit(options, device):
        settings = device.settings(settings) if device else settings
        done = sweep(
            options.model,
            settings,
            dict(options.over),
            options.n_prompt,
            options.n_gen,
            options.repeats,
            budget_seconds=options.budget,
            engine=options.engine,
        )
    if options.output:
        save(done, options.output)
    if options.json:
        print(json.dumps([row(point) for point in done.points], indent=1))
    elif options.llama_bench:
        print(json.dumps([line for run in done.runs for line in to_rows(run)], indent=1))
    else:
        print_sweep(done)


def print_sweep(done: Sweep) -> None:
    """A row for each point, then who measured it, the drift, how many points are open, and why points failed."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*done.over, "first token", "prefill", "decode", "KV cache")
    for point in done.points:
        table.add_row(*map(str, point.changes.values()), *measured_texts(point))
    console = Console()
    console.print(table)
    waiting = sum(point.open for point in done.points)
    lines = [
        done.runs and f"{done.runs[-1].badge}.",
        done.drift is not None and f"The first point, measured again, moved by at most {done.drift:.1%}.",
        waiting and f"{waiting} of {len(done.points)} points still wait: the same command goes on with them.",
    ]
    lines += [f"{', '.join(f'{name}={value}' for name, value in p.changes.items())}: {p.error}" for p in done.failed]
    for line in filter(None, lines):
        console.print(line, markup=False, highlight=False)


def measured_texts(point: Point) -> tuple[str, ...]:
    run = point.run
    if run is None:
        return ("",) * 4
    rates = rate_text(run.prefill_tokens_per_second), rate_text(run.decode_tokens_per_second)
    return seconds_text(run.ttft_seconds), *rates, bytes_text(run.bytes_on("kv_cache"))
