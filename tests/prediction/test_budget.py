"""What a budget of bytes can hold."""

import pytest

from inferlab.errors import InvalidSettings
from inferlab.model.catalog import known_models
from inferlab.model.synthetic_model import shape
from inferlab.prediction import budget
from inferlab.units import GIB, KIB


def test_a_larger_budget_never_holds_a_smaller_model(monkeypatch):
    """From half a gibibyte to 32 the weights of the model only grow, and it never needs more than the budget."""
    made = {known.name: shape(known, "Q4_K_M") for known in known_models().values()}
    monkeypatch.setattr(budget, "shape", lambda known, _: made[known.name])
    chosen = [(n * GIB / 2, budget.largest(n * GIB / 2, 4096)) for n in range(1, 64)]
    weights = [budget.n_weights(shape(known, "Q4_K_M")) for _, known in chosen if known]
    assert weights == sorted(weights)
    assert weights[0] < weights[-1]
    assert all(budget.needed_bytes(known, 4096) <= n_bytes for n_bytes, known in chosen if known)


def test_a_microcontroller_holds_none_of_them():
    """None is the answer where even the smallest model needs more."""
    assert budget.largest(512 * KIB, 4096) is None
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
