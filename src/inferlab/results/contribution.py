"""llama-bench's results as a record that a contribution to the atlas may hold."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

from inferlab.atlas.contribute import anonymized
from inferlab.errors import RecordError
from inferlab.measurement.llama_bench_rows import Row, checked, runs_fields
from inferlab.records import SCHEMA, SEQUENCE, to_json
from inferlab.units import count_text

OTHERWISE, LONGEST_MACHINE = "Leave it out, or measure without it.", 80
MOST_PASSES = 1000
"""Repetitions that one record takes: a file of a contribution has at most 300 kB."""


def contribution(rows: Iterable[tuple[str, Row]]) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """A record with a run for each prompt and decode of llama-bench's rows, and why rows are not among them.

    Each row comes with the file and the place where it stands. The record is without paths and names, as
    `inferlab report` leaves them out; None if no row can be a run, or if the rows are of several machines.
    """
    wanted, refused = [], []
    for number, (place, row) in enumerate(rows, 1):
        try:
            wanted.append(_finite(checked(row, number)))
        except RecordError as error:
            refused.append(f"{place}: {_reason(error)}")
    machines = dict.fromkeys(_machine(row) for row in wanted)
    if len(machines) > 1:
        return None, (_several(machines), *refused)
    total = [*accumulate(len(row["samples_ns"]) for row in wanted)]
    kept = bisect_right(total, MOST_PASSES)
    if wanted[kept:]:
        refused.append(f"{count_text(len(wanted) - kept, 'test')} after the first {kept}: drop fewer files at a time.")
    runs = [_record(fields) for fields in runs_fields(wanted[:kept])]
    if not runs:
        return None, tuple(refused)
    return {"record": "run", "schema": SCHEMA, SEQUENCE: anonymized(runs)}, tuple(refused)


def _reason(error: RecordError) -> str:
    """Why a row is refused, and what to do about a field that llama-bench leaves out of other forms."""
    reason = str(error).partition(": ")[2]
    return f"{reason.removesuffix(OTHERWISE)}Measure with llama-bench -o json." if "it lacks " in reason else reason


def _machine(row: Row) -> str:
    """GPU and processor, by which the machines of a contribution are told apart."""
    return "; ".join(filter(None, (row.get("gpu_info", ""), row["cpu_info"])))


def _several(machines: Iterable[str]) -> str:
    names = [*machines]
    told = " and ".join(name[:LONGEST_MACHINE] for name in names[:2]) + (", among others" if names[2:] else "")
    return f"The tests are of {len(names)} machines: {told}. Keep the files of one and remove the others."


def _finite(row: Row) -> Row:
    """The row, if JSON has all of its numbers. Raises RecordError."""
    try:
        json.dumps(row, allow_nan=False)
    except ValueError:
        raise RecordError("The row cannot be written: it holds a number that JSON lacks.") from None
    return row


def _record(fields: dict[str, Any]) -> dict[str, Any]:
    """A run as `records.to_json` writes it; what llama-bench does not time is left to the defaults of `Run`."""
    return {name: to_json(value) for name, value in fields.items()}
