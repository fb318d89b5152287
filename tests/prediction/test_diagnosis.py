"""Diagnosis: blind to everything but samples and token times, and scored on recorded runs."""

from dataclasses import fields, replace
from functools import cache

import pytest
from fakes import made_run

import inferlab as lab
from inferlab.engine.protocol import Pass
from inferlab.errors import InvalidSettings
from inferlab.measurement.run import Run
from inferlab.measurement.telemetry.samples import Sample
from inferlab.prediction import diagnosis
from inferlab.settings import Settings
from inferlab.units import MIB
from studies.faults import study as faults

N_PROMPT, N_GEN = 192, 120


def a_pass(began, load, prefill, token, step, every_tenth):
    """A pass whose tokens take `token` in the first 256-cell step and `step` more in the second; each tenth is late."""
    decode = [
        (token + (step if N_PROMPT + 1 + i > 256 else 0)) * (every_tenth if i % 7 == 0 else 1) for i in range(N_GEN - 1)
    ]
    times = [load + prefill + sum(decode[:i]) for i in range(N_GEN)]
    return Pass(prefill, tuple(times), tuple(decode), tuple(range(N_GEN)), began=began)


def a_run(load=0.1, prefill=0.06, token=0.002, step=0.0003, late=1.0, busy=2.0, disk=0):
    """Two requests, the first of which waits for the load, with samples at every quarter of a second."""
    first = a_pass(0.0, load, prefill, token, step, late)
    passes = (first, a_pass(first.token_seconds[-1], 0.0, prefill, token, step, late))
    end = passes[1].began + passes[1].token_seconds[-1]
    shares = (50.0 * busy, 50.0 * busy)
    samples = tuple(
        Sample(0.05 * i, process_read_bytes=disk if i else 0, cpu_percent=shares if i else None)
        for i in range(int(end / 0.05) + 1)
    )
    return made_run(n_prompt=N_PROMPT, n_gen=N_GEN, passes=passes, samples=samples)


HEALTHY = a_run()
FAULTS = {
    "healthy": HEALTHY,
    "cold page cache": a_run(disk=40 * MIB, load=0.4),
    "one thread": a_run(prefill=0.12, token=0.004, busy=1.0),
    "cache on the far side": a_run(token=0.005, step=0.003),
    "wrong cache type": a_run(prefill=0.09, token=0.0028, step=0.0008),
    "throttled link": a_run(load=0.8, token=0.004),
    "competing load": a_run(prefill=0.15, token=0.008, late=4.0),
    "something else": a_run(prefill=0.12),
}


@pytest.mark.parametrize("cause", FAULTS)
def test_each_cause_is_diagnosed_from_its_pattern(cause):
    """A run made to a cause's pattern is diagnosed as that cause, with a reason that has a number."""
    diagnosed = lab.diagnose(FAULTS[cause], HEALTHY)
    assert diagnosed.cause == cause
    assert any(character.isdigit() for character in diagnosed.because)


def test_a_disturbed_baseline_is_reported():
    """A run far faster than its baseline is no fault of the run, and the reason says what to do."""
    diagnosed = lab.diagnose(HEALTHY, FAULTS["competing load"])
    assert diagnosed.cause == diagnosis.UNKNOWN
    assert "observe the baseline again" in diagnosed.because


def test_signs_are_what_was_put_in():
    """Load, prefill, token, 256-cell step, busy processors and disk come out of the trace as they went in."""
    seen = diagnosis.signs(diagnosis.trace(FAULTS["cold page cache"]))
    assert seen.load_seconds == pytest.approx(0.4)
    assert seen.prefill_seconds == 0.06
    assert seen.token_seconds == pytest.approx(0.002)
    assert seen.step_seconds == pytest.approx(0.0003)
    assert seen.busy_cores == pytest.approx(2)
    assert seen.read_bytes == 40 * MIB


def test_unknown_samples_are_no_sign():
    """Without telemetry the disk and the processors are unknown, and the times are enough for this cause."""
    silent = {cause: replace(FAULTS[cause], samples=()) for cause in ("healthy", "cache on the far side")}
    diagnosed = lab.diagnose(silent["cache on the far side"], silent["healthy"])
    assert (diagnosed.comparison.disk_bytes, diagnosed.comparison.busy) == (None, None)
    assert diagnosed.cause == "cache on the far side"


def test_a_trace_holds_nothing_that_names_a_cause():
    """Request, passes and samples are all that a diagnosis keeps of a run: no settings, buffers, links or machine."""
    assert {f.name for f in fields(diagnosis.Trace)} == {"n_prompt", "passes", "samples"}


@pytest.mark.parametrize("change", [{"passes": HEALTHY.passes[:1]}, {"n_prompt": 700}])
def test_too_little_is_refused(change):
    """One pass alone, or another request than the baseline, is refused, and the error says what to observe."""
    with pytest.raises(InvalidSettings, match="Observe"):
        lab.diagnose(replace(HEALTHY, **change), HEALTHY)


def comparisons(**step):
    """The comparison of a healthy run for each cause, with another value for its 256 cells."""
    healthy = lab.diagnose(HEALTHY, HEALTHY).comparison
    return {name.replace("_", " "): replace(healthy, step=value) for name, value in step.items()}


@pytest.mark.parametrize(("far", "wrong"), [(0.2, -0.1), (0.01, -0.3), (0.9, 0.8)])
def test_cells_that_differ_by_noise_are_not_ranked(far, wrong):
    """A difference as small as one where there should be none decides nothing, nor does one below the baseline."""
    seen = comparisons(healthy=-0.1, throttled_link=-0.27, far_side=far, wrong_type=wrong)
    assert "cannot say which" in diagnosis.costlier_cells(seen, "far side", "wrong type")


def test_cells_that_differ_by_more_than_noise_are_ranked():
    """The costlier one is named, whichever comes first."""
    seen = comparisons(healthy=-0.1, far_side=0.9, wrong_type=0.1)
    for two in (("far side", "wrong type"), ("wrong type", "far side")):
        assert "cost more with far side" in diagnosis.costlier_cells(seen, *two)


@pytest.mark.parametrize(("token", "disturbed"), [(1.2, False), (0.85, False), (1.3, True), (0.7, True)])
def test_a_healthy_run_says_what_the_baseline_is_worth(token, disturbed):
    """Beyond a quarter, faster or slower, the baseline was disturbed."""
    healthy = replace(lab.diagnose(HEALTHY, HEALTHY).comparison, token=token)
    assert ("run the lab again" in diagnosis.baseline_text(healthy)) is disturbed


@cache
def rounds():
    return faults.recorded_rounds()


@pytest.mark.parametrize("number", range(len(faults.ROUNDS)))
def test_the_answer_does_not_depend_on_what_was_set(number):
    """With settings, buffers, links, load, model and date of another run, every recorded diagnosis stays the same."""
    recorded = rounds()[number]
    hidden = [f.name for f in fields(Run) if f.name not in {f.name for f in fields(diagnosis.Trace)}]
    stranger = made_run(settings=Settings(n_ctx=8192, type_k="q4_0", offload_kqv=False))
    mask = {name: getattr(stranger, name) for name in hidden if name != "n_gen"}
    for run in recorded.runs.values():
        masked = lab.diagnose(replace(run, **mask), replace(recorded.baseline, **mask))
        assert masked.cause == lab.diagnose(run, recorded.baseline).cause


def test_recorded_runs_are_diagnosed_far_better_than_by_guessing():
    """On runs that no rule was tuned on, at least four of five diagnoses are right; guessing would get one of seven."""
    pairs = [
        (cause, lab.diagnose(run, recorded.baseline).cause)
        for recorded in rounds()
        for cause, run in recorded.runs.items()
    ]
    table = diagnosis.confusion(pairs)
    assert sum(map(len, (recorded.runs for recorded in rounds()))) == len(pairs) == 21
    assert sum(row[cause] for cause, row in table.items()) >= 0.8 * len(pairs)
