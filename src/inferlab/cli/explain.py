"""`inferlab explain`: what a log says, and what is wrong in it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from inferlab.errors import UnreadableLog
from inferlab.log_reader import LogFinding, LogReport, Rate
from inferlab.results.log_memory import DerivedMemory, explain_and_derive
from inferlab.units import bytes_text

SEVERITY_STYLES = {"fault": "bold red", "slow": "yellow", "note": "cyan"}
KINDS = {"weights": "weights", "kv_cache": "cache", "compute": "compute", "output": "output"}
RARE_KINDS = {"recurrent": "recurrent state", "projector": "projector", "adapter": "adapter"}
LAYERS = {"cache": "layers without the output layer", "cached layers": "layers with a KV cache"}


def add_explain(commands: Any) -> None:
    command = commands.add_parser(
        "explain",
        help="what a log says, and why it is slow or does not load",
        description="Read a log of llama.cpp, llama-server, llama-cpp-python, Ollama or LM Studio. Exit status 0, "
        "whatever it says; 1 where there is no log to read.",
    )
    command.set_defaults(command=run_explain)
    command.add_argument("log", metavar="LOG", help="a file, from its first line on; - for the standard input")
    command.add_argument("--json", action="store_true", help="print one JSON object instead of tables")


def run_explain(options: argparse.Namespace) -> int:
    log = sys.stdin.read() if options.log == "-" else Path(options.log)
    if isinstance(log, Path) and not log.is_file():
        raise UnreadableLog(f"There is no file {options.log!r}. Give the file of a log, or - for the standard input.")
    report, derived = explain_and_derive(log)
    if options.json:
        print(json.dumps(report.to_dict() | {"derived": derived.to_dict() if derived else None}, indent=1))
    else:
        print_report(report, derived)
    return 0


def print_report(report: LogReport, derived: DerivedMemory | None = None) -> None:
    """The program and its model, where everything lies, the settings, the rates, findings, and what is not known."""
    from rich.console import Console

    console = Console()

    def say(text: str, style: str = "") -> None:
        console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    say(report.title, "bold")
    if report.n_loads > 1:
        say(f"The log has {report.n_loads} loads; this is about the last one.")
    if report.has_draft:
        say("A second model was loaded to draft tokens; sizes and settings are those of the first.")
    if report.table:
        console.print(_table(report))
    if derived and derived.rows:
        console.print(_derived_table(derived))
        for sentence in derived.sentences:
            say(sentence)
    for text in (_settings(report), _rates(report)):
        if text:
            say(text)
    for finding in report.findings:
        say("")
        _say_finding(say, finding)
    if not report.findings:
        say(f"\n{report.nothing_found}")
    say("\nNot known:", "bold")
    for what in (*report.unknown, *(derived.sentences if derived and not derived.rows else ())):
        say(f"  {what}")


def _say_finding(say: Any, finding: LogFinding) -> None:
    say(f"{finding.severity}: {finding.what}", SEVERITY_STYLES[finding.severity])
    for line in finding.lines:
        say(f"  line {line.number}: {line.text[:200]}")
    for sentence in finding.fix:
        say(f"  - {sentence}")
    if finding.page:
        say(f"  See {finding.page}.md, ({finding.anchor})=")


def _table(report: LogReport) -> Any:
    from rich.markup import escape
    from rich.table import Table

    here = {kind for kinds in report.table.values() for kind in kinds}
    columns = KINDS | {kind: name for kind, name in RARE_KINDS.items() if kind in here}
    table = Table("allocated on", *columns.values())
    for device, kinds in report.table.items():
        table.add_row(escape(device), *(bytes_text(kinds[kind]) if kind in kinds else "" for kind in columns))
    return table


def _derived_table(derived: DerivedMemory) -> Any:
    """Log and plan of the same load, in MiB."""
    from rich.markup import escape
    from rich.table import Table

    table = Table("planned again, MiB", "term", "log", "plan", "difference")
    for row in derived.rows:
        difference = row.difference_text or row.state
        table.add_row(escape(row.device), row.name, row.log_text, row.plan_text, difference)
    return table


def _settings(report: LogReport) -> str:
    context = report.context
    layers = report.layers.by_device if report.layers else {}
    parts = {
        "devices": ", ".join(device.text for device in report.devices),
        LAYERS.get(report.layers.basis if report.layers else "", "layers"): ", ".join(
            f"{n} on {device}" for device, n in layers.items()
        ),
        "context": context.n_ctx,
        "slots": context.n_slots,
        "context of all slots together" if context.shared else "context of a slot": context.n_ctx_slot,
        "cache": f"{context.type_k}, {context.type_v}" if context.type_k else "",
        "flash attention": context.flash_attn,
        "threads": context.n_threads,
    }
    return "; ".join(f"{name}: {value}" for name, value in parts.items() if value)


def _rates(report: LogReport) -> str:
    rates = {"prompt": report.prompt, "answer": report.answer}
    return "; ".join(f"{name}: {_rate(rate)}" for name, rate in rates.items() if rate)


def _rate(rate: Rate) -> str:
    requests = f"{rate.n_requests:,} request{'' if rate.n_requests == 1 else 's'}"
    return f"{rate.text}, {rate.n_tokens:,} tokens in {requests}"
