"""The loopback device: a second device on this machine, for real, and what happens when it goes away."""

import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import psutil
import pytest
from marks import needs_rpc

from inferlab.engine import libraries
from inferlab.engine.client import LlamaEngine
from inferlab.engine.loopback import free_port, links_to, loopback_device, spawn_server, start_device
from inferlab.engine.loopback.relay import carry
from inferlab.errors import DeviceUnavailable, EngineCrashed, InvalidSettings
from inferlab.machine import LOOPBACK_ADDRESS, Link, physical_cores
from inferlab.measurement.run import measure
from inferlab.model.find import tiny_model
from inferlab.model.gguf import read_gguf
from inferlab.prediction.memory import kv_cache_bytes
from inferlab.settings import Settings

SMALL = Settings(n_ctx=256)
NO_SIGNAL = sys.platform != "linux"


@pytest.fixture
def engine():
    engine = LlamaEngine()
    yield engine
    engine.close()


def kinds_on_the_device(opening):
    return {b.kind for b in opening.buffers if b.device.startswith("RPC")}


def answer(engine, settings, n_gen=8):
    engine.open(tiny_model(), settings)
    return engine.generate([0, 5, 6, 7], n_gen).tokens


# --- what it is -------------------------------------------------------------------------------


@pytest.mark.engine
@pytest.mark.timed
@needs_rpc
@pytest.mark.parametrize("rate", [None, 1.0])
def test_it_is_ready_in_under_a_second(rate):
    """Starting it, and measuring its link, takes less than a second; the best of three, as others use this machine."""
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        with loopback_device(rate):
            seconds.append(time.perf_counter() - began)
    assert min(seconds) < 1


@needs_rpc
def test_layers_really_live_on_it(device, engine):
    """Weights, cache and compute buffers are there, and the same tokens come back as from the host alone."""
    opening = engine.open(tiny_model(), device.settings(SMALL))
    assert {"weights", "kv_cache", "compute"} <= kinds_on_the_device(opening)
    assert answer(engine, device.settings(SMALL)) == answer(engine, SMALL)


@needs_rpc
def test_placement_shows(device, engine):
    """Without layers nothing is there; with offload_kqv=False the weights are, and the cache is not."""
    assert "weights" not in kinds_on_the_device(engine.open(tiny_model(), device.settings(SMALL.but(n_gpu_layers=0))))
    split = engine.open(tiny_model(), device.settings(SMALL.but(offload_kqv=False)))
    assert "weights" in kinds_on_the_device(split)
    assert "kv_cache" not in kinds_on_the_device(split)


@needs_rpc
def test_the_host_keeps_one_thread(device):
    """The device has the other cores; what else was asked for stays."""
    settings = device.settings(Settings(n_ctx=512, type_k="q8_0"))
    assert (settings.n_threads, settings.n_threads_batch) == (1, 1)
    assert (settings.n_ctx, settings.type_k, settings.rpc_servers) == (512, "q8_0", (device.endpoint,))
    assert device.n_threads == max(1, physical_cores() - 1)


@needs_rpc
def test_a_run_says_that_it_ran_there(device, engine):
    """Place, badge and machine say "loopback device"; a direct link is not worth a word."""
    run = measure("tiny", device.settings(), n_prompt=8, n_gen=4, repeats=2, engine=engine)
    assert "loopback device" in run.place
    assert "loopback device, 2" in run.badge
    assert [d.description for d in run.machine.gpus] == ["loopback device"]
    assert (run.links, device.link, device.achieved_gigabytes_per_second) == ((), None, None)


# --- only for this machine ------------------------------------------------------------------------


@pytest.mark.engine
@needs_rpc
@pytest.mark.skipif(not shutil.which("ss"), reason="needs ss")
@pytest.mark.parametrize("rate", [None, 1.0])
def test_it_listens_on_this_machines_own_address_only(rate):
    """`ss -ltnp` shows the server, and the relay where there is one, on 127.0.0.1 and nowhere else."""
    with loopback_device(rate) as device:
        sockets = subprocess.run(["ss", "-H", "-ltnp"], capture_output=True, text=True, check=True).stdout
        here = [line.split()[3] for line in sockets.splitlines() if f"pid={device.pid}," in line]
    assert len(here) == (1 if rate is None else 2)
    assert device.endpoint in here
    assert all(address.startswith("127.0.0.1:") for address in here)


@pytest.mark.parametrize("address", ["0.0.0.0:50052", "192.168.0.1", "::"])
def test_no_other_address_can_be_named(address):
    """The device's process takes a port; an address ends it before it listens."""
    command = [sys.executable, "-m", "inferlab.engine.loopback.server", str(os.getpid()), address, "1"]
    done = subprocess.run(command, input="", capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "invalid literal" in done.stderr


@pytest.mark.engine
@needs_rpc
def test_a_port_that_was_taken_in_between_is_left_alone():
    """Whoever was faster keeps the port, and the device takes another one."""
    with socket.create_server((LOOPBACK_ADDRESS, 0)) as other:
        taken = other.getsockname()[1]
        ports = itertools.chain([taken, taken], iter(free_port, None))  # a free one may be taken in between too
        with start_device(1, choose_port=lambda: next(ports)) as device:
            assert device.endpoint != f"{LOOPBACK_ADDRESS}:{taken}"
        with pytest.raises(DeviceUnavailable, match="no free port in 5 attempts"):
            start_device(1, choose_port=lambda: taken)


def test_without_rpc_predictions_remain(monkeypatch):
    """The error says how to build llama.cpp with RPC; arithmetic does not need it."""
    monkeypatch.setattr(libraries, "backends", lambda: ("cpu", "cuda"))
    with pytest.raises(DeviceUnavailable, match=r"backends cpu, cuda, but not rpc.*--no-cache-dir.*predictions work"):
        loopback_device()
    assert kv_cache_bytes(read_gguf(tiny_model()), SMALL)


@pytest.mark.engine
@needs_rpc
def test_a_server_that_does_not_start_says_why():
    """Its last lines are in the error."""
    command = [sys.executable, "-c", "print('libggml-rpc is of another world')"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with pytest.raises(DeviceUnavailable, match=r"(?s)ended as it started.*of another world"):
        start_device(1, spawn=lambda *_: subprocess.Popen(command, **pipes))


@pytest.mark.parametrize("wrong", [0, -1, float("inf"), float("nan"), "fast"])
def test_a_rate_or_latency_that_no_link_has_is_refused(wrong):
    """Before anything is started."""
    with pytest.raises(InvalidSettings, match="gigabytes_per_second="):
        loopback_device(wrong)
    with pytest.raises(InvalidSettings, match="latency_seconds="):
        loopback_device(latency_seconds=wrong)


# --- its life -----------------------------------------------------------------------------------


@needs_rpc
def test_one_engine_after_another(device, engine):
    """A server has one client at a time, so this session's other worker lets go of it instead of blocking it."""
    other = LlamaEngine(timeout_seconds=60)
    assert answer(other, device.settings(SMALL)) == answer(engine, device.settings(SMALL))
    assert other.pid is None
    assert answer(other, device.settings(SMALL)) == answer(other, SMALL)


@needs_rpc
def test_what_is_no_longer_asked_for_is_not_used(device, engine):
    """ggml forgets no server, so a request without one gets a worker that never knew it."""
    engine.open(tiny_model(), device.settings(SMALL))
    assert not kinds_on_the_device(engine.open(tiny_model(), SMALL))
    assert engine.machine().gpus == ()


@needs_rpc
def test_two_devices_share_a_model(device, engine):
    """Layers are split over both; they are told apart by number."""
    with loopback_device() as second:
        settings = SMALL.but(rpc_servers=(device.endpoint, second.endpoint), n_threads=1)
        opening = engine.open(tiny_model(), settings)
        weights = {b.device for b in opening.buffers if b.kind == "weights" and b.device.startswith("RPC")}
        assert len(weights) == 2
        assert len(answer(engine, settings)) == 8


@needs_rpc
def test_closing_takes_it_from_the_engine_too(engine):
    """After the block the process is gone, and the engine works on without a trace of it."""
    with loopback_device() as device:
        answer(engine, device.settings(SMALL))
    device.close()
    assert not device.alive
    assert engine.machine().gpus == ()
    assert answer(engine, SMALL)


@needs_rpc
def test_a_device_that_dies_while_it_decodes_is_an_error(engine):
    """The message names the device's end, this process lives, and a new device serves the next call."""
    with loopback_device() as device:
        engine.open(tiny_model(), device.settings(Settings(n_ctx=8192)))
        threading.Timer(0.3, os.kill, (device.pid, signal.SIGKILL)).start()
        with pytest.raises(EngineCrashed, match=r"its RPC device is gone.*next call starts a fresh engine"):
            engine.generate([1] * 8, 8000)
    with loopback_device() as device:
        assert answer(engine, device.settings(SMALL))


@needs_rpc
def test_a_device_that_is_gone_is_said_so(engine):
    """Asking for an endpoint where nobody answers any more is an error with a reason."""
    with loopback_device() as device:
        pass
    with pytest.raises(EngineCrashed, match="no RPC server answers"):
        engine.open(tiny_model(), device.settings(SMALL))
    assert answer(engine, SMALL)


@needs_rpc
def test_it_outlives_the_thread_that_started_it(engine):
    """Only the owner's end is its end; Linux would signal the end of a thread as well."""
    started = []
    thread = threading.Thread(target=lambda: started.append(loopback_device()))
    thread.start()
    thread.join()
    time.sleep(0.1)
    with started[0] as device:
        assert device.alive
        assert answer(engine, device.settings(SMALL))


OWNER = """
import os, sys, time
from inferlab.engine.loopback import loopback_device
device = loopback_device({rate})
if {forks} and os.fork() == 0:
    time.sleep(600)
print(device.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.engine
@needs_rpc
@pytest.mark.parametrize(
    ("rate", "forks"),
    [(None, False), (1.0, False), pytest.param(None, True, marks=pytest.mark.skipif(NO_SIGNAL, reason="needs Linux"))],
)
def test_it_does_not_outlive_its_owner(rate, forks):
    """SIGKILL of the owner ends the device, even while a process that the owner forked holds the pipe open."""
    code = OWNER.format(rate=rate, forks=forks)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as owner:
        device = psutil.Process(int(owner.stdout.readline()))
        forked = [child for child in psutil.Process(owner.pid).children() if child != device]
        owner.kill()
        gone, _ = psutil.wait_procs([device], timeout=60)
        for child in forked:
            child.kill()
    assert (len(forked), gone) == (int(forks), [device])


@pytest.mark.engine
@needs_rpc
def test_a_closed_pipe_is_its_end():
    """Where no signal tells of the owner's death, its end of the pipe does."""
    child = spawn_server(free_port(), 1)
    time.sleep(0.3)
    assert child.poll() is None
    child.stdin.close()
    child.stdout.read()
    assert child.wait(60) == 0


# --- the slowed link ------------------------------------------------------------------------------


@pytest.mark.timed
@needs_rpc
def test_the_achieved_rate_is_measured_and_recorded(engine):
    """A link of 0.05 GB/s is one within a tenth; the run carries what was asked for and what was measured."""
    with loopback_device(0.05, latency_seconds=0.002) as device:
        assert device.achieved_gigabytes_per_second == pytest.approx(0.05, rel=0.1)
        assert 0.004 <= device.link.round_trip_seconds < 0.02
        run = measure("tiny", device.settings(), n_prompt=8, n_gen=4, repeats=2, engine=engine)
    assert run.links == (device.link,) == links_to([device.endpoint])
    assert f"loopback device, {device.link.text}" in run.badge


@pytest.mark.timed
@needs_rpc
def test_a_slower_link_slows_what_crosses_it(device, engine):
    """With the cache on the other side every token crosses the link; with everything on the device little does."""

    def decode_seconds(settings):
        engine.open(tiny_model(), settings)
        return min(sum(engine.generate([1] * 8, 6).decode_seconds) for _ in range(2))

    with loopback_device(latency_seconds=0.002) as far:
        together = decode_seconds(far.settings(SMALL))
        apart = decode_seconds(far.settings(SMALL.but(offload_kqv=False)))
    near = decode_seconds(device.settings(SMALL.but(offload_kqv=False)))
    assert apart > 3 * together
    assert apart > 3 * near


def carried(n_bytes, bytes_per_second, latency_seconds):
    """Seconds until a block has crossed a line, and whether it arrived as it was."""
    (near, left), (right, far) = tcp_pair(), tcp_pair()
    block = os.urandom(n_bytes)
    relay = threading.Thread(target=carry, args=(left, right, bytes_per_second, latency_seconds), daemon=True)
    relay.start()
    began = time.perf_counter()
    threading.Thread(target=lambda: (near.sendall(block), near.shutdown(socket.SHUT_WR)), daemon=True).start()
    arrived = b"".join(iter(lambda: far.recv(2**16), b""))
    seconds = time.perf_counter() - began
    far.close()
    relay.join(60)
    for end in (near, left, right):
        end.close()
    return seconds, arrived == block and not relay.is_alive()


def tcp_pair():
    with socket.create_server((LOOPBACK_ADDRESS, 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        return near, listener.accept()[0]


@pytest.mark.timed
@pytest.mark.parametrize(
    ("n_bytes", "bytes_per_second", "latency_seconds"),
    [(2_000_000, 2e7, 0.0), (1_000_000, 1e7, 0.05), (100, 1e9, 0.1), (3_000_000, float("inf"), 0.1)],
)
def test_a_block_takes_its_bytes_over_the_rate_and_the_latency_once(n_bytes, bytes_per_second, latency_seconds):
    """The last byte arrives after n / rate + latency, never earlier, however many pieces it came in."""
    expected = n_bytes / bytes_per_second + latency_seconds
    seconds, intact = carried(n_bytes, bytes_per_second, latency_seconds)
    assert intact
    assert expected <= seconds < expected + 0.1


def test_a_link_says_what_was_asked_and_what_was_reached():
    """Rate reached, rate asked for, latency where there is one."""
    assert Link("127.0.0.1:1", 1.0, None, 0.98, 2e-5).text == "link 0.98 GB/s (asked: 1 GB/s)"
    assert Link("127.0.0.1:1", None, 0.001, 1.5, 2e-3).text == "link 1.5 GB/s, 1 ms each way"
