"""Cited and measured rungs, their order, and the bounds that they set."""

import pytest

from inferlab.errors import InvalidSettings
from inferlab.facts import read_table
from inferlab.prediction import link_rates
from inferlab.prediction.link_rates import Rung


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("ethernet-1g", 0.125e9),
        ("pcie-3-x16", 15.754e9),
        ("pcie-4-x8", 15.754e9),
        ("pcie-5-x16", 63.015e9),
        ("ddr5-5600-x2", 89.6e9),
        ("sata-870-evo", 0.56e9),
    ],
)
def test_a_rate_is_computed_from_wires_and_transfers(name, rate):
    """Lanes, encoding and bits give the bytes per second that data sheets state."""
    assert link_rates.link_rate(read_table("links")[name]) == pytest.approx(rate, rel=1e-4)


def test_every_link_has_a_known_place_and_a_name_of_its_own():
    """The table and the figure put each rung on a row of its own."""
    rungs = link_rates.cited_rungs()
    assert {rung.place for rung in rungs} <= set(link_rates.PLACES)
    assert len({rung.name for rung in rungs}) == len(rungs)
    assert not any(rung.measured for rung in rungs)


def test_shared_memory_is_host_ram():
    """The processor of a machine with unified memory reads the same memory."""
    assert link_rates.card_rung("apple-m2").place == "host RAM"
    assert link_rates.card_rung("rtx-4090").place == "VRAM"


def test_a_pass_takes_bytes_over_rate_and_a_rate_is_the_inverse():
    """4 GB over 8 GB/s: half a second, two tokens."""
    rung = Rung("bus", "bus", 8e9)
    assert (rung.seconds(4e9), rung.most_tokens_per_second(4e9)) == (0.5, 2.0)
    with pytest.raises(InvalidSettings, match="more than 0"):
        rung.most_tokens_per_second(0)


def test_the_slowest_rung_decides():
    """Rungs are ordered, unmeasured ones left out, and no rung is no chain."""
    rungs = link_rates.measured_rungs({"RAM": ("host RAM", 40e9), "disk": ("disk", 2e9), "lost": ("VRAM", None)})
    assert [rung.name for rung in rungs] == ["disk", "RAM"]
    assert link_rates.slowest(reversed(rungs)).name == "disk"
    with pytest.raises(InvalidSettings, match="at least one"):
        link_rates.slowest([])
