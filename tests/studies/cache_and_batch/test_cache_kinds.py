"""Caches of several kinds, planned and logged."""

import pytest

import inferlab as lab
from inferlab.units import MIB
from studies.cache_and_batch.cache_kinds import PlannedCache, caches_text, planned_and_logged


@pytest.mark.engine
def test_a_windowed_and_a_hybrid_cache_are_logged_as_planned(tmp_path, engine):
    """Real contexts of two small shapes, to the 0.01 MiB of each of the two lines of a cache."""
    windows = {"n_layer": 6, "n_embd": 256, "n_ff": 256, "n_vocab": 4096}
    states = {"n_layer": 4, "n_ff": 256, "n_vocab": 4096, "attention_layers": (2,)}
    models = {
        "windows": lab.make_shape("gemma-3-1b", "Q8_0", tmp_path / "windows.gguf", **windows),
        "states": lab.make_shape("granite-4.0-h-350m", "Q8_0", tmp_path / "states.gguf", **states),
    }
    found = planned_and_logged(models, (1024, 4096), engine=engine)
    assert [(one.name, one.n_ctx) for one in found] == [(n, c) for n in models for c in (1024, 4096)]
    assert max(abs(one.planned_bytes - one.logged_bytes) for one in found) < 2 * 0.0051 * MIB
    assert [one.state_bytes > 0 for one in found] == [False, False, True, True]


def test_the_text_says_the_growth():
    """Planned, states and logged of each, and the last over the first."""
    found = [PlannedCache("a", n, n * MIB, MIB, n * MIB) for n in (1000, 2000)]
    assert caches_text(found).splitlines() == [
        "a, 1,000 cells: planned 1000.00 MiB, of which 1.00 MiB states; llama.cpp logged 1000.00 MiB",
        "a, 2,000 cells: planned 2000.00 MiB, of which 1.00 MiB states; llama.cpp logged 2000.00 MiB",
        "a: the last is 2.00 times the first",
    ]
