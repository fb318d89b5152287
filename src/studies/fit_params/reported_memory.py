"""A relay to a loopback device that tells its clients a chosen free memory, as a card of that size would.

The relay answers one command of the RPC protocol itself, the one that asks for the device's memory, and carries all
others to the device and back. The memory is only told: what a client allocates is the host's. So it is for programs
that plan and allocate nothing, such as llama-fit-params.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

from inferlab.engine.loopback import LoopbackDevice
from inferlab.engine.loopback.relay import PIECE_BYTES, read_whole, relaying

GET_DEVICE_MEMORY = 11  # RPC_CMD_GET_DEVICE_MEMORY, ggml-rpc.cpp:73
COMMAND = struct.Struct("<BQ")  # the command and the bytes of its message: send_rpc_cmd, ggml-rpc.cpp
MEMORY = struct.Struct("<QQQ")  # the bytes of the answer, then free_mem and total_mem of rpc_msg_get_device_memory_rsp


@contextmanager
def reporting_memory(device: LoopbackDevice, n_bytes: int) -> Iterator[str]:
    """The endpoint of a relay to `device` that reports n_bytes of memory, all free, while the block runs."""
    with relaying(device.endpoint, partial(_carry, n_bytes=n_bytes)) as endpoint:
        yield endpoint


def _carry(client: socket.socket, device: socket.socket, n_bytes: int) -> None:
    """Carry one client's commands and the device's answers."""
    threading.Thread(target=_carry_answers, args=(device, client), daemon=True).start()
    with suppress(OSError):
        _carry_commands(client, device, n_bytes)
    with suppress(OSError):
        device.shutdown(socket.SHUT_RDWR)  # the other thread still reads, so that closing is not enough


def _carry_commands(client: socket.socket, device: socket.socket, n_bytes: int) -> None:
    """Carry each command to the device, or answer it; a client waits for an answer before its next command."""
    while header := read_whole(client, COMMAND.size):
        command, n_left = COMMAND.unpack(header)
        if command == GET_DEVICE_MEMORY:
            read_whole(client, n_left)
            client.sendall(MEMORY.pack(16, n_bytes, n_bytes))
            continue
        device.sendall(header)
        while n_left and (piece := client.recv(min(n_left, PIECE_BYTES))):
            device.sendall(piece)
            n_left -= len(piece)


def _carry_answers(device: socket.socket, client: socket.socket) -> None:
    with suppress(OSError):
        while piece := device.recv(PIECE_BYTES):
            client.sendall(piece)
