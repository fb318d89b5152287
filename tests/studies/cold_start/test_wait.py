"""The wait for a cold start: the equation, its refusals, and starts that the rates have never seen."""

import pytest

import inferlab as lab
from inferlab.errors import InvalidSettings
from studies.cold_start.study import unseen_starts
from studies.cold_start.wait import (
    RECORDED,
    Rate,
    StartRates,
    is_cached,
    ratio,
    recorded_places,
    recorded_rates,
)

RATES = StartRates(0.25, 1e-6, 1e-9, 3.0)
DISK = Rate(1e9, "given")


@pytest.fixture(scope="module")
def fitted():
    return recorded_rates()


@pytest.fixture(scope="module")
def unseen():
    return unseen_starts()


def test_the_equation_adds_its_parts():
    """A file of 2 GB with 100,000 entries: constant, vocabulary, reading and loading; the wait is a multiple."""
    assert RATES.seconds(2 * 10**9, 100_000, DISK) == pytest.approx(0.25 + 0.1 + 2 + 2)
    assert RATES.wait(2 * 10**9, 100_000, DISK) == pytest.approx(3 * 4.35)


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
def test_a_rate_that_moves_nothing_is_refused(rate):
    """No rate of 0, below 0, infinite or unknown."""
    with pytest.raises(InvalidSettings, match="Give bytes per second above 0"):
        Rate(rate, "given")


@pytest.mark.parametrize(("file_bytes", "n_vocab"), [(0, 100), (-5, 100), (100, -1)])
def test_a_size_that_no_file_has_is_refused(file_bytes, n_vocab):
    """Neither an empty file nor a negative vocabulary gets a wait."""
    with pytest.raises(InvalidSettings, match="size in bytes"):
        RATES.wait(file_bytes, n_vocab, DISK)


def test_every_unseen_start_ends_within_the_wait(fitted, unseen):
    """The bound: shapes that gave no rates, cached, from the disk and from a disk that gave no rates, 24 starts."""
    used = [one for group in unseen.values() for one in group]
    assert len(used) == 24
    assert not {start.model.file for start, _ in used} & {start.model.file for start in lab.load(RECORDED)}
    assert [start.model.file for start, place in used if ratio(fitted, start, place) > fitted.margin] == []


def test_without_the_margin_the_wait_would_be_too_short(fitted, unseen):
    """The check above can fail: of the unseen starts some take longer than computed."""
    assert any(ratio(fitted, *one) > 1.5 for one in (*unseen["cached"], *unseen["disk"]))


def test_an_unseen_place_is_computed_within_a_quarter(fitted, unseen):
    """A disk ten times as slow: its own plain reads and the rates of other starts suffice."""
    limited = unseen["limited"][0][1]
    assert limited.bytes_per_second < recorded_places()[False].bytes_per_second / 8
    assert all(0.8 < ratio(fitted, *one) < 1.25 for one in unseen["limited"])


def test_the_wrong_place_gives_a_wrong_time(fitted, unseen):
    """The check above can fail: with the rate of the page cache, starts from the limited disk take far longer."""
    assert all(ratio(fitted, start, recorded_places()[True]) > 3 for start, _ in unseen["limited"])


def test_the_margin_is_that_of_the_slowest_start(fitted):
    """The longest seen start over its computed time, and never below 1."""
    places = recorded_places()
    ratios = [ratio(fitted, one, places[is_cached(one)]) for one in lab.load(RECORDED)]
    assert fitted.margin == pytest.approx(max(ratios))
    assert fitted.margin >= 1
