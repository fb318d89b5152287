"""Why a worker ended, in words: signals, exit codes, and what ggml prints before it stops a process."""

from __future__ import annotations

import signal

# What ggml-rpc.cpp says before it stops the process, and what it means.
LOST_DEVICES = {
    "Remote RPC server crashed": "its RPC device is gone: the server ended, or the connection broke; start a new one",
    "Failed to connect to": "no RPC server answers at one of rpc_servers; start one there, or leave them out",
}
ENDINGS = {
    "SIGKILL": "most often the system's answer to memory running out",
    "SIGABRT": "llama.cpp stopped itself on a failed check",
    "SIGBUS": "a mapped file became shorter than it was, or its disk failed",
    "SIGSEGV": "an invalid memory access",
    "SIGILL": "an instruction this processor does not have: llama.cpp was built for another one",
}


def how_it_ended(code: int) -> str:
    """An exit code in words: the signal's name and what it usually means."""
    if code >= 0:
        return f"exit status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
    return f"{name}: {ENDINGS[name]}" if name in ENDINGS else name
