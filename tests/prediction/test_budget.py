"""What a budget of bytes can hold."""

import pytest

from inferlab.errors import InvalidSettings
from inferlab.model.catalog import known_models
from inferlab.model.synthetic_model import shape
from inferlab.prediction import budget
from inferlab.units import KIB


def test_a_microcontroller_holds_none_of_them():
    """Even the smallest model needs more."""
    assert min(budget.needed_bytes(known, 256) for known in known_models().values()) > 512 * KIB


def test_a_window_saves_cells_of_a_long_context():
    """Gemma 3 keeps a window in five of six layers; Llama has none to save."""
    gemma, llama = shape("gemma-3-1b", "Q4_K_M"), shape("llama-3.2-1b", "Q4_K_M")
    assert budget.cache_bytes(gemma, 32768) < budget.cache_bytes(gemma, 32768, swa_full=True) / 4
    assert budget.cache_bytes(llama, 32768) == budget.cache_bytes(llama, 32768, swa_full=True)


def test_weights_that_a_budget_holds():
    """One byte holds two weights of four bits; weights without bits are refused."""
    assert budget.most_weights(1, 4) == 2
    with pytest.raises(InvalidSettings, match="positive"):
        budget.most_weights(1, 0)
