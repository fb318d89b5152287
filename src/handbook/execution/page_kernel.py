"""The kernel that executes a page: this interpreter, with figures shown as the page's own HTML.

In a build it loads this module as a second extension: a measurement that other programs disturb then ends the page,
and the reply to each cell says how long the processes that the page started have computed.
"""

from __future__ import annotations

import os
from importlib.resources import files
from typing import Any, NoReturn

IN_A_BUILD = ["--ext=handbook.execution.page_kernel"]
"""What a build adds to the kernel's command line."""

SOURCE = "handbook"
START_SECONDS = 0.02  # processor time: the start of any worker takes several times as much


class PageDisturbed(BaseException):
    """Ends a page at a disturbed measurement; what catches an error of a measurement goes on without it."""


def setup(app) -> None:
    """Choose the kernel when a build starts."""
    app.connect("builder-inited", lambda app: choose())


def choose() -> None:
    """Make `python3` this interpreter with our extension, whatever kernels the reader has installed."""
    ours = str(files("handbook") / "data")
    others = os.environ.get("JUPYTER_PATH", "").split(os.pathsep)
    os.environ["JUPYTER_PATH"] = os.pathsep.join([ours, *(p for p in others if p and p != ours)])


def load_ipython_extension(ipython: Any) -> None:
    """Called by IPython for IN_A_BUILD."""
    from inferlab.engine.cpu_time import own_seconds
    from inferlab.measurement import run

    def tell(_: Any) -> None:
        seconds = own_seconds() - sum(os.times()[:2])
        ipython.payload_manager.write_payload({"source": SOURCE, "seconds": seconds})

    run.on_disturbed = end_page
    ipython.events.register("post_run_cell", tell)


def end_page(processors: float) -> NoReturn:
    """Raise PageDisturbed with the reason, as it is shown to the reader of the page."""
    raise PageDisturbed(f"measured while other programs used {processors:.1f} processors, and its times did not settle")


def used_engine(reply: dict[str, Any]) -> bool:
    """Whether llama.cpp, or another process that the page started, had computed when this reply to a cell was sent."""
    told = (payload for payload in reply["content"].get("payload", ()) if payload["source"] == SOURCE)
    return any(payload["seconds"] > START_SECONDS for payload in told)
