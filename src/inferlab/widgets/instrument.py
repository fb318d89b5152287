"""The instruments of the book's pages in JupyterLab: the same form and the same answers, computed by the kernel."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anywidget
import traitlets

from inferlab import instruments
from inferlab.instruments.dropped import DroppedFiles

FRONT_END = files("inferlab.instruments")


def front_end() -> str:
    """The two scripts of the front end in one, as a widget must have it."""
    asking, front = ((FRONT_END / name).read_text(encoding="utf-8") for name in ("addressed.js", "instrument.js"))
    own = asking.replace("export ", "")
    return re.sub(r'^import .* from "\./addressed\.js";$', lambda _: own, front, count=1, flags=re.MULTILINE)


class Instrument(anywidget.AnyWidget):
    """One instrument by its name in `instruments.INSTRUMENTS`; files that are dropped stay in a temporary folder."""

    _esm = front_end()
    _css = (FRONT_END / "instrument.css").read_text(encoding="utf-8")
    form: traitlets.List[Any] = traitlets.List().tag(sync=True)
    question = traitlets.Dict().tag(sync=True)
    answer = traitlets.Dict().tag(sync=True)
    status = traitlets.Dict().tag(sync=True)

    def __init__(self, instrument: str) -> None:
        self.instrument = instrument
        self._folder = TemporaryDirectory(prefix="inferlab-")
        self._files = DroppedFiles(Path(self._folder.name))
        module = instruments.INSTRUMENTS[instrument]
        super().__init__(form=module.form(), answer=self._answer(module.DEFAULTS))
        self.observe(lambda change: self.set_trait("answer", self._answer(change["new"])), "question")
        self.on_msg(self._on_message)

    def _answer(self, question: dict[str, str]) -> dict[str, Any]:
        return instruments.answered(self.instrument, question, self._files)

    def _on_message(self, widget: Instrument, message: dict[str, Any], buffers: list[memoryview]) -> None:
        """A slice of a file, an address that was typed, or the end of reading it; all else is for a page."""
        if message.get("kind") == "slice":
            where = message["name"], message["size"], message["start"]
            how = message.get("whole", False), message.get("source", "")
            self.send(instruments.sent(self._files, *where, bytes(buffers[0]), *how))
        elif message.get("kind") == "address":
            self.send(instruments.heard(self._files, message))
        elif message.get("kind") == "cancel":  # the number makes each a change, which alone reaches the front end
            number = self.status.get("number", 0) + 1
            self.status = {"text": "Cancelled. Nothing below has changed.", "busy": False, "number": number}


def planner() -> Instrument:
    """Does it fit? A form for model, card and settings, and the plan of its memory."""
    return Instrument("planner")


def your_numbers() -> Instrument:
    """A place for results of llama-bench or of this library: beside the atlas and the bound, and against each other."""
    return Instrument("your-numbers")


def log_reader() -> Instrument:
    """Why is it slow? A place for a log, and what it says with what is wrong in it."""
    return Instrument("log-reader")
