"""The command line `inferlab`, a module for each command: tables for people and `--json` for programs."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from typing import Any

from inferlab import __version__
from inferlab.engine.protocol import Engine
from inferlab.engine.session import default_engine
from inferlab.errors import InferlabError

COMMANDS = {
    "doctor": "doctor",
    "measure": "measure",
    "sweep": "sweep",
    "plan": "plan",
    "shape": "shape",
    "imatrix": "quantize",
    "quantize": "quantize",
    "fidelity": "fidelity",
    "reference": "reference",
    "report": "report",
    "explain": "explain",
}
"""Each command's module, which has its `add_` function."""
INTERRUPTED = 130


class WholeNames(argparse.ArgumentParser):
    """A parser of a command that takes an option by its whole name only, because a beginning may be that of two."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**{**named, "allow_abbrev": False})


def main(arguments: list[str] | None = None, engine: Engine | None = None) -> int:
    """Run one command; returns the exit status.

    arguments  of the command line, without the program's name (default: those of this process)
    engine     measures, and is closed at the end (default: the session's); `doctor` has an engine of its own

    0 done, 1 an error of ours or a problem that `doctor` found, 2 unusable arguments, 130 Ctrl-C.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parser(*arguments[:1]).parse_args(arguments)
    options.engine = engine or default_engine()
    try:
        status = options.command(options) or 0
        sys.stdout.flush()  # here, where a reader that has ended is no crash
        return status
    except InferlabError as error:
        print(f"inferlab: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of our output, such as `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("inferlab: interrupted; the engine was stopped.", file=sys.stderr)
        return INTERRUPTED
    finally:
        options.engine.close()


def parser(first: str | None = None) -> argparse.ArgumentParser:
    """The parser of the command `first`, or of all where there is no such; it sets `command` to the function to run.

    Modules of other commands are not loaded.
    """
    top = argparse.ArgumentParser(prog="inferlab", description="Measure local LLM inference on this machine.")
    top.add_argument("--version", action="version", version=f"inferlab {__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=WholeNames)
    for name in [first] if first in COMMANDS else COMMANDS:
        module = import_module(f"inferlab.cli.{COMMANDS[name]}")
        getattr(module, f"add_{name}")(commands)
    return top
