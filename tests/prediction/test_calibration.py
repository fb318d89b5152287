"""Calibration: what a machine needs is found again, kept with its date, and refused where it is not known."""

from dataclasses import replace

import pytest
from fakes import CPU_ONLY
from speed_machine import LINK, TRUTH, known_machine

from inferlab.engine.protocol import Pass
from inferlab.errors import InvalidSettings, RecordError
from inferlab.machine import Device, Link
from inferlab.prediction.calibrate import ROUNDS, _CalibrationRuns, calibrate
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


def test_a_band_holds_nine_of_ten_rounds_of_checks_left_out_in_turn(calibration):
    """A check twice as slow as the others is corrected by the others alone; as two of ten, such checks set the band."""
    slow = [
        replace(c, measured={p: tuple(2 * s for s in t) for p, t in c.measured.items()}) for c in calibration.checks
    ]
    n = len(slow) // 5 + 1
    disturbed = replace(calibration, checks=(*slow[:1], *calibration.checks[1:])).with_bands()
    assert disturbed.correction("decode") == pytest.approx(calibration.correction("decode"), abs=0.02)
    assert max(disturbed.errors("decode")) == pytest.approx(1.0, abs=0.1)
    assert disturbed.bands["decode"] < 0.1
    spread = [*slow[:2], *calibration.checks[2:6], *slow[6:8], *calibration.checks[8:12], *slow[12 : 8 + n]]
    mixed = replace(calibration, checks=(*spread, *calibration.checks[len(spread) :])).with_bands()
    assert mixed.bands["decode"] == pytest.approx(1.0, abs=0.15)


def test_a_device_is_corrected_by_its_own_checks(calibration):
    """Every check on the loopback device half as fast: its correction doubles, the host's stays."""
    checks = [
        replace(c, predicted={p: s / 2 for p, s in c.predicted.items()}) if c.place == "loopback" else c
        for c in calibration.checks
    ]
    slow = replace(calibration, checks=tuple(checks))
    assert slow.correction("decode", "loopback/1") == pytest.approx(2 * calibration.correction("decode", "loopback/1"))
    assert slow.correction("decode") == calibration.correction("decode")


def test_each_number_of_threads_has_its_own_correction(calibration):
    """Threads that wait for each other slow two down and not one; a number without checks takes those of its place."""
    checks = [
        replace(c, predicted={p: s / 2 for p, s in c.predicted.items()}) if c.device == "host/2" else c
        for c in calibration.checks
    ]
    slow = replace(calibration, checks=tuple(checks))
    assert slow.correction("decode", "host/1") == calibration.correction("decode", "host/1")
    assert slow.correction("decode", "host/2") == pytest.approx(2 * calibration.correction("decode", "host/2"))
    assert slow.correction("decode", "host/4") == slow.correction("decode")
    assert max(slow.errors("decode")) == pytest.approx(max(calibration.errors("decode")))


@pytest.mark.parametrize(("slow_rounds", "rates_slow_down"), [((1,), False), ((1, 2), True), ((0, 1), True)])
def test_a_slow_time_of_the_machine_is_no_property_of_models(slow_rounds, rates_slow_down, monkeypatch, tmp_path):
    """One slow round changes no rate. If most are slow the rates are, and the checks are not blamed a second time."""
    engine, rounds = known_machine(monkeypatch, tmp_path), []
    slow_in_turns(engine, lambda: len(rounds) - 1 in slow_rounds, 3.0, monkeypatch)
    take_round = _CalibrationRuns.take_round

    def counted(self, place):
        rounds.extend([None] if place.key == "host/1" else [])
        take_round(self, place)

    monkeypatch.setattr(_CalibrationRuns, "take_round", counted)
    disturbed = calibrate(save=False, engine=engine)
    assert len(rounds) == ROUNDS
    slowness = 3.0 if rates_slow_down else 1.0
    told, true = disturbed.devices["host/2"].matrices["Q8_0"], TRUTH["host/2"].matrices["Q8_0"]
    assert told.seconds_per_byte == pytest.approx(slowness * true.seconds_per_byte, rel=0.05)
    for name in TRUTH:
        assert disturbed.correction("decode", name) == pytest.approx(1.0, abs=0.1)
        assert disturbed.correction("prefill", name) == pytest.approx(1.0, abs=0.1)
    assert disturbed.repeatability("decode") == pytest.approx(2.0, abs=0.1)
    assert disturbed.bands["decode"] >= 1.9


def slow_in_turns(engine, is_slow, factor, monkeypatch):
    """Everything that the engine does takes `factor` times as long while `is_slow`."""

    def slowed(work):
        def call(*args, **kwargs):
            taken, times = work(*args, **kwargs), factor if is_slow() else 1.0
            if isinstance(taken, Pass):
                seconds = tuple(times * s for s in taken.decode_seconds)
                return replace(taken, prefill_seconds=times * taken.prefill_seconds, decode_seconds=seconds)
            if isinstance(taken, tuple):
                return [times * s for s in taken[0]], taken[1]
            return [times * s for s in taken]

        return call

    for name in ("generate", "multiply", "attend"):
        monkeypatch.setattr(engine, name, slowed(getattr(engine, name)))


def test_a_band_allows_for_another_time(calibration):
    """Rounds that lie a fifth apart, to both sides of the middle one, give a band of a tenth."""
    checks = [
        replace(c, measured={p: (s[0] / 1.1, s[0], 1.1 * s[0]) for p, s in c.measured.items()})
        for c in calibration.checks
    ]
    unsteady = replace(calibration, checks=tuple(checks)).with_bands()
    assert unsteady.repeatability("decode") == pytest.approx(0.21)
    assert 0.1 <= unsteady.bands["decode"] <= 1.1 * (1 + max(unsteady.errors("decode"))) - 1


def test_without_checks_there_is_no_band(calibration):
    """A calibration of operations alone promises a factor of two."""
    assert replace(calibration, checks=()).with_bands().bands == {"prefill": 1.0, "decode": 1.0}
