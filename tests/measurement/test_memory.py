"""Where bytes are: llama.cpp's buffers, the driver's count of a GPU, and the process's pages in RAM."""

import sys
from dataclasses import replace

import pytest
from fakes import CPU_ONLY, ScriptedEngine, made_plan

import inferlab as lab
from inferlab.engine.client import LlamaEngine
from inferlab.engine.log import Buffer
from inferlab.errors import DeviceUnavailable, InvalidSettings
from inferlab.machine import Device
from inferlab.measurement import memory
from inferlab.measurement.memory import (
    Occupied,
    Residence,
    context_bytes,
    huge_page_policy,
    occupied,
    read_residence,
    reserved_bytes,
    resident,
)
from inferlab.model.find import tiny_model
from inferlab.prediction import calibrate
from inferlab.prediction.calibration import Calibration
from inferlab.prediction.compare import Total, compare_total
from inferlab.prediction.memory import kv_cache_bytes
from inferlab.settings import Settings
from inferlab.units import GIB, MIB

TINY = lab.tiny_model()


@pytest.mark.parametrize(("name", "share"), [("f16", 1), ("q8_0", 34 / 64), ("q4_0", 18 / 64)])
def test_only_the_caches_own_type_and_context_set_its_size(engine, name, share):
    """The type of the cache scales it by the bytes of its blocks."""
    settings = lab.Settings(n_ctx=1024, type_k=name, type_v=name)
    reserved = reserved_bytes(TINY, settings, engine=engine)
    assert reserved == pytest.approx(share * 3 * 2**20, abs=0.0051 * 2**20)
    assert reserved == pytest.approx(kv_cache_bytes(lab.read_gguf(TINY), settings), abs=0.0051 * 2**20)


@pytest.mark.parametrize("kind", ["weights", "compute", "output"])
def test_every_kind_has_a_size(engine, kind):
    """Not only the cache can be asked for."""
    assert reserved_bytes(TINY, lab.Settings(n_ctx=1024), kind, engine) > 0


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
    raise DeviceUnavailable(f"The driver reports no memory in use of {card.name}.")


@pytest.fixture
def driver(monkeypatch):
    def made(**habits):
        found = Driver(**habits)
        monkeypatch.setattr(memory, "vram_used_bytes", found.used)
        monkeypatch.setattr(memory.time, "sleep", lambda _: None)
        return found

    return made


def test_what_the_driver_counts_beyond_the_buffers_is_the_context(driver):
    """Before is read when the engine's process is gone and its memory with it; the host's buffers do not count."""
    found = occupied(tiny_model(), Settings(devices=("CUDA1",)), engine=driver())
    assert found == Occupied("CUDA1", "gpu0", 300 * MIB, 711 * MIB, 11 * MIB)
    assert (found.grown_bytes, found.outside_buffers_bytes) == (411 * MIB, 400 * MIB)
    assert context_bytes("CUDA1", driver()) == 400 * MIB


def test_a_pass_runs_before_the_driver_is_read(driver):
    """Kernels and workspaces come with the first prompt and tokens; with two cards it is gpu1 in plans."""
    engine = driver()
    assert occupied(tiny_model(), Settings(n_ctx=64), "CUDA1", engine).place == "gpu1"
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
    runs = calibrate._CalibrationRuns(driver())
    runs.measure_context_bytes("CUDA1")
    assert runs.contexts == {"CUDA1": 400 * MIB}
    monkeypatch.setattr(memory, "vram_used_bytes", unknown)
    runs = calibrate._CalibrationRuns(Driver())
    runs.measure_context_bytes("CUDA1")
    assert runs.contexts == {}
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
        compare_total(made_plan(), Occupied("CUDA1", "gpu1", 0, 0, 0), 0)


SMAPS = """\
7f00-7f10 r--s 00000000 fe:00 1234                       {file}
Size:               1024 kB
Rss:                 600 kB
Pss:                 300 kB
Anonymous:             0 kB
AnonHugePages:         0 kB
FilePmdMapped:         0 kB
Locked:               64 kB
VmFlags: rd sh
7f20-7f30 rw-p 00000000 00:00 0
Rss:                4096 kB
Pss:                4096 kB
Anonymous:          4096 kB
AnonHugePages:      2048 kB
Locked:                0 kB
7f40-7f50 r--s 00000000 fe:00 99                         /other file.so
Rss:                 100 kB
Pss:                  10 kB
Anonymous:             8 kB
"""


def test_pages_of_a_process_are_counted_by_kind(tmp_path):
    """Pages of the file count once whole and once shared out; memory of its own and locked pages add up over all."""
    file = tmp_path / "a model.gguf"
    (tmp_path / "42").mkdir()
    (tmp_path / "42" / "smaps").write_text(SMAPS.format(file=file))
    assert read_residence(42, file, tmp_path) == Residence(
        600 * 1024, 300 * 1024, 4104 * 1024, 2048 * 1024, 0, 64 * 1024
    )


def test_where_the_system_reports_nothing_the_answer_is_none(tmp_path):
    """No process, no Linux: unknown, not 0; the policy for huge pages is the word in brackets."""
    assert read_residence(42, "x", tmp_path) is None
    assert huge_page_policy(tmp_path / "missing") is None
    (tmp_path / "enabled").write_text("always [madvise] never\n")
    assert huge_page_policy(tmp_path / "enabled") == "madvise"


@pytest.mark.engine
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="smaps is Linux's")
def test_a_mapped_model_is_in_ram_before_the_first_token():
    """Nearly all of the file's weights are resident right after loading; without mapping none of its pages are."""
    engine = LlamaEngine()
    try:
        weights = lab.read_gguf(lab.tiny_model()).tensor_bytes
        mapped = resident("tiny", Settings(n_ctx=256, load_mode="mmap"), engine)
        read = resident("tiny", Settings(n_ctx=256, load_mode="none"), engine)
        assert mapped.file_bytes > 0.9 * weights
        assert read.file_bytes == 0
        assert mapped.locked_bytes == 0
    finally:
        engine.close()
