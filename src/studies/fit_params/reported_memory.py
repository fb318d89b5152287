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

from inferlab.engine.loopback import LoopbackDevice
from inferlab.engine.loopback.relay import ADDRESS, PIECE_BYTES

GET_DEVICE_MEMORY = 11  # RPC_CMD_GET_DEVICE_MEMORY, ggml-rpc.cpp:73
COMMAND = struct.Struct("<BQ")  # the command and the bytes of its message: send_rpc_cmd, ggml-rpc.cpp
MEMORY = struct.Struct("<QQQ")  # the bytes of the answer, then free_mem and total_mem of rpc_msg_get_device_memory_rsp


@contextmanager
def reporting_memory(device: LoopbackDevice, n_bytes: int) -> Iterator[str]:
    """The endpoint of a relay to `device` that reports n_bytes of memory, all free, while the block runs."""
    with socket.create_server((ADDRESS, 0)) as listener:
        threading.Thread(target=_serve, args=(listener, device.endpoint, n_bytes), daemon=True).start()
        try:
            yield f"{ADDRESS}:{listener.getsockname()[1]}"
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # ends the wait for a next client


def _serve(listener: socket.socket, endpoint: str, n_bytes: int) -> None:
    """Serve one client after another, as the device does, until the listener is closed or the device is gone."""
    host, port = endpoint.split(":")
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            with client, socket.create_connection((host, int(port))) as device:
                threading.Thread(target=_carry_answers, args=(device, client), daemon=True).start()
                with suppress(OSError):
                    _carry_commands(client, device, n_bytes)
                with suppress(OSError):
                    device.shutdown(socket.SHUT_RDWR)  # the other thread still reads, so that closing is not enough


def _carry_commands(client: socket.socket, device: socket.socket, n_bytes: int) -> None:
    """Carry each command to the device, or answer it; a client waits for an answer before its next command."""
    while header := _read(client, COMMAND.size):
        command, n_left = COMMAND.unpack(header)
        if command == GET_DEVICE_MEMORY:
            _read(client, n_left)
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


def _read(end: socket.socket, n_bytes: int) -> bytes:
    """So many bytes, or b"" where the other end has closed."""
    data = end.recv(n_bytes, socket.MSG_WAITALL)
    return data if len(data) == n_bytes else b""
