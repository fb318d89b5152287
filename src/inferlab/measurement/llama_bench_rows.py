"""llama-bench's rows as the fields of a `Run`, on bare Python, so that a page can read and write them.

Field names, types and units are llama-bench's own (tools/llama-bench/llama-bench.cpp, `struct test`).
`llama_bench` makes runs of these fields, and writes runs as rows.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from inferlab.engine.protocol import Pass
from inferlab.errors import InferlabError, RecordError
from inferlab.machine import Device, Machine
from inferlab.model.gguf import ModelCard
from inferlab.settings import Settings

Row = dict[str, Any]

# In llama-bench's order.
FIELDS = {
    "build_commit": str,
    "build_number": int,
    "cpu_info": str,
    "gpu_info": str,
    "backends": str,
    "model_filename": str,
    "model_type": str,
    "model_size": int,
    "model_n_params": int,
    "n_batch": int,
    "n_ubatch": int,
    "n_threads": int,
    "cpu_mask": str,
    "cpu_strict": bool,
    "poll": int,
    "type_k": str,
    "type_v": str,
    "n_gpu_layers": int,
    "n_cpu_moe": int,
    "split_mode": str,
    "main_gpu": int,
    "no_kv_offload": bool,
    "flash_attn": int,
    "devices": str,
    "tensor_split": str,
    "tensor_buft_overrides": str,
    "load_mode": str,
    "lazy_mode": str,
    "embeddings": bool,
    "no_op_offload": int,
    "no_host": bool,
    "repack": bool,
    "fit_target": int,
    "fit_min_ctx": int,
    "n_prompt": int,
    "n_gen": int,
    "n_depth": int,
    "test_time": str,
    "avg_ns": int,
    "stddev_ns": int,
    "avg_ts": float,
    "stddev_ts": float,
    "samples_ns": list,
    "samples_ts": list,
}
WORKLOAD = ("n_prompt", "n_gen", "n_depth")
MEASURED = ("test_time", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts", "samples_ns", "samples_ts")
REQUIRED = (
    "build_commit",
    "cpu_info",
    "model_filename",
    "model_type",
    "model_size",
    "model_n_params",
    "n_batch",
    "n_ubatch",
    "n_threads",
    "type_k",
    "type_v",
    "n_gpu_layers",
    "n_prompt",
    "n_gen",
    "test_time",
    "samples_ns",
)

# Options that `Settings` does not have: the engine uses llama.cpp's default; an import with another value is refused.
DEFAULTS = {
    "cpu_mask": "0x0",
    "cpu_strict": False,
    "poll": 50,
    "n_cpu_moe": 0,
    "tensor_buft_overrides": "none",
    "lazy_mode": "auto",
    "embeddings": False,
    "fit_target": 0,
    "fit_min_ctx": 0,
}
FLASH_ATTN = {"auto": -1, "off": 0, "on": 1}
LOAD_MODES = {"mmap_mlock": "mmap+mlock", "direct_io": "dio"}  # the other names are equal
NAMED_FLASH_ATTN = {number: name for name, number in FLASH_ATTN.items()}
NAMED_LOAD_MODES = {theirs: ours for ours, theirs in LOAD_MODES.items()}


def runs_fields(rows: Iterable[Row], *, leave_out: bool = False) -> Iterator[dict[str, Any]]:
    """The fields of runs from llama-bench's rows, in order; what llama-bench does not record is None or empty.

    A tg row joins an earlier pp row of the same build, model and settings whose n_prompt is its n_depth.
    Every other row becomes a run with only one phase timed; both times are engine times.
    Raises RecordError for the first row that cannot be expressed as a `Run`. With `leave_out`, rows of a prefill that
    continues a prompt (`llama-bench -p 512 -d 4096`) are left out instead.
    """
    pairs: list[list[Row | None]] = []
    waiting: dict[str, list[list[Row | None]]] = {}
    for number, row in enumerate(rows, 1):
        if leave_out and _continues(row):
            continue
        row = checked(row, number)
        request = repr((row["n_prompt"] or row["n_depth"], _request_fields(row)))
        if row["n_gen"] and waiting.get(request):
            waiting[request].pop(0)[1] = row
            continue
        pairs.append([row, None] if row["n_prompt"] else [None, row])
        if row["n_prompt"]:
            waiting.setdefault(request, []).append(pairs[-1])
    return (_run_fields(prompt, decode) for prompt, decode in pairs)


def _request_fields(row: Row) -> list[Any]:
    return [row.get(name) for name in FIELDS if name not in (*WORKLOAD, *MEASURED)]


def _run_fields(prompt: Row | None, decode: Row | None) -> dict[str, Any]:
    row = next(filter(None, (prompt, decode)))
    n_prompt = row["n_prompt"] or row["n_depth"]
    n_decoded = decode["n_gen"] if decode else 0
    times = zip_longest(*(row["samples_ns"] if row else () for row in (prompt, decode)))
    return {
        "model": _model(row),
        "settings": _settings(row).but(n_ctx=n_prompt + n_decoded),
        "machine": _machine(row),
        "n_prompt": n_prompt,
        "n_gen": n_decoded + 1,
        "passes": tuple(_pass(prefill, decode, n_decoded) for prefill, decode in times),
        "settled": None,
        "date": row["test_time"][:10],
        "made_with": "llama-bench",
    }


def _pass(prefill_ns: int | None, decode_ns: int | None, n_decoded: int) -> Pass:
    return Pass(
        prefill_seconds=None if prefill_ns is None else 1e-9 * prefill_ns,
        token_seconds=(),
        decode_seconds=(),
        tokens=(),
        decoded=None if decode_ns is None else (n_decoded, 1e-9 * decode_ns),
    )


def _model(row: Row) -> ModelCard:
    """The model's card, with the file's name but without its folders."""
    kind = row["model_type"]
    file = re.split(r"[\\/]", row["model_filename"])[-1]
    return ModelCard(kind, file, kind.split(" ")[0], row["model_n_params"], row["model_size"], description=kind)


def _settings(row: Row) -> Settings:
    """The row's settings; a missing field has llama-bench's default, and swa_full is off, as in llama-bench."""
    devices, shares = row.get("devices", "auto"), row.get("tensor_split", "0.00")
    load_mode = row.get("load_mode") or ("mmap" if row.get("use_mmap", True) else "none")
    return Settings(
        n_batch=row["n_batch"],
        n_ubatch=row["n_ubatch"],
        n_threads=row["n_threads"],
        n_threads_batch=row["n_threads"],
        n_gpu_layers=row["n_gpu_layers"],
        split_mode=row.get("split_mode", "layer"),
        main_gpu=row.get("main_gpu", 0),
        tensor_split=tuple(map(_share, shares.split("/"))) if set(shares) - set("0./") else None,
        devices=None if devices == "auto" else tuple(devices.split("/")) if devices != "none" else (),
        type_k=row["type_k"],
        type_v=row["type_v"],
        flash_attn=NAMED_FLASH_ATTN[row.get("flash_attn", 0)],
        offload_kqv=not row.get("no_kv_offload", False),
        op_offload=not row.get("no_op_offload", 0),
        swa_full=False,
        load_mode=NAMED_LOAD_MODES.get(load_mode, load_mode),
        use_extra_bufts=bool(row.get("repack", True)),
        no_host=bool(row.get("no_host", False)),
    )


def _share(text: str) -> float:
    """A card's share of the layers. Raises ValueError for what is no finite number."""
    share = float(text)
    if not math.isfinite(share):
        raise ValueError(f"tensor_split has a share of {text[:20]!r}")
    return share


def _machine(row: Row) -> Machine:
    backends = [name for name in row.get("backends", "").split(",") if name not in ("", "CPU")]
    backend = backends[0] if len(backends) == 1 else None
    gpus = [name for name in row.get("gpu_info", "").split(", ") if name]
    return Machine(
        cpu=row["cpu_info"],
        n_cores=None,
        ram_bytes=None,
        system="unknown",
        python="unknown",
        llama_cpp_commit=row["build_commit"],
        devices=(
            Device("CPU", row["cpu_info"], "cpu", backend="CPU"),
            *(Device(f"{backend or 'GPU'}{i}", name, "gpu", backend=backend) for i, name in enumerate(gpus)),
        ),
    )


def parsed_rows(text: str, path: str | Path) -> list[Any]:
    """The rows of a JSON array, or of one JSON object per line."""
    try:
        rows = json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.splitlines()]
    except (ValueError, RecursionError) as error:
        raise RecordError(
            f"{path} is not llama-bench's JSON: {error}. Run llama-bench with -o json or -o jsonl, and let it finish."
        ) from error
    if not rows:
        raise RecordError(f"{path} holds no row: llama-bench was stopped before its first result. Run it again.")
    return rows


def checked(row: Any, number: int) -> Row:
    """The row, if it can be expressed as a `Run`. Raises RecordError."""
    reason = _refusal(row)
    if reason is None:
        row = {"n_depth": 0, **row}
        try:
            _settings(row)
        except (InferlabError, KeyError, ValueError) as error:
            reason = f"its settings are not llama.cpp's: {error}"
    if reason:
        raise RecordError(f"Row {number} cannot be imported: {reason}. Leave it out, or measure without it.")
    return row


def _refusal(row: Any) -> str | None:
    if not isinstance(row, dict):
        return f"it is {type(row).__name__}, not an object with llama-bench's fields"
    missing = [name for name in REQUIRED if name not in row]
    if missing:
        return f"it lacks {', '.join(missing)}"
    wrong = [name for name, kind in FIELDS.items() if name in row and not _has_type(row[name], kind)]
    if wrong:
        return f"{wrong[0]} is {row[wrong[0]]!r}, not {FIELDS[wrong[0]].__name__}"
    return _refused_workload(row) or _refused_setting(row)


def _continues(row: Any) -> bool:
    """Whether a row is refused only because its prefill starts at a depth."""
    depth = row.get("n_depth") if isinstance(row, dict) else None
    is_deep = isinstance(depth, int) and depth > 0
    return is_deep and _refusal(row) is not None and _refusal({**row, "n_depth": 0}) is None


def _has_type(value: Any, kind: type) -> bool:
    return isinstance(value, (int, float) if kind is float else kind)


def _refused_workload(row: Row) -> str | None:
    n_prompt, n_gen, n_depth = row["n_prompt"], row["n_gen"], row.get("n_depth", 0)
    if min(n_prompt, n_gen, n_depth) < 0 or n_prompt + n_gen == 0:
        return f"n_prompt={n_prompt}, n_gen={n_gen}, n_depth={n_depth} is no workload"
    if n_prompt and n_gen:
        return f"pp{n_prompt}+tg{n_gen} is one time for both phases, and a run needs one for each"
    if n_prompt and n_depth:
        return f"pp{n_prompt} at depth {n_depth} continues a prompt, and a run starts with an empty cache"
    if not row["samples_ns"] or not all(isinstance(sample, int) and sample > 0 for sample in row["samples_ns"]):
        return "samples_ns are not the nanoseconds of its repetitions"
    return None


def _refused_setting(row: Row) -> str | None:
    changed = [f"{name}={row[name]!r}" for name, usual in DEFAULTS.items() if row.get(name, usual) != usual]
    return f"{', '.join(changed)} cannot be expressed in this library's settings" if changed else None


def samples_fields(seconds: Sequence[float], n_tokens: int) -> Row:
    """llama-bench's statistics: means over the repetitions, sample standard deviations (0 for one repetition)."""
    nanoseconds = [round(1e9 * sample) for sample in seconds]
    rates = [1e9 * n_tokens / sample for sample in nanoseconds]
    several = len(rates) > 1
    return {
        "avg_ns": round(mean(nanoseconds)),
        "stddev_ns": round(stdev(nanoseconds)) if several else 0,
        "avg_ts": mean(rates),
        "stddev_ts": stdev(rates) if several else 0.0,
        "samples_ns": nanoseconds,
        "samples_ts": rates,
    }
