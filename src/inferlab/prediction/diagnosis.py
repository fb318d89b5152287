"""Why an engine is slow, diagnosed from telemetry and token times alone, without its settings.

`diagnose(run, baseline)` compares a run with a healthy one of the same request on the same machine. It uses only a
`Trace` of each run, its passes and samples, so settings cannot influence the result; a cause that changes neither
cannot be found. The rules are tried from top to bottom, the most certain first.
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
AGREEMENT = 1.25
SAME_CELLS = (HEALTHY, "cold page cache", "throttled link")
"""Causes in which a cell costs a token what it costs in the baseline; any difference is noise."""


@dataclass(frozen=True)
class Trace:
    """The part of a run that a diagnosis uses: the length of the prompt, the passes and the samples."""

    n_prompt: int
    passes: tuple[Pass, ...]
    samples: tuple[Sample, ...]


@dataclass(frozen=True)
class Signs:
    """Quantities computed from a trace; None if its samples do not contain them.

    load_seconds        time to the first token of the first pass, less the median of the other passes
    read_bytes          bytes that the engine's process read from disk
    prefill_seconds     engine time of the prompt, median
    token_seconds       engine time of a token in the first 256-cell step, median
    step_seconds        engine time that 256 more cells add to a token
    jitter              deviation of tokens from the median of their 256-cell step, as a share of it: 90th percentile
    busy_cores          processors that were busy during decode, all processes, mean
    """

    load_seconds: float
    read_bytes: int | None
    prefill_seconds: float
    token_seconds: float
    step_seconds: float
    jitter: float
    busy_cores: float | None


@dataclass(frozen=True)
class RelativeSigns:
    """Signs of a run relative to those of the baseline, as the rules use them; None if either is unknown.

    disk_bytes   read_bytes less the baseline's
    load         load_seconds over the baseline's
    prefill      prefill_seconds over the baseline's
    token        token_seconds over the baseline's
    step         (step_seconds less the baseline's) over the baseline's token_seconds
    jitter       jitter of the run itself
    busy         busy_cores over the baseline's
    """

    disk_bytes: int | None
    load: float
    prefill: float
    token: float
    step: float
    jitter: float
    busy: float | None


@dataclass(frozen=True)
class Diagnosis:
    """The diagnosed cause, the reason in words, and the quantities that it follows from."""

    cause: str
    because: str
    comparison: RelativeSigns
    signs: Signs
    baseline: Signs


def trace(run: Run) -> Trace:
    """The run without model, machine, settings and buffers."""
    return Trace(run.n_prompt, run.passes, run.samples)


def signs(trace: Trace) -> Signs:
    """The signs of one trace. Raises InvalidSettings without two passes that each reach a second 256-cell step."""
    seconds_by_cells = steps(trace.passes, trace.n_prompt)
    prefill = [run.prefill_seconds for run in trace.passes if run.prefill_seconds is not None]
    if len(prefill) < 2 or len(seconds_by_cells) < 2:
        raise InvalidSettings(
            f"{len(prefill)} passes over {len(seconds_by_cells)} {CELL_STEP}-cell steps cannot be diagnosed. "
            "Observe two passes or more whose answers cross a multiple of 256 tokens."
        )
    level = {cells: median(seconds) for cells, seconds in seconds_by_cells.items()}
    first, last = min(level), max(level)
    return Signs(
        load_seconds=_load_seconds(trace.passes),
        read_bytes=_growth(trace.samples, "process_read_bytes"),
        prefill_seconds=median(prefill),
        token_seconds=level[first],
        step_seconds=(level[last] - level[first]) / (last - first) * CELL_STEP,
        jitter=_jitter(seconds_by_cells, level),
        busy_cores=_busy_cores(trace),
    )


def _load_seconds(passes: Sequence[Pass]) -> float:
    ttft = [pass_.token_seconds[0] for pass_ in passes]
    return ttft[0] - median(ttft[1:])


def _jitter(seconds_by_cells: Mapping[int, Sequence[float]], level: Mapping[int, float]) -> float:
    deviations = sorted(
        abs(token - level[cells]) / level[cells] for cells, seconds in seconds_by_cells.items() for token in seconds
    )
    return deviations[int(0.9 * (len(deviations) - 1))]


def _busy_cores(trace: Trace) -> float | None:
    """Mean number of busy processors over the samples that were taken during a decode."""
    times = ((p.began, p.token_seconds) for p in trace.passes)
    decodes = [(began + seconds[0], began + seconds[-1]) for began, seconds in times if began is not None]
    busy = [
        sum(sample.cpu_percent) / 100
        for sample in trace.samples
        if sample.cpu_percent is not None and any(start <= sample.seconds <= end for start, end in decodes)
    ]
    return fmean(busy) if busy else None


def _growth(samples: Iterable[Sample], name: str) -> int | None:
    """Last known value of a counter less its first; None if it is unknown in all samples."""
    values = [value for value in (getattr(sample, name) for sample in samples) if value is not None]
    return values[-1] - values[0] if values else None


def compared(signs: Signs, baseline: Signs) -> RelativeSigns:
    """The signs of a run relative to those of a healthy one."""
    read, healthy_read, busy = signs.read_bytes, baseline.read_bytes, signs.busy_cores
    return RelativeSigns(
        disk_bytes=None if read is None or healthy_read is None else read - healthy_read,
        load=signs.load_seconds / max(baseline.load_seconds, SHORTEST_LOAD_SECONDS),
        prefill=signs.prefill_seconds / baseline.prefill_seconds,
        token=signs.token_seconds / baseline.token_seconds,
        step=(signs.step_seconds - baseline.step_seconds) / baseline.token_seconds,
        jitter=signs.jitter,
        busy=busy / baseline.busy_cores if busy is not None and baseline.busy_cores else None,
    )


Rule = tuple[str, Callable[[RelativeSigns], bool], Callable[[RelativeSigns], str]]

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
        lambda c: (
            f"prefill takes {c.prefill:.1f} times as long, and tokens are scattered: a tenth of them lies "
            f"{100 * c.jitter:.0f} % or more from the median of its 256-cell step"
        ),
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
        lambda c: c.step >= 0.8,
        lambda c: (
            f"every {CELL_STEP} cells add {c.step:.2f} healthy tokens' time more than they should, "
            f"and prefill takes {c.prefill:.1f} times as long"
        ),
    ),
    (
        "wrong cache type",
        lambda c: (c.step >= 0.08 and c.token >= 1.15) or (c.prefill >= 1.3 and c.token >= 1.05),
        lambda c: (
            f"prefill takes {c.prefill:.1f} and a token {c.token:.1f} times as long, while every "
            f"{CELL_STEP} cells add only {c.step:+.2f} healthy tokens' time"
        ),
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
"""(cause, condition on a comparison, the reason in words); the first rule whose condition holds is the diagnosis."""


def diagnose(run: Run, baseline: Run) -> Diagnosis:
    """The likeliest cause for `run` being slower than `baseline`, from samples and token times alone.

    Both must be the same request on the same machine, and their first passes must include the load, as those of
    `faults.observe` do. Raises InvalidSettings for runs that are too short, or of different prompt lengths.
    """
    if run.n_prompt != baseline.n_prompt:
        raise InvalidSettings(
            f"A run with {run.n_prompt} prompt tokens cannot be compared with one with {baseline.n_prompt}. "
            "Observe the same request twice."
        )
    of_run, of_baseline = signs(trace(run)), signs(trace(baseline))
    comparison = compared(of_run, of_baseline)
    cause, _, because = next(rule for rule in RULES if rule[1](comparison))
    return Diagnosis(cause, because(comparison), comparison, of_run, of_baseline)


def agrees(comparison: RelativeSigns) -> bool:
    """Whether prefill and token lie within a quarter of the baseline's."""
    return all(1 / AGREEMENT <= ratio <= AGREEMENT for ratio in (comparison.prefill, comparison.token))


def baseline_text(healthy: RelativeSigns) -> str:
    """How far a healthy run lies from its baseline, in words; and whether by more than a quarter."""
    text = (
        f"The healthy case took {healthy.prefill:.2f} times the baseline's prefill and {healthy.token:.2f} times its "
        f"token; its {CELL_STEP} cells added {healthy.step:+.2f}. Differences of this size are noise."
    )
    if agrees(healthy):
        return text
    return (
        f"{text} The baseline is off by more than a quarter, so these diagnoses are worth little: "
        "close other programs and run the lab again."
    )


def costlier_cells(by_cause: Mapping[str, RelativeSigns], first: str, second: str) -> str:
    """What 256 cells add with two causes, in words, and which costs more where they differ by more than noise.

    Noise is the greatest difference from the baseline, of either sign, among those of SAME_CELLS that are known.
    """
    steps = {name: by_cause[name].step for name in (first, second)}
    noise = max((abs(by_cause[name].step) for name in SAME_CELLS if name in by_cause), default=0.0)
    costlier, cheaper = sorted(steps, key=steps.__getitem__, reverse=True)
    text = (
        f"Every {CELL_STEP} cells added {steps[first]:+.2f} healthy tokens' time with {first} and "
        f"{steps[second]:+.2f} with {second}. Where cells should cost the same as in the baseline, up to {noise:.2f} "
        "was seen either way: that is noise."
    )
    if steps[costlier] <= noise or steps[costlier] - steps[cheaper] <= noise:
        return f"{text} Within it, this run cannot say which of the two costs more."
    return f"{text} Cells cost more with {costlier}, by more than noise."


def confusion(pairs: Iterable[tuple[str, str]]) -> dict[str, Counter[str]]:
    """How often each diagnosis was given for each cause, from pairs (actual cause, diagnosed cause)."""
    table: dict[str, Counter[str]] = {}
    for actual, diagnosed in pairs:
        table.setdefault(actual, Counter())[diagnosed] += 1
    return table
