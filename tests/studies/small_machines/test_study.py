"""Smaller machines: what a budget holds, and what a bandwidth allows."""

import pytest

from inferlab.prediction.cards import known_card
from studies.small_machines import study


def test_a_mixture_takes_more_and_reads_less():
    """Than a dense model; a budget of 16 GiB holds its bits over 4.5 a weight."""
    found = study.numbers()
    assert found["moe_gib"] > found["dense_gib"]
    assert found["moe_token"] < found["dense_token"]
    assert study.budget_table()[1][-1] == ("laptop", "16.00 GiB", f"{float(f'{8 * 16 * 2**30 / 4.5 / 1e6:.3g}'):,g}")


def test_a_bound_times_its_bytes_is_the_bandwidth():
    """A model that does not fit has none."""
    heads, rows = study.bounds_table()
    for name, row in zip(study.DEVICES, rows, strict=True):
        told = dict(zip(heads, row, strict=True))
        bandwidth = known_card(name).bandwidth_bytes_per_second
        assert float(told["Llama 3.1 8B"]) * 1e9 * study.numbers()["dense_token"] == pytest.approx(bandwidth, rel=0.05)
    assert "too large" in {row[-1] for row in rows}
