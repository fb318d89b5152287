"""Figures of a cache in blocks, of shares of cards, and of memory over weights."""

import pytest

import inferlab as lab
from inferlab import figures
from inferlab.prediction.block_pool import MemoryShare
from inferlab.settings import Settings
from inferlab.units import GIB

LENGTHS = (300, 700)
SHARES = {"8 GB": MemoryShare(8 * GIB, 14 * GIB, 0.92), "24 GB": MemoryShare(24 * GIB, 14 * GIB, 0.92)}
PLANS = [
    lab.predict_memory("mistral-7b", Settings(n_ctx=n, flash_attn="on"), simulate=False) for n in (4096, 32768)
]
EVERY = {
    "cells_held": figures.cells_held(LENGTHS, 4096),
    "card_shares": figures.card_shares(SHARES, 2**17),
    "footprint_factors": figures.footprint_factors({"Mistral 7B": PLANS}, 1.1),
}


@pytest.mark.parametrize("name", EVERY)
def test_every_figure_says_its_numbers_and_that_they_are_computed(name):
    """A text alternative with numbers, and a badge that promises no measurement."""
    layout = EVERY[name].layout
    assert any(character.isdigit() for character in layout.meta["alt"])
    assert any("computed" in note.text and "nothing was" in note.text for note in layout.annotations)


def test_a_bar_is_as_long_as_the_cells_held():
    """Cells with a token and empty cells add up to what slots, one pool and blocks hold."""
    used, empty = (trace.x for trace in EVERY["cells_held"].data)
    assert [a + b for a, b in zip(used, empty, strict=True)] == [8192, 1024, 1008]


def test_positions_of_a_slider_share_an_axis():
    """A smaller slot is drawn on the axis of the largest."""
    small, large = (figures.cells_held(LENGTHS, n, 16384).layout.xaxis.range[1] for n in (4096, 16384))
    assert small == pytest.approx(large, rel=0.05)


def test_a_model_larger_than_the_share_is_named():
    """The text beside the bar says that the program does not start, or how many tokens fit."""
    texts = EVERY["card_shares"].data[-1].text
    assert texts[0] == "does not start"
    assert texts[1].endswith(" tokens")


def test_the_parts_of_a_card_add_up_to_its_memory():
    """Weights, room and what is not taken are the whole card; weights that exceed it are marked at its memory."""
    figure = EVERY["card_shares"]
    assert sum(trace.x[1] for trace in figure.data) == pytest.approx(24)
    assert [line.x0 for line in figure.layout.shapes] == [8]


def test_a_longer_context_takes_a_larger_factor():
    """Memory over weights grows with the context."""
    ratios = EVERY["footprint_factors"].data[0].y
    assert 1 < ratios[0] < ratios[1]
