"""Limiting a device's memory: what is left is the limit, and a limit without effect is an error."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from fakes import CPU_ONLY, ScriptedEngine
from marks import BACKENDS
from small_models import write_model

import inferlab as lab
from inferlab.engine import measurement_queue
from inferlab.engine.client import LlamaEngine, described_device
from inferlab.engine.limit_vram import limit_vram
from inferlab.engine.loopback import loopback_device
from inferlab.errors import DeviceUnavailable, EngineRefused, InvalidSettings
from inferlab.machine import Device
from inferlab.prediction import fit
from inferlab.prediction.memory.request import planned_devices
from inferlab.settings import Settings
from inferlab.units import GB, GIB, MIB

LINUX_WITH_RPC = pytest.mark.skipif(
    sys.platform != "linux" or "rpc" not in BACKENDS, reason="needs Linux and llama.cpp's RPC backend"
)


class Card(ScriptedEngine):
    """An engine on a machine with cards whose free memory changes; `holder` is the worker that takes some of it.

    context_bytes  what any process takes of a card by using it
    gives          share of what is allocated that is then missing for others
    """

    def __init__(self, *free_bytes, total=24 * GIB, context_bytes=400 * MIB, gives=1.0, refuses=None):
        super().__init__()
        self.free = {f"CUDA{i}": free for i, free in enumerate(free_bytes)}
        self.total, self.context_bytes, self.gives, self.refuses = total, context_bytes, gives, refuses
        self.held = 0

    def machine(self):
        cards = [
            described_device(Device(name, "Example GPU", "gpu", self.total, free, "CUDA"))
            for name, free in self.free.items()
        ]
        return replace(CPU_ONLY, devices=(*CPU_ONLY.devices, *cards))

    def holder(self):
        card = self

        class Holder:
            def hold_memory(self, device, free_bytes):
                if card.refuses:
                    raise EngineRefused(card.refuses)
                card.held = card.free[device] - free_bytes
                card.free[device] -= int(card.gives * card.held)
                return card.held - card.context_bytes

            def close(self):
                card.free["CUDA0"] += int(card.gives * card.held)
                card.held = 0

        return Holder()


@pytest.mark.parametrize(("asked", "n_bytes"), [("8GiB", 8 * GIB), ("8 GB", 8 * GB), (8 * GIB, 8 * GIB)])
def test_a_card_of_24_becomes_one_of_8(asked, n_bytes):
    """What others use stays used: the limit is on the card as it is sold, and the machine shows it."""
    engine = Card(23 * GIB)
    with limit_vram(asked, engine=engine, holder=engine.holder()) as limit:
        card = engine.machine().gpus[0]
        assert (limit.device, limit.limited_to_bytes, limit.held_bytes) == ("CUDA0", n_bytes, 24 * GIB - n_bytes)
        assert card.free_bytes == n_bytes - GIB
        assert card.limited_to_bytes == n_bytes
        assert card.memory_text.startswith("24.00 GiB, limited to ")
        assert "CUDA0 limited to" in engine.machine().badge("2026-01-31")
    after = engine.machine().gpus[0]
    assert (after.free_bytes, after.limited_to_bytes, engine.held) == (23 * GIB, None, 0)


def test_an_error_inside_the_block_gives_the_memory_back():
    """As does its end."""
    engine = Card(24 * GIB)
    with pytest.raises(ZeroDivisionError), limit_vram("8GiB", engine=engine, holder=engine.holder()):
        raise ZeroDivisionError
    assert engine.machine().gpus[0].free_bytes == 24 * GIB
    assert engine.machine().gpus[0].limited_to_bytes is None


@pytest.mark.parametrize(
    ("free", "habits", "asked", "error", "said"),
    [
        ((6 * GIB,), {"total": 6 * GIB}, {}, InvalidSettings, "CUDA0 has 6.00 GiB, which is not more than 8.00 GiB"),
        ((9 * GIB,), {}, {}, DeviceUnavailable, "needs 16.00 GiB of CUDA0 free, but only 9.00 GiB are free"),
        ((None,), {}, {}, DeviceUnavailable, "does not report its memory"),
        ((24 * GIB,), {"gives": 0.0}, {}, DeviceUnavailable, "only 0 B fewer are free for others"),
        ((24 * GIB,), {"gives": 1.2}, {}, DeviceUnavailable, "another program uses the card"),
        ((24 * GIB,), {"refuses": "CUDA0: no."}, {}, DeviceUnavailable, "could not be allocated: CUDA0: no."),
        ((24 * GIB,), {}, {"limit": 0}, InvalidSettings, "leaves nothing to use"),
        ((24 * GIB,), {}, {"limit": "eight"}, InvalidSettings, "is no size"),
        ((24 * GIB,), {}, {"device": "CUDA3"}, DeviceUnavailable, "There is no GPU 'CUDA3'; llama.cpp sees CUDA0."),
        ((24 * GIB, 24 * GIB), {}, {}, InvalidSettings, "several GPUs: CUDA0, CUDA1. Say which one"),
        ((), {}, {}, DeviceUnavailable, "There is no GPU whose memory could be limited; llama.cpp sees none"),
        ((24 * GIB,), {}, {"device": "192.168.1.20:50052"}, DeviceUnavailable, "serves one client at a time"),
    ],
)
def test_a_limit_that_cannot_be_had_is_refused(free, habits, asked, error, said):
    """Too small or too full a card, one whose memory is not its own, one that is not there; and nothing stays held."""
    engine = Card(*free, **habits)
    with (
        pytest.raises(error) as refused,
        limit_vram(**{"limit": "8GiB", **asked}, engine=engine, holder=engine.holder()),
    ):
        pass
    assert said in str(refused.value)
    assert engine.held == 0
    assert all(gpu.limited_to_bytes is None for gpu in engine.machine().gpus)


def test_users_of_one_card_limit_it_one_after_the_other(tmp_path, monkeypatch):
    """Where measurements are queued, a limit has the turn until its block ends, so nobody else finds the card full."""
    monkeypatch.setenv(measurement_queue.VARIABLE, str(tmp_path))
    engine = Card(24 * GIB)
    with limit_vram("8GiB", engine=engine, holder=engine.holder()):
        behind = measurement_queue.Place(tmp_path)
        assert behind.n_ahead() == 1
    assert behind.n_ahead() == 0
    behind.leave()


def test_one_limit_at_a_time():
    """A second one on the same card would count what the first one holds as used."""
    engine = Card(24 * GIB)
    with (
        limit_vram("8GiB", engine=engine, holder=engine.holder()),
        pytest.raises(InvalidSettings, match="already"),
        limit_vram("6GiB", engine=engine, holder=engine.holder()),
    ):
        pass


# --- real allocations ------------------------------------------------------------------------


def mapped_bytes(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData:"))


def held_by_an_owner(n_bytes):
    """A process that holds memory of ggml's CPU device in a worker and then sleeps: (process, the worker's pid)."""
    source = (
        "import time\nfrom inferlab.engine.client import LlamaEngine\nengine = LlamaEngine()\n"
        "free = next(d.free_bytes for d in engine.machine().devices if d.name == 'CPU')\n"
        f"print(engine.pid, engine.hold_memory('CPU', free - {n_bytes}), flush=True)\ntime.sleep(600)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True)
    return owner, *map(int, owner.stdout.readline().split())


@pytest.mark.engine
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_held_through_ggmls_buffers_and_given_back_when_the_owner_is_killed():
    """The holding process allocates for real, and ends even when its owner is given no time to end it."""
    owner, worker, held = held_by_an_owner(512 * MIB)
    assert held == 512 * MIB
    assert mapped_bytes(worker) > 512 * MIB
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    deadline = time.monotonic() + 60
    while os.path.exists(f"/proc/{worker}") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not os.path.exists(f"/proc/{worker}")


@pytest.mark.engine
@LINUX_WITH_RPC
def test_a_loopback_device_has_a_wall_where_the_limit_puts_it(tmp_path):
    """What a plan says still fits is loaded; what it says does not is refused by the device; and the wall goes away."""
    path = write_model(tmp_path / "m.gguf", "llama-tied")
    engine, limit = LlamaEngine(), 256 * MIB
    with loopback_device(n_threads=1) as device:
        settings = device.settings(Settings(n_ctx=1024))
        per_cell = (
            lab.predict_memory(path, settings.but(n_ctx=2048)).devices["gpu0"].kv_cache_bytes
            - lab.predict_memory(path, settings).devices["gpu0"].kv_cache_bytes
        ) / 1024
        sizes = {n: settings.but(n_ctx=int(n * limit / per_cell)) for n in (0.5, 1.5)}
        with limit_vram(limit, device) as limited:
            assert (limited.device, limited.limited_to_bytes, limited.held_bytes) == (device.endpoint, limit, None)
            fits = {n: lab.fit(path, s, CPU_ONLY, reserve_bytes=0) for n, s in sizes.items()}
            assert {n: fit.fits for n, fit in fits.items()} == {0.5: "yes", 1.5: "no"}
            assert fits[0.5].free_bytes["gpu0"] == limit
            engine.open(path, sizes[0.5])
            engine.generate([1, 2, 3], 2)
            gpu = engine.machine().gpus[0]
            assert (gpu.limited_to_bytes, gpu.free_bytes) == (limit, limit)
            with pytest.raises(EngineRefused, match="alloc"):
                engine.open(path, sizes[1.5])
        engine.open(path, sizes[1.5])
        assert engine.machine().gpus[0].limited_to_bytes is None
    engine.close()


def test_free_memory_of_an_rpc_device_is_not_another_devices():
    """Without a word from it, what a far device has free is unknown; the card beside it is the plan's second."""
    machine = fit.machine_for(CPU_ONLY, "8GiB")
    settings = Settings(n_ctx=512, rpc_servers=("192.168.1.20:50052",))
    assert fit.free_bytes(machine, planned_devices(settings, machine)) == {"gpu0": None, "gpu1": 8 * GIB}


def test_free_memory_is_that_of_the_device_that_was_named():
    """A plan's gpu0 is the device that the settings use, not the first one of the machine."""
    cards = [Device(f"CUDA{i}", "a card", "gpu", n * GIB, n * GIB, "CUDA") for i, n in enumerate((8, 24))]
    machine = replace(CPU_ONLY, devices=tuple(cards), ram_bytes=None)
    for settings in (Settings(devices=("CUDA1",)), Settings(split_mode="none", main_gpu=1)):
        assert fit.free_bytes(machine, planned_devices(settings, machine)) == {"gpu0": 24 * GIB}
