"""Units: text for people."""

import pytest

from inferlab.errors import InvalidSettings
from inferlab.units import bytes_from_text, bytes_text, count_text, rate_text, seconds_text


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [(None, "unknown"), (0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (1_572_864, "1.50 MiB"), (2**31, "2.00 GiB")],
)
def test_memory_is_told_in_binary_units(n_bytes, text):
    """A size is divided by 1024s, as llama.cpp prints its buffers, and an unknown size stays unknown."""
    assert bytes_text(n_bytes) == text


@pytest.mark.parametrize(
    ("text", "n_bytes"), [("8GiB", 2**33), ("750 MiB", 786_432_000), ("24 gb", 24 * 10**9), ("0.5KiB", 512), ("7B", 7)]
)
def test_a_size_is_read_as_people_write_it(text, n_bytes):
    """Binary and decimal units are told apart; the case of letters and a space do not matter."""
    assert bytes_from_text(text) == n_bytes


@pytest.mark.parametrize("text", ["", "8", "8G", "eight GiB", "-1GiB", "8GiB of VRAM"])
def test_a_size_without_a_unit_is_no_size(text):
    """Eight of what is the reader's to say; the answer shows how."""
    with pytest.raises(InvalidSettings, match="such as 8GiB"):
        bytes_from_text(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "unknown"), (0.0, "0 µs"), (5e-7, "0.5 µs"), (0.00321, "3.21 ms"), (1.4499, "1.45 s"), (1234.4, "1234 s")],
)
def test_a_duration_is_told_in_the_unit_that_fits(seconds, text):
    """A duration has three significant digits in seconds, milliseconds or microseconds."""
    assert seconds_text(seconds) == text


@pytest.mark.parametrize(("rate", "text"), [(None, "unknown"), (1234.4, "1,234 tokens/s"), (12.34, "12.3 tokens/s")])
def test_a_rate_is_told_in_tokens_per_second(rate, text):
    """A rate has no decimals that its measurement could not carry."""
    assert rate_text(rate) == text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [((1, "layer"), "1 layer"), ((0, "layer"), "0 layers"), ((1200, "pass", "passes"), "1,200 passes")],
)
def test_things_are_counted_in_words(arguments, text):
    """One thing has no plural; a plural that is not made with s is given."""
    assert count_text(*arguments) == text
