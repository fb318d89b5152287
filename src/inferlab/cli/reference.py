"""`inferlab reference`: this machine's reference records, stage by stage."""

from __future__ import annotations

import argparse
from typing import Any

from inferlab.atlas.campaign import STAGE_SECONDS, Outcome, chosen, extent_of, record, stages


def add_reference(commands: Any) -> None:
    command = commands.add_parser(
        "reference",
        help="reference records of this machine, stage by stage",
        description="Measure every stage that has no record yet and keep each at once: in the repository under "
        "data/records/MACHINE, or in a folder of your own. After Ctrl-C the next call continues. "
        "Nothing else should run at the same time.",
    )
    command.set_defaults(command=run_reference)
    command.add_argument("--list", action="store_true", help="name the stages and measure nothing")
    command.add_argument(
        "--stage",
        action="append",
        default=[],
        metavar="NAME",
        help="only this stage, even if it is recorded; may be given several times",
    )
    command.add_argument("--out", metavar="FOLDER", help="where the machine's folder is made")
    command.add_argument("--machine", metavar="NAME", help="the folder's name (default: from the GPU or processor)")
    command.add_argument("--seconds", type=seconds, default=STAGE_SECONDS, help="limit of a stage (default 240)")
    command.add_argument(
        "--llama-bench",
        metavar="PROGRAM",
        help="a llama-bench of the same llama.cpp to compare with (default: the one of `make tools`)",
    )


def seconds(text: str) -> float:
    """A time limit on the command line."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return value


def run_reference(options: argparse.Namespace) -> int:
    engine = options.engine
    every = stages(engine.machine())
    if options.list:
        print_stages(every)
        return 0
    n_chosen = len(chosen(every, options.stage))
    print(
        f"{n_chosen} stages of at most {options.seconds:.0f} s each, on the shapes of "
        f"{', '.join(extent_of(engine.machine()).models)}.",
        flush=True,
    )
    done = record(
        options.out, options.stage, options.machine, options.llama_bench, options.seconds, engine, print_outcome
    )
    return int(any(outcome.state == "failed" for outcome in done))


def print_stages(every: Any) -> None:
    width = max(len(stage.name) for stage in every)
    for stage in every:
        print(f"{stage.name:<{width}}  {stage.about}")


def print_outcome(outcome: Outcome) -> None:
    """One line for each stage: its state, its duration, how many of its points were measured, and the reason."""
    took = f" in {outcome.seconds:.0f} s" if outcome.seconds else ""
    points = f", {outcome.n_points - outcome.n_failed} of {outcome.n_points} points" if outcome.n_points else ""
    print(f"{outcome.stage}: {outcome.state}{took}{points}: {outcome.reason}", flush=True)
