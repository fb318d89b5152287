"""The figure of shares of cards."""

import pytest

from inferlab.units import GIB
from studies.vllm import figures
from studies.vllm.block_pool import MemoryShare

SHARES = {"8 GB": MemoryShare(8 * GIB, 14 * GIB, 0.92), "24 GB": MemoryShare(24 * GIB, 14 * GIB, 0.92)}
FIGURE = figures.card_shares(SHARES, 2**17)


def test_the_figure_says_its_numbers_and_that_they_are_computed():
    """A text alternative with numbers, and a badge that promises no measurement."""
    layout = FIGURE.layout
    assert any(character.isdigit() for character in layout.meta["alt"])
    assert any("computed" in note.text and "nothing was" in note.text for note in layout.annotations)


def test_a_model_larger_than_the_share_is_named():
    """The text beside the bar says that the program does not start, or how many tokens fit."""
    texts = FIGURE.data[-1].text
    assert texts[0] == "does not start"
    assert texts[1].endswith(" tokens")


def test_the_parts_of_a_card_add_up_to_its_memory():
    """Weights, room and what is not taken are the whole card; weights that exceed it are marked at its memory."""
    assert sum(trace.x[1] for trace in FIGURE.data) == pytest.approx(24)
    assert [line.x0 for line in FIGURE.layout.shapes] == [8]
