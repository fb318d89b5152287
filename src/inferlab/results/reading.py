"""Files of results: llama-bench's JSON, JSON lines and CSV, `inferlab measure --json`, and records of this library.

Each test is read or refused by itself, so that one that is damaged costs no other.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from itertools import chain, islice
from json import JSONDecodeError
from typing import Any

from inferlab.errors import RecordError
from inferlab.records import SEQUENCE, flat_json
from inferlab.records_v1 import upgrade
from inferlab.results.result import Result, number, result_of

BENCH, MEASURED, RECORD = "llama-bench", "inferlab measure", "record"
READ = (
    "llama-bench's output of -o json, -o jsonl or -o csv, what inferlab measure --json prints, and records of the "
    "kinds run and sweep"
)
AGAIN = "Run it again with its output in a file: llama-bench -o json > results.json"
LOOPBACK = "loopback device"
PASTED = "pasted text"
"""What a text that is no file is called."""
MOST_TESTS, MOST_PROBLEMS = 1000, 100
"""Tests of one file that are read, and those that are refused before the rest of it is."""
MARKS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class ResultFile:
    """What one file holds.

    kind      the program that wrote it: BENCH, MEASURED or RECORD; several are joined by a comma
    results   its tests, in their order
    problems  what was not read, each with its place and the reason
    rows      llama-bench's own rows among those that were read, as they stand, each with its place in the file
    """

    name: str
    kind: str
    results: tuple[Result, ...]
    problems: tuple[str, ...]
    rows: tuple[tuple[str, dict[str, Any]], ...]


def read_results(name: str, data: bytes) -> ResultFile:
    """The tests in a file. Raises RecordError if there are none, with what was found and what can be read."""
    text = data.decode("utf-16" if data[:2] in MARKS else "utf-8-sig", "replace")
    lines = text.rstrip().splitlines()
    start = next((n for n, line in enumerate(lines) if _begins(line)), None)
    if start is None:
        first = f"Its first line is {text.strip().splitlines()[0][:80]!r}" if lines else "It is empty"
        raise RecordError(f"{name} holds no results that can be read. {first}. Read are {READ}.")
    _refuse_tables(name, lines[start])
    kinds: list[str] = []
    results: list[Result] = []
    problems: list[str] = []
    rows: list[tuple[str, dict[str, Any]]] = []
    for place, value in _objects(name, lines[start:], start):
        if len(results) >= MOST_TESTS or len(problems) >= MOST_PROBLEMS:
            problems.append(f"{place} and what follows was not read: the file has too many tests. Split it.")
            break
        try:
            kind, rows_of_value = _rows_of(value)
        except RecordError as error:
            problems.append(f"{place}: {error}.")
            continue
        kinds.append(kind)
        for row in rows_of_value:
            try:
                results.append(result_of(row, name))
            except RecordError as error:
                problems.append(f"{place}: {error}.")
                continue
            rows += [(f"{name}, {place.lower()}", row)] if kind == BENCH else []
    if not results:
        raise RecordError(f"{name} holds no test that can be read. {' '.join(problems[:3])} Read are {READ}.")
    return ResultFile(name, ", ".join(dict.fromkeys(kinds)), tuple(results), tuple(problems), tuple(rows))


def _begins(line: str) -> bool:
    """Whether results begin here: lines before are messages that a terminal mixed in."""
    return line.lstrip().startswith(("[", "{", "|", "CREATE TABLE", "INSERT INTO")) or _is_header(line)


def _is_header(line: str) -> bool:
    return {"n_prompt", "n_gen", "avg_ts"} <= {word.strip(' "') for word in line.split(",")}


def _refuse_tables(name: str, line: str) -> None:
    """Raises RecordError for the forms of llama-bench that are not read (`markdown_printer`, `sql_printer`)."""
    if line.startswith("|"):
        lacking = "a table for people: it rounds the rates, and names neither processor, GPU nor usual settings"
        raise RecordError(f"{name} was written with -o md, {lacking}. {AGAIN}")
    if line.startswith(("CREATE", "INSERT")):
        raise RecordError(f"{name} was written with -o sql, which is not read here. {AGAIN}")


def _objects(name: str, lines: list[str], above: int) -> Iterator[tuple[str, Any]]:
    """(place, value) of each object in a file with so many lines above. Raises RecordError if it is no JSON or CSV."""
    if _is_header(lines[0]) and not lines[0].lstrip().startswith(("[", "{")):
        yield from _csv(name, lines)
        return
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
    try:
        rows = list(csv.DictReader(StringIO("\n".join(lines))))
    except csv.Error as error:
        raise RecordError(f"{name} is no CSV of llama-bench: {error}. {AGAIN}") from error
    for number_of_row, row in enumerate(rows, 1):
        yield f"Test {number_of_row}", {key: value for key, value in row.items() if key is not None}


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
    if isinstance(value, ValueError):
        raise RecordError(f"it is cut off or damaged: {_fault(value)}")
    if not isinstance(value, dict):
        raise RecordError(f"it is {type(value).__name__}, no object with fields")
    if "record" in value or "format" in value:
        return RECORD, [row for run in runs_of(value) for row in rows_of_run(run)]
    if "passes" in value:
        return MEASURED, _rows_of_passes(value)
    if not {"n_prompt", "n_gen"} & value.keys():
        raise RecordError(f"its fields are {', '.join(map(repr, [*value][:5])) or 'none'}, not those of a test")
    return BENCH, [value]


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
