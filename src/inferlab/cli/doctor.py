"""`inferlab doctor`: is this machine ready, and how to fix what is wrong."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from inferlab.doctor import Checkup, check_for_workshop, check_machine
from inferlab.doctor.room_line import Room, RoomLine, read_room
from inferlab.doctor.workshops import PAGE, ROOMS, first_run, syllabi
from inferlab.errors import InferlabError
from inferlab.measurement.run import Run, measure
from inferlab.model.find import tiny_model

STATE_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def add_doctor(commands: Any) -> None:
    command = commands.add_parser(
        "doctor",
        help="is this machine ready, and how to fix what is wrong",
        description="Check what the book and its labs need. Exit status 0: ready, warnings or not; 1: a problem.",
    )
    command.set_defaults(command=run_doctor)
    command.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    asked = command.add_mutually_exclusive_group()
    asked.add_argument(
        "--workshop", metavar="NAME", help=f"check for a workshop ({', '.join(syllabi())}); ends with a line to send"
    )
    asked.add_argument(
        "--room-list",
        metavar="FILE",
        type=text_of,
        help="read such lines, with a name before each or without, and say who is ready; - for the standard input",
    )
    kinds = "; ".join(f"{kind}: {what}" for kind, what in ROOMS.items())
    command.add_argument("--room", choices=ROOMS, default="cpu", help=f"of --workshop; {kinds} (default cpu)")


def run_doctor(options: argparse.Namespace) -> int:
    if options.room_list is not None:
        here = first_run(partial(measure, tiny_model(), engine=options.engine))
        return tell_room(read_room(options.room_list), here, options.json)
    if options.workshop:
        return tell_workshop(*check_for_workshop(options.workshop, options.room), as_json=options.json)
    return report(check_machine(), as_json=options.json)


def tell_workshop(checkup: Checkup, line: RoomLine, as_json: bool) -> int:
    """Print what was found for a workshop, and the line for the teacher as the last."""
    if as_json:
        print(json.dumps({**checkup.to_dict(), "line": str(line), "fields": asdict(line)}, indent=1))
        return int(checkup.state == "problem")
    status = report(checkup, as_json=False)
    print(f"What to do about each verdict: {PAGE}\n\nSend this line to your teacher:\n\n{line}")
    return status


def tell_room(room: Room, here: Run | InferlabError, as_json: bool) -> int:
    """Print what the lines of a room say together; exit status 1 where a line was not understood."""
    if as_json:
        machines = {name: asdict(line) for name, line in room.machines.items()}
        fields = {"ready": room.ready, "pairs": room.pairs, "machines": machines, "not_read": room.unread}
        print(json.dumps({**fields, "sentences": room.sentences(here)}, indent=1))
    else:
        print("\n".join(room.sentences(here)))
    return int(bool(room.unread))


def text_of(file: str) -> str:
    """The text of a file that the command line names, or of the standard input."""
    if file == "-":
        return sys.stdin.read()
    try:
        return Path(file).read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{file} cannot be read: {error.strerror}") from None


def report(checkup: Checkup, as_json: bool) -> int:
    """Print what was found; returns the exit status: 1 for a problem, 0 for anything less."""
    if as_json:
        print(json.dumps(checkup.to_dict(), indent=1))
    else:
        print_checkup(checkup)
    return int(checkup.state == "problem")


def print_checkup(checkup: Checkup) -> None:
    """A table of findings, then each command on lines of its own, whole, so that it can be copied."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("checked", "state", "found", title=checkup.title, title_justify="left")
    for finding in checkup.findings:
        table.add_row(finding.subject, f"[{STATE_STYLES[finding.state]}]{finding.state}", escape(finding.found))
    console = Console()
    console.print(table)
    fixes = {f"To fix {subjects}": command for command, subjects in checkup.remedies.items()}
    for purpose, command in (fixes | checkup.commands).items():
        console.print(f"{purpose}:", style="bold", markup=False, highlight=False)
        console.print(f"    {command}", markup=False, highlight=False, soft_wrap=True)
    console.print(checkup.next_step, markup=False, highlight=False)
