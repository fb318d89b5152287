"""Utilization of processors: what it says beside work, and what a mean hides."""

from dataclasses import replace

import pytest
from fakes import ScriptedEngine, TurnedClock, made_run, scripted_pass

from inferlab.errors import InvalidSettings
from inferlab.measurement.telemetry import sampler
from inferlab.measurement.telemetry.samples import Sample
from studies.utilization import utilization
from studies.utilization.utilization import averaged, busy_percent, operations_per_second, telemetry_pairs


def samples(*percents, every=0.1):
    """A sample without a reading at 0, then one after each interval with two equal processors."""
    return (Sample(0.0), *(Sample(every * i, cpu_percent=(value, value)) for i, value in enumerate(percents, 1)))


def test_busy_is_the_mean_inside_a_phase():
    """A sample's value belongs to the interval before it; one that reaches over the phase's edge is left out."""
    called = replace(scripted_pass(ttft=0.35, gaps=(0.2, 0.2)), began=0.0)
    run = made_run(passes=(called,), samples=samples(80, 100, 90, 10, 50, 70, 60))
    assert busy_percent(run, "prefill") == pytest.approx(90)
    assert busy_percent(run, "decode") == pytest.approx(60)
    assert busy_percent(made_run(passes=(called,)), "decode") is None


def test_work_counts_two_operations_for_each_weight():
    """By the median rate of the phase."""
    run = made_run()
    expected = 2 * run.model.n_params * run.decode_tokens_per_second
    assert operations_per_second(run, "decode") == expected


def test_a_mean_hides_what_is_shorter_than_its_window():
    """One recording: the short window reaches 100, the long one stays near the share of busy time."""
    recorded = samples(*[100, 0, 0, 0] * 5)
    assert max(value for _, value in averaged(recorded, 0.1)) == 100
    assert [value for _, value in averaged(recorded, 0.4)] == pytest.approx([25] * 5)
    assert averaged(recorded, 2.0) == (pytest.approx((2.0, 25)),)
    assert averaged(recorded, 1.5) == (pytest.approx((1.5, 100 * 4 / 15)),)  # the second window has a third of its time


def test_a_longer_interval_counts_more():
    """Values are weighted with the time that they stand for."""
    recorded = (Sample(0.0), Sample(0.1, cpu_percent=(100,)), Sample(0.4, cpu_percent=(0,)))
    assert averaged(recorded, 0.4)[0][1] == pytest.approx(25)


def test_telemetry_is_compared_in_pairs():
    """Both sides do the same work; fewer than six pairs have no interval."""
    engine = ScriptedEngine([scripted_pass()])
    found = telemetry_pairs("tiny", n_pairs=10, n_prompt=4, n_gen=3, engine=engine)
    assert (len(found.before), len(found.after)) == (10, 10)
    assert found.ratio("decode") == pytest.approx(1)
    assert all(not run.samples for run in found.before)
    assert all(run.samples for run in found.after)
    with pytest.raises(InvalidSettings):
        telemetry_pairs("tiny", n_pairs=3, engine=engine)


class BurstEngine(ScriptedEngine):
    """An engine whose answers take 0.03 s of a clock; `began` has when each was asked for."""

    def __init__(self, clock):
        super().__init__()
        self.clock, self.began = clock, []

    def generate(self, prompt, n_gen):
        self.began.append(self.clock.now)
        self.clock.sleep(0.03)
        return super().generate(prompt, n_gen)


def test_bursts_work_for_a_share_of_each_period(monkeypatch):
    """It decodes until the share has passed, and rests; samples begin at 0 and last as long as all periods."""
    engine = BurstEngine(TurnedClock())
    for module in (utilization, sampler):
        monkeypatch.setattr(module, "time", engine.clock)
    found = utilization.bursts("tiny", n=2, every_seconds=0.2, busy_share=0.5, engine=engine)
    assert engine.began == pytest.approx([0, 0.03, 0.06, 0.09, 0.2, 0.23, 0.26, 0.29])
    assert (found[0].seconds, found[-1].seconds) == (0, pytest.approx(0.4))
    with pytest.raises(InvalidSettings, match="busy_share"):
        utilization.bursts("tiny", busy_share=1.5)


def test_each_number_of_threads_has_a_run():
    """With telemetry."""
    found = utilization.runs_by_threads("tiny", (1, 2), n_prompt=4, n_gen=3, repeats=1, engine=ScriptedEngine())
    assert [run.settings.n_threads for run in found] == [1, 2]
    assert all(run.sampling for run in found)
