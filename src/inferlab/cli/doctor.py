"""`inferlab doctor`: is this machine ready, and how to fix what is wrong."""

from __future__ import annotations

import argparse
import json
from typing import Any

from inferlab.doctor import Checkup, check_machine

STATE_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def add_doctor(commands: Any) -> None:
    command = commands.add_parser(
        "doctor",
        help="is this machine ready, and how to fix what is wrong",
        description="Check what the book and its labs need. Exit status 0: ready, warnings or not; 1: a problem.",
    )
    command.set_defaults(command=run_doctor)
    command.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def run_doctor(options: argparse.Namespace) -> int:
    return report(check_machine(), as_json=options.json)


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
