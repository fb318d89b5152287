"""Starts llama.cpp's own server on this computer, and reads its log on the client's clock.

The server listens on 127.0.0.1 at a port that it finds itself, and never uses the network.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from inferlab.engine import measurement_queue, openmp
from inferlab.engine.log import Buffer, buffers_in
from inferlab.engine.process import piped
from inferlab.engine.programs import built_program
from inferlab.errors import EngineRefused, EngineTimeout, EngineUnavailable, InvalidSettings
from inferlab.machine import LOOPBACK_ADDRESS
from inferlab.options.lines.base import is_default
from inferlab.options.lines.llama_server import flag
from inferlab.settings import Settings

ALWAYS = ("--offline", "--log-timestamps", "--log-prefix", "--log-colors", "off", "-lv", "4", "-fit", "off")
"""Level 4 has the lines of allocations; `-fit off` keeps llama.cpp from changing settings that were given."""
STAMP = re.compile(r"(\d+)\.(\d\d)\.(\d{3})\.(\d{3}) \w (.*)")  # minutes, seconds, ms, us: common/log.cpp:119
LISTENING = re.compile(r"listening on http://127\.0\.0\.1:(\d+)")
LAUNCHED = re.compile(r"slot\s+launch_slot_\S*: id +(\d+) \| task (\d+) \| processing task")
CHOSEN = {
    "n_threads": r"n_threads = (\d+) \(n_threads_batch",
    "n_threads_batch": r"n_threads_batch = (\d+)\)",
    "n_ctx": r"llama_context: n_ctx +=\s+(\d+)",
    "n_seq_max": r"initializing, n_slots = (\d+)",
    "kv_unified": r"kv_unified = '(true|false)'",
}
LAST_LINES = 12
# Options that the server turns off for some models, and how it calls them; server-context.cpp:1148-1183.
MAY_BE_IGNORED = {"--cache-reuse": "cache_reuse", "--context-shift": "ctx_shift", "--swa-full": "swa_full"}


@dataclass(frozen=True)
class ServerLine:
    """One line of the server's log: its own seconds since its start, the client's clock when it was read, the text.

    A line without a time stamp, such as the error that ends a start, has the seconds of the line before it.
    """

    own_seconds: float
    read_seconds: float
    text: str


@dataclass(frozen=True)
class Launch:
    """A request was given a slot: the client's clock (time.perf_counter), and the slot."""

    seconds: float
    slot: int


class LlamaServer:
    """A server that runs; `llama_server` starts and stops it."""

    def __init__(self, child: subprocess.Popen, settings: Settings, options: Sequence[str] = ()) -> None:
        self._child, self.settings, self.options = child, settings, tuple(options)
        self._lines: list[ServerLine] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.port = 0

    def _read(self) -> None:
        for raw in piped(self._child.stdout):
            now = time.perf_counter()
            if text := raw.decode("utf-8", "replace").rstrip():
                written = self._lines[-1].own_seconds if self._lines else 0.0
                self._lines.append(server_line(text, now) or ServerLine(written, now, text))

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._child.pid

    @property
    def log(self) -> str:
        """The log so far, without its time stamps."""
        return "\n".join(line.text for line in self._lines)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """What llama.cpp allocated, by its log."""
        return buffers_in(self.log)

    def launches(self) -> tuple[Launch, ...]:
        """When each request so far was given its slot, in the order of time."""
        return launches_in(tuple(self._lines))

    def wait_until_ready(self, seconds: float) -> None:
        """Return once /health answers 200. Raises EngineRefused or EngineTimeout, each with the log's last lines."""
        ends = time.monotonic() + seconds
        while not self._is_ready():
            if self._child.poll() is not None:
                raise EngineRefused("llama-server ended before it was ready. Read its last lines.", self._last_lines())
            if time.monotonic() > ends:
                raise EngineTimeout(
                    f"llama-server was not ready after {seconds:.0f} s. Allow more time or take a smaller model.",
                    self._last_lines(),
                )
            time.sleep(0.02)
        self.settings = chosen_settings(self.settings, self.log)
        refuse_ignored(self.options, self.log)

    def _is_ready(self) -> bool:
        if not self.port and (listening := LISTENING.search(self.log)):
            self.port = int(listening[1])
        return bool(self.port) and is_healthy(self.port)

    def _last_lines(self) -> str:
        self._reader.join(1 if self._child.poll() is not None else 0)
        return "\n".join(self.log.splitlines()[-LAST_LINES:])

    def stop(self) -> None:
        """End the process; a second call does nothing."""
        self._child.terminate()
        try:
            self._child.wait(5)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._reader.join(1)


@contextmanager
def llama_server(
    model: str | Path,
    settings: Settings | None = None,
    options: Sequence[str] = (),
    cores: Sequence[int] | None = None,
    program: str | Path | None = None,
    seconds: float = 60.0,
) -> Iterator[LlamaServer]:
    """A llama-server with a model, until the block ends, which is one turn of the measurement queue.

    settings  None: the server's own defaults
    options   further flags of llama-server
    cores     numbers of the cores that it may use (Linux); None: all
    program   path of llama-server; None: the one that `make tools` compiled
    Raises EngineUnavailable without the program or the cores, EngineRefused or EngineTimeout if it does not start, and
    InvalidSettings for an option that it would only warn about and then ignore.
    """
    path = require_program(program)
    command = [str(path), *arguments(model, settings), *options]
    with measurement_queue.turn():
        server = LlamaServer(_started(command, cores), settings or Settings(), options)
        try:
            server.wait_until_ready(seconds)
            yield server
        finally:
            server.stop()


def require_program(program: str | Path | None = None) -> Path:
    """The path of llama-server. Raises EngineUnavailable where there is none."""
    path = Path(program) if program else built_program("llama-server")
    if path is None or not path.is_file():
        raise EngineUnavailable(
            f"There is no llama-server{f' at {path}' if path else ''}: llama-cpp-python installs none. "
            "Compile the one of the same llama.cpp with `make tools`."
        )
    return path


def arguments(model: str | Path, settings: Settings | None) -> list[str]:
    """The command line after the program's name; a setting that is llama-server's default is left out."""
    values = {f.name: getattr(settings, f.name) for f in fields(settings)} if settings else {}
    wanted = [flag(name, value) for name, value in values.items() if _is_set(name, value)]
    return ["-m", str(model), "--host", LOOPBACK_ADDRESS, "--port", "0", *ALWAYS, *shlex.split(" ".join(wanted))]


def _is_set(name: str, value: object) -> bool:
    return value not in (None, ()) and (name == "n_seq_max" or not is_default(name, value, "cli"))


def _started(command: list[str], cores: Sequence[int] | None) -> subprocess.Popen:
    if cores is not None and not hasattr(os, "sched_setaffinity"):
        raise EngineUnavailable("This system cannot bind a process to cores. Leave `cores` out, or use Linux.")
    bind = None if cores is None else lambda: os.sched_setaffinity(0, cores)
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=openmp.bounded(os.environ),
        preexec_fn=bind,
    )


def is_healthy(port: int) -> bool:
    """Whether /health answers 200; it answers 503 while the model loads (server-http.cpp)."""
    connection = HTTPConnection(LOOPBACK_ADDRESS, port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def server_line(text: str, read_seconds: float) -> ServerLine | None:
    """A line of the log with its time stamp; None for a line without one."""
    stamp = STAMP.match(text)
    if not stamp:
        return None
    minutes, seconds, millis, micros = map(int, stamp.groups()[:4])
    return ServerLine(60 * minutes + seconds + millis / 1e3 + micros / 1e6, read_seconds, stamp[5])


def launches_in(lines: Sequence[ServerLine]) -> tuple[Launch, ...]:
    """The launches of slots in a log, on the client's clock.

    A line is read a little after it was written, so the offset of the two clocks is the smallest difference:
        offset = min over lines (read_seconds - own_seconds),  client's clock = own_seconds + offset
    """
    offset = min((line.read_seconds - line.own_seconds for line in lines), default=0.0)
    matches = ((line, LAUNCHED.match(line.text)) for line in lines)
    return tuple(Launch(line.own_seconds + offset, int(match[1])) for line, match in matches if match)


def refuse_ignored(options: Sequence[str], log: str) -> None:
    """Raise InvalidSettings for an option that was given and that the log says is turned off for this model."""
    for option, name in MAY_BE_IGNORED.items():
        if option in options and (warning := re.search(rf"{name} is not supported by (this \w+|\w+)", log)):
            raise InvalidSettings(
                f"{option} is not supported by {warning[1]}, and llama-server would go on without it after a warning. "
                "A cache with windows cannot be shifted unless --swa-full keeps all of it, nor one of a model with "
                "images; a model without windows has no use for --swa-full. Leave the option out."
            )


def chosen_settings(settings: Settings, log: str) -> Settings:
    """Settings with the values that llama-server chose itself, from its log."""
    matches = {name: re.search(pattern, log) for name, pattern in CHOSEN.items()}
    return settings.but(**{name: json.loads(match[1]) for name, match in matches.items() if match})
