"""Files of results: all that llama-bench prints, `inferlab measure --json`, and records of this library.

Several of them may stand in one text, between prose, fences and messages.
Each test is read or refused by itself, so that one that is damaged costs no other.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from io import StringIO
from itertools import chain, islice
from json import JSONDecodeError
from typing import Any

from inferlab.errors import RecordError
from inferlab.records import SEQUENCE, flat_json
from inferlab.records_v1 import upgrade
from inferlab.results.blocks import CSV, JSON, SQL, TABLE, Block, blocks, names_a_test, unquoted
from inferlab.results.result import NOT_NAMED, OTHER_FIELDS, PART, SETTINGS, Result, number, result_of
from inferlab.results.tables import (
    BATCHED,
    BENCH,
    SWEPT,
    batched_rows,
    is_batched,
    sql_rows,
    table_rows,
    tokens_of,
)
from inferlab.units import count_text

MEASURED, RECORD = "inferlab measure", "record"
READ = (
    "all forms of llama-bench's output, also its table, those of llama-batched-bench, what inferlab measure --json "
    "prints, and records of the kinds run and sweep"
)
AGAIN = "Run it again with its output in a file: llama-bench -o json > results.json"
OF_FORM = {
    TABLE: "A table has no single repetitions, so no comparison with it has an interval. Its rates and sizes are "
    "rounded. It names only settings that are not the usual ones. Its GPU is known where messages above it name one.",
    CSV: "CSV and SQL have no single repetitions, only mean and deviation: no comparison with them has an interval.",
}
"""What a form of llama-bench lacks."""
OF_BATCHES = {
    BATCHED: "llama-batched-bench times several sequences together, once: its rates are those of all of them, without "
    "a spread.",
    SWEPT: "llama-sweep-bench times each depth once: its rates have no spread.",
}
NO_MODEL = " It names no model: compare only what you measured with one."
LOOPBACK = "loopback device"
PASTED = "pasted text"
"""What a text that is no file is called."""
MOST_TESTS, MOST_PROBLEMS = 1000, 100
"""Tests of one file that are read, and those that are refused before the rest of it is."""
MARKS = (b"\xff\xfe", b"\xfe\xff")
Form = tuple[int | None, str]
"""Which part of a file, from 1 (None where there is but one), and its form."""


@dataclass(frozen=True)
class ResultFile:
    """What one file holds.

    kind      the program that wrote it: BENCH, BATCHED, SWEPT, MEASURED or RECORD; several are joined by a comma
    results   its tests, in their order
    problems  what was not read, each with its place and the reason
    rows      llama-bench's own rows among those that were read, as they stand, each with its place in the file
    notes     what its forms lack, and what stands there twice
    """

    name: str
    kind: str
    results: tuple[Result, ...]
    problems: tuple[str, ...]
    rows: tuple[tuple[str, dict[str, Any]], ...]
    notes: tuple[str, ...] = ()


@dataclass
class _Found:
    """What was read of a file so far; `kinds` and `forms` have one entry for each result."""

    kinds: list[str] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    rows: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)
    forms: list[Form] = field(default_factory=list)
    full: bool = False


def read_results(name: str, data: bytes) -> ResultFile:
    """The tests in a file. Raises RecordError if there are none, with what was found and what can be read."""
    text = data.decode("utf-16" if data[:2] in MARKS else "utf-8-sig", "replace")
    lines = unquoted(text.rstrip().splitlines())
    found, parts = _Found(), _parts(lines)
    if not parts:
        first = f"Its first line is {text.strip().splitlines()[0][:80]!r}" if lines else "It is empty"
        raise RecordError(f"{name} holds no results that can be read. {first}. Read are {READ}.")
    for number_of_block, block in enumerate(parts, 1):
        if not found.full:
            _read_block(found, name, block, number_of_block if len(parts) > 1 else None)
    if not found.results:
        raise RecordError(f"{name} holds no test that can be read. {' '.join(found.problems[:3])} Read are {READ}.")
    return _without_repeated(name, found)


def _parts(lines: list[str]) -> list[Block]:
    """The parts of a text that may hold tests, without JSON and code that name none; the first one if all are such."""
    named: list[Block] = []
    others: list[Block] = []
    for block in blocks(lines):
        if block.form != JSON or any(map(names_a_test, block.lines)):
            named.append(block)
        elif not others:
            others.append(block)
    return named or others


def _read_block(found: _Found, name: str, block: Block, number_of_block: int | None) -> None:
    """Add the tests of a block. Raises RecordError for a damaged file that holds nothing else."""
    try:
        for place, value in _objects(name, block):
            place = f"Part {number_of_block}, {place.lower()}" if number_of_block else place
            if _is_full(found, place):
                return
            _read_value(found, name, place, value, (number_of_block, block.form))
    except RecordError as error:
        if not number_of_block:
            raise
        if not _is_full(found, f"Part {number_of_block}"):
            found.problems.append(str(error))


def _is_full(found: _Found, place: str) -> bool:
    """Whether a file has more tests or faults than are read; then that is its last fault."""
    found.full = len(found.results) >= MOST_TESTS or len(found.problems) >= MOST_PROBLEMS
    if found.full:
        found.problems.append(f"{place} and what follows was not read: the file has too many tests. Split it.")
    return found.full


def _read_value(found: _Found, name: str, place: str, value: Any, form: Form) -> None:
    source = f"{name}{PART}{form[0]}" if form[0] else name
    try:
        kind, rows = _rows_of(value)
    except RecordError as error:
        found.problems.append(f"{place}: {error}.")
        return
    for row in rows:
        try:
            result = result_of(row, source, from_table=form[1] == TABLE)
        except RecordError as error:
            found.problems.append(f"{place}: {error}.")
            continue
        if kind == BENCH and form[1] != TABLE:
            found.rows.append((len(found.results), f"{name}, {place.lower()}", row))
        found.kinds.append(kind)
        found.results.append(result)
        found.forms.append(form)


def _without_repeated(name: str, found: _Found) -> ResultFile:
    """The file, without tests that stand in several blocks: the form with the single repetitions is kept."""
    kept = sorted(_kept(found))
    is_kept = {*kept}
    several = len({found.forms[n][0] for n in kept}) > 1
    results = found.results if several else [replace(result, source=name) for result in found.results]
    return ResultFile(
        name,
        ", ".join(dict.fromkeys(found.kinds)),
        tuple(results[n] for n in kept),
        tuple(found.problems),
        tuple((place, row) for n, place, row in found.rows if n in is_kept),
        tuple(_notes(found, kept)),
    )


def _kept(found: _Found) -> Iterable[int]:
    """The places of the tests that are no repetition of one in another block."""
    kept: dict[Any, list[int]] = {}
    richest_first = sorted(enumerate(found.results), key=lambda one: (not one[1].samples, one[1].from_table))
    for n, result in richest_first:
        alike = kept.setdefault(result.bare_workload, [])
        if not any(
            found.forms[other][0] != found.forms[n][0] and result.repeats(found.results[other]) for other in alike
        ):
            alike.append(n)
    return chain.from_iterable(kept.values())


def _notes(found: _Found, kept: list[int]) -> Iterator[str]:
    """What the forms of the tests that are kept lack, and how many tests were left out."""
    forms = dict.fromkeys(
        CSV if found.forms[n][1] == SQL else found.forms[n][1] for n in kept if found.kinds[n] == BENCH
    )
    yield from (OF_FORM[form] for form in forms if form in OF_FORM)
    for kind in (BATCHED, SWEPT):
        models = {found.results[n].model for n in kept if found.kinds[n] == kind}
        if models:
            yield OF_BATCHES[kind] + (NO_MODEL if NOT_NAMED in models else "")
    n_left_out = len(found.results) - len(kept)
    if n_left_out:
        yield f"{count_text(n_left_out, 'test')} of several forms or parts stood there before: each is counted once."


def _objects(name: str, block: Block) -> Iterator[tuple[str, Any]]:
    """(place, value) of each object in a block. Raises RecordError if it is not what it seems."""
    if block.form == CSV:
        return _csv(name, block.lines)
    if block.form == JSON:
        return _json(name, block.lines, block.above)
    placed = iter(sql_rows(block.lines)) if block.form == SQL else table_rows(block.lines, block.before)
    first = next(placed, None)
    if first is None:
        begun = f"{name} holds no test below line {block.above + 1:,}"
        raise RecordError(f"{begun}: the program was stopped before its first result. {AGAIN}")
    return ((f"Line {n + block.above + 1}", value) for n, value in chain([first], placed))


def _json(name: str, lines: list[str], above: int) -> Iterator[tuple[str, Any]]:
    try:
        value = flat_json("\n".join(lines))
    except ValueError as error:
        yield from _json_lines(name, lines, above, error)
        return
    several = value if isinstance(value, list) else [value]
    if not several:
        raise RecordError(f"{name} holds no test: llama-bench was stopped before its first result. {AGAIN}")
    yield from ((f"Test {n}" if len(several) > 1 else "The file", value) for n, value in enumerate(several, 1))


def _csv(name: str, lines: list[str]) -> Iterator[tuple[str, Any]]:
    """The rows of CSV; lines with far fewer values are messages, or prose below."""
    try:
        heads, *rows = csv.reader(StringIO("\n".join(lines)))
    except (csv.Error, ValueError) as error:
        raise RecordError(f"{name} is no CSV of llama-bench: {error}. {AGAIN}") from error
    heads = [head.strip() for head in heads]
    for number_of_row, row in enumerate((row for row in rows if 2 * len(row) >= len(heads)), 1):
        value: Any = dict(zip(heads, row, strict=False))
        yield f"Test {number_of_row}", value if len(row) >= len(heads) else ValueError("its line is not whole")


def _json_lines(name: str, lines: list[str], above: int, error: ValueError) -> Iterator[tuple[str, Any]]:
    """The objects of JSON lines; a line that is none is a problem of its own. Raises RecordError without an object."""
    places = [n for n, line in enumerate(lines, 1) if line.lstrip().startswith("{")]
    values = ((n, _json_line(lines[n - 1])) for n in places)
    first = next(((n, value) for n, value in islice(values, MOST_PROBLEMS) if isinstance(value, dict)), None)
    if first is None:
        at = f" at line {error.lineno + above:,}" if isinstance(error, JSONDecodeError) else ""
        raise RecordError(f"{name} is cut off or damaged{at}: {_fault(error)}. {AGAIN}")
    damaged = ((n, ValueError("the line is not whole")) for n in places if n < first[0])
    yield from ((f"Line {n + above}", value) for n, value in chain(damaged, [first], values))


def _fault(error: ValueError) -> str:
    """What a parser found, without its own count of lines, which is not the file's."""
    return error.msg.removesuffix(" starting at") if isinstance(error, JSONDecodeError) else str(error)


def _json_line(line: str) -> Any:
    try:
        return flat_json(line)
    except ValueError as error:
        return error


# --- from an object to llama-bench's rows -----------------------------------------------------------------


def _rows_of(value: Any) -> tuple[str, list[dict[str, Any]]]:
    """What wrote an object, and its tests as llama-bench's rows. Raises RecordError for what has none."""
    if isinstance(value, RecordError):
        raise value
    if isinstance(value, ValueError):
        raise RecordError(f"it is cut off or damaged: {_fault(value)}")
    if not isinstance(value, dict):
        raise RecordError(f"it is {type(value).__name__}, no object with fields")
    if "record" in value or "format" in value:
        return RECORD, [row for run in runs_of(value) for row in rows_of_run(run)]
    if "passes" in value:
        return MEASURED, _rows_of_passes(value)
    if is_batched(value):
        return batched_rows(value)
    if not {"n_prompt", "n_gen"} & value.keys():
        raise RecordError(f"its fields are {', '.join(map(repr, [*value][:5])) or 'none'}, not those of a test")
    after_prompt = isinstance(value.get("test"), str) and "@pp" in value["test"]
    return BENCH, [{**value, **tokens_of(value["test"])} if after_prompt else value]


def runs_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs of a record, without a sweep's anchors, which repeat its first point."""
    try:
        record = upgrade(record)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RecordError(f"it is a damaged record: {type(error).__name__} {error}") from error
    kind = record.get("record")
    if kind not in ("run", "sweep"):
        is_record = isinstance(kind, str) and "schema" in record
        known = f"a record of the kind {kind!r:.80}" if is_record else f"no record: its kind is {kind!r:.80}"
        raise RecordError(f"it is {known}; only run and sweep have rates of prompts and answers")
    several = record.get(SEQUENCE, [record]) if kind == "run" else record.get("points")
    if not isinstance(several, list):
        raise RecordError(f"it is a damaged {kind}: its list of runs is {type(several).__name__}")
    runs = several if kind == "run" else [_part(point, "run") for point in several]
    return [run for run in runs if isinstance(run, dict) and "passes" in run]


def rows_of_run(run: dict[str, Any]) -> list[dict[str, Any]]:
    """The tests of a run of a record as llama-bench's rows. Raises RecordError for passes without times."""
    return _rows_of_passes(_flat(run))


def _flat(run: dict[str, Any]) -> dict[str, Any]:
    """A run of a record under llama-bench's names, as `inferlab measure --json` prints it."""
    model, settings, machine = (_part(run, name) for name in ("model", "settings", "machine"))
    devices = [device for device in _several(machine, "devices") if isinstance(device, dict)]
    gpus = [str(device.get("description", "")) for device in devices if device.get("kind") in ("gpu", "igpu")]
    offloaded = [LOOPBACK] if settings.get("rpc_servers") else gpus
    backends = dict.fromkeys(str(device["backend"]) for device in devices if device.get("backend"))
    n_threads, of_batches = settings.get("n_threads"), settings.get("n_threads_batch")
    return {
        **settings,
        "n_threads_batch": of_batches if of_batches != n_threads else None,
        "tensor_split": "/".join(map(str, _several(settings, "tensor_split"))),
        "devices": "none" if settings.get("devices") == [] else "",
        "no_kv_offload": not settings.get("offload_kqv", True),
        "no_op_offload": not settings.get("op_offload", True),
        "repack": settings.get("use_extra_bufts", True),
        "cpu_info": machine.get("cpu"),
        "gpu_info": ", ".join(offloaded),
        "backends": ",".join(backends),
        "build_commit": machine.get("llama_cpp_commit"),
        "model_filename": model.get("file"),
        "model_type": model.get("description") or model.get("name"),
        "model_size": model.get("tensor_bytes"),
        "model_n_params": model.get("n_params"),
        "n_prompt": run.get("n_prompt"),
        "test_time": run.get("date"),
        "passes": run.get("passes"),
    }


def _part(value: Any, name: str) -> dict[str, Any]:
    part = value.get(name) if isinstance(value, dict) else None
    return part if isinstance(part, dict) else {}


def _several(holder: dict[str, Any], name: str) -> list[Any]:
    values = holder.get(name)
    return values if isinstance(values, list) else []


def _rows_of_passes(run: dict[str, Any]) -> list[dict[str, Any]]:
    """The row of the prompt and the row of the decode after it, each with the nanoseconds of the passes."""
    passes = run["passes"]
    if not isinstance(passes, list) or not all(isinstance(pass_, dict) for pass_ in passes):
        raise RecordError("its passes are no list of objects")
    prefills = [seconds for pass_ in passes if (seconds := number(pass_.get("prefill_seconds")))]
    decodes = [_decoded(pass_) for pass_ in passes]
    timed = [(n, seconds) for n, seconds in decodes if seconds]
    run = {name: value for name, value in run.items() if name in (*SETTINGS, *OTHER_FIELDS)}
    rows = []
    if run.get("n_prompt") and prefills:
        rows.append({**run, "n_gen": 0, "samples_ns": [1e9 * seconds for seconds in prefills]})
    if len({n for n, _ in timed}) == 1:
        samples = [1e9 * seconds for _, seconds in timed]
        rows.append({**run, "n_prompt": 0, "n_gen": timed[0][0], "n_depth": run.get("n_prompt"), "samples_ns": samples})
    if not rows:
        raise RecordError("its passes hold no times of a prompt or of tokens")
    return rows


def _decoded(pass_: dict[str, Any]) -> tuple[int, float]:
    """Tokens after the first and their seconds in all; (0, 0.0) where they were not timed."""
    given, steps = pass_.get("decoded"), pass_.get("decode_seconds")
    if isinstance(given, list) and len(given) == 2 and isinstance(given[0], int):
        return given[0], number(given[1]) or 0.0
    if not isinstance(steps, list):
        return 0, 0.0
    seconds = [n for step in steps if (n := number(step)) is not None]
    return (len(seconds), sum(seconds)) if len(seconds) == len(steps) else (0, 0.0)
