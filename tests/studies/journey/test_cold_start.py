"""The wait for a cold start: the equation, its refusals, and starts that the rates have never seen."""

from dataclasses import replace

import pytest

import inferlab as lab
from inferlab.errors import InvalidSettings
from inferlab.measurement.cold_start import cold_start
from studies.journey.cold_start import (
    Rate,
    StartRates,
    fit_starts,
    is_cached,
    place_rate,
    ratio,
    recorded_places,
    recorded_rates,
)

RATES = StartRates(0.25, 1e-6, 1e-9, 3.0, "given")
DISK = Rate(1e9, "given")


def loaded(name):
    return lab.load(f"epyc-2c/cold-start-{name}")


def places():
    return recorded_places(loaded("seen"))


@pytest.fixture(scope="module")
def fitted():
    return recorded_rates()


def place_of(start, limited):
    return limited or places()[is_cached(start)]


def test_the_parts_are_those_of_the_equation():
    """A file of 2 GB with 100,000 entries: constant, vocabulary, reading, loading, and 1 GB over a link."""
    parts = RATES.parts(2 * 10**9, 100_000, DISK, Rate(0.5e9, "given"), 10**9)
    assert parts == pytest.approx({"constant": 0.25, "vocabulary": 0.1, "reading": 2, "loading": 2, "link": 2})
    assert RATES.seconds(2 * 10**9, 100_000, DISK) == pytest.approx(4.35)
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


@pytest.mark.parametrize(("link", "n_bytes"), [(None, 5), (DISK, -5)])
def test_bytes_over_no_link_are_refused(link, n_bytes):
    """Bytes for a device need a link, and are no fewer than 0."""
    with pytest.raises(InvalidSettings, match="link_bytes"):
        RATES.seconds(100, 1, DISK, link, n_bytes)


def test_one_kind_of_start_gives_no_rates():
    """Rates need starts with the file in the page cache and without; old records without sizes are refused."""
    seen = loaded("seen")
    for alone in ([s for s in seen if is_cached(s)], [s for s in seen if not is_cached(s)], []):
        with pytest.raises(InvalidSettings, match="Record both"):
            fit_starts(alone, places())
    with pytest.raises(InvalidSettings, match="Record it again"):
        fit_starts([replace(seen[0], file_bytes=None), *seen[1:]], places())


def test_a_place_without_a_timed_read_has_no_rate():
    """Records from before plain reads were timed are refused, and the error says what to do."""
    with pytest.raises(InvalidSettings, match="time_read=True"):
        place_rate(lab.load("epyc-2c/tiny-cold-start-pairs"), "the disk")


def test_every_unseen_start_ends_within_the_wait(fitted):
    """The bound: shapes that gave no rates, cached, from the disk and from a disk that gave no rates, 24 starts."""
    slow = loaded("slow-disk")
    unseen = [(s, place_of(s, None)) for s in loaded("unseen-shapes")]
    unseen += [(s, place_rate(slow, "limited")) for s in slow]
    assert len(unseen) == 24
    assert not {s.model.file for s, _ in unseen} & {s.model.file for s in loaded("seen")}
    assert [s.model.file for s, place in unseen if ratio(fitted, s, place) > fitted.margin] == []


def test_without_the_margin_the_wait_would_be_too_short(fitted):
    """The check above can fail: of the unseen starts some take longer than computed."""
    assert any(ratio(fitted, s, place_of(s, None)) > 1.5 for s in loaded("unseen-shapes"))


def test_an_unseen_place_is_computed_within_a_quarter(fitted):
    """A disk ten times as slow: its own plain reads and the rates of other starts suffice."""
    slow = loaded("slow-disk")
    limited = place_rate(slow, "limited")
    assert limited.bytes_per_second < places()[False].bytes_per_second / 8
    assert all(0.8 < ratio(fitted, s, limited) < 1.25 for s in slow)


def test_the_wrong_place_gives_a_wrong_time(fitted):
    """The check above can fail: with the rate of the page cache, starts from the limited disk take far longer."""
    assert all(ratio(fitted, s, places()[True]) > 3 for s in loaded("slow-disk"))


def test_the_recorded_rates_are_those_of_the_seen_starts(fitted):
    """Neither unseen shapes nor the limited disk had a part in them."""
    assert fitted == fit_starts(loaded("seen"), places())
    assert fitted.origin == f"measured: {len(loaded('seen'))} recorded starts"


def test_the_margin_is_that_of_the_slowest_start(fitted):
    """The longest start over its computed time, and never below 1."""
    assert fitted.margin == pytest.approx(max(ratio(fitted, s, place_of(s, None)) for s in loaded("seen")))
    assert fitted.margin >= 1


@pytest.mark.engine
def test_a_start_times_a_plain_read_when_it_is_asked_to():
    """The record then has the seconds of the read and the sizes of the file."""
    start = cold_start(page_cache="full", time_read=True)
    assert 0 < start.read_seconds < 60
    assert start.file_bytes > start.model.tensor_bytes
    assert start.n_vocab > 0
    assert cold_start(page_cache="full").read_seconds is None
