"""Sweeps of one setting at a time, layers moved one by one to a second device, and memory that settings would take."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from inferlab.engine.loopback import loopback_device
from inferlab.engine.session import default_engine
from inferlab.errors import EngineRefused
from inferlab.measurement.sweep import Sweep
from inferlab.model.catalog import known_model
from inferlab.model.find import tiny_model
from inferlab.model.synthetic_model import shape
from inferlab.prediction.fit import fit
from inferlab.prediction.memory import kv_cache_bytes_per_token
from inferlab.prediction.paste import lines_for
from inferlab.prediction.predict import predict_memory
from inferlab.records import load
from inferlab.settings import Settings
from inferlab.statistics import least_squares
from inferlab.units import MIB

N_LAYERS = 9
"""Layers of the model that was split: eight blocks, and the output layer."""
CONTROLS = "n_batch", "n_ctx", "load_mode"
"""Settings that should change no rate in their sweeps."""
PHASES = "prefill", "decode"
CACHE_RAM_MIB = 8192
"""llama-server's default of --cache-ram."""
WINDOWED = "gemma-3-4b"
PROGRAMS = {"Ollama": "ollama", "LM Studio": "lmstudio", "llama-cpp-python": "llama-cpp-python"}


def swept(name: str) -> Sweep:
    """The recorded sweep over one setting."""
    return load(f"xeon-2c/tune-{name}", Sweep)


def split_layers() -> Sweep:
    """Every number of layers on a loopback device, with the same kernels on both sides."""
    return load("epyc-2c/split-layers", Sweep)


def spread(sweep: Sweep, phase: str) -> float:
    """How much faster the fastest point is than the slowest, in percent; `phase` is "prefill" or "decode"."""
    rates = [getattr(run, f"{phase}_tokens_per_second") for run in sweep.runs]
    return 100 * (max(rates) / min(rates) - 1)


# --- the chapter on tuning --------------------------------------------------------------------


def numbers() -> dict[str, float]:
    """The numbers of the chapter on tuning: tokens per second, ms of a token, differences in percent.

    The line is that through the times of a token with one to eight layers left on the host.

    layers_crossing  how much less than the line says a token takes with all layers on the host
    layers_worth     moved layers that save as much
    """
    threads, layers = swept("n_threads"), split_layers()
    left = {N_LAYERS - p.changes["n_gpu_layers"]: 1000 / p.run.decode_tokens_per_second for p in layers.points}
    divided = {n: ms for n, ms in left.items() if 0 < n < N_LAYERS}
    line = least_squares(list(divided), list(divided.values()))
    crossing = line.at(N_LAYERS) - left[N_LAYERS]
    every, none = {"n_gpu_layers": N_LAYERS}, {"n_gpu_layers": 0}
    return {
        **{f"threads_{n}": threads.at(n_threads=n).decode_tokens_per_second for n in (1, 2, 3)},
        "threads_loss": 100 * threads.gain("decode", {"n_threads": 3}, {"n_threads": 2}),
        "control_percent": spread(swept("load_mode"), "decode"),
        "layers_slope": line.slope,
        "layers_crossing": crossing,
        "layers_worth": crossing / line.slope,
        "layers_scatter": max(abs(ms - line.at(n)) for n, ms in divided.items()),
        **{f"device_{phase}": layers.gain(phase, every, none) + 1 for phase in PHASES},
    }


def forty_layers() -> str:
    """What llama.cpp does now with more layers than a model has, and with a split by rows, as two sentences or more.

    Opens the embedded model on a loopback device. Raises DeviceUnavailable without llama.cpp's RPC backend.
    """
    with loopback_device() as device:
        wanted = device.settings(Settings(n_ctx=256))
        seven, forty = (default_engine().open(tiny_model(), wanted.but(n_gpu_layers=n)).buffers for n in (7, 40))
        try:
            default_engine().open(tiny_model(), wanted.but(split_mode="row"))
            by_rows = "Split by rows, the model is loaded."
        except EngineRefused as refused:
            reasons = [line.strip() for line in refused.log.splitlines() if "split" in line]
            by_rows = "Split by rows, the model is refused. The log says:\n" + "\n".join(reasons)
    same = "the same" if seven == forty else "different"
    return f"Seven and forty layers give {same} buffers.\n{by_rows}"


def last_layers_table() -> tuple[Sequence[str], Sequence[Sequence[int | float | str]]]:
    """Heads and rows of an exercise: 33 layers, each 4 ms on the host or 0.4 ms on the device."""
    rates = {left: 1000 / (4 * left + 0.4 * (33 - left)) for left in (33, 17, 4, 1, 0)}
    rows = [(33, rates[33], "–")]
    for (more, before), (fewer, after) in pairwise(rates.items()):
        rows.append((fewer, after, f"{(after - before) / (more - fewer):.2f}"))
    return ("layers on the host", "tokens/s", "gain for each layer moved, tokens/s"), rows


# --- the parameter guide ----------------------------------------------------------------------


def guide_numbers() -> dict[str, float]:
    """The numbers of the parameter guide: changes of rates in percent, buffers in MiB.

    Computed: how the cache of a model with windows grows, and the tokens that llama-server's copies in RAM hold.
    """
    batch, ubatch, threads = swept("n_batch"), swept("n_ubatch"), swept("n_threads_batch")
    whole = _cache_bytes(Settings(n_ctx=16_384))
    four, twice = Settings(n_ctx=16_384, n_seq_max=4), Settings(n_ctx=32_768)
    return {
        **{f"control_{phase}": max(spread(swept(name), phase) for name in CONTROLS) for phase in PHASES},
        "threads_batch": 1 + threads.gain("prefill", {"n_threads_batch": 2}, {"n_threads_batch": 1}),
        "batch_gain": 100 * batch.gain("prefill", {"n_batch": 256}, {"n_batch": 32}),
        "ubatch_most": 100 * ubatch.gain("prefill", {"n_ubatch": 128}, {"n_ubatch": 8}),
        "ubatch_step": 100 * ubatch.gain("prefill", {"n_ubatch": 256}, {"n_ubatch": 128}),
        **{f"ubatch_{n}_mib": ubatch.at(n_ubatch=n).bytes_on("compute") / MIB for n in (8, 256)},
        "ctx_decode": 100 * swept("n_ctx").gain("decode", {"n_ctx": 16384}, {"n_ctx": 512}),
        "split_growth": _cache_bytes(four) / whole,
        "pool_growth": _cache_bytes(four.but(kv_unified=True)) / whole,
        "window_factor": _cache_bytes(twice, swa_full=True) / _cache_bytes(twice),
        "window": known_model(WINDOWED).n_swa,
        "cram_tokens": CACHE_RAM_MIB * MIB / kv_cache_bytes_per_token(shape("llama-3.1-8b", "Q4_K_M")),
    }


def _cache_bytes(settings: Settings, swa_full: bool = False) -> int:
    asked = settings.but(flash_attn="on", swa_full=swa_full)
    return predict_memory(shape(WINDOWED, "Q4_K_M"), asked, simulate=False).bytes_of("kv_cache")


def same_elsewhere() -> str:
    """The guide's first line in other programs: Markdown of a set of tabs, one for each program."""
    wanted = Settings(n_ctx=32_768, n_gpu_layers=-1, flash_attn="on", type_k="q8_0", type_v="q8_0")
    planned = fit(shape("llama-3.1-8b", "Q4_K_M"), wanted, vram="8GiB", simulate=False)
    tabs = (f"````{{tab-item}} {title}\n{lines_for(planned, name).markdown}\n````" for title, name in PROGRAMS.items())
    return "\n".join(("`````{tab-set}", *tabs, "`````"))
