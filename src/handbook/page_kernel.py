"""The kernel that executes a page: this interpreter, with figures shown as the page's own HTML."""

from __future__ import annotations

import os
from importlib.resources import files


def setup(app) -> None:
    """Choose the kernel when a build starts."""
    app.connect("builder-inited", lambda app: choose())


def choose() -> None:
    """Make `python3` this interpreter with our extension, whatever kernels the reader has installed."""
    ours = str(files("handbook") / "data")
    others = os.environ.get("JUPYTER_PATH", "").split(os.pathsep)
    os.environ["JUPYTER_PATH"] = os.pathsep.join([ours, *(p for p in others if p and p != ours)])
