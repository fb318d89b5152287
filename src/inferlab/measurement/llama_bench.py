"""llama-bench's JSON: export a `Run` as its rows, and import its rows as runs.

Field names, types and units are llama-bench's own (tools/llama-bench/llama-bench.cpp, `struct test`),
so llama.cpp's scripts/compare-llama-bench.py reads what is written here (with `-t llama-bench`).

One run becomes two rows, because llama-bench times prefill and decode separately:

    pp   n_prompt = prompt tokens, n_gen = 0
    tg   n_prompt = 0, n_gen = decoded tokens, n_depth = prompt tokens, already in the cache

The prefill gives a run's first token, so n_gen generated tokens are n_gen - 1 decoded ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from inferlab.errors import RecordError
from inferlab.measurement.llama_bench_rows import (
    DEFAULTS,
    FIELDS,
    FLASH_ATTN,
    LOAD_MODES,
    Row,
    parsed_rows,
    runs_fields,
    samples_fields,
)
from inferlab.measurement.run import QUANTITIES, Run


def import_llama_bench(path: str | Path, *, leave_out: bool = False) -> tuple[Run, ...]:
    """The runs in a file that `llama-bench -o json` or `-o jsonl` wrote, see `from_rows`. Raises RecordError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{path} cannot be read: {error}.") from error
    return from_rows(parsed_rows(text, path), leave_out=leave_out)


def to_rows(run: Run) -> list[Row]:
    """The pp row and the tg row of a run; a phase that was not timed gives no row.

    A record has the day only, so test_time is its first second. build_number is 0, llama-bench's value for
    unknown; build_commit is llama.cpp's commit, if it is known. n_batch is the context's, at most n_ctx;
    llama-bench writes the requested one.
    """
    prefills = [p.prefill_seconds for p in run.passes if p.prefill_seconds]
    decodes = [p.decoded or (len(p.decode_seconds), sum(p.decode_seconds)) for p in run.passes]
    counts = {n_tokens for n_tokens, seconds in decodes if seconds > 0}
    rows = []
    if run.n_prompt and prefills:
        rows.append(_row(run, prefills, run.settings.n_threads_batch, n_prompt=run.n_prompt))
    if len(counts) == 1:
        decode_seconds = [seconds for _, seconds in decodes if seconds > 0]
        rows.append(_row(run, decode_seconds, run.settings.n_threads, n_gen=counts.pop(), n_depth=run.n_prompt))
    return rows


def json_fields(run: Run) -> dict[str, Any]:
    """One run as a flat object: llama-bench's field names where it has the field, else the names of `Run`."""
    settings = run.settings
    return {
        "llama_cpp": run.machine.llama_cpp,
        "llama_cpp_commit": run.machine.llama_cpp_commit,
        "llama_cpp_python": run.machine.llama_cpp_python,
        "cpu_info": run.machine.cpu,
        "gpu_info": ", ".join(d.description for d in run.machine.gpus),
        "backends": ",".join(dict.fromkeys(d.backend for d in run.machine.devices if d.backend)),
        "model_filename": run.model.file,
        "model_name": run.model.name,
        "model_type": run.model.description,
        "model_size": run.model.tensor_bytes,
        "model_n_params": run.model.n_params,
        "n_batch": settings.n_batch,
        "n_ubatch": settings.n_ubatch,
        "n_ctx": settings.n_ctx,
        "n_threads": settings.n_threads,
        "type_k": settings.type_k,
        "type_v": settings.type_v,
        "n_gpu_layers": settings.n_gpu_layers,
        "no_kv_offload": not settings.offload_kqv,
        "flash_attn": settings.flash_attn,
        "load_mode": settings.load_mode,
        "repack": settings.use_extra_bufts,
        "no_host": settings.no_host,
        "n_prompt": run.n_prompt,
        "n_gen": run.n_gen,
        "test_time": run.date,
        "synthetic": run.model.synthetic,
        "settled": run.settled,
        "load_seconds": run.load_seconds,
        "ttft_seconds": run.ttft_seconds,
        "prefill_tokens_per_second": run.prefill_tokens_per_second,
        "decode_tokens_per_second": run.decode_tokens_per_second,
        "inter_token_seconds": run.inter_token_seconds,
        "prefill_seconds": run.prefill_seconds,
        "ranges": run.ranges,
        "intervals": {of: run.interval(of) for of in QUANTITIES},
        "limits": {d.name: d.limited_to_bytes for d in run.machine.gpus if d.limited_to_bytes},
        "links": [asdict(link) for link in run.links],
        "buffers": [{"device": b.device, "kind": b.kind, "n_bytes": b.n_bytes} for b in run.buffers],
        "passes": [
            {
                "prefill_seconds": p.prefill_seconds,
                "token_seconds": p.token_seconds,
                "decode_seconds": p.decode_seconds,
            }
            for p in run.passes
        ],
    }


def _row(run: Run, seconds: Sequence[float], n_threads: int | None, n_prompt=0, n_gen=0, n_depth=0) -> Row:
    row = {
        **DEFAULTS,
        **json_fields(run),
        **_llama_bench_fields(run),
        **samples_fields(seconds, n_prompt + n_gen),
        "n_threads": n_threads or run.machine.n_cores or 0,
        "n_prompt": n_prompt,
        "n_gen": n_gen,
        "n_depth": n_depth,
        "test_time": f"{run.date}T00:00:00Z",
    }
    return {name: row[name] for name in FIELDS}


def _llama_bench_fields(run: Run) -> Row:
    """Fields that llama-bench writes in another form than `json_fields`, or that only llama-bench has."""
    machine, settings, devices = run.machine, run.settings, run.settings.devices
    hosts = [device.description for device in machine.devices if device.kind in ("cpu", "accel")]
    backends = dict.fromkeys(d.backend for d in machine.devices if d.backend and d.backend != "CPU")
    commit = (machine.llama_cpp_commit or "").removesuffix("-dirty")
    return {
        "build_commit": commit or machine.llama_cpp_python or machine.llama_cpp or "unknown",
        "build_number": 0,
        "cpu_info": ", ".join(hosts) or machine.cpu,
        "backends": ",".join(backends) or "CPU",
        "model_type": run.model.description or run.model.name,
        "split_mode": settings.split_mode,
        "main_gpu": settings.main_gpu,
        "no_op_offload": int(not settings.op_offload),
        "flash_attn": FLASH_ATTN[settings.flash_attn],
        "devices": "auto" if devices is None else "/".join(devices) or "none",
        "tensor_split": "/".join(f"{share:.2f}" for share in settings.tensor_split or (0.0,)),
        "load_mode": LOAD_MODES.get(settings.load_mode, settings.load_mode),
    }


def from_rows(rows: Iterable[Row], *, leave_out: bool = False) -> tuple[Run, ...]:
    """Runs from llama-bench's rows, as `runs_fields` reads them. Raises RecordError."""
    return tuple(Run(**fields) for fields in runs_fields(rows, leave_out=leave_out))
