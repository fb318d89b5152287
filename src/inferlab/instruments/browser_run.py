"""A run of llama.cpp in a browser: what it shall measure, what the page measured, and its rows for llama-bench.

A page's `llama.js` carries out a plan and returns raw samples; all that is computed from them is computed here.
Samples are nanoseconds of llama.cpp's own clock.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from inferlab.errors import InvalidSettings, RecordError
from inferlab.measurement.llama_bench_rows import DEFAULTS, FIELDS, Row, samples_fields
from inferlab.model.gguf import Model

N_CTX = 1024
"""Cells of the cache: the embedded model was trained for as many tokens."""
BACKENDS = {"cpu": "CPU", "webgpu": "WebGPU"}
MOST_DEPTHS, MOST_REPEATS, MOST_THREADS = 8, 50, 256
N_CHECKED = 24
"""Tokens that CPU and GPU write in the self-test."""
NEAR = 0.1
"""How far the logarithms of a token's probability on CPU and GPU may lie apart, in nats."""
AGAIN = "Press Start again; if that does not help, reload the page."


@dataclass(frozen=True)
class BrowserPlan:
    """What a run measures: at each depth a prefill of n_prompt tokens and a decode of n_gen tokens.

    n_threads  0 for one thread for every two processors that the browser names, as wllama has it
    Raises InvalidSettings for what the embedded model cannot do.
    """

    depths: tuple[int, ...]
    n_prompt: int
    n_gen: int
    repeats: int
    n_threads: int
    backend: str

    def __post_init__(self) -> None:
        if not 1 <= len(self.depths) <= MOST_DEPTHS or len(set(self.depths)) < len(self.depths):
            raise InvalidSettings(f"Depths: give 1 to {MOST_DEPTHS} different numbers, such as 0, 256, 512.")
        _within("Prefill", self.n_prompt, 1, N_CTX - 1)
        _within("Decode", self.n_gen, 1, N_CTX - 2)
        _within("Repetitions", self.repeats, 1, MOST_REPEATS)
        _within("Threads", self.n_threads, 0, MOST_THREADS)
        longest = N_CTX - max(self.n_prompt, self.n_gen + 1) - 1
        for depth in self.depths:
            if not 0 <= depth <= longest:
                raise InvalidSettings(
                    f"Depths: {depth} is not from 0 to {longest}. The embedded model takes {N_CTX:,} tokens, and "
                    f"{N_CTX - longest} of them are needed after each depth."
                )
        if self.backend not in BACKENDS:
            raise InvalidSettings(f"Backend: {self.backend!r} is not in the list: {', '.join(BACKENDS)}.")

    @property
    def tests(self) -> list[tuple[int, int, int]]:
        """(n_prompt, n_gen, n_depth) of each test, as llama-bench has them."""
        return [test for depth in self.depths for test in ((self.n_prompt, 0, depth), (0, self.n_gen, depth))]

    def fields(self, step: str, check: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The plan as `llama.js` takes it; `step` is "check" or "measure", `check` what the step before found."""
        return {"step": step, "n_ctx": N_CTX, "n_checked": N_CHECKED, "check": check, **asdict(self)}


def _within(label: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidSettings(f"{label}: {value} is not from {least} to {most:,}.")


# --- whether a GPU computes what the CPU does ------------------------------------------------------------


@dataclass(frozen=True)
class GpuCheck:
    """What CPU and GPU wrote for one prompt: (id, log-probability) of each greedy token, in nats.

    offloaded  layers that llama.cpp's log says to lie on the GPU, of how many: without any the CPU wrote both
    gpu_name   the GPU in the browser's words, empty where it says nothing
    software   whether the browser calls it a fallback adapter: a program on the CPU in a GPU's place
    lacks      what llama.cpp's WebGPU needs and the GPU does not offer, by the names of WebGPU's features
    """

    cpu: tuple[tuple[int, float], ...]
    gpu: tuple[tuple[int, float], ...]
    offloaded: tuple[int, int]
    gpu_name: str = ""
    software: bool = False
    lacks: tuple[str, ...] = ()

    @property
    def on_gpu(self) -> bool:
        """Whether the GPU had every layer."""
        on_gpu, layers = self.offloaded
        return on_gpu == layers > 0

    @property
    def n_equal(self) -> int:
        """Tokens before the first that differs."""
        pairs = zip(self.cpu, self.gpu, strict=False)
        return next((n for n, (cpu, gpu) in enumerate(pairs) if cpu[0] != gpu[0]), min(len(self.cpu), len(self.gpu)))

    @property
    def apart(self) -> float:
        """The largest difference of the log-probabilities of equal tokens."""
        pairs = list(zip(self.cpu, self.gpu, strict=False))[: self.n_equal]
        return max((abs(cpu[1] - gpu[1]) for cpu, gpu in pairs), default=math.inf)

    @property
    def agrees(self) -> bool:
        """Whether the GPU, and not the CPU in its place, wrote every token of the CPU, each about as likely."""
        return self.on_gpu and self.n_equal == len(self.cpu) == len(self.gpu) > 0 and self.apart <= NEAR


# --- what a page measured --------------------------------------------------------------------------------


@dataclass(frozen=True)
class BrowserRun:
    """The results of a plan.

    step         "check" after the self-test, "measure" after the samples
    build        llama.cpp's build: "b" and its number, "-" and its commit
    compat       whether wllama's build for browsers without JSPI or 64-bit memory ran
    isolated     whether the site was isolated from others, which threads need
    mmap         whether the model was mapped and not read
    gpu          the GPU in the browser's words, empty without one
    model        name of the model's file
    samples      nanoseconds of each repetition of each test
    """

    plan: BrowserPlan
    step: str
    check: GpuCheck | None
    build: str = ""
    compat: bool = False
    isolated: bool = False
    mmap: bool = False
    n_processors: int = 1
    n_threads: int = 1
    n_batch: int = 1
    n_ubatch: int = 1
    user_agent: str = ""
    gpu: str = ""
    model: str = ""
    date: str = ""
    samples: dict[tuple[int, int, int], tuple[int, ...]] = field(default_factory=dict)

    @property
    def in_software(self) -> bool:
        """Whether WebGPU ran on the CPU, by an adapter in software."""
        return self.check is not None and self.check.software

    def rates(self, test: tuple[int, int, int]) -> tuple[float, float, float]:
        """Median, lowest and highest tokens per second of a test."""
        n_tokens = test[0] + test[1]
        rates = [1e9 * n_tokens / ns for ns in self.samples[test]]
        return median(rates), min(rates), max(rates)


def read_run(text: str) -> BrowserRun:
    """The run that a page's script returned. Raises RecordError or InvalidSettings for anything else."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise RecordError(f"The results of the run are not JSON: {fault}. {AGAIN}") from fault
    asked = _part(told, "plan", dict)
    plan = BrowserPlan(
        depths=tuple(_listed(asked, "depths", _is_count)),
        **{name: _part(asked, name, int) for name in ("n_prompt", "n_gen", "repeats", "n_threads")},
        backend=_part(asked, "backend", str),
    )
    if _part(asked, "step", str) == "check":
        return BrowserRun(plan, "check", _check(told))
    kinds = {
        "build": str,
        "compat": bool,
        "isolated": bool,
        "mmap": bool,
        "n_processors": int,
        "n_threads": int,
        "n_batch": int,
        "n_ubatch": int,
        "user_agent": str,
        "gpu": str,
        "model": str,
        "date": str,
    }
    check = _check(asked) if asked.get("check") else None
    return BrowserRun(
        plan,
        "measure",
        check,
        **{name: _part(told, name, kind) for name, kind in kinds.items()},
        samples=_samples(told, plan),
    )


def _part(told: Any, name: str, kind: type) -> Any:
    value = told.get(name) if isinstance(told, dict) else None
    if not isinstance(value, kind) or (kind is int and not _is_count(value)):
        raise RecordError(f"The results of the run are damaged: {name} is no {kind.__name__}. {AGAIN}")
    return value


def _listed(told: Any, name: str, fits: Callable[[Any], bool]) -> list[Any]:
    values = _part(told, name, list)
    if not all(map(fits, values)):
        raise RecordError(f"The results of the run are damaged: {name} has an entry of another kind. {AGAIN}")
    return values


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _check(told: dict[str, Any]) -> GpuCheck:
    both = {"gpu_name": "", "software": False, "lacks": [], **_part(told, "check", dict)}
    cpu, gpu = (tuple((token, p) for token, p in _listed(both, name, _is_token)) for name in ("cpu", "gpu"))
    offloaded = _listed(both, "offloaded", _is_count)
    if len(offloaded) != 2:
        raise RecordError(f"The results of the run are damaged: offloaded has not two numbers. {AGAIN}")
    name, software = _part(both, "gpu_name", str), _part(both, "software", bool)
    lacks = tuple(_listed(both, "lacks", lambda one: isinstance(one, str)))
    return GpuCheck(cpu, gpu, (offloaded[0], offloaded[1]), name, software, lacks)


def _is_token(value: Any) -> bool:
    """A list of an id and a logarithm, which is a finite number."""
    if not isinstance(value, list) or len(value) != 2 or not _is_count(value[0]):
        return False
    return isinstance(value[1], int | float) and not isinstance(value[1], bool) and abs(value[1]) < 1e9


def _samples(told: dict[str, Any], plan: BrowserPlan) -> dict[tuple[int, int, int], tuple[int, ...]]:
    """The samples of each test of the plan, in the order in which they were measured."""
    samples: dict[tuple[int, int, int], list[int]] = {test: [] for test in plan.tests}
    for sample in _part(told, "samples", list):
        test = tuple(_part(sample, name, int) for name in ("n_prompt", "n_gen", "n_depth"))
        if test not in samples or _part(sample, "ns", int) == 0:
            raise RecordError(f"The results of the run are damaged: a sample is none of its plan. {AGAIN}")
        samples[test].append(sample["ns"])
    if any(len(many) != plan.repeats for many in samples.values()):
        raise RecordError(f"The results of the run are damaged: a test has not {plan.repeats} samples. {AGAIN}")
    return {test: tuple(many) for test, many in samples.items()}


# --- as llama-bench writes it ----------------------------------------------------------------------------


def llama_bench_rows(run: BrowserRun, model: Model) -> list[Row]:
    """A row for each test, with the fields of `llama-bench -o json` in its order."""
    return [_row(run, model, test) for test in run.samples]


def _row(run: BrowserRun, model: Model, test: tuple[int, int, int]) -> Row:
    number, _, commit = run.build.removeprefix("b").partition("-")
    on_gpu = run.plan.backend == "webgpu"
    row = {
        **DEFAULTS,
        **samples_fields([1e-9 * ns for ns in run.samples[test]], test[0] + test[1]),
        "build_commit": commit or run.build or "unknown",
        "build_number": int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 0,
        "cpu_info": f"WebAssembly in {run.user_agent}",
        "gpu_info": f"{run.gpu}{' (software)' * run.in_software}" if on_gpu else "",
        "backends": BACKENDS[run.plan.backend],
        "model_filename": run.model,
        "model_type": f"{model.architecture} {model.name}",
        "model_size": model.tensor_bytes,
        "model_n_params": model.n_params,
        "n_batch": run.n_batch,
        "n_ubatch": run.n_ubatch,
        "n_threads": run.n_threads,
        "type_k": "f16",
        "type_v": "f16",
        "n_gpu_layers": -1 if on_gpu else 0,
        "split_mode": "layer",
        "main_gpu": 0,
        "no_kv_offload": False,
        "flash_attn": -1,
        "devices": "auto",
        "tensor_split": "0.00",
        "load_mode": "mmap" if run.mmap else "none",
        "no_op_offload": 0,
        "no_host": False,
        "repack": True,
        "n_prompt": test[0],
        "n_gen": test[1],
        "n_depth": test[2],
        "test_time": run.date,
    }
    return {name: row[name] for name in FIELDS}
