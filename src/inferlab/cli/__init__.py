"""The command line `inferlab`, a module for each command: tables for people and `--json` for programs."""

from __future__ import annotations

import argparse
import sys

from inferlab import __version__
from inferlab.cli.doctor import add_doctor
from inferlab.cli.explain import add_explain
from inferlab.cli.fidelity import add_fidelity
from inferlab.cli.measure import add_measure
from inferlab.cli.plan import add_plan
from inferlab.cli.quantize import add_imatrix, add_quantize
from inferlab.cli.reference import add_reference
from inferlab.cli.report import add_report
from inferlab.cli.shape import add_shape
from inferlab.cli.sweep import add_sweep
from inferlab.engine.protocol import Engine
from inferlab.engine.session import default_engine
from inferlab.errors import InferlabError

INTERRUPTED = 130


def main(arguments: list[str] | None = None, engine: Engine | None = None) -> int:
    """Run one command; returns the exit status.

    arguments  of the command line, without the program's name (default: those of this process)
    engine     measures, and is closed at the end (default: the session's); `doctor` has an engine of its own

    0 done, 1 an error of ours or a problem that `doctor` found, 2 unusable arguments, 130 Ctrl-C.
    """
    options = parser().parse_args(arguments)
    options.engine = engine or default_engine()
    try:
        return options.command(options) or 0
    except InferlabError as error:
        print(f"inferlab: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("inferlab: interrupted; the engine was stopped.", file=sys.stderr)
        return INTERRUPTED
    finally:
        options.engine.close()


def parser() -> argparse.ArgumentParser:
    """The parser of all commands; each sets `command` to the function that runs it."""
    top = argparse.ArgumentParser(prog="inferlab", description="Measure local LLM inference on this machine.")
    top.add_argument("--version", action="version", version=f"inferlab {__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    add_doctor(commands)
    add_measure(commands)
    add_sweep(commands)
    add_plan(commands)
    add_shape(commands)
    add_imatrix(commands)
    add_quantize(commands)
    add_fidelity(commands)
    add_reference(commands)
    add_report(commands)
    add_explain(commands)
    return top
