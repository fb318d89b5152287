"""Figures of a model's parts, of generating without a cache, and of the cache by formula."""

import pytest
from fakes import made_run, scripted_pass

import inferlab as lab
from inferlab import figures
from inferlab.prediction import cost
from inferlab.units import MIB
from studies.cache_and_batch import figures as cache_and_batch_figures

TINY = lab.read_gguf(lab.tiny_model())
RUNS = [made_run(n_prompt=n, passes=(scripted_pass(prefill=n / 100),)) for n in (8, 16)]
READINGS = {"right": 3 * MIB, "query heads": 6 * MIB}
EVERY = {
    "cost_by_part": figures.cost_by_part(TINY, 512),
    "tensor_bytes": figures.tensor_bytes(TINY),
    "time_without_cache": cache_and_batch_figures.time_without_cache(RUNS),
    "kv_formulas": figures.kv_formulas(READINGS, 3 * MIB, "made for a test"),
}


@pytest.mark.parametrize("name", EVERY)
def test_every_figure_says_its_numbers_and_where_they_come_from(name):
    """A text alternative with numbers, a badge below, axes with a unit."""
    layout = EVERY[name].layout
    assert any(character.isdigit() for character in layout.meta["alt"])
    assert any(word in note.text for note in layout.annotations for word in ("computed", "read", "measured", "made"))
    assert layout.xaxis.title.text


def test_shares_of_a_token_add_up_to_a_hundred():
    """Of the bytes, and of the operations."""
    for bars in EVERY["cost_by_part"].data:
        assert sum(bars.x) == pytest.approx(100)
    assert EVERY["cost_by_part"].data[0].y[-1] == cost.CACHE


def test_the_bars_of_a_file_are_its_bytes():
    """Each type is a colour; all bars together are all tensors."""
    bars = EVERY["tensor_bytes"].data
    assert [bar.name for bar in bars] == ["F16", "F32"]
    assert sum(sum(bar.x) for bar in bars) * MIB == pytest.approx(TINY.tensor_bytes)


def test_without_a_cache_a_token_costs_the_prefill_of_everything():
    """One line is the prefill of the whole text, the other a single decode behind it."""
    lines = {trace.name: trace for trace in EVERY["time_without_cache"].data}
    assert lines["without a cache"].y == pytest.approx((80, 160))
    assert lines["with a cache"].y == pytest.approx((80, 80))


def test_a_formula_is_compared_with_the_engine():
    """Each bar says how many times the engine's bytes it is."""
    assert [name.split(": ")[1] for name in EVERY["kv_formulas"].data[0].y] == ["1.00 times", "2.00 times"]
