"""Calibration: what a machine needs is found again, kept with its date, and refused where it is not known."""

import pytest
from fakes import CPU_ONLY
from speed_machine import LINK, TRUTH, known_machine

from inferlab.errors import InvalidSettings, RecordError
from inferlab.machine import Device, Link
from inferlab.prediction.calibrate import calibrate
from inferlab.prediction.calibration import Calibration


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        yield calibrate(save=False, engine=known_machine(patch, tmp_path_factory.mktemp("shapes")))


@pytest.mark.parametrize("name", TRUTH)
def test_rates_that_were_put_in_come_out(name, found):
    """On a machine whose rates are known, types are found within 5 %, attention within 10 %."""
    true, told = TRUTH[name], found.devices[name]
    assert told.step_seconds == pytest.approx(true.step_seconds, rel=0.5)
    for kind, rates in told.types.items():
        assert rates.seconds_per_byte == pytest.approx(true.types[kind].seconds_per_byte, rel=0.05), kind
        assert rates.seconds_per_weight_token == pytest.approx(true.types[kind].seconds_per_weight_token, rel=0.05)
        assert rates.seconds_per_value_token == pytest.approx(true.types[kind].seconds_per_value_token, rel=0.1), kind
    for way, rates in told.attention.items():
        assert rates.seconds_per_value == pytest.approx(true.attention[way].seconds_per_value, rel=0.1), way
        assert rates.seconds_per_batch_value == pytest.approx(true.attention[way].seconds_per_batch_value, rel=0.1)


def test_what_a_split_waits_for_and_sends_comes_out(found):
    """A delayed link tells the waits, a slow one the bytes, a relay in no hurry what it adds by itself."""
    told = found.links["loopback/1"]
    assert told.split_seconds == pytest.approx(LINK.split_seconds, rel=0.3)
    assert told.split_waits == pytest.approx(LINK.split_waits, rel=0.2)
    assert told.split_bytes == pytest.approx(LINK.split_bytes, rel=0.3)
    assert told.relay_step_seconds == pytest.approx(LINK.relay_step_seconds, rel=0.1)
    assert told.relay_split_seconds == pytest.approx(LINK.relay_split_seconds, rel=0.1)


def test_a_calibration_is_kept_and_read_again(found, tmp_path, monkeypatch):
    """Everything is in its file, the disk's rate too, and the runs with every sample; the machine's own is kept."""
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path))
    assert Calibration.load(found.save()) == found
    assert Calibration.load() == found
    assert all(timing.decode_seconds for timing in found.timings)
    assert found.date in found.badge
    assert found.disk_bytes_per_second is None or found.disk_bytes_per_second > 0


def test_without_a_calibration_it_says_how_to_get_one(tmp_path, monkeypatch):
    """A missing file, or one that is something else, is an error with a remedy."""
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path))
    with pytest.raises(RecordError, match=r"lab\.calibrate\(\)"):
        Calibration.load()
    other = tmp_path / "other.json"
    other.write_text("{}")
    with pytest.raises(RecordError, match="is not a record of this version"):
        Calibration.load(other)


def test_a_device_is_looked_up_by_what_it_is(found):
    """The nearest number of host threads; the loopback device for an RPC one; an unknown card is refused."""
    assert found.host(None).n_threads == found.host(8).n_threads == 2
    assert found.host(1).n_threads == 1
    assert found.calibrated_name(Device("RPC0", "127.0.0.1:9", "gpu", backend="RPC")) == "loopback/1"
    with pytest.raises(InvalidSettings, match="CUDA0 was not calibrated"):
        found.rates(found.calibrated_name(Device("CUDA0", "a card", "gpu", backend="CUDA")))


def test_a_slowed_link_changes_rate_and_waits(found):
    """What a link reaches replaces the rate, what its round trip takes longer is added, and what its relay adds."""
    kept = found.links["loopback/1"]
    slow = found.link("loopback/1", Link("x", 0.1, None, 0.09, 0.0003))
    assert slow.bytes_per_second == 0.09e9
    assert slow.extra_seconds == pytest.approx(0.0003 - kept.relay_round_trip_seconds)
    assert slow.relay_step_seconds == kept.relay_step_seconds
    direct = found.link("loopback/1")
    assert direct.bytes_per_second == kept.bytes_per_second
    assert direct.relay_step_seconds == direct.relay_split_seconds == direct.extra_seconds == 0


def test_the_machine_of_a_calibration_is_its_engines(found):
    """The record names the host it was made on."""
    assert found.machine == CPU_ONLY


def test_a_band_is_wider_than_every_miss_of_the_check(found):
    """On a machine that is as its rates say, the check misses little and the band is the least one."""
    assert found.bands == {"prefill": 0.15, "decode": 0.15}
    assert sum(timing.device.startswith("check") for timing in found.timings) == 4
