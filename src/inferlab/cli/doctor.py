"""`inferlab doctor`: is this machine ready, and how to fix what is wrong."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from inferlab.doctor import Checkup, check_for_workshop, check_machine
from inferlab.doctor.room_line import Room, RoomLine, read_room
from inferlab.doctor.workshops import ROOMS, syllabi

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
    asked.add_argument("--room-list", metavar="FILE", help="read such lines, one a participant, and say who is ready")
    command.add_argument("--room", choices=ROOMS, default="cpu", help="the workshop's GPUs: none, own, one shared")


def run_doctor(options: argparse.Namespace) -> int:
    if options.room_list:
        return tell_room(read_room(Path(options.room_list).read_text(encoding="utf-8")), options.json)
    if options.workshop:
        return tell_workshop(*check_for_workshop(options.workshop, options.room), as_json=options.json)
    return report(check_machine(), as_json=options.json)


def tell_workshop(checkup: Checkup, line: RoomLine, as_json: bool) -> int:
    """Print what was found for a workshop, and the line for the teacher as the last."""
    if as_json:
        print(json.dumps({**checkup.to_dict(), "line": str(line)}, indent=1))
        return int(checkup.state == "problem")
    status = report(checkup, as_json=False)
    print(f"\nSend this line to your teacher:\n\n{line}")
    return status


def tell_room(room: Room, as_json: bool) -> int:
    """Print what the lines of a room say together; exit status 1 where a line was not understood."""
    if as_json:
        print(json.dumps({"machines": list(map(asdict, room.lines)), "not_read": room.unread}, indent=1))
    else:
        print("\n".join(room.sentences()))
    return int(bool(room.unread))


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
