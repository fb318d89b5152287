"""Rates of links: what is read, how often, and what is left out where it cannot be measured."""

import pytest
from fakes import made_link_rates

from inferlab.engine.client import LlamaEngine
from inferlab.errors import DeviceUnavailable, InvalidSettings
from studies.links_and_rates import link_rates
from studies.links_and_rates.link_rates import CacheLevel


def test_a_cache_has_the_rate_of_the_largest_block_that_half_fills_it():
    """16 KiB for L1 of 32 KiB; 512 KiB for L2 of 1 MiB; none where no size was read between two levels."""
    found = made_link_rates()
    assert [found.cache_rate(cache) for cache in found.caches] == [100e9, 80e9]
    assert found.cache_rate(CacheLevel(3, 2**21)) is None


def test_rungs_have_a_place_and_a_device_without_memory_of_its_own_has_none():
    """A loopback device is a network; its memory is the host's."""
    rates = made_link_rates().rates
    assert rates["this disk"] == ("disk", 2e9)
    assert rates["to loopback device"] == ("network", 1e9)
    assert rates["memory of loopback device"] == ("VRAM", None)


@pytest.mark.parametrize(
    ("changes", "missing"),
    [({}, ()), ({"disk": None, "devices": ()}, ("disk", "device")), ({"caches": ()}, ("caches",))],
)
def test_what_could_not_be_measured_is_named(changes, missing):
    """A page shows the recorded run where anything is missing."""
    assert made_link_rates(**changes).missing == missing


def test_a_read_sweep_counts_every_repetition(monkeypatch):
    """In a call of one second, 64 MiB are read, however small the block is; a larger block is read once."""
    monkeypatch.setattr(link_rates, "_least_seconds", lambda work, repeats: 1.0)
    found = link_rates.read_sweep([2**14, 2**27])
    assert [(one.n_bytes, one.bytes_per_second) for one in found] == [(2**14, 2**26), (2**14 * 2**13, 2**27)]


@pytest.mark.timed
def test_the_repeated_block_is_read_as_often_as_said(monkeypatch):
    """A block of a size takes about as long as a block of twice the size that is repeated half as often."""
    timed = link_rates.read_sweep([2**16, 2**17], repeats=3)
    assert all(1e8 < one.bytes_per_second < 1e13 for one in timed)
    assert 0.1 < timed[0].bytes_per_second / timed[1].bytes_per_second < 10


def test_sizes_double_up_to_the_most():
    """From 16 KiB; a limit below it still gives one size."""
    assert link_rates.swept_sizes(2**16) == [2**14, 2**15, 2**16]
    assert link_rates.swept_sizes(1) == [2**14]


@pytest.mark.parametrize("size", [0, 12])
def test_a_size_without_whole_integers_is_refused(size):
    """Blocks consist of 8-byte integers."""
    with pytest.raises(InvalidSettings, match="multiples of 8"):
        link_rates.read_sweep([size])


@pytest.mark.timed
def test_a_file_is_read_from_the_page_cache(tmp_path):
    """The whole file counts; no memory here is slower than 10 MB/s."""
    path = tmp_path / "file"
    path.write_bytes(bytes(2**20))
    assert 1e7 < link_rates.page_cache_rate(path) < 1e13


def test_the_test_file_has_the_size_and_is_deleted(tmp_path):
    """Nothing stays in the reader's folder."""
    with link_rates._random_file(tmp_path, 5 * 2**20) as path:
        assert path.stat().st_size == 5 * 2**20
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("folder", "n_bytes", "said"), [(None, 0, "no file to read"), ("/no/folder", 8, "cannot hold")]
)
def test_a_file_that_cannot_be_written_is_refused(folder, n_bytes, said):
    """The error names the size or the folder."""
    with pytest.raises(InvalidSettings, match=said), link_rates._random_file(folder, n_bytes):
        pass


@pytest.mark.engine
def test_a_machine_without_a_device_still_has_its_other_rates(tmp_path, monkeypatch):
    """Without the RPC backend the device is missing, and nothing else."""

    def refuse(**_):
        raise DeviceUnavailable("no RPC backend")

    monkeypatch.setattr(link_rates, "loopback_device", refuse)
    engine = LlamaEngine()
    found = link_rates.link_rates(tmp_path, 2**20, engine)
    engine.close()
    assert found.devices == ()
    assert found.host_ram > 0
    assert found.page_cache > 0
