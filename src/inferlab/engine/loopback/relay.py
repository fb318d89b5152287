"""The slowed link: bytes between a client and the device, delayed as a bus of a given rate would delay them.

Every direction is a line of its own, as on PCI Express. A piece of n bytes that arrives at time t leaves at

    max(t, when the line has sent what came before) + n / bytes_per_second + latency_seconds

which is a token bucket that saves nothing up, so that small messages are not carried for free.
The loop is built on `select`: its timeout has a microsecond's resolution, where epoll's, and so asyncio's,
is rounded up to a millisecond.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress

from inferlab.machine import usable_cpus

ADDRESS = "127.0.0.1"
PIECE_BYTES = 128 * 1024
LEAST_WAITING_BYTES = 8 * PIECE_BYTES
PATIENCE_SECONDS = 10.0
OVERSLEPT_SECONDS = 1e-4  # a sleep ends up to this much too late, so what is due sooner is waited for awake
AWAKE_SECONDS = 1e-3 if usable_cpus() > 1 else 0.0  # after a piece: waking a sleeping core would delay the next one


class Line:
    """One direction: what came from `source` waits here until it is due at `sink`."""

    def __init__(self, source: socket.socket, sink: socket.socket, bytes_per_second: float, latency_seconds: float):
        self.source, self.sink = source, sink
        self.bytes_per_second, self.latency_seconds = bytes_per_second, latency_seconds
        self.most_waiting_bytes = max(LEAST_WAITING_BYTES, min(2 * bytes_per_second * latency_seconds, 2**28))
        self.waiting: deque[tuple[float, memoryview]] = deque()
        self.waiting_bytes = 0
        self.free_at = 0.0
        self.ended = self.closed = self.blocked = False

    @property
    def wants(self) -> bool:
        return not self.ended and self.waiting_bytes < self.most_waiting_bytes

    @property
    def due(self) -> float:
        """When the next piece may leave; never, when none waits or the sink does not take it yet."""
        return self.waiting[0][0] if self.waiting and not self.blocked else float("inf")

    def receive(self) -> None:
        try:
            piece = self.source.recv(PIECE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self.ended = True
            return
        self.free_at = max(time.perf_counter(), self.free_at) + len(piece) / self.bytes_per_second
        self.waiting.append((self.free_at + self.latency_seconds, memoryview(piece)))
        self.waiting_bytes += len(piece)

    def send(self) -> None:
        """Everything that is due; at the end of the source, the end."""
        self.blocked = False
        while self.due <= time.perf_counter():
            self._send_first()
        if self.ended and not self.waiting and not self.closed:
            self.closed = True
            _end(self.sink)

    def _send_first(self) -> None:
        due, piece = self.waiting.popleft()
        try:
            n_sent = self.sink.send(piece)
        except BlockingIOError:
            n_sent, self.blocked = 0, True
        except OSError:
            self.waiting.clear()
            self.ended, n_sent = True, len(piece)
        self.waiting_bytes -= n_sent
        if n_sent < len(piece):
            self.waiting.appendleft((due, piece[n_sent:]))


def carry(one: socket.socket, other: socket.socket, bytes_per_second: float, latency_seconds: float) -> None:
    """Carry bytes both ways until both ends have closed."""
    for end in (one, other):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end.setblocking(False)
    pairs = ((one, other), (other, one))
    lines = [Line(source, sink, bytes_per_second, latency_seconds) for source, sink in pairs]
    awake_until = 0.0
    while not all(line.closed for line in lines):
        now = time.perf_counter()
        wait = 0.0 if now < awake_until else min(line.due for line in lines) - now - OVERSLEPT_SECONDS
        readable = [line.source for line in lines if line.wants]
        writable = [line.sink for line in lines if line.blocked]
        ready, free, _ = select.select(readable, writable, [], min(max(wait, 0.0), PATIENCE_SECONDS))
        if ready:
            awake_until = time.perf_counter() + AWAKE_SECONDS
        for line in lines:
            if line.source in ready:
                line.receive()
            if not line.blocked or line.sink in free:
                line.send()


def serve(listener: socket.socket, ports: Iterable[int], bytes_per_second: float, latency_seconds: float) -> None:
    """Carry one client after another, as the RPC server serves them: each to the next of `ports` on this machine."""
    for port in ports:
        client, _ = listener.accept()
        with client, socket.create_connection((ADDRESS, port), PATIENCE_SECONDS) as far:
            carry(client, far, bytes_per_second, latency_seconds)


def _end(sink: socket.socket) -> None:
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
