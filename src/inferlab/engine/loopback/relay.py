"""A relay that delays the bytes between a client and the device as a bus of a given rate would delay them.

Each direction is independent, as on PCI Express. A piece of n bytes that arrives at time t leaves at

    max(t, end of the previous piece) + n / bytes_per_second + latency_seconds

which is a token bucket without burst allowance, so that small messages are delayed too.
The loop is built on `select`: its timeout has a microsecond's resolution, where epoll's, and so asyncio's,
is rounded up to a millisecond.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from inferlab.machine import LOOPBACK_ADDRESS, usable_cpus

PIECE_BYTES = 128 * 1024
MIN_QUEUE_BYTES = 8 * PIECE_BYTES
TIMEOUT_SECONDS = 10.0
SLEEP_ERROR_SECONDS = 1e-4  # a sleep ends up to this much too late; the last part of a wait is a busy loop
BUSY_SECONDS = 1e-3 if usable_cpus() > 1 else 0.0  # busy loop after a piece: waking a core would delay the next


class Direction:
    """One direction: bytes from `source` wait in a queue until they are due at `sink`."""

    def __init__(self, source: socket.socket, sink: socket.socket, bytes_per_second: float, latency_seconds: float):
        self.source, self.sink = source, sink
        self.bytes_per_second, self.latency_seconds = bytes_per_second, latency_seconds
        self.max_queue_bytes = max(MIN_QUEUE_BYTES, min(2 * bytes_per_second * latency_seconds, 2**28))
        self.queue: deque[tuple[float, memoryview]] = deque()
        self.queue_bytes = 0
        self.free_at = 0.0
        self.ended = self.closed = self.blocked = False

    @property
    def accepts(self) -> bool:
        """Whether more bytes may be read from the source."""
        return not self.ended and self.queue_bytes < self.max_queue_bytes

    @property
    def due(self) -> float:
        """When the next piece may leave; infinity when the queue is empty or the sink is full."""
        return self.queue[0][0] if self.queue and not self.blocked else float("inf")

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
        self.queue.append((self.free_at + self.latency_seconds, memoryview(piece)))
        self.queue_bytes += len(piece)

    def send(self) -> None:
        """Send every piece that is due; after the source's last piece, close the sink for writing."""
        self.blocked = False
        while self.due <= time.perf_counter():
            self._send_first()
        if self.ended and not self.queue and not self.closed:
            self.closed = True
            _close_for_writing(self.sink)

    def _send_first(self) -> None:
        due, piece = self.queue.popleft()
        try:
            n_sent = self.sink.send(piece)
        except BlockingIOError:
            n_sent, self.blocked = 0, True
        except OSError:
            self.queue.clear()
            self.ended, n_sent = True, len(piece)
        self.queue_bytes -= n_sent
        if n_sent < len(piece):
            self.queue.appendleft((due, piece[n_sent:]))


def carry(left: socket.socket, right: socket.socket, bytes_per_second: float, latency_seconds: float) -> None:
    """Carry bytes both ways until both ends have closed."""
    for end in (left, right):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end.setblocking(False)
    pairs = ((left, right), (right, left))
    directions = [Direction(source, sink, bytes_per_second, latency_seconds) for source, sink in pairs]
    busy_until = 0.0
    while not all(direction.closed for direction in directions):
        now = time.perf_counter()
        wait = 0.0 if now < busy_until else min(direction.due for direction in directions) - now - SLEEP_ERROR_SECONDS
        readable = [direction.source for direction in directions if direction.accepts]
        writable = [direction.sink for direction in directions if direction.blocked]
        ready, free, _ = select.select(readable, writable, [], min(max(wait, 0.0), TIMEOUT_SECONDS))
        if ready:
            busy_until = time.perf_counter() + BUSY_SECONDS
        for direction in directions:
            if direction.source in ready:
                direction.receive()
            if not direction.blocked or direction.sink in free:
                direction.send()


def serve(listener: socket.socket, ports: Iterable[int], bytes_per_second: float, latency_seconds: float) -> None:
    """Carry one client after another, as the RPC server serves them: each to the next of `ports` on this machine."""
    for port in ports:
        client, _ = listener.accept()
        with client, socket.create_connection((LOOPBACK_ADDRESS, port), TIMEOUT_SECONDS) as server:
            carry(client, server, bytes_per_second, latency_seconds)


@contextmanager
def relaying(endpoint: str, carry_client: Callable[[socket.socket, socket.socket], None]) -> Iterator[str]:
    """The endpoint of a relay to a device, which serves one client after another while the block runs.

    carry_client(client, device) carries one client's bytes both ways, until either end has closed.
    """
    with socket.create_server((LOOPBACK_ADDRESS, 0)) as listener:
        threading.Thread(target=_accept, args=(listener, endpoint, carry_client), daemon=True).start()
        try:
            yield f"{LOOPBACK_ADDRESS}:{listener.getsockname()[1]}"
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # ends the wait for a next client


def _accept(
    listener: socket.socket, endpoint: str, carry_client: Callable[[socket.socket, socket.socket], None]
) -> None:
    host, port = endpoint.split(":")
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with client, socket.create_connection((host, int(port))) as device:
                device.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                carry_client(client, device)


def read_whole(end: socket.socket, n_bytes: int) -> bytes:
    """So many bytes, or b"" where the other end has closed."""
    data = end.recv(n_bytes, socket.MSG_WAITALL) if n_bytes else b""
    return data if len(data) == n_bytes else b""


def _close_for_writing(sink: socket.socket) -> None:
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
