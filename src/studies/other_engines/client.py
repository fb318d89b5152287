"""Another engine in a process of its own, from the side that measures."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from inferlab.errors import OtherEngineFailed

COMMAND = (sys.executable, "-m", "studies.other_engines.worker")


class Request(NamedTuple):
    """Which engine opens which file or folder: `weights` in the engine's own words, n_ctx in tokens."""

    engine: str
    weights: str
    path: Path
    n_threads: int
    n_ctx: int


class Answer(NamedTuple):
    """Generated token ids, and the seconds from the request until each was known."""

    tokens: tuple[int, ...]
    seconds: tuple[float, ...]


class OtherEngine:
    """A process that waits to open a model; close it after use.

    command  starts the process; tests give another
    """

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        self._errors = tempfile.TemporaryFile(mode="w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, encoding="utf-8"
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def open(self, request: Request) -> str:
        """Load the model; the engine's version. Raises OtherEngineFailed with the last line that the process wrote."""
        return self._ask({**request._asdict(), "path": str(request.path)})["version"]

    def generate(self, tokens: Sequence[int], n_gen: int) -> Answer:
        """Greedy decoding of `n_gen` tokens after `tokens`. Raises OtherEngineFailed if the process ends."""
        reply = self._ask({"tokens": list(tokens), "n_gen": n_gen})
        return Answer(tuple(reply["tokens"]), tuple(reply["seconds"]))

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        self._errors.close()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with suppress(BrokenPipeError):
            print(json.dumps(request), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise OtherEngineFailed(f"The engine's process ended: {self._last_words()}")
        return json.loads(line)

    def _last_words(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        return (self._errors.read().strip().splitlines() or ["nothing was written"])[-1]
