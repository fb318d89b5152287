"""Pairs of two settings: their order, their ratios, and what is said of them."""

from types import SimpleNamespace

import pytest
from fakes import ScriptedEngine

from inferlab.errors import InvalidSettings
from inferlab.experiments.paired import Paired, measure_pairs
from inferlab.model.find import tiny_model
from inferlab.settings import Settings


def paired(before, after):
    """Pairs with these rates of decode."""
    runs = ([SimpleNamespace(decode_tokens_per_second=rate) for rate in rates] for rates in (before, after))
    return Paired(*map(tuple, runs))


def test_each_pair_has_both_settings_and_the_order_alternates(monkeypatch):
    """Of ten pairs, five begin with the change."""
    engine = ScriptedEngine()
    real = engine.open
    opened = []
    monkeypatch.setattr(engine, "open", lambda path, asked: opened.append(asked.n_threads) or real(path, asked))
    found = measure_pairs(tiny_model(), Settings(n_threads=1), Settings(n_threads=2), 10, 8, 4, engine)
    assert opened == [1, 2, 2, 1] * 5
    assert [run.settings.n_threads for run in found.after] == [2] * 10
    assert len(found.ratios("decode")) == 10


@pytest.mark.parametrize(("factor", "verdict"), [(1.2, "faster"), (0.8, "slower"), (1.0, "no difference found")])
def test_a_verdict_needs_an_interval_without_one(factor, verdict):
    """Noise of five percent on both sides hides no change of twenty, and is none itself."""
    noise = [0.95, 1.05] * 8
    found = paired([100.0] * 16, [100 * factor * one for one in noise])
    low, high = found.interval("decode")
    assert low <= found.ratio("decode") <= high
    assert found.verdict("decode") == verdict


def test_too_few_pairs_are_refused():
    """The message says how many are needed."""
    with pytest.raises(InvalidSettings, match="10 or more"):
        measure_pairs(None, Settings(), Settings(), n_pairs=9)
