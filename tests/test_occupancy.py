"""A GPU's memory as its driver counts it: the right card's, in order, and never a made-up constant."""

from dataclasses import replace

import pytest
from fakes import CPU_ONLY, ScriptedEngine, made_plan

import inferlab as lab
from inferlab import calibration, gaps, occupancy
from inferlab.calibration import Calibration
from inferlab.engine import Buffer
from inferlab.errors import DeviceUnavailable, InvalidSettings
from inferlab.gaps import Total, compare_total
from inferlab.machine import Device
from inferlab.models import tiny_model
from inferlab.occupancy import Occupied, context_bytes, occupied
from inferlab.settings import Settings
from inferlab.units import GIB, MIB

CARDS = tuple(Device(f"CUDA{i}", "a card", "gpu", 8 * GIB, 8 * GIB, "CUDA", f"0000:0{i}:00.0") for i in range(2))
BUFFERS = (Buffer("CUDA1", "weights", 10 * MIB), Buffer("CUDA1", "compute", MIB), Buffer("CPU", "weights", 5 * MIB))


class Driver(ScriptedEngine):
    """An engine whose worker takes memory of the second card: the buffers, and a context beside them.

    The desktop has 300 MiB of it, and an earlier model's are given back a reading late.
    """

    def __init__(self, context=400 * MIB, late=2, machine=None):
        super().__init__(machine=machine or replace(CPU_ONLY, devices=(*CPU_ONLY.devices, *CARDS)), buffers=BUFFERS)
        self.context, self.late, self.is_open = context, late, False

    def open(self, model, settings):
        self.is_open = True
        return super().open(model, settings)

    def close(self):
        self.is_open = False

    def used(self, card):
        assert card.id == "0000:01:00.0"
        self.late -= 1
        lingering = 2 * GIB if self.late >= 0 else 0
        return 300 * MIB + lingering + (11 * MIB + self.context if self.is_open else 0)


def unknown(card):
    raise DeviceUnavailable(f"The driver tells no memory in use of {card.name}.")


@pytest.fixture
def driver(monkeypatch):
    def made(**habits):
        found = Driver(**habits)
        monkeypatch.setattr(occupancy, "vram_used_bytes", found.used)
        monkeypatch.setattr(occupancy.time, "sleep", lambda _: None)
        return found

    return made


def test_what_the_driver_counts_beyond_the_buffers_is_the_context(driver):
    """Before is read when the engine's process is gone and its memory with it; the host's buffers do not count."""
    found = occupied(tiny_model(), Settings(devices=("CUDA1",)), engine=driver())
    assert found == Occupied("CUDA1", "gpu0", 300 * MIB, 711 * MIB, 11 * MIB)
    assert (found.grown_bytes, found.beyond_bytes) == (411 * MIB, 400 * MIB)
    assert context_bytes("CUDA1", driver()) == 400 * MIB


def test_the_card_has_its_name_in_plans(driver):
    """gpu1, when both cards share the model."""
    assert occupied(tiny_model(), Settings(n_ctx=64), "CUDA1", driver()).place == "gpu1"


def test_the_model_really_works_before_the_driver_is_asked(driver):
    """Kernels and workspaces come with the first prompt and the first tokens."""
    engine = driver()
    occupied(tiny_model(), Settings(n_ctx=64, devices=("CUDA1",)), engine=engine)
    assert engine.asked == [(list(range(56)), 8)]


@pytest.mark.parametrize(
    ("habits", "asked", "error", "said"),
    [
        ({}, {}, InvalidSettings, "use several devices: CUDA0, CUDA1. Say which one"),
        ({}, {"device": "CUDA5"}, InvalidSettings, "There is no device 'CUDA5'"),
        ({"context": -12 * MIB}, {"device": "CUDA1"}, DeviceUnavailable, "another program freed memory"),
        ({"machine": CPU_ONLY}, {}, DeviceUnavailable, "The settings use no GPU; they use none"),
    ],
)
def test_a_constant_that_cannot_be_measured_is_none(driver, habits, asked, error, said):
    """Several cards, one that is not there, a card that somebody else uses, or none at all."""
    with pytest.raises(error) as refused:
        context_bytes(**asked, engine=driver(**habits))
    assert said in str(refused.value)


def test_a_loopback_device_has_no_driver_that_counts(driver):
    """Its memory is a process's, and llama.cpp's buffers are all there is to say."""
    far = Device("RPC0", "loopback device", "gpu", backend="RPC")
    engine = driver(machine=replace(CPU_ONLY, devices=(far,)))
    with pytest.raises(DeviceUnavailable, match="use no GPU; they use RPC0"):
        occupied(tiny_model(), Settings(), engine=engine)


def test_a_calibration_keeps_each_cards_constant(driver, monkeypatch):
    """Where a driver counts; elsewhere there is none, and the calibration goes on."""
    work = calibration._Work(driver())
    work.context("CUDA1")
    assert work.contexts == {"CUDA1": 400 * MIB}
    monkeypatch.setattr(occupancy, "vram_used_bytes", unknown)
    work = calibration._Work(Driver())
    work.context("CUDA1")
    assert work.contexts == {}
    assert Calibration(CPU_ONLY, "2026-01-31", {}, context_bytes={"CUDA1": 1}).context_bytes == {"CUDA1": 1}
    assert Calibration(CPU_ONLY, "2026-01-31", {}).context_bytes == {}


# --- totals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("planned", "context", "measured", "difference", "agrees"),
    [
        ((8 * GIB, 8 * GIB), 400 * MIB, 8 * GIB + 400 * MIB, 0, True),
        ((1 * GIB, 1 * GIB), 0, 1 * GIB + 150 * MIB, 150 * MIB, True),
        ((1 * GIB, 1 * GIB), 0, 1 * GIB + 151 * MIB, 151 * MIB, False),
        ((1 * GIB, 1 * GIB), 400 * MIB, 1 * GIB, -400 * MIB, False),
        ((97 * GIB, 97 * GIB), 0, 100 * GIB, 3 * GIB, True),
        ((96 * GIB, 96 * GIB), 0, 100 * GIB, 4 * GIB, False),
        ((1 * GIB, 3 * GIB), 400 * MIB, 2 * GIB, 0, True),
        ((1 * GIB, 3 * GIB), 400 * MIB, 4 * GIB, 624 * MIB, False),
    ],
)
def test_a_total_agrees_within_3_percent_or_150_mib(planned, context, measured, difference, agrees):
    """Whichever is more; a bound is as far off as its nearer end."""
    found = Total("CUDA0", planned, context, measured)
    assert (found.difference_bytes, found.agrees) == (difference, agrees)


def test_a_plan_meets_what_the_driver_counted():
    """The plan's bytes on that device and the constant, beside the growth."""
    plan = made_plan()
    found = compare_total(plan, Occupied("CUDA0", "gpu0", 300 * MIB, 720 * MIB, 10 * MIB), 400 * MIB)
    held = plan.devices["gpu0"].total_bytes
    assert found == Total("CUDA0", (held, held), 400 * MIB, 420 * MIB)
    assert found.difference_bytes == 20 * MIB - held


def test_a_plan_for_another_machine_is_refused():
    """It has no such device."""
    with pytest.raises(InvalidSettings, match="The plan has host, gpu0, but gpu1 was measured"):
        gaps.compare_total(made_plan(), Occupied("CUDA1", "gpu1", 0, 0, 0), 0)


def test_the_names_are_the_librarys():
    """lab.occupied, lab.context_bytes and lab.compare_total."""
    assert (lab.occupied, lab.context_bytes, lab.compare_total) == (occupied, context_bytes, compare_total)
