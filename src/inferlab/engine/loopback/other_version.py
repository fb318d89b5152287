"""An RPC server of another version, for the error clinic: it answers the first message of each client and hangs up."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from inferlab.machine import LOOPBACK_ADDRESS

HELLO_BYTES = 1 + 8 + 24  # command, size, capabilities (rpc_msg_hello_req)
OTHER_VERSION = bytes([99, 0, 0, 0]) + bytes(24)  # major, minor, patch, padding, capabilities (rpc_msg_hello_rsp)


@contextmanager
def server_of_another_version() -> Iterator[str]:
    """The endpoint of a server on this machine that says its protocol has version 99.0.0."""
    with socket.create_server((LOOPBACK_ADDRESS, 0)) as server:
        threading.Thread(target=_answer_all, args=(server,), daemon=True).start()
        yield f"{LOOPBACK_ADDRESS}:{server.getsockname()[1]}"


def _answer_all(server: socket.socket) -> None:
    """Answer each client until the server is closed."""
    while True:
        try:
            client, _ = server.accept()
            with client:
                client.recv(HELLO_BYTES, socket.MSG_WAITALL)
                client.sendall(len(OTHER_VERSION).to_bytes(8, "little") + OTHER_VERSION)
        except OSError:
            return
