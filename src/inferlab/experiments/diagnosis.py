"""What slows an engine down, told from the outside: from telemetry and token times, never from settings.

`diagnose(run, baseline)` compares an observation with a healthy one of the same request on the same machine.
It keeps to a `Trace` of each run, its samples and its passes, so it cannot know what was set or done; and a cause
that shows in neither cannot be found. The rules are read from top to bottom, the most certain first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from inferlab.engine.protocol import Pass
from inferlab.errors import InvalidSettings
from inferlab.measurement.kv_steps import steps
from inferlab.measurement.run import Run
from inferlab.measurement.telemetry.samples import Sample
from inferlab.model.ggml_types import CELL_STEP
from inferlab.units import MIB, bytes_text

HEALTHY = "healthy"
UNKNOWN = "something else"
SHORTEST_LOAD_SECONDS = 0.02


@dataclass(frozen=True)
class Trace:
    """What can be seen of a run from the outside: how many tokens were asked about, the passes, the samples."""

    n_prompt: int
    passes: tuple[Pass, ...]
    samples: tuple[Sample, ...]


@dataclass(frozen=True)
class Signs:
    """What a trace says, in numbers; None where its samples do not tell.

    load_seconds        how much longer the first token of the first pass waited than that of the others
    read_bytes          bytes that the engine's process fetched from disk
    prefill_seconds     engine time of the prompt, median
    token_seconds       engine time of a token while the cache is on its first tread, median
    tread_seconds       engine time that 256 more cells add to a token
    jitter              how far tokens lie from the median of their tread, as a share of it: 90th percentile
    busy_cores          processors that were busy during decode, all processes, mean
    """

    load_seconds: float
    read_bytes: float | None
    prefill_seconds: float
    token_seconds: float
    tread_seconds: float
    jitter: float
    busy_cores: float | None


@dataclass(frozen=True)
class Comparison:
    """Two sets of signs side by side, as the rules ask for them; None where either is unknown.

    disk_bytes   read from disk beyond what the baseline read
    load         times the baseline's wait for the load
    prefill      times the baseline's prefill
    token        times the baseline's token, cache on its first tread
    tread        what 256 more cells add beyond what they add to the baseline, in tokens of the baseline
    jitter       as in `Signs`, of the run itself
    busy         times the baseline's busy processors
    """

    disk_bytes: float | None
    load: float
    prefill: float
    token: float
    tread: float
    jitter: float
    busy: float | None


@dataclass(frozen=True)
class Diagnosis:
    """The cause that was found, why in words, and what it was found in."""

    cause: str
    because: str
    comparison: Comparison
    signs: Signs
    baseline: Signs


def trace(run: Run) -> Trace:
    """What is left of a run when model, machine, settings and buffers are taken away."""
    return Trace(run.n_prompt, run.passes, run.samples)


def signs(seen: Trace) -> Signs:
    """The signs of one trace. Raises InvalidSettings without two passes that each cross a tread of 256 cells."""
    found = steps(seen.passes, seen.n_prompt)
    if len(seen.passes) < 2 or len(found) < 2:
        raise InvalidSettings(
            f"{len(seen.passes)} passes over {len(found)} treads of {CELL_STEP} cells cannot be diagnosed. "
            "Observe two passes or more whose answers cross a multiple of 256 tokens."
        )
    level = {cells: median(seconds) for cells, seconds in found.items()}
    first, last = min(level), max(level)
    return Signs(
        load_seconds=_load_seconds(seen.passes),
        read_bytes=_grown(seen.samples, "process_read_bytes"),
        prefill_seconds=median(one.prefill_seconds for one in seen.passes),
        token_seconds=level[first],
        tread_seconds=(level[last] - level[first]) / (last - first) * CELL_STEP,
        jitter=_jitter(found, level),
        busy_cores=_busy_cores(seen),
    )


def _load_seconds(passes: Sequence[Pass]) -> float:
    waits = [one.token_seconds[0] for one in passes]
    return waits[0] - median(waits[1:])


def _jitter(found: Mapping[int, Sequence[float]], level: Mapping[int, float]) -> float:
    away = sorted(abs(s - level[cells]) / level[cells] for cells, every in found.items() for s in every)
    return away[int(0.9 * (len(away) - 1))]


def _busy_cores(seen: Trace) -> float | None:
    """Mean of busy processors over the samples that lie in a decode."""
    spans = [(one.began + one.token_seconds[0], one.began + one.token_seconds[-1]) for one in seen.passes]
    told = [
        sum(sample.cpu_percent) / 100
        for sample in seen.samples
        if sample.cpu_percent is not None and any(start <= sample.seconds <= end for start, end in spans)
    ]
    return fmean(told) if told else None


def _grown(samples: Iterable[Sample], name: str) -> float | None:
    """How much a counter has grown over the samples."""
    values = [value for value in (getattr(sample, name) for sample in samples) if value is not None]
    return values[-1] - values[0] if values else None


def compared(signs: Signs, baseline: Signs) -> Comparison:
    """The signs of a run beside those of a healthy one."""
    reads = (signs.read_bytes, baseline.read_bytes)
    busy = (signs.busy_cores, baseline.busy_cores)
    return Comparison(
        disk_bytes=None if None in reads else reads[0] - reads[1],
        load=signs.load_seconds / max(baseline.load_seconds, SHORTEST_LOAD_SECONDS),
        prefill=signs.prefill_seconds / baseline.prefill_seconds,
        token=signs.token_seconds / baseline.token_seconds,
        tread=(signs.tread_seconds - baseline.tread_seconds) / baseline.token_seconds,
        jitter=signs.jitter,
        busy=None if None in busy or not busy[1] else busy[0] / busy[1],
    )


Rule = tuple[str, Callable[[Comparison], bool], Callable[[Comparison], str]]

RULES: tuple[Rule, ...] = (
    (
        UNKNOWN,
        lambda c: c.prefill <= 0.7,
        lambda c: f"prefill takes only {c.prefill:.1f} times as long as the baseline's: observe the baseline again",
    ),
    (
        "cold page cache",
        lambda c: c.disk_bytes is not None and c.disk_bytes >= 4 * MIB,
        lambda c: f"{bytes_text(c.disk_bytes)} more were read from disk",
    ),
    (
        "competing load",
        lambda c: c.jitter >= 0.8 and c.prefill >= 2,
        lambda c: f"prefill takes {c.prefill:.1f} times as long, and tokens are scattered: a tenth of them lies "
        f"{100 * c.jitter:.0f} % or more from the median of its tread",
    ),
    (
        "one thread",
        lambda c: c.busy is not None and c.busy <= 0.75 and c.prefill >= 1.3,
        lambda c: f"prefill takes {c.prefill:.1f} times as long while {c.busy:.1f} times as many processors are busy",
    ),
    (
        "throttled link",
        lambda c: c.load >= 2.5,
        lambda c: f"the load takes {c.load:.1f} times as long, and the disk has no part in it",
    ),
    (
        "cache on the far side",
        lambda c: c.tread >= 0.8,
        lambda c: f"every {CELL_STEP} cells add {c.tread:.2f} healthy tokens' time more than they should, "
        f"and prefill takes {c.prefill:.1f} times as long",
    ),
    (
        "wrong cache type",
        lambda c: (c.tread >= 0.08 and c.token >= 1.15) or (c.prefill >= 1.3 and c.token >= 1.05),
        lambda c: f"prefill takes {c.prefill:.1f} times as long with as many processors busy, and "
        f"every {CELL_STEP} cells add {c.tread:+.2f} healthy tokens' time, less than a bus would cost",
    ),
    (
        HEALTHY,
        lambda c: max(c.token, c.prefill) < 1.25,
        lambda c: f"prefill {c.prefill:.2f} and token {c.token:.2f} times the baseline's, within what noise does",
    ),
    (
        UNKNOWN,
        lambda c: True,
        lambda c: f"prefill {c.prefill:.1f} and token {c.token:.1f} times the baseline's, in no pattern known here",
    ),
)
"""(cause, whether a comparison shows it, the reason in words); the first that holds is the diagnosis."""


def diagnose(run: Run, baseline: Run) -> Diagnosis:
    """The likeliest cause for `run` being slower than `baseline`, from samples and token times alone.

    Both must be the same request on the same machine, and each must hold its load, as `injections.observe` does.
    Raises InvalidSettings for runs that are too short, or that answer different requests.
    """
    if run.n_prompt != baseline.n_prompt:
        raise InvalidSettings(
            f"A run with {run.n_prompt} prompt tokens cannot be held against one with {baseline.n_prompt}. "
            "Observe the same request twice."
        )
    seen, healthy = signs(trace(run)), signs(trace(baseline))
    found = compared(seen, healthy)
    cause, _, because = next(rule for rule in RULES if rule[1](found))
    return Diagnosis(cause, because(found), found, seen, healthy)


def confusion(pairs: Iterable[tuple[str, str]]) -> dict[str, Counter[str]]:
    """How often each diagnosis was given for each cause, from (what was done, what was diagnosed)."""
    table: dict[str, Counter[str]] = {}
    for done, diagnosed in pairs:
        table.setdefault(done, Counter())[diagnosed] += 1
    return table
