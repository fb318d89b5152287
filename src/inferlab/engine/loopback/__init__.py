"""A second device on every machine: llama.cpp's RPC server in a child process on 127.0.0.1.

Layers, KV cache and compute buffers are really placed on it, and what crosses the link is really sent; with a
speed, a relay delays the bytes so that the link imitates a bus, and the rate that it reaches is measured.
What it cannot teach: both sides share one memory and its bandwidth, and the link is a TCP connection on which
every command waits for the one before.

The server has no authentication, so it listens on 127.0.0.1 and nowhere else.
"""

from __future__ import annotations

import atexit
import math
import os
import queue
import re
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from inferlab.engine import libraries
from inferlab.engine.loopback.relay import ADDRESS
from inferlab.engine.registry import release_server
from inferlab.errors import DeviceUnavailable, InvalidSettings
from inferlab.machine import Link, physical_cores
from inferlab.settings import Settings
from inferlab.units import MIB

GIGA = 1e9
SLACK_BYTES = 32 * MIB
SETTLE_SECONDS = 2.0
ATTEMPTS = 5
CONNECT_SECONDS = 0.1
START_SECONDS = 20.0
PROBE_SECONDS = 0.1
MOST_PROBE_BYTES = 2**26
ROUND_TRIPS = 50
ACCEPTED = "Accepted client connection"
PORT_TAKEN = "Failed to create server socket"
WITHOUT_GPUS = {"CUDA_VISIBLE_DEVICES": "-1", "GGML_RPC_NO_RDMA": "1"}


class LoopbackDevice:
    """A running RPC server that only this machine can reach; a context manager that ends it.

    endpoint  what Settings.rpc_servers takes, e.g. "127.0.0.1:50052"
    n_threads threads that compute on the device
    link      how fast bytes reach it, as measured when it started; None where nothing slows them
    pid       the process that holds the device's memory
    """

    def __init__(self, child: subprocess.Popen, endpoint: str, n_threads: int, link: Link | None) -> None:
        self._child = child
        self.endpoint, self.n_threads, self.link = endpoint, n_threads, link
        _DEVICES.add(self)
        if link:
            _LINKS[endpoint] = link

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    @property
    def achieved_gigabytes_per_second(self) -> float | None:
        """The link's rate as it was measured at the start, slower direction; None without a relay."""
        return self.link.achieved_gigabytes_per_second if self.link else None

    def settings(self, base: Settings | None = None) -> Settings:
        """`base` with this device, and one thread for the host: the device has the other cores."""
        return (base or Settings()).but(rpc_servers=(self.endpoint,), n_threads=1, n_threads_batch=1)

    def limit_memory(self, n_bytes: int | None) -> None:
        """Let the device's process allocate so many bytes beside what it takes when idle; None: as many as it likes.

        The kernel refuses the rest (RLIMIT_DATA, Linux), as a full card does; what one transfer needs and the stacks
        of its threads are allowed for with SLACK_BYTES. Every worker of this session that uses the device ends.
        Raises DeviceUnavailable on other systems.
        """
        if sys.platform != "linux":
            raise DeviceUnavailable("Only Linux limits the memory of a loopback device. Plan with vram= instead.")
        import resource

        release_server(self.endpoint)
        _, hard = resource.prlimit(self.pid, resource.RLIMIT_DATA)
        soft = hard if n_bytes is None else self._idle_bytes() + n_bytes + SLACK_BYTES
        resource.prlimit(self.pid, resource.RLIMIT_DATA, (soft, hard))

    def _idle_bytes(self) -> int:
        """What the device's process has mapped for data, once the client's buffers are gone."""
        deadline, sizes = time.monotonic() + SETTLE_SECONDS, [0, 1]
        while sizes[-1] != sizes[-2] and time.monotonic() < deadline:
            time.sleep(0.05)
            status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii", errors="replace")
            sizes.append(int(re.search(r"VmData:\s+(\d+) kB", status)[1]) * 1024)
        return sizes[-1]

    def close(self) -> None:
        """End the device, and every worker of this session that uses it; closing twice is closing."""
        release_server(self.endpoint)
        _end(self._child)

    def __enter__(self) -> LoopbackDevice:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_DEVICES: weakref.WeakSet[LoopbackDevice] = weakref.WeakSet()
_LINKS: dict[str, Link] = {}


@atexit.register
def _close_all() -> None:
    for device in list(_DEVICES):
        _end(device._child)


def loopback_device(
    gigabytes_per_second: float | None = None,
    latency_seconds: float | None = None,
    n_threads: int | None = None,
) -> LoopbackDevice:
    """Start a second device on this machine: `with lab.loopback_device() as device: lab.measure(…, device.settings())`.

    gigabytes_per_second  slow each direction of the link down to this rate, 1 GB = 1e9 bytes (None: no relay)
    latency_seconds       delay every byte by this much, each way (None: nothing is added)
    n_threads             threads that compute on the device (None: every physical core but the host's one)

    Raises DeviceUnavailable when this llama.cpp has no RPC backend or the server does not start, and
    InvalidSettings for a rate or latency that no link has.
    """
    _require_positive("gigabytes_per_second", gigabytes_per_second)
    _require_positive("latency_seconds", latency_seconds)
    n_threads = Settings(n_threads=n_threads).n_threads or max(1, physical_cores() - 1)
    require_rpc()
    for _ in range(ATTEMPTS):
        device = _start(n_threads, gigabytes_per_second, latency_seconds)
        if device is not None:
            return device
    raise DeviceUnavailable(f"The loopback device found no free port in {ATTEMPTS} attempts. Try again.")


def loopback_at(endpoint: str) -> LoopbackDevice | None:
    """The running loopback device of this session that listens at `endpoint`."""
    return next((device for device in list(_DEVICES) if device.endpoint == endpoint and device.alive), None)


def is_loopback(endpoint: str) -> bool:
    """Whether a loopback device that this session started, and that still runs, listens at `endpoint`."""
    return loopback_at(endpoint) is not None


def require_rpc() -> None:
    """Raise DeviceUnavailable, with the command that mends it, when this llama.cpp has no RPC backend."""
    found = libraries.backends()
    if "rpc" not in found:
        raise DeviceUnavailable(
            f"There is no loopback device: this llama.cpp has the backends {', '.join(found)}, but not rpc. "
            f"Build it anew with `{libraries.WITH_RPC}`; predictions work without it."
        )


def links_to(endpoints: Iterable[str]) -> tuple[Link, ...]:
    """The slowed links of this session's loopback devices among `endpoints`."""
    return tuple(_LINKS[endpoint] for endpoint in endpoints if endpoint in _LINKS)


# --- starting ---------------------------------------------------------------------------------


def _start(n_threads: int, gigabytes_per_second: float | None, latency_seconds: float | None) -> LoopbackDevice | None:
    """A device that answers; None when somebody else took the port between choosing and listening."""
    with socket.create_server((ADDRESS, 0)) as probe:
        slowed = gigabytes_per_second or latency_seconds
        rate = GIGA * gigabytes_per_second if gigabytes_per_second else math.inf
        port = free_port()
        child = _spawn(port, n_threads, *([rate, latency_seconds or 0.0, probe.getsockname()[1]] if slowed else []))
        told = _Lines(child)
        try:
            if not _accepts(port, child, told):
                return _end(child)
            if not slowed:
                return LoopbackDevice(child, f"{ADDRESS}:{port}", n_threads, None)
            link = _measured_link(int(told.wait("link ").split()[1]), probe, gigabytes_per_second, latency_seconds)
            return LoopbackDevice(child, link.endpoint, n_threads, link)
        except OSError as error:
            _end(child)
            raise DeviceUnavailable(f"The loopback device's link failed as it started: {error}. Try again.") from error
        except BaseException:
            _end(child)
            raise


def _spawn(*arguments: float) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "inferlab.engine.loopback.server", *map(str, (os.getpid(), *arguments))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, **WITHOUT_GPUS},
        start_new_session=True,
    )


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.create_server((ADDRESS, 0)) as free:
        return free.getsockname()[1]


def _accepts(port: int, child: subprocess.Popen, told: _Lines) -> bool:
    """Connect until this child says that it took the call; False when its port was taken by another."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with socket.socket() as caller:
            caller.settimeout(CONNECT_SECONDS)  # another program's full queue would hold the call for two minutes
            caller.connect_ex((ADDRESS, port))
        if told.has(ACCEPTED):
            return True
        if child.poll() is not None:
            if told.wait_for_end(PORT_TAKEN):
                return False
            raise DeviceUnavailable(f"The loopback device ended as it started. Its last lines:\n{told.text}")
        time.sleep(0.005)
    raise DeviceUnavailable(f"The loopback device did not answer in {START_SECONDS:.0f} s. Is the machine overloaded?")


def _end(child: subprocess.Popen) -> None:
    child.kill()
    child.wait()
    child.stdin.close()


class _Lines:
    """What a child prints, read as it comes so that it never blocks; the last lines are kept."""

    def __init__(self, child: subprocess.Popen) -> None:
        self._kept: deque[str] = deque(maxlen=30)
        self._fresh: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, args=(child.stdout,), daemon=True)
        self._reader.start()

    def _read(self, stream) -> None:
        with stream:
            for line in stream:
                self._kept.append(line)
                self._fresh.put(line)

    @property
    def text(self) -> str:
        return "".join(self._kept)

    def has(self, text: str) -> bool:
        return any(text in line for line in list(self._kept))

    def wait_for_end(self, text: str) -> bool:
        """Whether the child said `text` before it ended."""
        self._reader.join(START_SECONDS)
        return self.has(text)

    def wait(self, text: str) -> str:
        """The first line that begins with `text`."""
        try:
            while not (line := self._fresh.get(timeout=START_SECONDS)).startswith(text):
                pass
        except queue.Empty:
            raise DeviceUnavailable(f"The loopback device's relay did not start. It said:\n{self.text}") from None
        return line


# --- measuring the link -----------------------------------------------------------------------


def _measured_link(
    port: int, probe: socket.socket, gigabytes_per_second: float | None, latency_seconds: float | None
) -> Link:
    """The link through the relay at `port`, whose far end is `probe`.

    A block that takes a tenth of a second at the rate asked for is sent each way; the slower direction counts,
    less the latency asked for. The round trip is one byte there and one back, the median of fifty.
    """
    n_bytes = max(1, int(min(MOST_PROBE_BYTES, PROBE_SECONDS * GIGA * (gigabytes_per_second or math.inf))))
    with socket.create_connection((ADDRESS, port), START_SECONDS) as near:
        probe.settimeout(START_SECONDS)
        far, _ = probe.accept()
        with far:
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                end.settimeout(START_SECONDS)
            trips = sorted(_round_trip(near, far) for _ in range(ROUND_TRIPS))
            seconds = max(_passage(near, far, n_bytes), _passage(far, near, n_bytes)) - (latency_seconds or 0.0)
    rate = n_bytes / seconds / GIGA
    return Link(f"{ADDRESS}:{port}", gigabytes_per_second, latency_seconds, rate, trips[len(trips) // 2])


def _round_trip(near: socket.socket, far: socket.socket) -> float:
    began = time.perf_counter()
    near.send(b"?")
    far.send(far.recv(1))
    near.recv(1)
    return time.perf_counter() - began


def _passage(source: socket.socket, sink: socket.socket, n_bytes: int) -> float:
    """Seconds from the first byte's departure to the last byte's arrival."""
    sender = threading.Thread(target=source.sendall, args=(bytes(n_bytes),), daemon=True)
    room, n_left = bytearray(2**18), n_bytes
    began = time.perf_counter()
    sender.start()
    while n_left:
        n_arrived = sink.recv_into(room)
        if not n_arrived:
            raise ConnectionError("it closed in the middle of a block")
        n_left -= n_arrived
    seconds = time.perf_counter() - began
    sender.join()
    return seconds


def _require_positive(name: str, value: float | None) -> None:
    if value is not None and not (isinstance(value, (int, float)) and 0 < value < math.inf):
        raise InvalidSettings(f"{name}={value!r} must be a number above 0, or None for nothing of the kind.")
