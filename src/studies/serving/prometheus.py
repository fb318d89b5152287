"""A Prometheus that watches one program on this computer while a block runs, and answers queries about it.

It is a program of its own (Debian's package `prometheus`), which nothing else in this library needs.
It keeps its samples in a temporary folder and listens on 127.0.0.1 only.
HTTP API: https://prometheus.io/docs/prometheus/latest/querying/api/
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from inferlab.engine.loopback import free_port
from inferlab.errors import EngineRefused, EngineTimeout, EngineUnavailable

HOST = "127.0.0.1"
START_SECONDS, ANSWER_SECONDS = 30.0, 10.0


@dataclass(frozen=True)
class Series:
    """The answer to a query of PromQL: a value at each time at which there was one.

    seconds  since the epoch as Prometheus gives them; a record counts them from its first request
    """

    query: str
    seconds: tuple[float, ...]
    values: tuple[float, ...]

    def between(self, began: float, ended: float) -> tuple[float, ...]:
        """The values from one time to another."""
        return tuple(value for at, value in zip(self.seconds, self.values, strict=True) if began <= at <= ended)


@dataclass(frozen=True)
class Prometheus:
    """One that runs and scrapes; `watching` starts and stops it."""

    port: int
    interval_seconds: float

    @property
    def version(self) -> str:
        """Its version, such as 2.42.0."""
        return self._ask("/api/v1/status/buildinfo")["version"]

    def series(self, query: str, began: float, ended: float) -> Series:
        """The values of a query between two times, seconds since the epoch, one for each scrape.

        Raises EngineRefused for a query with more or fewer than one series, or one that Prometheus refuses.
        """
        asked = {"query": query, "start": began, "end": ended, "step": self.interval_seconds}
        found = self._ask("/api/v1/query_range?" + urlencode(asked))["result"]
        if len(found) != 1:
            raise EngineRefused(f"The query {query} has {len(found)} series instead of one. Look at the scraped page.")
        times, values = zip(*found[0]["values"], strict=True)
        return Series(query, tuple(map(float, times)), tuple(map(float, values)))

    def _ask(self, path: str) -> Any:
        try:
            with urlopen(f"http://{HOST}:{self.port}{path}", timeout=ANSWER_SECONDS) as answer:
                return json.load(answer)["data"]
        except (URLError, OSError, ValueError, KeyError) as error:
            raise EngineRefused(f"Prometheus did not answer {path}: {error}. Look at its log.") from error

    @property
    def is_ready(self) -> bool:
        """Whether it takes queries."""
        try:
            with urlopen(f"http://{HOST}:{self.port}/-/ready", timeout=1) as answer:
                return answer.status == 200
        except (URLError, OSError):
            return False


@contextmanager
def watching(target: int, interval_seconds: float = 1.0, program: str | Path | None = None) -> Iterator[Prometheus]:
    """Scrape /metrics of the program that listens on port `target`, every `interval_seconds`, until the block ends.

    program  path of prometheus; None: the one that the shell finds
    Raises EngineUnavailable without the program, EngineRefused or EngineTimeout if it does not start.
    """
    found = shutil.which(program or "prometheus")
    if not found:
        raise EngineUnavailable(f"There is no {program or 'prometheus'}: install it with `apt install prometheus`.")
    watcher = Prometheus(free_port(), interval_seconds)
    with tempfile.TemporaryDirectory() as folder:
        child = _started(found, Path(folder), watcher, target)
        try:
            _wait_until_ready(watcher, child)
            yield watcher
        finally:
            child.kill()  # its samples go with the folder
            child.wait()


def configuration(target: int, interval_seconds: float) -> str:
    """The configuration file: one target, scraped every interval. JSON is YAML too."""
    scraped = {"job_name": "llama-server", "static_configs": [{"targets": [f"{HOST}:{target}"]}]}
    every = f"{round(1000 * interval_seconds)}ms"
    return json.dumps({"global": {"scrape_interval": every, "scrape_timeout": every}, "scrape_configs": [scraped]})


def _started(program: str, folder: Path, watcher: Prometheus, target: int) -> subprocess.Popen:
    config = folder / "prometheus.yml"
    config.write_text(configuration(target, watcher.interval_seconds), encoding="utf-8")
    options = {"config.file": config, "storage.tsdb.path": folder / "data",
               "web.listen-address": f"{HOST}:{watcher.port}", "log.level": "error"}  # fmt: skip
    command = [program, *(f"--{name}={value}" for name, value in options.items())]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _wait_until_ready(watcher: Prometheus, child: subprocess.Popen) -> None:
    ends = time.monotonic() + START_SECONDS
    while not watcher.is_ready:
        if child.poll() is not None:
            raise EngineRefused(f"Prometheus ended with status {child.returncode} before it was ready. Try it by hand.")
        if time.monotonic() > ends:
            raise EngineTimeout(f"Prometheus was not ready after {START_SECONDS:.0f} s. End other work and try again.")
        time.sleep(0.05)
