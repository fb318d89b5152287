"""One test: a workload on a machine, and the rates of its repetitions."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median, stdev
from typing import Any

from inferlab.errors import RecordError

SETTINGS = (
    "n_threads",
    "n_threads_batch",
    "n_gpu_layers",
    "n_batch",
    "n_ubatch",
    "type_k",
    "type_v",
    "flash_attn",
    "no_kv_offload",
    "split_mode",
    "main_gpu",
    "tensor_split",
    "devices",
    "load_mode",
    "use_mmap",
    "n_cpu_moe",
    "tensor_buft_overrides",
    "no_op_offload",
    "no_host",
    "repack",
    "embeddings",
    "cpu_mask",
    "cpu_strict",
    "poll",
)
"""llama-bench's fields that are settings of a test, and one that only this library has: those of records and runs."""
OTHER_FIELDS = (
    "build_commit",
    "build_number",
    "cpu_info",
    "gpu_info",
    "backends",
    "model_filename",
    "model_type",
    "model_size",
    "model_n_params",
    "n_prompt",
    "n_gen",
    "n_depth",
    "n_sequences",
    "test",
    "test_time",
    "avg_ns",
    "stddev_ns",
    "avg_ts",
    "stddev_ts",
    "samples_ns",
    "samples_ts",
)
"""llama-bench's fields that are no settings; every other field of its rows is one."""
OLD_BACKENDS = {
    "cuda": "CUDA",
    "opencl": "OpenCL",
    "vulkan": "Vulkan",
    "kompute": "Kompute",
    "metal": "Metal",
    "sycl": "SYCL",
    "rpc": "RPC",
    "gpu_blas": "GPU BLAS",
    "blas": "BLAS",
}
"""Fields of llama-bench until November 2024, which say for each backend whether it is there."""
ON_PROCESSOR = {"CPU", "BLAS", "ZenDNN", "none"}
KNOWN_FIELDS = {*SETTINGS, *OTHER_FIELDS, *OLD_BACKENDS}
MOST_SETTINGS, LONGEST_NAME = 100, 60
NOT_NAMED, PART = "model not named", ", part "
"""The model of a test whose program names none; what parts a file's name from the number of a part of it."""
FLASH_ATTN = {"-1": "auto", "0": "off", "1": "on"}
MOST_TOKENS = 10**9
LEAST_RATE, MOST_RATE = 1e-6, 1e9
MOST_SAMPLES = 1000
ROUNDED, PRINTED = 1e-4, 0.0051
"""By how much a rate that llama-bench prints may be off: it writes six digits, and two decimals in a table."""
SHOWN = 80
"""Characters of a wrong value that an error quotes."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One test of one file.

    source         the file's name
    cpu, gpu       as the file names them, gpu "" without one; backend and build likewise
    model          llama.cpp's description: architecture, size, type of the weights; else the file's name
    model_bytes    bytes of all weights; n_params their number; None where the file does not say
    settings       llama-bench's names -> values as texts
    n_prompt, n_gen, n_depth   tokens of prompt and answer that were timed, and those in the cache before
    samples        tokens per second of each repetition; empty where the file has only mean and deviation
    mean, deviation  of the repetitions, tokens per second; the deviation is None where it is not known
    n_sequences    that were processed together; rates are those of all of them
    from_table     whether it was in a table for people: sizes are rounded, and usual settings are not named
    """

    source: str
    cpu: str
    gpu: str
    backend: str
    build: str
    date: str
    model: str
    file: str
    model_bytes: int | None
    n_params: int | None
    settings: dict[str, str]
    n_prompt: int
    n_gen: int
    n_depth: int
    samples: tuple[float, ...]
    mean: float
    deviation: float | None
    n_sequences: int = 1
    from_table: bool = False

    @property
    def rate(self) -> float:
        """Tokens per second: the median of the repetitions, or their mean where the file has no more."""
        return median(self.samples) if self.samples else self.mean

    @property
    def test(self) -> str:
        """llama-bench's name of the workload: `pp512`, `tg128 @ d256`."""
        parts = [f"pp{self.n_prompt}"] * bool(self.n_prompt) + [f"tg{self.n_gen}"] * bool(self.n_gen)
        together = f", {self.n_sequences} sequences" if self.n_sequences > 1 else ""
        return "+".join(parts) + (f" @ d{self.n_depth}" if self.n_depth else "") + together

    @property
    def is_decode(self) -> bool:
        """Whether it timed generated tokens alone."""
        return not self.n_prompt

    @property
    def machine(self) -> str:
        """What computed: the GPU, and the processor; the processor alone without a GPU in use."""
        both = "; ".join(filter(None, (self.gpu, self.cpu)))
        return both if self.gpu and not self.on_processor else self.cpu or "not named"

    @property
    def on_processor(self) -> bool:
        """Whether no layer lies on a GPU, as far as the file says."""
        if self.settings.get("n_gpu_layers") == "0" or self.settings.get("devices") == "none":
            return True
        if self.from_table or not self.cpu:  # such a form names no GPU by itself
            return bool(self.backend) and not self.gpu and self._backends <= ON_PROCESSOR
        return not self.gpu

    @property
    def _backends(self) -> set[str]:
        return {name.strip() for name in re.split(r"[,+]", self.backend)}

    @property
    def workload(self) -> tuple[Any, ...]:
        """What two tests share to be compared: the model with its type, the number of its weights, and the tokens."""
        return *self.bare_workload, self.n_params

    @property
    def bare_workload(self) -> tuple[Any, ...]:
        """The same without the number of weights, which some forms lack and others round."""
        return self.model, self.n_prompt, self.n_gen, self.n_depth, self.n_sequences

    def repeats(self, other: Result) -> bool:
        """Whether this is another's test in another form, or the same once more.

        That is of the same workload with the same rate, and nothing that both name differs.
        """
        same_form = self.from_table == other.from_table and bool(self.samples) == bool(other.samples)
        if same_form and (self.mean, self.deviation, self.samples) != (other.mean, other.deviation, other.samples):
            return False
        shared = self.settings.keys() & other.settings.keys()
        settings_agree = all(self.settings[name] == other.settings[name] for name in shared)
        rates_agree = math.isclose(self.mean, other.mean, rel_tol=ROUNDED, abs_tol=PRINTED)
        return rates_agree and settings_agree and self._is_of_the_same(other)

    def _is_of_the_same(self, other: Result) -> bool:
        """Whether build, machine, model file and number of weights agree, where both are named."""
        parts = [(vars(self)[name], vars(other)[name]) for name in ("build", "cpu", "gpu", "file")]
        parts.append((printed(self.n_params), printed(other.n_params)))
        backends_agree = not (self.backend and other.backend) or bool(self._backends & other._backends)
        return backends_agree and all(not one or not two or one == two for one, two in parts)

    def to_dict(self) -> dict[str, Any]:
        """Its fields as JSON has them, without numbers that JSON lacks."""
        return {**vars(self), "samples": list(self.samples)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Result:
        """The inverse of `to_dict`."""
        return cls(**{**data, "samples": tuple(data["samples"])})


def printed(n_params: int | None) -> str:
    """A number of weights as llama-bench's table has it: `8.03 B`."""
    if n_params is None:
        return ""
    return f"{n_params / 1e6:.2f} M" if n_params < 1e9 else f"{n_params / 1e9:.2f} B"


def result_of(row: Mapping[str, Any], source: str, *, from_table: bool = False) -> Result:
    """The test of a row with llama-bench's fields; texts stand for numbers in CSV. Raises RecordError with the reason.

    A row needs a model, a workload, and samples or a mean; every other field may be missing.
    What is not in OTHER_FIELDS is a setting, whichever version or fork of llama-bench wrote it.
    """
    n_prompt, n_gen, n_depth = (_whole(row, name, 0) for name in ("n_prompt", "n_gen", "n_depth"))
    if not n_prompt + n_gen:
        raise RecordError("it times neither a prompt nor generated tokens: n_prompt and n_gen are 0 or missing")
    samples = _samples(row, n_prompt + n_gen)
    file = re.split(r"[\\/]", _text(row, "model_filename"))[-1]
    model = _text(row, "model_type") or file
    if not model:
        raise RecordError("it names no model: model_type and model_filename are missing")
    return Result(
        source=source,
        cpu=_text(row, "cpu_info"),
        gpu=_text(row, "gpu_info"),
        backend=_backend(row),
        build=_text(row, "build_commit"),
        date=_text(row, "test_time")[:10],
        model=model,
        file=file,
        model_bytes=_whole(row, "model_size", None, 10**16),
        n_params=_whole(row, "model_n_params", None, 10**16),
        settings=_settings(row),
        n_prompt=n_prompt,
        n_gen=n_gen,
        n_depth=n_depth,
        samples=samples,
        mean=mean(samples) if samples else _rate(row["avg_ts"], "avg_ts"),
        deviation=_deviation(row, samples),
        n_sequences=_whole(row, "n_sequences", 1) or 1,
        from_table=from_table,
    )


def number(value: Any) -> float | None:
    """A finite number of at least 0, or its text; None for anything else."""
    try:
        converted = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        return None
    return converted if 0 <= converted < math.inf else None


def _whole(row: Mapping[str, Any], name: str, missing: int | None, most: int = MOST_TOKENS) -> Any:
    value = row.get(name)
    if value in (None, ""):
        return missing
    count = number(value)
    if count is None or count != int(count) or count > most:
        raise RecordError(f"{name} is {_shown(value)}, no whole number from 0 to {most:,}")
    return int(count)


def _samples(row: Mapping[str, Any], n_tokens: int) -> tuple[float, ...]:
    """Tokens per second of each repetition: from the nanoseconds, which have more digits, else as they stand.

    Raises RecordError where both are given and differ by more than llama-bench's rounding, or the mean is no rate.
    """
    from_times = tuple(_rate(1e9 * n_tokens / ns, "samples_ns") for ns in _numbers(row, "samples_ns"))
    given = tuple(_rate(rate, "samples_ts") for rate in _numbers(row, "samples_ts"))
    if from_times and given and not _agree(from_times, given):
        raise RecordError("samples_ts do not follow from samples_ns and the tokens: take it as llama-bench wrote it")
    if row.get("avg_ts") not in (None, ""):
        _rate(row["avg_ts"], "avg_ts")
    elif not from_times + given:
        raise RecordError("it has no rate: samples_ns, samples_ts and avg_ts are missing")
    return from_times or given


def _numbers(row: Mapping[str, Any], name: str) -> list[float]:
    """The numbers of a list in a row; none where it is missing or empty."""
    values = row.get(name)
    if not values:
        return []
    numbers = [n for value in values if (n := number(value))] if isinstance(values, list) else []
    if not numbers or len(numbers) < len(values):
        raise RecordError(f"{name} is {_shown(values)}, no list of numbers above 0")
    if len(numbers) > MOST_SAMPLES:
        raise RecordError(f"{name} has {len(numbers):,} repetitions, more than {MOST_SAMPLES:,}")
    return numbers


def _agree(rates: Sequence[float], given: Sequence[float]) -> bool:
    pairs = zip(rates, given, strict=False)
    return len(rates) == len(given) and all(math.isclose(*pair, rel_tol=ROUNDED) for pair in pairs)


def _rate(value: Any, name: str) -> float:
    rate = number(value)
    if rate is None or not LEAST_RATE <= rate <= MOST_RATE:
        raise RecordError(f"{name} is {_shown(value)}: no rate of tokens per second")
    return rate


def _deviation(row: Mapping[str, Any], samples: tuple[float, ...]) -> float | None:
    if samples:
        return stdev(samples) if len(samples) > 1 else None
    return number(row.get("stddev_ts"))


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RecordError(f"{name} is {_shown(value)}, no text")
    return value.strip()


def _backend(row: Mapping[str, Any]) -> str:
    """The backends by their names, also from an older llama-bench's field for each."""
    there = [title for name, title in OLD_BACKENDS.items() if row.get(name) in (True, 1, "1", "true")]
    return _text(row, "backends") or ",".join(there)


def _settings(row: Mapping[str, Any]) -> dict[str, str]:
    """All settings of a row: those that every version has in their order, then the others."""
    known = [name for name in SETTINGS if name in row]
    others = [name for name in row if name not in KNOWN_FIELDS and name.isprintable() and len(name) <= LONGEST_NAME]
    return {name: text for name in [*known, *others][:MOST_SETTINGS] if (text := _setting(row, name))}


def _setting(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str | int | float):
        return ""
    text = str(int(value)) if isinstance(value, bool) else str(value).strip()
    return FLASH_ATTN.get(text, text) if name == "flash_attn" else text


def _shown(value: Any) -> str:
    text = repr(value)[: SHOWN + 1]
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} …"
