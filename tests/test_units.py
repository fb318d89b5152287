"""Units: text for people."""

import pytest

from inferlab.units import bytes_text, rate_text, seconds_text


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [(None, "unknown"), (0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (1_572_864, "1.50 MiB"), (2**31, "2.00 GiB")],
)
def test_memory_is_told_in_binary_units(n_bytes, text):
    """A size is divided by 1024s, as llama.cpp prints its buffers, and an unknown size stays unknown."""
    assert bytes_text(n_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "unknown"), (0.0, "0 µs"), (5e-7, "0.5 µs"), (0.00321, "3.21 ms"), (1.4499, "1.45 s"), (1234.4, "1234 s")],
)
def test_a_duration_is_told_in_the_unit_that_fits(seconds, text):
    """A duration has three significant digits in seconds, milliseconds or microseconds."""
    assert seconds_text(seconds) == text


@pytest.mark.parametrize(("rate", "text"), [(None, "unknown"), (1234.4, "1234 tokens/s"), (12.34, "12.3 tokens/s")])
def test_a_rate_is_told_in_tokens_per_second(rate, text):
    """A rate has no decimals that its measurement could not carry."""
    assert rate_text(rate) == text
