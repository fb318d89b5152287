"""Drives an installed Firefox over Marionette, its own protocol: playwright drives only a build of its own.

A message is JSON after its length; `[0, number, command, arguments]` is answered by `[1, number, error, value]`.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

STARTING_SECONDS, SCRIPT_SECONDS, ANSWER_SECONDS = 60, 120, 150
SETTINGS = {
    "marionette.port": 0,  # any that is free, named in a file of the profile
    "security.fileuri.strict_origin_policy": True,  # as for a reader: Marionette would relax it
}
ASYNC = """const done = arguments[arguments.length - 1];
(async (...given) => { %s })(...arguments)
  .then((value) => done({ value }), (error) => done({ error: String(error) }));"""


def find_firefox() -> str | None:
    """Path of a Firefox on this machine, or None."""
    return shutil.which("firefox-esr") or shutil.which("firefox")


class Firefox:
    """A connection to a Firefox with one window."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS)
        self._answers, self._n_sent = self._socket.makefile("rb"), 0
        self._read()  # its greeting
        self._ask("WebDriver:NewSession", {})
        self._ask("WebDriver:SetTimeouts", {"script": 1000 * SCRIPT_SECONDS})

    def open(self, address: str) -> None:
        """Open an address, and wait until the page is loaded."""
        self._ask("WebDriver:Navigate", {"url": address})

    def run(self, script: str, *given: Any) -> Any:
        """What the body of an async function returns that runs in the page, with `given`, in JSON's kinds.

        Raises RuntimeError with what it throws.
        """
        outcome = self._ask("WebDriver:ExecuteAsyncScript", {"script": ASYNC % script, "args": list(given)})["value"]
        if "error" in outcome:
            raise RuntimeError(outcome["error"])
        return outcome.get("value")

    def quit(self) -> None:
        """End the browser."""
        self._ask("Marionette:Quit", {"flags": ["eForceQuit"]})
        self._socket.close()

    def _ask(self, command: str, arguments: dict[str, Any]) -> Any:
        self._n_sent += 1
        message = json.dumps([0, self._n_sent, command, arguments]).encode()
        self._socket.sendall(b"%d:%b" % (len(message), message))
        _, _, error, value = self._read()
        if error:
            raise RuntimeError(f"{command}: {error['message']}")
        return value

    def _read(self) -> Any:
        digits = b""
        while (digit := self._answers.read(1)) != b":":
            if not digit:
                raise RuntimeError("Firefox ended.")
            digits += digit
        return json.loads(self._answers.read(int(digits)))


@contextmanager
def started_firefox(path: str, profile: Path) -> Iterator[Firefox]:
    """A headless Firefox with an empty folder as its profile."""
    settings = [f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in SETTINGS.items()]
    (profile / "user.js").write_text("".join(settings))
    command = [path, "--headless", "--marionette", "--no-remote", "--profile", str(profile)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        firefox = Firefox(_port(profile / "MarionetteActivePort"))
        yield firefox
        firefox.quit()
        process.wait(20)
    finally:
        process.kill()
        process.wait()


def _port(file: Path) -> int:
    for _ in range(5 * STARTING_SECONDS):
        if file.exists() and (told := file.read_text()):
            return int(told)
        time.sleep(0.2)
    raise RuntimeError(f"Firefox did not start within {STARTING_SECONDS} s.")
