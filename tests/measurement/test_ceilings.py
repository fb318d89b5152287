"""Ceilings: how they are computed from the times of operations, and real operations on the host."""

import os

import pytest
from marks import needs_rpc

from inferlab.engine.loopback import loopback_device
from inferlab.errors import EngineRefused
from inferlab.machine import Ceiling
from inferlab.measurement import ceilings, page_cache
from inferlab.measurement.ceilings import LinkCeiling


class Clock:
    """An engine whose operations take scripted seconds."""

    def __init__(self):
        self.asked = []

    def multiply(self, device, n_threads=None, **work):
        self.asked.append((device, n_threads, work))
        return [0.1, 0.2, 0.4], "CPU_REPACK" if work["type"] == "Q4_K" else "CPU"

    def transfer(self, device, n_bytes, seconds):
        return ([0.002], [0.004]) if n_bytes > 4 else ([3e-5], [2e-5])


def test_a_devices_roofs_are_bytes_and_operations_per_second():
    """Bandwidth from the best pass over F16 matrices, a matrix rate from the best shape, two FLOP a weight."""
    clock = Clock()
    found = ceilings.ceiling("CUDA0", types=("Q4_K",), engine=clock)
    n_matrices = clock.asked[0][2]["n_matrices"]
    assert found.bandwidth_bytes_per_second == pytest.approx(n_matrices * 2 * 4096**2 / 0.1)
    assert found.matrix_flops_per_second == {"Q4_K": pytest.approx(2 * 4096**2 * 512 / 0.1)}
    assert [asked[0] for asked in clock.asked] == ["CUDA0"] * (1 + len(ceilings.PRODUCTS))


def test_the_highest_of_several_measurements_counts():
    """Each rate comes from the measurement that disturbed it least."""
    before, after = Ceiling("host", 2, 20e9, {"F16": 150e9}), Ceiling("host", 2, 30e9, {"F16": 140e9})
    assert ceilings.highest(before, after) == Ceiling("host", 2, 30e9, {"F16": 150e9})


def test_a_point_is_held_to_the_lower_roof():
    """Left of the ridge, FLOP over bytes per second, bandwidth times intensity, right of it the matrix rate."""
    roof = Ceiling("host", 2, 20e9, {"F16": 200e9})
    assert roof.ridge("F16") == 10
    assert [ceilings.allowed(roof, "F16", intensity) for intensity in (2, 100)] == [40e9, 200e9]


def test_a_link_has_two_directions_and_a_round_trip():
    """Large copies give the rates, copies of four bytes the round trip."""
    assert ceilings.link("CUDA0", engine=Clock()) == LinkCeiling(ceilings.BLOCK / 0.002, ceilings.BLOCK / 0.004, 2e-5)


@pytest.mark.timed
def test_the_hosts_memory_is_read_by_all_threads(monkeypatch):
    """A real block is read; no memory here is slower than 100 MB/s or faster than 10 TB/s."""
    monkeypatch.setattr(ceilings, "block_bytes", lambda: 2**22)
    assert 1e8 < ceilings.host_bandwidth(2, 0.01) < 1e13


def test_a_block_is_larger_than_caches_and_leaves_memory(monkeypatch):
    """Four times the last-level cache, within bounds; an eighth of a small memory."""
    monkeypatch.setattr(ceilings, "last_level_cache_bytes", lambda: 128 * 2**20)
    monkeypatch.setattr(ceilings, "ram_bytes", lambda: 64 * 2**30)
    assert ceilings.block_bytes() == 512 * 2**20
    monkeypatch.setattr(ceilings, "ram_bytes", lambda: 2**30)
    assert ceilings.block_bytes() == 2**27


def test_a_disk_that_keeps_the_pages_is_not_measured(tmp_path, monkeypatch):
    """Pages that stay cached are not read from the disk, so the rate is unknown."""
    path = tmp_path / "file"
    path.write_bytes(os.urandom(2**20))
    monkeypatch.setattr(ceilings, "empty_cache", lambda path: 0.5)
    assert ceilings.disk(path) is None
    monkeypatch.setattr(ceilings, "empty_cache", lambda path: 0)
    assert ceilings.disk(path) > 0
    assert page_cache.fill_cache(path) in (1.0, None)


def test_ggml_multiplies_on_the_host(engine):
    """Products of every calibrated type run in the worker, without a model, and each pass has its time."""
    for kind in ceilings.TYPES:
        work = {"type": kind, "n_rows": 64, "n_cols": 256, "n_tokens": 2, "n_matrices": 2}
        times, _ = engine.multiply("CPU", 1, **work, seconds=0.0)
        assert len(times) == 3
        assert min(times) > 0


def test_an_unknown_device_is_refused_with_the_known_ones(engine):
    """The answer lists what there is."""
    with pytest.raises(EngineRefused, match=r"no device 'TPU7'.*CPU"):
        engine.multiply("TPU7", type="F16", n_rows=1, n_cols=1, n_tokens=1, n_matrices=1, seconds=0)


@pytest.mark.timed
@needs_rpc
def test_a_far_device_has_computed_when_its_time_ends(engine):
    """On a loopback device the result is waited for: passes there cannot be faster than a round trip."""
    with loopback_device(n_threads=1) as device:
        trip = ceilings.link(device.endpoint, 0.02, engine).round_trip_seconds
        work = {"type": "F16", "n_rows": 512, "n_cols": 512, "n_tokens": 8, "n_matrices": 1}
        times, _ = engine.multiply(device.endpoint, **work, seconds=0.01)
    assert 1e-6 < trip < 1
    assert sorted(times)[len(times) // 2] > trip / 4
