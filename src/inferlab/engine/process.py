"""One worker process as its owner sees it: how it is started, spoken to and stopped, and why it ended."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, AnyStr

from inferlab.engine import openmp

LAST_LINES = 12
POLL_SECONDS = 0.2  # waiting is cut into slices, so that an interrupt gets through
# What ggml-rpc.cpp logs before it stops the process, and what it means.
LOST_DEVICES = {
    "Remote RPC server crashed": "its RPC device is gone: the server ended, or the connection broke; start a new one",
    "Failed to connect to": "no RPC server answers at one of rpc_servers; start one there, or leave them out",
}
SIGNALS = {
    "SIGKILL": "most often the system's answer to memory running out",
    "SIGABRT": "llama.cpp stopped itself on a failed check",
    "SIGBUS": "a mapped file became shorter than it was, or its disk failed",
    "SIGSEGV": "an invalid memory access",
    "SIGILL": "an instruction this processor does not have: llama.cpp was built for another one",
}
KILLED = tuple(getattr(signal, name) for name in ("SIGKILL", "SIGTERM") if hasattr(signal, name))
DECIDE_VISIBLE = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES")


class NoReply(Exception):
    """The worker wrote nothing within the time that the caller allows."""


class WorkerProcess:
    """A running `inferlab.engine.worker`, its log file, and a thread that reads what it writes.

    `environment` is added to this process's, and the bound of `openmp` on how long threads spin to both.
    `visible_gpus` is what it was started with: it sees no later change.
    `started_by` is a command that runs the one behind it, such as `prlimit --memlock=0`.
    """

    def __init__(self, environment: Mapping[str, str], started_by: Sequence[str] = ()) -> None:
        self.visible_gpus = visible_gpus()
        handle, name = tempfile.mkstemp(prefix="inferlab-", suffix=".log")
        os.close(handle)
        self.log = Path(name)
        self.child = subprocess.Popen(
            [*started_by, sys.executable, "-m", "inferlab.engine.worker", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=openmp.bounded({**os.environ, **environment, "GGML_NO_BACKTRACE": "1"}),
            start_new_session=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        return self.child.pid

    @property
    def alive(self) -> bool:
        return self.child.poll() is None

    def send(self, message: dict[str, Any]) -> None:
        """Write one request. Raises BrokenPipeError when the process has ended, ValueError after `stop`."""
        requests = piped(self.child.stdin)
        requests.write(json.dumps(message) + "\n")
        requests.flush()

    def next_line(self, timeout_seconds: float | None) -> str:
        """The next line that it writes, empty when it has ended. Raises NoReply; None waits for ever."""
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            try:
                return self._lines.get(timeout=POLL_SECONDS)
            except queue.Empty:
                if deadline is not None and time.monotonic() > deadline:
                    raise NoReply from None

    def _read(self) -> None:
        """Queue every line; an empty one marks the end."""
        with piped(self.child.stdout) as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put("")

    def last_log_lines(self) -> str:
        """The end of llama.cpp's log."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-LAST_LINES:])

    def why_it_ended(self) -> str:
        """Wait for its end and give the reason in words: a lost RPC device by the log, else the exit code."""
        code, log = self.child.wait(), self.last_log_lines()
        return next((reason for text, reason in LOST_DEVICES.items() if text in log), exit_reason(code))

    def was_killed(self) -> bool:
        """Wait for its end and say whether somebody else ended it (SIGKILL, SIGTERM): it did not fail by itself."""
        return -self.child.wait() in KILLED

    def stop(self) -> None:
        """Kill it and delete its log."""
        end_child(self.child)
        self.log.unlink(missing_ok=True)


def piped(stream: IO[AnyStr] | None) -> IO[AnyStr]:
    """A stream of a child that was started with a pipe for it."""
    assert stream is not None
    return stream


def end_child(child: subprocess.Popen[Any]) -> None:
    """Kill a child that has a pipe for its input, and wait for its end."""
    child.kill()
    child.wait()
    piped(child.stdin).close()


def exit_reason(code: int) -> str:
    """An exit code in words: the signal's name and what it usually means."""
    if code >= 0:
        return f"exit status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
    return f"{name}: {SIGNALS[name]}" if name in SIGNALS else name


def visible_gpus() -> tuple[str | None, ...]:
    """The environment variables that decide which GPUs a new worker sees, and in which order CUDA numbers them."""
    return tuple(os.environ.get(name) for name in DECIDE_VISIBLE)
