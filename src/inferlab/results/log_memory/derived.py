"""A load planned again beside what its log prints: what agrees to 0.01 MiB, what differs, and why as far as known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from inferlab.errors import InferlabError
from inferlab.facts import read_table
from inferlab.log_reader.observed import Observed
from inferlab.model.gguf import Model
from inferlab.results.log_memory.asked import Asked, asked
from inferlab.results.log_memory.header import header_of, tensors_of
from inferlab.results.log_memory.logged import (
    COMPUTE,
    HOST,
    KV_CACHE,
    NAMES,
    PINNED,
    REPACKED,
    STATES,
    WEIGHTS,
    Logged,
    Printed,
    mib,
    number,
)
from inferlab.results.log_memory.planned import EVERY_DEVICE, Planned, Term
from inferlab.results.log_memory.too_much import TooMuch, too_much
from inferlab.units import MIB

PRINTED = 0.0051 * MIB
"""llama.cpp prints a buffer to 0.01 MiB."""
AGREES, IN_RANGE, DIFFERS, NOT_LOGGED = "agrees", "in range", "differs", "not in the log"
OR_SETTINGS = "or the load has settings that the log does not print."
OTHER_BUILD = f"This build differs from the version that the plan follows ({PINNED}), which may be why; {OR_SETTINGS}"
NO_BUILD = f"The log does not name its build, so it may be another one than the plan's ({PINNED}); {OR_SETTINGS}"
FILE_ORDER = (
    "The buffer of mapped weights is the part of the file from the first to the last tensor in RAM, and the order of "
    "this file's tensors is not in the log."
)
PADDED_BYTES = 1024
"""More than a device adds to a tensor: CUDA aligns to 128 bytes and fills up the last row of a quantized matrix to 512
weights (ggml-cuda.cu, get_alloc_size); Vulkan and others align to at most 256 bytes."""
PADDED = "A device may pad each tensor by some bytes."
MOVED = "More weights are in RAM than whole layers would be: tensors were moved, which the log does not print."
UNKNOWN = "Why it differs is not known: the load may have settings that the log does not print."
OTHER_PLACE = "The compute buffers follow the weights, so they were not compared."
BESIDE = frozenset(["AMX", "BLAS"])
"""Compute buffers of other backends of the processor, beside which the host's own follows no formula."""


@dataclass(frozen=True)
class Row:
    """One term of a load: bytes in the log, bytes in the plan, None where there are none.

    device  "host", a device's name in the log, or "all devices" for a sum over them
    least, most  the plan; one number where it is exact
    state   agrees (to 0.01 MiB), in range, differs, or not in the log
    reason  why it differs, as far as that is known
    """

    device: str
    kind: str
    log_bytes: int | None
    least_bytes: int
    most_bytes: int
    state: str
    reason: str = ""

    @property
    def name(self) -> str:
        return NAMES[self.kind]

    @property
    def log_text(self) -> str:
        """`512.00`, in MiB; empty where the log has no number."""
        return mib(self.log_bytes)

    @property
    def plan_text(self) -> str:
        """`512.00`, or `84.00 to 300.50` of a range, in MiB."""
        ends = dict.fromkeys((mib(self.least_bytes), mib(self.most_bytes)))
        return " to ".join(ends)

    @property
    def difference_text(self) -> str:
        """Log minus plan in MiB; empty for a range, and where the log has no number."""
        if self.state == AGREES:
            return "0.00"
        if self.log_bytes is None or self.least_bytes != self.most_bytes:
            return ""
        return f"{(self.log_bytes - self.least_bytes) / MIB:+,.2f}"


@dataclass(frozen=True, repr=False)
class DerivedMemory:
    """The memory of a log, derived again from its header and settings.

    rows      each term of log and plan, in the order of the log's devices
    too_much  the term for which a device had no room, and what would fit; None where all fits or that is not known
    notes     what was not derived and why, in sentences; the only content where no plan can be made
    """

    rows: tuple[Row, ...] = ()
    too_much: TooMuch | None = None
    notes: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """How many terms agree, in a sentence; "" without rows."""
        held = [row for row in self.rows if row.log_bytes is not None]
        if not held:
            return ""
        same, within = (sum(row.state == state for row in held) for state in (AGREES, IN_RANGE))
        ranges = f", {within} {'lies' if within == 1 else 'lie'} in the range of the plan" if within else ""
        differ = len(held) - same - within
        others = f", {differ} {'differs' if differ == 1 else 'differ'}" if differ else ""
        return f"Of {len(held)} buffers {same} agree to 0.01 MiB{ranges}{others}."

    @property
    def sentences(self) -> tuple[str, ...]:
        """Everything beside the table: the term that is too large, why terms differ, and what was not derived."""
        reasons = dict.fromkeys(row.reason for row in self.rows if row.reason)
        return (
            *(self.too_much.sentences if self.too_much else ()),
            *filter(None, (self.summary,)),
            *reasons,
            *self.notes,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self) | {"summary": self.summary, "sentences": list(self.sentences)}

    def __repr__(self) -> str:
        rows = [
            f"  {row.device}, {row.name}: log {row.log_text}, plan {row.plan_text} MiB, {row.state}"
            for row in self.rows
        ]
        return "\n".join([*rows, *self.sentences])


def tried_text() -> str:
    """How often a term that was derived is what the log prints; tests/benchmarks/test_log_memory.py counts again."""
    tried = read_table("log_memory")["real_loads"]
    exact, every = tried["compute_exact"], tried["compute_exact"] + tried["compute_in_range"]
    return (
        f"On {tried['loads']} loads of llama.cpp {tried['llama_cpp']}, {tried['architectures']} architectures, all "
        f"{tried['caches']} caches and states were exact at 0.01 MiB. Of {every} compute buffers {exact} were exact, "
        "and the others in their range."
    )


def derived(seen: Observed) -> DerivedMemory:
    """The last load of a log planned again, and compared."""
    logged = Logged(seen)
    model = header_of(logged)
    if isinstance(model, str):
        return DerivedMemory(notes=(model,))
    found = asked(logged, model)
    if isinstance(found, str):
        return DerivedMemory(notes=(found,))
    notes, tensors = list(found.assumed), tensors_of(model, logged)
    if isinstance(tensors, str):
        notes.append(tensors)
        found = found.without_overrides
    else:
        model = replace(model, tensors=tensors)
    try:
        return _compared(logged, model, found, notes)
    except (InferlabError, ArithmeticError) as error:  # a log may hold any numbers
        return DerivedMemory(notes=(f"These settings cannot be planned: {error}",))


def _compared(logged: Logged, model: Model, found: Asked, notes: list[str]) -> DerivedMemory:
    planned = Planned(model, found, number(logged.context.get("n_rs_seq")) or 0)
    rows = tuple(_rows(logged, planned))
    elsewhere = any(row.kind == WEIGHTS and row.device != HOST and row.state == DIFFERS for row in rows)
    computed = any(COMPUTE in kinds for kinds in logged.buffers.values())
    if computed and (why := planned.no_compute or OTHER_PLACE * elsewhere):
        notes.append(why)
    return DerivedMemory(rows, too_much(logged, planned, {(r.device, r.kind): r.state for r in rows}), tuple(notes))


def _rows(logged: Logged, planned: Planned) -> Iterator[Row]:
    held, terms = _held(logged, planned), planned.terms
    if any(where[1] == COMPUTE for where in held) and not any(where[1] == STATES for where in held):
        terms = _with_states_in_the_cache(terms)
    found = []
    for device in dict.fromkeys(where[0] for where in (*held, *terms)):
        for kind in NAMES:
            if term := terms.get((device, kind)):
                found.append(_in_range(_row(logged, (device, kind), term, held.get((device, kind))), logged, planned))
    found = [*_with_moved(found, logged)]
    elsewhere = any(row.kind == WEIGHTS and row.device != HOST and row.state == DIFFERS for row in found)
    for row in found:
        beside = row.device == HOST and BESIDE & logged.compute_names
        if row.kind != COMPUTE or not (elsewhere or beside):
            yield row


def _with_moved(rows: list[Row], logged: Logged) -> Iterator[Row]:
    """The rows, with the reason where tensors were moved: a device has less than its layers, and RAM has more."""
    weights = [row for row in rows if row.kind in (WEIGHTS, REPACKED)]
    less = any(row.state == DIFFERS and row.device != HOST and _more(row) < 0 for row in weights)
    more, slack = sum(_more(row) for row in weights if row.device == HOST), PRINTED * len(weights)
    moved = less and (more > slack or (HOST in logged.mapped and more >= -slack))
    for row in rows:
        yield replace(row, reason=MOVED) if moved and row in weights and row.state == DIFFERS else row


def _more(row: Row) -> int:
    """Bytes that the log has beyond the plan."""
    return (row.log_bytes or 0) - row.least_bytes


def _in_range(row: Row, logged: Logged, planned: Planned) -> Row:
    """A row that differs, but not more than another order of the file or the padding of tensors explains."""
    if row.state != DIFFERS:
        return row
    if row.kind == WEIGHTS and row.device in logged.mapped:
        return _in_any_order(row, planned)
    n_tensors = {WEIGHTS: len(planned.model.tensors), KV_CACHE: 2 * planned.model.n_layer}.get(row.kind, 0)
    most = row.most_bytes + PADDED_BYTES * n_tensors
    padded = row.device != HOST and row.most_bytes < (row.log_bytes or 0) <= most
    return replace(row, most_bytes=most, state=IN_RANGE, reason=PADDED) if padded else row


def _in_any_order(row: Row, planned: Planned) -> Row:
    """Mapped weights in the range that any order of the file's tensors allows."""
    term = planned.mapped_range
    if term and row.device != HOST:
        term = Term(row.least_bytes, term.most)
    if not term or not term.least - PRINTED <= (row.log_bytes or 0) <= term.most + PRINTED:
        return row
    return replace(row, least_bytes=term.least, most_bytes=term.most, state=IN_RANGE, reason=FILE_ORDER)


def _with_states_in_the_cache(terms: dict[tuple[str, str], Term]) -> dict[tuple[str, str], Term]:
    """Cells and states as one term, as builds before 2025-06 print them."""
    found = {where: term for where, term in terms.items() if where[1] != STATES}
    for (device, kind), term in terms.items():
        if kind == STATES:
            cells = found.get((device, KV_CACHE), Term(0, 0))
            found[device, KV_CACHE] = Term(cells.least + term.least, cells.most + term.most)
    return found


def _held(logged: Logged, planned: Planned) -> dict[tuple[str, str], Printed]:
    """The log's buffers as the plan has them: sums over devices, and states in the cache, where either is needed."""
    found: dict[tuple[str, str], Printed] = {}
    for device, kinds in logged.buffers.items():
        for kind, printed in kinds.items():
            summed = planned.places is None and kind in (KV_CACHE, STATES) and planned.asked.settings.offload_kqv
            where = EVERY_DEVICE if summed else device, kind
            found[where] = found[where] + printed if where in found else printed
    if failed := logged.failure:
        where = failed.device, failed.kind
        found[where] = found.get(where, Printed(0, 0)) + Printed(failed.n_bytes)
    return found


def _row(logged: Logged, where: tuple[str, str], term: Term, printed: Printed | None) -> Row:
    device, kind = where
    row = Row(device, kind, printed.n_bytes if printed else None, term.least, term.most, NOT_LOGGED)
    if printed is None:
        return row
    slack = PRINTED * printed.n_numbers
    if term.least - slack <= printed.n_bytes <= term.most + slack:
        return replace(row, state=AGREES if term.is_exact else IN_RANGE)
    return replace(row, state=DIFFERS, reason=_other_reason(logged))


def _other_reason(logged: Logged) -> str:
    """Why a term differs whose tensors were not moved, as far as it is known."""
    if logged.seen.program.build is None:
        return NO_BUILD
    return UNKNOWN if logged.is_of_the_pinned_build else OTHER_BUILD
