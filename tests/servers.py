"""Servers that tests start: a folder over HTTP, and JupyterLab."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

STARTING_MS = 90_000
"""How long JupyterLab and its first kernel may take on a slow machine."""


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and says nothing: the tests' output is for failures."""

    def log_message(self, *args) -> None:
        pass


@contextmanager
def serving(folder: Path, handler: type[SimpleHTTPRequestHandler] = Quiet) -> Iterator[str]:
    """Address of a local server of a folder, ending in a slash."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@contextmanager
def jupyterlab(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[tuple[str, int]]:
    """Address and process number of a JupyterLab that `command` starts and that needs no token; it writes to `log`."""
    from inferlab.engine.loopback import free_port

    port = free_port()
    options = ["--no-browser", f"--port={port}", "--allow-root", "--IdentityProvider.token="]
    with log.open("wb") as written:
        server = subprocess.Popen(
            [*command, *options], stdout=written, stderr=written, env=environment, start_new_session=True
        )
    try:
        _wait_for(f"http://127.0.0.1:{port}/lab", log)
        yield f"http://127.0.0.1:{port}", server.pid
    finally:
        _end(server)


def _end(server: subprocess.Popen[bytes]) -> None:
    """Ask the server and its kernels to end, then make them: how fast they do is no test's subject."""
    for sent, seconds in ((signal.SIGTERM, 20), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError):
            os.killpg(server.pid, sent)
        with suppress(subprocess.TimeoutExpired):
            server.wait(seconds)
            return


def _wait_for(address: str, log: Path) -> None:
    for _ in range(5 * STARTING_MS // 1000):
        with suppress(OSError):
            urllib.request.urlopen(address, timeout=2)
            return
        time.sleep(0.2)
    pytest.fail(f"JupyterLab did not answer at {address}:\n{log.read_text(errors='replace')}", pytrace=False)
