"""What the utilization of processors says and what it does not: the same percentage, and very different work.

A processor counts as busy while a thread has it, also one that waits for memory or spins until the others are done.

    operations per second = 2 * n_params * tokens per second      one multiplication and one addition for each weight
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from inferlab.engine.protocol import Engine
from inferlab.engine.session import default_engine
from inferlab.measurement.base import with_context
from inferlab.measurement.run import Run, measure
from inferlab.measurement.telemetry.sampler import TelemetrySampler
from inferlab.measurement.telemetry.samples import Sample
from inferlab.model.find import find_model
from inferlab.records import load_all
from inferlab.settings import Settings

INTERVAL_SECONDS = 0.1
MOST_OF = 0.7  # of a window must be covered by samples


def numbers() -> dict[str, float | int]:
    """The numbers of *Which tool for what*, in percent: runs with a thread for each core, and with the most threads."""
    runs = {run.settings.n_threads: run for run in load_all("epyc-2c/busy-threads", Run)}
    many = runs[max(runs)]
    as_cores = runs[many.machine.n_cores]
    prefill, decode = (operations_per_second(as_cores, phase) for phase in ("prefill", "decode"))
    return {
        "busy_prefill": busy_percent(as_cores, "prefill"),
        "busy_decode": busy_percent(as_cores, "decode"),
        "work_ratio": prefill / decode,
        "many": many.settings.n_threads,
        "busy_many": busy_percent(many, "decode"),
        "kept_many": 100 * many.decode_tokens_per_second / as_cores.decode_tokens_per_second,
    }


def busy_percent(run: Run, phase: str) -> float | None:
    """Mean utilization of all processors during "prefill" or "decode"; None without a reading inside the phase."""
    spans = []
    for called in run.passes:
        first, last = called.began + called.token_seconds[0], called.began + called.token_seconds[-1]
        spans.append((called.began, first) if phase == "prefill" else (first, last))
    readings = _readings(run.samples)
    inside = [busy for began, ended, busy in readings if any(a <= began and ended <= b for a, b in spans)]
    return fmean(inside) if inside else None


def _readings(samples: Sequence[Sample]) -> Iterator[tuple[float, float, float]]:
    """(begin, end, mean over all processors) of each reading; it covers the time since the reading before."""
    began = samples[0].seconds if samples else 0.0
    for sample in samples:
        if sample.cpu_percent:
            yield began, sample.seconds, fmean(sample.cpu_percent)
            began = sample.seconds


def operations_per_second(run: Run, phase: str) -> float:
    """2 * n_params * tokens per second of "prefill" or "decode", the median of the passes."""
    return 2 * run.model.n_params * getattr(run, f"{phase}_tokens_per_second")


def averaged(samples: Sequence[Sample], window_seconds: float) -> tuple[tuple[float, float], ...]:
    """(end of window, mean utilization of all processors in it) for windows that follow each other from 0.

    A reading counts with its length in time. A window of which readings cover less than MOST_OF is left out.
    """
    sums: dict[int, tuple[float, float]] = {}
    for began, ended, value in _readings(samples):
        number = int((began + ended) / 2 // window_seconds)
        length, busy = sums.get(number, (0.0, 0.0))
        sums[number] = (length + ended - began, busy + (ended - began) * value)
    whole = {number: both for number, both in sums.items() if both[0] > MOST_OF * window_seconds}
    return tuple(((number + 1) * window_seconds, busy / length) for number, (length, busy) in sorted(whole.items()))


def runs_by_threads(
    model: str | Path | None, counts: Sequence[int], repeats: int = 3, interval_seconds: float = INTERVAL_SECONDS
) -> tuple[Run, ...]:
    """One run on the processor for each number of threads, with telemetry; raises what `measure` raises."""
    choices = [Settings(n_threads=n, n_threads_batch=n, devices=()) for n in counts]
    return tuple(measure(model, settings, 256, 48, repeats, telemetry=interval_seconds) for settings in choices)


def bursts(
    model: str | Path | None = None,
    n: int = 6,
    every_seconds: float = 1.0,
    busy_share: float = 0.3,
    engine: Engine | None = None,
) -> tuple[Sample, ...]:
    """Samples while the processor decodes for a share of each period and then rests; their seconds begin with 0.

    Raises what the engine raises.
    """
    engine = engine or default_engine()
    with engine.exclusive():
        engine.open(find_model(model), with_context(Settings(devices=()), 16, 16))
        prompt = engine.random_prompt(16)
        with TelemetrySampler(engine.pid, INTERVAL_SECONDS) as sampler:
            began = time.perf_counter()
            for number in range(n):
                until = began + (number + busy_share) * every_seconds
                while time.perf_counter() < until:
                    engine.generate(prompt, 16)
                time.sleep(max(0.0, began + (number + 1) * every_seconds - time.perf_counter()))
    return tuple(Sample(sample.seconds - began, cpu_percent=sample.cpu_percent) for sample in sampler.samples)
