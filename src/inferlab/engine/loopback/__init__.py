"""A second device on every machine: llama.cpp's RPC server in a child process on 127.0.0.1.

Layers, KV cache and compute buffers are allocated on it, and their bytes are sent over the link. With a speed, a
relay delays the bytes so that the link imitates a bus, and the rate that it reaches is measured.
Unlike a GPU, it shares memory and bandwidth with the host, and on its TCP connection every command waits for the
previous one.

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
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

from inferlab.engine import libraries, openmp
from inferlab.engine.process import end_child, piped
from inferlab.engine.registry import close_engines_with_server
from inferlab.errors import DeviceUnavailable, InvalidSettings
from inferlab.machine import LOOPBACK_ADDRESS, Link, physical_cores
from inferlab.settings import Settings
from inferlab.units import MIB

GIGA = 1e9
SLACK_BYTES = 32 * MIB  # for one transfer and the stacks of the threads
SETTLE_SECONDS = 2.0
ATTEMPTS = 5
CONNECT_SECONDS = 0.1
START_SECONDS = 20.0
PROBE_SECONDS = 0.05
MOST_PROBE_BYTES = 2**26
PROBES = 3
ROUND_TRIPS = 50
ACCEPTED = "Accepted client connection"
PORT_TAKEN = "Failed to create server socket"
WITHOUT_GPUS = {"CUDA_VISIBLE_DEVICES": "-1", "GGML_RPC_NO_RDMA": "1"}


class LoopbackDevice:
    """A running RPC server that only this machine can reach; a context manager that stops it.

    endpoint  what Settings.rpc_servers takes, e.g. "127.0.0.1:50052"
    n_threads threads that compute on the device
    link      speed of the relay, measured when the device started; None without a relay
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
        """The link's rate measured at the start, slower direction, in 1e9 bytes per second; None without a relay."""
        return self.link.achieved_gigabytes_per_second if self.link else None

    def settings(self, base: Settings | None = None) -> Settings:
        """`base` with this device, and one thread for the host: the device has the other cores."""
        return (base or Settings()).but(rpc_servers=(self.endpoint,), n_threads=1, n_threads_batch=1)

    def limit_memory(self, n_bytes: int | None) -> None:
        """Limit the device's process to `n_bytes` beyond what it has allocated when idle; None removes the limit.

        The kernel refuses further allocations (RLIMIT_DATA, Linux), as a full card does. SLACK_BYTES are added for one
        transfer and the stacks of its threads. Every worker of this session that uses the device is stopped.
        Raises DeviceUnavailable on other systems.
        """
        if sys.platform != "linux":
            raise DeviceUnavailable("Only Linux limits the memory of a loopback device. Plan with vram= instead.")
        import resource

        close_engines_with_server(self.endpoint)
        _, hard = resource.prlimit(self.pid, resource.RLIMIT_DATA)
        soft = hard if n_bytes is None else self._idle_bytes() + n_bytes + SLACK_BYTES
        resource.prlimit(self.pid, resource.RLIMIT_DATA, (soft, hard))

    def _idle_bytes(self) -> int:
        """Bytes of data that the device's process has mapped, once the client's buffers are freed."""
        deadline, sizes = time.monotonic() + SETTLE_SECONDS, [0, 1]
        while sizes[-1] != sizes[-2] and time.monotonic() < deadline:
            time.sleep(0.05)
            status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii", errors="replace")
            data = re.search(r"VmData:\s+(\d+) kB", status)
            if data is None:
                raise DeviceUnavailable("The loopback device has ended, so nothing can be limited. Start another one.")
            sizes.append(int(data[1]) * 1024)
        return sizes[-1]

    def close(self) -> None:
        """Stop the device, and every worker of this session that uses it; a second call changes nothing."""
        close_engines_with_server(self.endpoint)
        end_child(self._child)

    def __enter__(self) -> LoopbackDevice:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_DEVICES: weakref.WeakSet[LoopbackDevice] = weakref.WeakSet()
_LINKS: dict[str, Link] = {}


@atexit.register
def _close_all() -> None:
    for device in list(_DEVICES):
        end_child(device._child)


def loopback_device(
    gigabytes_per_second: float | None = None,
    latency_seconds: float | None = None,
    n_threads: int | None = None,
) -> LoopbackDevice:
    """Start a second device on this machine: `with lab.loopback_device() as device: lab.measure(…, device.settings())`.

    gigabytes_per_second  slow each direction of the link down to this rate, 1 GB = 1e9 bytes (None: no limit)
    latency_seconds       delay every byte by this much, each way (None: no delay)
    n_threads             threads that compute on the device (None: every physical core except one for the host)

    Raises DeviceUnavailable when this llama.cpp has no RPC backend or the server does not start, and
    InvalidSettings for a rate or latency that is no positive number.
    """
    _require_positive("gigabytes_per_second", gigabytes_per_second)
    _require_positive("latency_seconds", latency_seconds)
    n_threads = Settings(n_threads=n_threads).n_threads or max(1, physical_cores() - 1)
    require_rpc()
    return start_device(n_threads, gigabytes_per_second, latency_seconds)


def loopback_at(endpoint: str) -> LoopbackDevice | None:
    """The running loopback device of this session that listens at `endpoint`."""
    return next((device for device in list(_DEVICES) if device.endpoint == endpoint and device.alive), None)


def is_loopback(endpoint: str) -> bool:
    """Whether a loopback device that this session started, and that still runs, listens at `endpoint`."""
    return loopback_at(endpoint) is not None


def require_rpc() -> None:
    """Raise DeviceUnavailable, with the command that fixes it, when this llama.cpp has no RPC backend."""
    backends = libraries.backends()
    if "rpc" not in backends:
        raise DeviceUnavailable(
            f"There is no loopback device: this llama.cpp has the backends {', '.join(backends)}, but not rpc. "
            f"Rebuild it with `{libraries.WITH_RPC}`; predictions work without it."
        )


def links_to(endpoints: Iterable[str]) -> tuple[Link, ...]:
    """The links of this session's loopback devices that run through a relay, among `endpoints`."""
    return tuple(_LINKS[endpoint] for endpoint in endpoints if endpoint in _LINKS)


# --- starting ---------------------------------------------------------------------------------


def free_port() -> int:
    """A port of 127.0.0.1 on which no process listens now."""
    with socket.create_server((LOOPBACK_ADDRESS, 0)) as free:
        return free.getsockname()[1]


def spawn_server(*arguments: float) -> subprocess.Popen:
    """Start the device's process; `arguments` after the owner's process id as in loopback.server.main."""
    return subprocess.Popen(
        [sys.executable, "-m", "inferlab.engine.loopback.server", *map(str, (os.getpid(), *arguments))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=openmp.bounded({**os.environ, **WITHOUT_GPUS}),
        start_new_session=True,
    )


def start_device(
    n_threads: int,
    gigabytes_per_second: float | None = None,
    latency_seconds: float | None = None,
    choose_port: Callable[[], int] = free_port,
    spawn: Callable[..., subprocess.Popen] = spawn_server,
) -> LoopbackDevice:
    """Start a device as `loopback_device` does, on the first port that no other process takes meanwhile."""
    for _ in range(ATTEMPTS):
        device = _start_at(choose_port(), n_threads, gigabytes_per_second, latency_seconds, spawn)
        if device is not None:
            return device
    raise DeviceUnavailable(f"The loopback device found no free port in {ATTEMPTS} attempts. Try again.")


def _start_at(
    port: int,
    n_threads: int,
    gigabytes_per_second: float | None,
    latency_seconds: float | None,
    spawn: Callable[..., subprocess.Popen],
) -> LoopbackDevice | None:
    """A device that accepts connections at `port`; None when another process has taken the port."""
    with socket.create_server((LOOPBACK_ADDRESS, 0)) as probe:
        slowed = gigabytes_per_second or latency_seconds
        rate = GIGA * gigabytes_per_second if gigabytes_per_second else math.inf
        relay = [rate, latency_seconds or 0.0, probe.getsockname()[1]] if slowed else []
        child = spawn(port, n_threads, *relay)
        output = _OutputLines(child)
        try:
            if not _accepts(port, child, output):
                end_child(child)
                return None
            if not slowed:
                return LoopbackDevice(child, f"{LOOPBACK_ADDRESS}:{port}", n_threads, None)
            link = _measured_link(
                int(output.wait_for("link ").split()[1]), probe, gigabytes_per_second, latency_seconds
            )
            return LoopbackDevice(child, link.endpoint, n_threads, link)
        except OSError as error:
            end_child(child)
            raise DeviceUnavailable(f"The loopback device's link failed as it started: {error}. Try again.") from error
        except BaseException:
            end_child(child)
            raise


def _accepts(port: int, child: subprocess.Popen, output: _OutputLines) -> bool:
    """Connect until this child logs that it accepted; False when another process has its port."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with socket.socket() as client:
            client.settimeout(CONNECT_SECONDS)  # another program's full queue would block for two minutes
            client.connect_ex((LOOPBACK_ADDRESS, port))
        if output.has(ACCEPTED):
            return True
        if child.poll() is not None:
            if output.ends_with(PORT_TAKEN):
                return False
            raise DeviceUnavailable(f"The loopback device ended as it started. Its last lines:\n{output.text}")
        time.sleep(0.005)
    raise DeviceUnavailable(f"The loopback device did not answer in {START_SECONDS:.0f} s. Is the machine overloaded?")


class _OutputLines:
    """The last lines of a child's output, read by a thread so that the child never blocks on a full pipe."""

    def __init__(self, child: subprocess.Popen) -> None:
        self._last: deque[str] = deque(maxlen=30)
        self._unread: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, args=(piped(child.stdout),), daemon=True)
        self._reader.start()

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self._last.append(line)
                self._unread.put(line)

    @property
    def text(self) -> str:
        return "".join(self._last)

    def has(self, text: str) -> bool:
        return any(text in line for line in list(self._last))

    def ends_with(self, text: str) -> bool:
        """Wait for the child's end; whether `text` is among its last lines."""
        self._reader.join(START_SECONDS)
        return self.has(text)

    def wait_for(self, text: str) -> str:
        """Wait for the next line that begins with `text`."""
        try:
            while not (line := self._unread.get(timeout=START_SECONDS)).startswith(text):
                pass
        except queue.Empty:
            raise DeviceUnavailable(
                f"The loopback device's relay did not start. Its last lines:\n{self.text}"
            ) from None
        return line


# --- measuring the link -----------------------------------------------------------------------


def _measured_link(
    port: int, probe: socket.socket, gigabytes_per_second: float | None, latency_seconds: float | None
) -> Link:
    """Measure the link through the relay at `port`, which connects its first client to `probe`.

    A block that takes PROBE_SECONDS at the requested rate is sent each way PROBES times. Other work on the machine only
    makes a block slower, so the fastest counts; of the two directions the slower one, less the requested latency.
    The round trip is one byte there and one back, the median of ROUND_TRIPS.
    """
    n_bytes = max(1, int(min(MOST_PROBE_BYTES, PROBE_SECONDS * GIGA * (gigabytes_per_second or math.inf))))
    with socket.create_connection((LOOPBACK_ADDRESS, port), START_SECONDS) as near:
        probe.settimeout(START_SECONDS)
        far, _ = probe.accept()
        with far:
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                end.settimeout(START_SECONDS)
            trips = sorted(_round_trip_seconds(near, far) for _ in range(ROUND_TRIPS))
            pairs = [(near, far), (far, near)]
            slower_seconds = max(min(_transfer_seconds(*pair, n_bytes) for _ in range(PROBES)) for pair in pairs)
    rate = n_bytes / (slower_seconds - (latency_seconds or 0.0)) / GIGA
    return Link(f"{LOOPBACK_ADDRESS}:{port}", gigabytes_per_second, latency_seconds, rate, trips[len(trips) // 2])


def _round_trip_seconds(near: socket.socket, far: socket.socket) -> float:
    began = time.perf_counter()
    near.send(b"?")
    far.send(far.recv(1))
    near.recv(1)
    return time.perf_counter() - began


def _transfer_seconds(source: socket.socket, sink: socket.socket, n_bytes: int) -> float:
    """Seconds from sending the first of n_bytes to receiving the last."""
    sender = threading.Thread(target=source.sendall, args=(bytes(n_bytes),), daemon=True)
    buffer, n_left = bytearray(2**18), n_bytes
    began = time.perf_counter()
    sender.start()
    while n_left:
        n_arrived = sink.recv_into(buffer)
        if not n_arrived:
            raise ConnectionError("it was closed in the middle of a block")
        n_left -= n_arrived
    seconds = time.perf_counter() - began
    sender.join()
    return seconds


def _require_positive(name: str, value: float | None) -> None:
    if value is not None and not (isinstance(value, (int, float)) and 0 < value < math.inf):
        raise InvalidSettings(f"{name}={value!r} must be a number above 0, or None to leave it out.")
