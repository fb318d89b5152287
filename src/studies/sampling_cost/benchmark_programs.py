"""The same work timed by llama-bench, by llama-batched-bench and by this library, in turns.

llama-bench starts `tg` from an empty cache unless it gets a depth (-d). llama-batched-bench gives every sequence a
prompt of its own and times n_gen steps; its rate counts the tokens of all sequences.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from inferlab.engine import openmp
from inferlab.engine.programs import built_program
from inferlab.engine.session import default_engine
from inferlab.errors import EngineRefused, EngineUnavailable, InvalidSettings
from inferlab.measurement.base import Measurement, common_fields, with_context
from inferlab.measurement.batching import batched_decode
from inferlab.measurement.queued import queued
from inferlab.measurement.run import measure
from inferlab.model.find import find_model
from inferlab.model.gguf import read_gguf
from inferlab.progress import track
from inferlab.settings import Settings

SIZES = (1, 4)


@dataclass(frozen=True, kw_only=True)
class BenchmarkPrograms(Measurement):
    """Tokens per second of the same work by several programs.

    rates    "program: work" -> one rate for each turn
    changed  request with a grammar -> share of its greedy tokens that are not the likeliest (serving_overhead)
    """

    n_prompt: int
    n_gen: int
    rates: dict[str, tuple[float, ...]]
    changed: dict[str, float] = field(default_factory=dict)

    def rate(self, name: str) -> float:
        """The median over the turns."""
        return median(self.rates[name])


@queued
def compare_programs(
    model: str | Path | None = None,
    settings: Settings | None = None,
    n_prompt: int = 512,
    n_gen: int = 64,
    turns: int = 15,
    progress: bool | None = None,
) -> BenchmarkPrograms:
    """Time prefill and decode by each program, one after the other, `turns` times.

    settings  n_threads and n_threads_batch are given to all programs; both must be equal
    Raises EngineUnavailable without the programs that `make tools` compiles, InvalidSettings or EngineRefused.
    """
    if min(n_prompt, n_gen, turns) < 1:
        raise InvalidSettings("n_prompt, n_gen and turns must be whole numbers of at least 1.")
    path, settings = find_model(model), settings or Settings(n_threads=2, n_threads_batch=2)
    rates: dict[str, list[float]] = {}
    for _ in track(range(turns), turns, "comparing programs", progress):
        for ask in (_of_this_book, _of_llama_bench, _of_batched_bench):
            for name, rate in ask(path, settings, n_prompt, n_gen).items():
                rates.setdefault(name, []).append(rate)
    engine = default_engine()
    opening = engine.open(path, with_context(settings, n_prompt, n_gen))
    common = common_fields(engine, opening, read_gguf(path))
    return BenchmarkPrograms(
        **common, n_prompt=n_prompt, n_gen=n_gen, rates={name: tuple(each) for name, each in rates.items()}
    )


def _of_this_book(path: Path, settings: Settings, n_prompt: int, n_gen: int) -> dict[str, float]:
    run = measure(path, settings, n_prompt, n_gen, repeats=1, progress=False)
    several = batched_decode(path, settings, SIZES, n_prompt, n_gen, repeats=1, progress=False)
    decode = {f"this book: decode, {size} at once": several.at(size).tokens_per_second for size in SIZES}
    return {"this book: prefill": run.prefill_tokens_per_second, **decode}


def _of_llama_bench(path: Path, settings: Settings, n_prompt: int, n_gen: int) -> dict[str, float]:
    common = ["-m", path, "-t", settings.n_threads, "-r", 1, "-o", "jsonl"]
    prefill, empty = run_program("llama-bench", [*common, "-p", n_prompt, "-n", n_gen])
    (filled,) = run_program("llama-bench", [*common, "-p", 0, "-n", n_gen, "-d", n_prompt])
    return {
        "llama-bench: prefill": prefill["avg_ts"],
        "llama-bench: decode, 1 at once": filled["avg_ts"],
        "llama-bench: decode from an empty cache": empty["avg_ts"],
    }


def _of_batched_bench(path: Path, settings: Settings, n_prompt: int, n_gen: int) -> dict[str, float]:
    n_ctx = max(SIZES) * (n_prompt + n_gen)
    sizes = ",".join(map(str, SIZES))
    rows = run_program(
        "llama-batched-bench",
        ["-m", path, "-t", settings.n_threads, "-tb", settings.n_threads_batch, "-c", n_ctx,
         "-npp", n_prompt, "-ntg", n_gen, "-npl", sizes, "--output-format", "jsonl"],
    )  # fmt: skip
    if len(rows) != len(SIZES):
        raise EngineRefused(f"llama-batched-bench printed {len(rows)} rows instead of {len(SIZES)}. Give more context.")
    decode = {f"llama-batched-bench: decode, {row['pl']} at once": row["speed_tg"] for row in rows}
    return {"llama-batched-bench: prefill": rows[0]["speed_pp"], **decode}


def run_program(name: str, arguments: Sequence[object]) -> list[dict]:
    """The JSON objects that a program printed, one on each line."""
    program = built_program(name)
    if program is None:
        raise EngineUnavailable(f"There is no {name}: compile it with `make tools`.")
    command, environment = [program, *map(str, arguments)], openmp.bounded(os.environ)
    ended = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment)
    if ended.returncode:
        raise EngineRefused(f"{name} ended with status {ended.returncode}. Read its last lines.", ended.stderr[-2000:])
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
