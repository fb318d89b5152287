"""Pairs of two settings: their order, their ratios, and what is said of them."""

import pytest
from fakes import ScriptedEngine, made_run, scripted_pass

from inferlab.errors import InvalidSettings
from inferlab.measurement.paired import Paired, measure_pairs, measure_surroundings
from inferlab.measurement.surroundings import Surrounding
from inferlab.model.find import tiny_model
from inferlab.settings import Settings


def paired(before, after):
    """Pairs with these rates of decode, a run for each."""
    sides = ([scripted_pass(gaps=(1 / rate,), share=1) for rate in rates] for rates in (before, after))
    return Paired(*(tuple(made_run(passes=(one,)) for one in side) for side in sides))


def test_each_pair_has_both_settings_and_the_order_alternates(monkeypatch):
    """Of ten pairs, five begin with the change."""
    engine = ScriptedEngine()
    real = engine.open
    opened = []
    monkeypatch.setattr(engine, "open", lambda path, asked: opened.append(asked.n_threads) or real(path, asked))
    found = measure_pairs(tiny_model(), Settings(n_threads=1), Settings(n_threads=2), 10, 8, 4, engine)
    assert opened == [1, 2, 2, 1] * 5
    assert [run.settings.n_threads for run in found.after] == [2] * 10
    assert len(found.compared("decode").ratios) == 10


@pytest.mark.parametrize(("factor", "verdict"), [(1.2, "faster"), (0.8, "slower"), (1.0, "no difference found")])
def test_a_verdict_needs_an_interval_without_one(factor, verdict):
    """Noise of five percent on both sides hides no change of twenty, and is none itself."""
    noise = [0.95, 1.05] * 8
    said = paired([100.0] * 16, [100 * factor * one for one in noise]).compared("decode")
    low, high = said.interval
    assert low <= said.ratio <= high
    assert said.verdict == verdict
    assert said.text.endswith(f"), {verdict}")


def test_too_few_pairs_are_refused():
    """The message says how many are needed."""
    with pytest.raises(InvalidSettings, match="6 or more"):
        measure_pairs(None, Settings(), Settings(), n_pairs=5)


def test_two_engines_are_measured_each_in_its_surrounding(monkeypatch):
    """Each engine generates what its side counts, and the neighbor runs beside its own side only."""
    engines, seen = (ScriptedEngine(), ScriptedEngine()), []
    real = Surrounding.neighbor
    monkeypatch.setattr(Surrounding, "neighbor", lambda self: seen.append(self.neighbor_nice) or real(Surrounding()))
    sides = Surrounding(), Surrounding(neighbor_nice=5)
    found = measure_surroundings(tiny_model(), (Settings(), Settings()), sides, engines, 10, 8, 4)
    assert [len(engine.asked) for engine in engines] == [20, 20]  # a warm-up before each counted pass
    assert seen == [None, 5, 5, None] * 5
    assert found.surroundings == sides


def test_a_compact_record_has_the_same_ratios():
    """One run for each side, and every pass in its place."""
    found = paired([100.0] * 10, [110.0 + n for n in range(10)])
    assert found.compact().compared("decode") == found.compared("decode")
    assert [len(side) for side in (found.compact().before, found.compact().after)] == [1, 1]
