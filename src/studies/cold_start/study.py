"""Cold starts with and without the file in RAM, the waits for a start, and what of a loaded file is in RAM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from math import ceil
from pathlib import Path
from statistics import median

from inferlab.engine.client import LlamaEngine
from inferlab.engine.session import default_engine
from inferlab.measurement.cold_start import FILE_PHASES, ColdStart
from inferlab.measurement.memory import Residence, huge_page_policy, read_residence, resident
from inferlab.measurement.run import Run
from inferlab.model.catalog import known_model
from inferlab.model.gguf import read_gguf
from inferlab.model.synthetic_model import make_shape, shape
from inferlab.records import load
from inferlab.settings import Settings
from inferlab.units import GB, MIB
from studies.cold_start.wait import (
    OF_BYTES,
    RECORDED,
    Rate,
    is_cached,
    place_rate,
    ratio,
    recorded_places,
    recorded_rates,
)

WAITED_FOR = ("qwen2.5-0.5b", "mistral-7b-v0.3", "llama-3.1-8b", "qwen3-30b-a3b")
SSD, SATA, SHARE, BUS = 7e9, 0.5e9, 1e9 / 8, 15.75e9
"""Bytes per second of the data sheets: two kinds of disk, 1 Gbit/s, eight lanes of PCIe 4.0."""
TYPES, MODES = ("F16", "Q4_K_M"), ("mmap", "none", "mmap_mlock")


def numbers() -> dict[str, float | str]:
    """The numbers that the page *Cold start* takes from records, and least seconds of Mistral 7B by the data sheets."""
    n_bytes = known_model("mistral-7b-v0.3").files["Q4_K_M"].value
    first = {"ssd_s": n_bytes / SSD, "sata_s": n_bytes / SATA, "bus_s": n_bytes / BUS, "example_gb": n_bytes / GB}
    return start_numbers() | wait_numbers() | first


# --- with and without the file in RAM ---------------------------------------------------------


def start_numbers() -> dict[str, float | str]:
    """Seconds of starts by load mode and state of the page cache, and ms of first passes beside other programs."""
    result: dict[str, float | str] = {}
    for (mode, state), starts in _larger_starts().items():
        result[f"larger_{mode}_{state}_s"] = _middle(starts).wall_seconds
        result[f"larger_{mode}_{state}_file_s"] = median(sum(start.phases[p] for p in FILE_PHASES) for start in starts)
    for name, record in (("alone", "alone"), ("busy", "busy-cores")):
        passes = [1e3 * start.phases["warm_up"] for start in load(f"epyc-2c/tiny-cold-start-{record}")]
        result[f"{name}_range"] = f"{min(passes):.0f} to {max(passes):.0f}"
    return result | {"larger_n": len(starts), "larger_mib": starts[0].model.tensor_bytes / MIB}


def typical() -> list[ColdStart]:
    """The start with the median wall time of each load mode and state of the page cache."""
    return [_middle(starts) for starts in _larger_starts().values()]


def _larger_starts() -> dict[tuple[str, str], list[ColdStart]]:
    starts = load("xeon-2c/llama-3.2-1b-cold-start")
    kinds = [(mode, state) for mode in ("mmap", "none") for state in ("empty", "full")]
    return {kind: [start for start in starts if (start.settings.load_mode, start.page_cache) == kind] for kind in kinds}


def _middle(starts: Sequence[ColdStart]) -> ColdStart:
    return sorted(starts, key=lambda start: start.wall_seconds)[len(starts) // 2]


# --- the wait for a start ---------------------------------------------------------------------


def wait_numbers() -> dict[str, float]:
    """The fitted rates of the wait, and how well starts that gave no rates keep to it."""
    fitted_from, unseen = load(RECORDED), unseen_starts()
    rates, places = recorded_rates(), recorded_places()
    used = {key: [ratio(rates, *start) for start in group] for key, group in unseen.items()}
    every = list(chain.from_iterable(used.values()))
    cached_by_type = {
        mix: [start for start in fitted_from if is_cached(start) and mix in start.model.file]
        for mix in ("Q4_K_M", "Q8_0")
    }
    shapes = load("epyc-2c/cold-start-unseen-shapes")
    return {
        **{f"error_{key}": median(100 * abs(start - 1) for start in group) for key, group in used.items()},
        **{
            f"loading_{mix}": 1e9
            * median(sum(start.phases[name] for name in OF_BYTES) / start.file_bytes for start in cached)
            for mix, cached in cached_by_type.items()
        },
        "margin": rates.margin,
        "constant_ms": 1e3 * rates.constant_seconds,
        "entry_us": 1e6 * rates.seconds_per_entry,
        "loading_rate": 1e-9 / rates.seconds_per_byte,
        "ram_rate": places[True].bytes_per_second / 1e9,
        "disk_rate": places[False].bytes_per_second / 1e9,
        "limited_rate": unseen["limited"][0][1].bytes_per_second / 1e6,
        "largest_gb": max(start.file_bytes for start in (*fitted_from, *shapes)) / GB,
        "n_fitted": len(fitted_from),
        "n_fitted_more": len(fitted_from) + 1,
        "n_unseen": len(every),
        "in_time": sum(start <= rates.margin for start in every),
        "nearest": 100 * max(every) / rates.margin,
    }


def unseen_starts() -> dict[str, list[tuple[ColdStart, Rate]]]:
    """Starts of shapes that gave no rates, each with the rate of its place: cached, from the disk, from a slow disk."""
    places = recorded_places()
    shapes, slow = load("epyc-2c/cold-start-unseen-shapes"), load("epyc-2c/cold-start-slow-disk")
    return {
        "cached": [(start, places[True]) for start in shapes if is_cached(start)],
        "disk": [(start, places[False]) for start in shapes if not is_cached(start)],
        "limited": [(start, place_rate(slow)) for start in slow],
    }


def wait_table() -> tuple[Sequence[str], list[Sequence[str | int]]]:
    """Heads and rows: seconds to wait for each model, by the place of its file."""
    rates, recorded = recorded_rates(), recorded_places()
    places = {
        "page cache": recorded[True],
        "recorded disk": recorded[False],
        "SATA disk": Rate(SATA, "given"),
        "network share": Rate(SHARE, "given"),
    }
    models = {name: shape(name, "Q4_K_M") for name in WAITED_FOR}
    return ("model", *places), [
        (
            f"{name}, {model.file_bytes / GB:.2f} GB",
            *(ceil(rates.wait(model.file_bytes, model.n_vocab, place)) for place in places.values()),
        )
        for name, model in models.items()
    ]


def program_lines(wait_seconds: float) -> str:
    """The wait as each program takes it; none of the lines makes a default shorter."""
    seconds = ceil(wait_seconds)
    return f"""\
# unit of systemd
ExecStartPost=/bin/sh -c 'until curl -sf \\
  http://127.0.0.1:8080/health; do sleep 1; done'
TimeoutStartSec={max(90, seconds)}

# Dockerfile
HEALTHCHECK --start-period={seconds}s \\
  CMD curl -f http://localhost:8080/health

# Ollama
OLLAMA_LOAD_TIMEOUT={max(300, seconds)}s ollama serve

# client: try again on 503, no longer than the wait
curl --retry {seconds} --retry-delay 1 --retry-connrefused \\
  --retry-max-time {seconds} http://127.0.0.1:8080/v1/models"""


# --- what of the file is in RAM, on this machine ----------------------------------------------


def small_files() -> dict[str, Path]:
    """A small model in F16 and in Q4_K_M, by its type."""
    return {mix: make_shape("llama-3.2-1b", mix, n_layer=1, n_vocab=4096) for mix in TYPES}


def after_loading(files: Mapping[str, Path]) -> dict[str, Residence]:
    """Resident memory right after loading each file in each mode, by "F16, mmap"; {} where it is unknown."""
    memory = {}
    for mix, file in files.items():
        for mode in MODES:
            fresh = LlamaEngine()
            memory[f"{mix}, {mode}"] = resident(file, Settings(n_ctx=512, load_mode=mode), fresh)
            fresh.close()
    return {name: residence for name, residence in memory.items() if residence}


def beside_a_second(files: Mapping[str, Path]) -> dict[str, tuple[Residence | None, Residence | None]]:
    """Resident memory of a process that loaded a file, alone and while a second one has loaded it too, by type."""
    first, second = LlamaEngine(), LlamaEngine()
    memory = {}
    for mix, file in files.items():
        before = resident(file, Settings(n_ctx=512), first)
        second.open(file, Settings(n_ctx=512))
        memory[mix] = before, read_residence(first.pid, file)
    first.close()
    second.close()
    return memory


def shared_table(
    shared: Mapping[str, tuple[Residence | None, Residence | None]],
) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Heads and rows: MiB of the first process, alone and beside the second one."""
    heads = (
        "type",
        "file in RAM, alone",
        "file in RAM, second process running",
        "its share of the file",
        "private memory",
    )
    return heads, [
        (mix, _mib(before, "file_bytes"), *(_mib(beside, f"{field}_bytes") for field in ("file", "file_share", "own")))
        for mix, (before, beside) in shared.items()
    ]


def _mib(memory: Residence | None, field: str) -> str:
    return f"{getattr(memory, field) / MIB:.0f}" if memory else "unknown"


def residence_numbers(
    files: Mapping[str, Path], loaded: Mapping[str, Residence], alone: Residence | None
) -> dict[str, float | str]:
    """MiB of the F16 file in RAM, locked and in huge pages (NaN where unknown), and of Q4_K_M's rearranged copies."""
    opened = default_engine().open(files["Q4_K_M"], Settings(n_ctx=512))
    copied = [b.n_bytes for b in opened.buffers if b.kind == "weights" and "Mapped" not in b.device]
    of_pages: dict[str, float | str] = dict.fromkeys(
        ("f16_file", "f16_locked", "f16_huge_file", "f16_huge"), float("nan")
    )
    if alone:
        of_pages = {
            "f16_file": alone.file_bytes / MIB,
            "f16_locked": loaded["F16, mmap_mlock"].locked_bytes / MIB,
            "f16_huge_file": alone.file_huge_bytes / MIB,
            "f16_huge": max(alone.huge_bytes, loaded["F16, none"].huge_bytes) / MIB,
        }
    return of_pages | {
        "f16_size": read_gguf(files["F16"]).tensor_bytes / MIB,
        "policy": huge_page_policy() or "unknown",
        "copies": sum(copied) / MIB,
        "copies_share": 100 * sum(copied) / read_gguf(files["Q4_K_M"]).tensor_bytes,
    }


def control_numbers(mapped: Run, read: Run) -> dict[str, float]:
    """Loading ms and decode rates of two runs with the file mapped and read, and how far apart the rates are in %."""
    rates = mapped.decode_tokens_per_second, read.decode_tokens_per_second
    return {
        "mapped_rate": rates[0],
        "read_rate": rates[1],
        "control_gap": 100 * abs(rates[1] / rates[0] - 1),
        "mapped_load": mapped.load_seconds * 1e3,
        "read_load": read.load_seconds * 1e3,
    }
