"""Rows of llama-bench for tests: those that it printed, and changed ones; files of them, and damaged files."""

from __future__ import annotations

import json
import time
from pathlib import Path
from random import Random
from typing import Any

from inferlab.errors import InferlabError
from inferlab.instruments import your_numbers
from inferlab.instruments.dropped import DroppedFiles
from inferlab.instruments.views import html_of

PRINTED = Path(__file__).parent / "data" / "llama-bench.jsonl"
RECORDS = Path(__file__).parents[1] / "src" / "studies" / "quantization" / "records" / "xeon-2c"
LONGEST_SECONDS = 2.0  # of processor time, many times what the slowest takes
ODD = (None, True, -1, 0, 1e999, 10**30, "", "x", "9" * 400, [], {}, [None], "<b>", "\ud800", float("nan"), 1e-320)


def rows() -> list[dict[str, Any]]:
    """The pp row and the tg row that llama-bench printed for the embedded model."""
    return [json.loads(line) for line in PRINTED.read_text(encoding="utf-8").splitlines()]


def on_card(name: str = "NVIDIA GeForce RTX 4090", slower: float = 8, **changed: Any) -> list[dict[str, Any]]:
    """The same rows as of Llama 3.1 8B on a card, with times so many times as long."""
    card = {"gpu_info": name, "backends": "CUDA", "n_gpu_layers": 99, "model_filename": "/home/me/llama-8b.gguf"}
    model = {"model_type": "llama 8B Q4_K - Medium", "model_n_params": 8030261312, "model_size": 4912898304}
    return [timed({**row, **card, **model, **changed}, slower) for row in rows()]


def timed(row: dict[str, Any], slower: float = 1, n_samples: int | None = None) -> dict[str, Any]:
    """A row with times so many times as long, or only the first few, and the rates that follow for its tokens."""
    n_tokens, samples = row["n_prompt"] + row["n_gen"], [round(ns * slower) for ns in row["samples_ns"]][:n_samples]
    rates = [1e9 * n_tokens / ns for ns in samples]
    return {**row, "samples_ns": samples, "samples_ts": rates, "avg_ts": sum(rates) / len(rates)}


def as_bytes(found: list[dict[str, Any]], kind: str = "json") -> bytes:
    """Rows as llama-bench writes them with -o json, jsonl or csv."""
    if kind == "csv":
        names = [name for name in found[0] if not name.startswith("samples")]
        lines = [",".join(f'"{row[name]}"' for name in names) for row in found]
        return "\n".join([",".join(names), *lines]).encode()
    return (json.dumps(found, indent=1) if kind == "json" else "\n".join(map(json.dumps, found))).encode()


SEEDS = (
    as_bytes(rows()),
    as_bytes(on_card(), "jsonl"),
    as_bytes(on_card(), "csv"),
    (RECORDS / "llama-3.2-1b-Q4_K_M.json").read_bytes(),
    b"""ggml_cuda_init: found 1 CUDA devices:
  Device 0: NVIDIA GeForce RTX 4090, compute capability 8.9, VMM: yes
| model | size | params | backend | ngl | fa | test | t/s |
| ---- | ---: | ---: | ---- | --: | -: | ---: | ---: |
| llama 8B Q4_K - Medium | 4.58 GiB | 8.03 B | CUDA | 99 | 1 | pp512 | 4000.10 \xc2\xb1 10.00 |
| llama 8B Q4_K - Medium | 4.58 GiB | 8.03 B | CUDA | 99 | 1 | tg128 @ d512 | 120.50 \xc2\xb1 0.10 |

build: 1a2b3c4 (7001)

|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|
|   512 |    128 |    2 |   1280 |    0.200 |  5120.00 |    1.600 |   160.00 |    1.800 |   711.11 |
INSERT INTO llama_bench (model_type, n_prompt, n_gen, avg_ts) VALUES ('a B F16', '0', '9', '1.5');
""",
)


def damaged(random: Random) -> bytes:
    """One of the seeds with odd values, missing fields, cut, mixed or with changed bytes."""
    data = random.choice(SEEDS)
    if random.random() < 0.6:
        return _with_odd_values(data, random)
    for _ in range(random.randint(1, 6)):
        at, end = sorted(random.randrange(len(data) + 1) for _ in range(2))
        change = random.choice(["cut", "byte", "again", "swap", "deep"])
        if change == "cut":
            data = data[:at]
        elif change == "byte":
            data = data[:at] + bytes(random.choices(b'[]{},:"\\0-e.\xff\n', k=3)) + data[at + 3 :]
        elif change == "again":
            data = (data[:end] + data[at:])[:50_000]
        elif change == "swap":
            data = data[end:] + data[:at] + data[at:end]
        else:
            data = data[:at] + random.choice([b"[", b'{"a":']) * random.choice([3, 5000]) + data[at:]
        data = data or b" "
    return data


def _with_odd_values(data: bytes, random: Random) -> bytes:
    """Some values of the objects in a seed replaced or taken away."""
    try:
        value = json.loads(data)
    except ValueError:
        return bytes(byte if random.random() > 0.003 else random.randrange(256) for byte in data)
    places = [*_places(value)]
    for holder, key in random.sample(places, min(len(places), random.randint(1, 5))):
        if isinstance(holder, dict) and random.random() < 0.3:
            holder.pop(key, None)
        elif isinstance(holder, dict) or key < len(holder):
            holder[key] = random.choice(ODD)
    return json.dumps(value).encode()


def _places(value: Any):
    several = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in several:
        yield value, key
        yield from _places(inner)


def fuzz_results(folder: Path, random: Random, n: int) -> int:
    """How many damaged files of n were read; the others were refused with a reason, each within LONGEST_SECONDS."""
    files, n_read = DroppedFiles(folder), 0
    for _ in range(n):
        data, started = damaged(random), time.process_time()
        files.keep("a.json", len(data), 0, data)
        try:
            found = your_numbers.answer({"files": '["a.json"]'}, files)
            n_read += 1
            json.dumps(found.data, allow_nan=False)
            html_of(found.view)
        except InferlabError:
            pass
        assert time.process_time() - started < LONGEST_SECONDS
    return n_read
