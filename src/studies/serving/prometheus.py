"""A Prometheus that watches one program on this computer while a block runs, and answers queries about it.

It is a program of its own (Debian's package `prometheus`), which nothing else in this library needs.
It keeps its samples in a temporary folder and listens on 127.0.0.1 only.
HTTP API: https://prometheus.io/docs/prometheus/latest/querying/api/
"""

from __future__ import annotations

import json
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
from inferlab.machine import LOOPBACK_ADDRESS
from studies.serving.study import Series


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
        """The values of a query of one series between two times, seconds since the epoch, one for each scrape."""
        asked = {"query": query, "start": began, "end": ended, "step": self.interval_seconds}
        (answer,) = self._ask("/api/v1/query_range?" + urlencode(asked))["result"]
        times, values = zip(*answer["values"], strict=True)
        return Series(query, tuple(map(float, times)), tuple(map(float, values)))

    def wait_until_ready(self) -> None:
        """Return when it takes queries; half a minute of refusals is an error."""
        ends = time.monotonic() + 30
        while True:
            try:
                urlopen(f"http://{LOOPBACK_ADDRESS}:{self.port}/-/ready", timeout=1).close()
                return
            except URLError:
                if time.monotonic() > ends:
                    raise
                time.sleep(0.05)

    def _ask(self, path: str) -> Any:
        with urlopen(f"http://{LOOPBACK_ADDRESS}:{self.port}{path}", timeout=10) as answer:
            return json.load(answer)["data"]


@contextmanager
def watching(target: int, interval_seconds: float) -> Iterator[Prometheus]:
    """Scrape /metrics of the program that listens on port `target`, every `interval_seconds`, until the block ends."""
    watcher = Prometheus(free_port(), interval_seconds)
    with tempfile.TemporaryDirectory() as folder:
        child = _started(Path(folder), watcher, target)
        try:
            watcher.wait_until_ready()
            yield watcher
        finally:
            child.kill()  # its samples go with the folder
            child.wait()


def _started(folder: Path, watcher: Prometheus, target: int) -> subprocess.Popen:
    """The program with a configuration file of one target, scraped every interval. JSON is YAML too."""
    scraped = {"job_name": "llama-server", "static_configs": [{"targets": [f"{LOOPBACK_ADDRESS}:{target}"]}]}
    every = f"{round(1000 * watcher.interval_seconds)}ms"
    written = {"global": {"scrape_interval": every, "scrape_timeout": every}, "scrape_configs": [scraped]}
    config = folder / "prometheus.yml"
    config.write_text(json.dumps(written), encoding="utf-8")
    options = {
        "config.file": config,
        "storage.tsdb.path": folder / "data",
        "web.listen-address": f"{LOOPBACK_ADDRESS}:{watcher.port}",
        "log.level": "error",
    }
    command = ["prometheus", *(f"--{name}={value}" for name, value in options.items())]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
