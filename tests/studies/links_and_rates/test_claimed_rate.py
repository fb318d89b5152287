"""A published rate read backwards."""

import pytest

import inferlab as lab
from inferlab.errors import InvalidSettings
from inferlab.prediction.decode_bound import token_bytes
from studies.links_and_rates import claimed_rate


def test_the_largest_model_is_the_last_that_fits():
    """It needs no more than the bytes, and every other dense model that fits needs no more than it."""
    most = 6e9
    for mix, known in claimed_rate.largest_models(most, ("F16", "Q4_K_M")).items():
        needed = token_bytes(lab.shape(known, mix))
        assert needed <= most
        fits = [n for name in ("mistral-7b", "llama-3.1-8b", "gemma-3-4b", "qwen2.5-0.5b")
                if (n := token_bytes(lab.shape(name, mix))) <= most]  # fmt: skip
        assert needed >= max(fits)
        assert known.n_expert == 0


def test_no_model_is_small_enough_for_a_few_bytes():
    """None, not an error: the rate may be of a model that is not known here."""
    assert claimed_rate.largest_models(1e6, ("Q4_K_M",)) == {"Q4_K_M": None}


def test_half_the_bits_are_twice_the_weights():
    """1000 GB/s at 100 tokens/s leave 10 GB: 5 billion weights of 16 bits."""
    assert claimed_rate.most_weights(1e12, 100, 16) == pytest.approx(5e9)
    assert claimed_rate.most_weights(1e12, 100, 8) == pytest.approx(1e10)


def test_f16_has_a_little_more_than_16_bits():
    """Norms are kept in 32 bits."""
    assert 16 < claimed_rate.bits_per_weight(lab.shape("mistral-7b", "F16")) < 16.01


@pytest.mark.parametrize(("rate", "tokens"), [(50, 0.5), (100, 1.0), (400, 4.0)])
def test_more_than_one_token_a_reading_rules_out_one_after_another(rate, tokens):
    """10 GB from 1000 GB/s: 100 readings per second."""
    assert claimed_rate.least_tokens_for_a_reading(1e12, rate, 10e9) == pytest.approx(tokens)


def test_a_rate_of_zero_is_refused():
    """Nothing follows from it."""
    with pytest.raises(InvalidSettings, match="more than 0"):
        claimed_rate.least_tokens_for_a_reading(1e12, 0, 1e9)
