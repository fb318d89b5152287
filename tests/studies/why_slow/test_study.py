"""Why is it slow: the numbers of the page."""

import pytest

import inferlab as lab
from studies.why_slow import study

pytestmark = pytest.mark.engine  # its plans are simulated


def test_the_published_rate_is_below_its_bound():
    """The bound is the card's bandwidth over the weights on it, nearly all of the model's."""
    found = study.numbers()
    bandwidth = lab.facts.cited_facts("cards")["rtx-4080-bandwidth"].value
    assert found["bound"] == pytest.approx(1e9 * bandwidth / lab.shape("qwen2.5-7b").tensor_bytes, rel=0.1)
    assert 0 < found["share"] < 100


def test_a_longer_context_takes_layers_from_the_card():
    """The cache grows with the context, and its cells outweigh the weights from the break-even on."""
    found = study.numbers()
    assert found["long_cache_gib"] == found["short_cache_gib"] * study.LONG / study.SHORT
    assert found["layers_left"].startswith("only")
    weights_gib = lab.shape("mistral-7b-v0.3", "Q4_K_M").tensor_bytes / 2**30
    assert found["break_even"] * found["long_cache_gib"] / study.LONG == pytest.approx(weights_gib)
