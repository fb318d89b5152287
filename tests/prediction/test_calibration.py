"""Calibration: what a machine needs is found again, kept with its date, and refused where it is not known."""

from dataclasses import replace

import pytest
from fakes import CPU_ONLY
from speed_machine import LINK, TRUTH, known_machine

from inferlab.errors import InvalidSettings, RecordError
from inferlab.machine import Device, Link
from inferlab.prediction.calibrate import calibrate
from inferlab.prediction.calibration import LEAST_CHECKS, PHASES, Calibration


@pytest.fixture(scope="module")
def calibration(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        yield calibrate(save=False, engine=known_machine(patch, tmp_path_factory.mktemp("shapes")))


@pytest.mark.parametrize("name", TRUTH)
def test_rates_that_were_put_in_come_out(name, calibration):
    """On a machine whose rates are known, every rate of a matrix and of attention is found within 5 %."""
    true, told = TRUTH[name], calibration.devices[name]
    assert set(told.matrices) == set(true.matrices) - {"F32"}
    for kind in ("matrices", "attention"):
        for key, rates in getattr(told, kind).items():
            assert vars(rates) == pytest.approx(vars(getattr(true, kind)[key]), rel=0.05), key


@pytest.mark.parametrize("name", TRUTH)
def test_what_models_take_beside_operations_comes_out(name, calibration):
    """Seconds of a step, of a block and of a value."""
    true, told = TRUTH[name], calibration.devices[name]
    assert told.step_seconds == pytest.approx(true.step_seconds, rel=0.1)  # a device's includes its link's
    assert told.block_seconds == pytest.approx(true.block_seconds, rel=0.05)
    link_included = 0.15 if name.startswith("loopback") else 0.05
    assert told.value_seconds == pytest.approx(true.value_seconds, rel=link_included)


def test_what_a_split_waits_for_and_sends_comes_out(calibration):
    """A delayed link tells the waits, a slow one the bytes, a relay in no hurry what it adds by itself."""
    told = calibration.links["loopback/1"]
    assert told.split_seconds == pytest.approx(LINK.split_seconds, rel=0.3)
    assert told.split_waits == pytest.approx(LINK.split_waits, rel=0.2)
    assert told.split_bytes == pytest.approx(LINK.split_bytes, rel=0.3)
    assert told.relay_step_seconds == pytest.approx(LINK.relay_step_seconds, rel=0.1)
    assert told.relay_split_seconds == pytest.approx(LINK.relay_split_seconds, rel=0.1)


def test_a_calibration_is_kept_and_read_again(calibration, tmp_path, monkeypatch):
    """Everything is in its file: the host it was made on, the disk's rate, and the runs with every sample."""
    assert calibration.machine == CPU_ONLY
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path))
    assert Calibration.load(calibration.save()) == calibration
    assert Calibration.load() == calibration
    assert all(timing.decode_seconds for timing in calibration.timings)
    assert calibration.date in calibration.badge
    assert calibration.disk_bytes_per_second is None or calibration.disk_bytes_per_second > 0


def test_without_a_calibration_it_says_how_to_get_one(tmp_path, monkeypatch):
    """A missing file, or one that is something else, is an error with a remedy."""
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path))
    with pytest.raises(RecordError, match=r"lab\.calibrate\(\)"):
        Calibration.load()
    other = tmp_path / "other.json"
    other.write_text("{}")
    with pytest.raises(RecordError, match="is not a record of this version"):
        Calibration.load(other)


def test_a_device_is_looked_up_by_what_it_is(calibration):
    """The nearest number of host threads; the loopback device for an RPC one; an unknown card is refused."""
    assert calibration.host(None).n_threads == calibration.host(8).n_threads == 2
    assert calibration.host(1).n_threads == 1
    assert calibration.calibrated_name(Device("RPC0", "127.0.0.1:9", "gpu", backend="RPC")) == "loopback/1"
    with pytest.raises(InvalidSettings, match="CUDA0 was not calibrated"):
        calibration.rates(calibration.calibrated_name(Device("CUDA0", "a card", "gpu", backend="CUDA")))


def test_a_slowed_link_changes_rate_and_waits(calibration):
    """What a link reaches replaces the rate, what its round trip takes longer is added, and what its relay adds."""
    kept = calibration.links["loopback/1"]
    slow = calibration.link("loopback/1", Link("x", 0.1, None, 0.09, 0.0003))
    assert slow.bytes_per_second == 0.09e9
    assert slow.extra_seconds == pytest.approx(0.0003 - kept.relay_round_trip_seconds)
    assert slow.relay_step_seconds == kept.relay_step_seconds
    direct = calibration.link("loopback/1")
    assert direct.bytes_per_second == kept.bytes_per_second
    assert direct.relay_step_seconds == direct.relay_split_seconds == direct.extra_seconds == 0


def test_a_machine_that_is_as_its_rates_say_needs_no_correction(calibration):
    """The checks take what their operations do, and two rounds the same."""
    assert len(calibration.checks) >= LEAST_CHECKS
    for phase in PHASES:
        assert calibration.correction(phase) == pytest.approx(1.0, abs=0.05)
        assert calibration.correction(phase, "loopback/1") == pytest.approx(1.0, abs=0.1)
        assert calibration.repeatability(phase) == pytest.approx(0.0)
        assert calibration.bands[phase] < 0.1


def test_a_band_is_the_largest_error_of_checks_left_out_in_turn(calibration):
    """One check twice as slow as the others is corrected by the others alone, and sets the band."""
    slow = replace(
        calibration.checks[0], measured={p: tuple(2 * s for s in t) for p, t in calibration.checks[0].measured.items()}
    )
    disturbed = replace(calibration, checks=(slow, *calibration.checks[1:])).with_bands()
    assert disturbed.bands["decode"] == pytest.approx(1.0, abs=0.1)
    assert disturbed.correction("decode") == pytest.approx(calibration.correction("decode"), abs=0.02)


def test_a_device_is_corrected_by_its_own_checks(calibration):
    """Every check on the loopback device half as fast: its correction doubles, the host's stays."""
    checks = [
        replace(c, predicted={p: s / 2 for p, s in c.predicted.items()}) if c.place == "loopback" else c
        for c in calibration.checks
    ]
    slow = replace(calibration, checks=tuple(checks))
    assert slow.correction("decode", "loopback/1") == pytest.approx(2 * calibration.correction("decode", "loopback/1"))
    assert slow.correction("decode") == calibration.correction("decode")


def test_a_band_allows_for_another_time(calibration):
    """Rounds that lie a tenth apart widen the band by a tenth."""
    checks = [
        replace(c, measured={p: (s[0], 1.05 * s[0], 1.1 * s[0]) for p, s in c.measured.items()})
        for c in calibration.checks
    ]
    unsteady = replace(calibration, checks=tuple(checks)).with_bands()
    assert unsteady.repeatability("decode") == pytest.approx(0.1)
    assert unsteady.bands["decode"] == pytest.approx(1.1 * (1 + max(unsteady.errors("decode"))) - 1)


def test_without_checks_there_is_no_band(calibration):
    """A calibration of operations alone promises a factor of two."""
    assert replace(calibration, checks=()).with_bands().bands == {"prefill": 1.0, "decode": 1.0}
