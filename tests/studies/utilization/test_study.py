"""Utilization of processors: what it says beside work, and what a mean hides."""

from dataclasses import replace

import pytest
from fakes import ScriptedEngine, TurnedClock, made_run, scripted_pass

from inferlab.measurement.run import Run
from inferlab.measurement.telemetry import sampler
from inferlab.measurement.telemetry.samples import Sample
from inferlab.records import load_all
from studies.utilization import figures, study
from studies.utilization.study import averaged, busy_percent


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


def test_windows_of_one_recording_are_lines():
    """Each says its length; the text has the range of each."""
    figure = figures.averaged_utilization(samples(*[100, 0] * 5), (0.1, 1.0))
    assert [trace.name for trace in figure.data] == ["mean of 0.1 s", "mean of 1 s"]
    assert "mean of 0.1 s: 0 to 100 %" in figure.layout.meta["alt"]


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
    for module in (study, sampler):
        monkeypatch.setattr(module, "time", engine.clock)
    found = study.bursts("tiny", n=2, every_seconds=0.2, busy_share=0.5, engine=engine)
    assert engine.began == pytest.approx([0, 0.03, 0.06, 0.09, 0.2, 0.23, 0.26, 0.29])
    assert (found[0].seconds, found[-1].seconds) == (0, pytest.approx(0.4))


def test_the_page_has_what_the_record_has():
    """Prefill computes more than decode while as many cores are busy; more threads than cores lose tokens."""
    found = study.numbers()
    runs = {run.settings.n_threads: run for run in load_all("epyc-2c/busy-threads", Run)}
    rates = {n: run.decode_tokens_per_second for n, run in runs.items()}
    assert found["kept_many"] == pytest.approx(100 * rates[4] / rates[2])
    assert (found["many"], runs[2].machine.n_cores) == (4, 2)
    ratio = runs[2].prefill_tokens_per_second / rates[2]  # two operations for each weight and token of both
    assert 2 < found["work_ratio"] == pytest.approx(ratio)
    assert all(80 < found[name] <= 100 for name in ("busy_prefill", "busy_decode", "busy_many"))
