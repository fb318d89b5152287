"""A relay to a loopback device that counts the buffers of its client by kind, and the bytes that cross the link.

llama.cpp's log has the larger of both devices' buffers when the devices share each tensor (`split_mode` "tensor"), and
leaves out the buffers in which their partial sums meet. The RPC protocol has every allocation, to the byte.
The relay carries every command unchanged. Source: ggml-rpc.cpp:61-170, 309-340.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from inferlab.engine.loopback import LoopbackDevice
from inferlab.engine.loopback.relay import PIECE_BYTES, read_whole, relaying

HEADER = struct.Struct("<BQ")  # a command and the bytes of its message
SIZE = struct.Struct("<Q")
ALLOC_BUFFER, FREE_BUFFER, BUFFER_CLEAR, SET_TENSOR, SET_TENSOR_HASH, GET_TENSOR, INIT_TENSOR = 0, 4, 5, 6, 7, 8, 12
ANSWERED = frozenset([ALLOC_BUFFER, 1, 2, 3, SET_TENSOR_HASH, GET_TENSOR, 9, 11, 13, 14, 15])  # commands with an answer
REMOTE = struct.Struct("<QQ")  # rpc_msg_alloc_buffer_rsp: the buffer, and the bytes that it got
BUFFER_OF_TENSOR = struct.Struct("<12xQ")  # rpc_tensor: an id and a type, then the buffer
RPC_TENSOR_BYTES = 296  # sizeof(rpc_tensor), which is packed
BEFORE_DATA_BYTES = RPC_TENSOR_BYTES + 9  # in a message that sets a tensor: rpc_tensor, a flag, an offset


@dataclass
class Watched:
    """What one client of a device allocated and sent; the fields change while it works.

    endpoint   what Settings.rpc_servers takes
    live       bytes of each buffer that exists, by its number on the device
    cleared    buffers that were set to zero as a whole: caches
    filled     buffers into which tensors were written
    moved      bytes of tensors by direction, "to device" and "from device"; headers of messages do not count
    """

    endpoint: str = ""
    live: dict[int, int] = field(default_factory=dict)
    cleared: set[int] = field(default_factory=set)
    filled: set[int] = field(default_factory=set)
    moved: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def bytes_by_kind(self) -> dict[str, int]:
        """Bytes of live buffers as "weights", "kv_cache" and "compute", before any token was computed.

        A buffer that was cleared is a cache; one that tensors were written into has weights; the rest is for computing.
        """
        with self.lock:
            sizes = dict.fromkeys(("weights", "kv_cache", "compute"), 0)
            for number, n_bytes in self.live.items():
                kind = "kv_cache" if number in self.cleared else "weights" if number in self.filled else "compute"
                sizes[kind] += n_bytes
            return sizes

    @property
    def total_bytes(self) -> int:
        """Bytes of all live buffers."""
        with self.lock:
            return sum(self.live.values())

    # --- what the relay sees ------------------------------------------------------------------

    def sent(self, command: int, head: bytes) -> None:
        """Note a command whose message begins with `head`."""
        with self.lock:
            if command == FREE_BUFFER:
                self.live.pop(SIZE.unpack_from(head)[0], None)
            elif command == BUFFER_CLEAR:
                self.cleared.add(SIZE.unpack_from(head)[0])
            elif command in (SET_TENSOR, SET_TENSOR_HASH, INIT_TENSOR):
                self.filled.add(BUFFER_OF_TENSOR.unpack_from(head)[0])

    def answered(self, command: int, answer: bytes) -> None:
        """Count the answer to an allocation."""
        if command == ALLOC_BUFFER:
            number, n_bytes = REMOTE.unpack_from(answer)
            with self.lock:
                self.live[number] = n_bytes
                self.filled.discard(number)
                self.cleared.discard(number)

    def carried(self, direction: str, n_bytes: int) -> None:
        """Count bytes of a tensor that crossed the link."""
        with self.lock:
            self.moved[direction] += n_bytes


@contextmanager
def watching(device: LoopbackDevice) -> Iterator[Watched]:
    """A relay to `device` that counts what the client allocates and transfers, while the block runs.

    The client's engine must be closed, or the device's, before the block ends.
    """
    seen = Watched()
    with relaying(device.endpoint, partial(_carry, seen=seen)) as seen.endpoint:
        yield seen


def _carry(client: socket.socket, device: socket.socket, seen: Watched) -> None:
    """Carry one client's commands and the device's answers, and count them."""
    pending: deque[int] = deque()
    answers = threading.Thread(target=_carry_answers, args=(device, client, pending, seen), daemon=True)
    answers.start()
    with suppress(OSError):
        _carry_commands(client, device, pending, seen)
    with suppress(OSError):
        device.shutdown(socket.SHUT_RDWR)  # the other thread still reads, so that closing is not enough
    answers.join()


def _carry_commands(client: socket.socket, device: socket.socket, pending: deque[int], seen: Watched) -> None:
    """Carry each command to the device and count it."""
    while header := read_whole(client, HEADER.size):
        command, n_left = HEADER.unpack(header)
        head = read_whole(client, min(n_left, RPC_TENSOR_BYTES))
        seen.sent(command, head)
        if command == SET_TENSOR:
            seen.carried("to device", n_left - BEFORE_DATA_BYTES)
        if command in ANSWERED:
            pending.append(command)
        device.sendall(header + head)
        n_left -= len(head)
        while n_left and (piece := client.recv(min(n_left, PIECE_BYTES))):
            device.sendall(piece)
            n_left -= len(piece)


def _carry_answers(device: socket.socket, client: socket.socket, pending: deque[int], seen: Watched) -> None:
    """Carry each answer to the client, and count what it says; a client of a device that ended is told so."""
    with suppress(OSError):
        while header := read_whole(device, SIZE.size):
            n_left = SIZE.unpack(header)[0]
            command = pending.popleft()
            head = read_whole(device, min(n_left, RPC_TENSOR_BYTES))
            seen.answered(command, head)
            if command == GET_TENSOR:
                seen.carried("from device", n_left)
            client.sendall(header + head)
            n_left -= len(head)
            while n_left and (piece := device.recv(min(n_left, PIECE_BYTES))):
                client.sendall(piece)
                n_left -= len(piece)
    with suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)
