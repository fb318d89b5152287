"""The device's process: llama.cpp's RPC server on 127.0.0.1, and the relay in front of it when the link is slowed.

It exits with its owner: its standard input closes then, and on Linux the kernel sends a signal too, because a
process that the owner forked may still hold the other end of the pipe open.
No other address than 127.0.0.1 can be given, because the server has no authentication: its clients control it.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import socket
import sys
import threading
from contextlib import suppress

from inferlab.engine import libraries
from inferlab.engine.loopback.relay import serve
from inferlab.machine import LOOPBACK_ADDRESS

CPU = 0  # enum ggml_backend_dev_type
PR_SET_PDEATHSIG, PR_SET_TIMERSLACK = 1, 29  # linux/prctl.h


def main(arguments: list[str]) -> None:
    """OWNER PORT N_THREADS, and for a slowed link BYTES_PER_SECOND LATENCY_SECONDS PROBE_PORT."""
    owner, port, n_threads = map(int, arguments[:3])
    exit_with(owner)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prefer_for_oom_killer()
    start(serve_device, port, n_threads)
    if arguments[3:]:
        start(serve_link, port, float(arguments[3]), float(arguments[4]), int(arguments[5]))
    sys.stdin.read()
    os._exit(0)


def exit_with(owner: int) -> None:
    """On Linux: exit when the owner dies. The signal also comes when only the thread that started us ends."""

    def exit_if_orphaned(*_: object) -> None:
        if os.getppid() != owner:
            os._exit(0)

    if sys.platform == "linux":
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGUSR1, exit_if_orphaned)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGUSR1)
        exit_if_orphaned()


def prefer_for_oom_killer() -> None:
    """Let Linux kill this process, which holds the weights, before the notebook's when memory runs out."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


def start(work, *arguments) -> None:
    """Call `work` in a thread, beside the one that watches the owner; the process exits when it returns or fails."""

    def run() -> None:
        try:
            work(*arguments)
        except Exception as error:
            print(f"{type(error).__name__}: {error}", flush=True)
        os._exit(1)

    threading.Thread(target=run, daemon=True).start()


def serve_device(port: int, n_threads: int) -> None:
    """Run the RPC server with this machine's CPU as its one device; returns only if it could not listen."""
    _, ggml, rpc = (ctypes.CDLL(str(libraries.shared_library(name))) for name in ("ggml-base", "ggml", "ggml-rpc"))
    ggml.ggml_backend_dev_by_type.restype, ggml.ggml_backend_dev_by_type.argtypes = ctypes.c_void_p, [ctypes.c_int]
    devices = (ctypes.c_void_p * 1)(ggml.ggml_backend_dev_by_type(CPU))
    serve_forever = rpc.ggml_backend_rpc_start_server
    sizes = [ctypes.c_size_t] * 2
    serve_forever.restype, serve_forever.argtypes = None, [ctypes.c_char_p, ctypes.c_char_p, *sizes, ctypes.c_void_p]
    serve_forever(f"{LOOPBACK_ADDRESS}:{port}".encode(), None, n_threads, 1, devices)


def serve_link(port: int, bytes_per_second: float, latency_seconds: float, probe_port: int) -> None:
    """Print the relay's port and serve; the first client is the owner measuring the link, later ones use the device."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)
    with socket.create_server((LOOPBACK_ADDRESS, 0), backlog=1) as listener:
        os.write(1, f"link {listener.getsockname()[1]}\n".encode())
        serve(listener, itertools.chain([probe_port], itertools.repeat(port)), bytes_per_second, latency_seconds)


if __name__ == "__main__":
    main(sys.argv[1:])
