"""What the live labs share: controls with their labels, and a press that works beside the notebook's own thread."""

from __future__ import annotations

import html
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

import ipywidgets as ipw

from inferlab import figures

STYLE, LAYOUT = {"description_width": "9em"}, {"width": "min(34em, 95%)"}


class Pressed(ABC):
    """A lab in which a press starts work, so that the page stays alive; whatever goes wrong stands in `status`."""

    status: ipw.HTML
    thread: threading.Thread | None = None

    @property
    @abstractmethod
    def box(self) -> ipw.VBox:
        """Everything that the cell shows, from top to bottom."""

    @abstractmethod
    def busy(self, busy: bool) -> None:
        """Close, and open again, what may not be pressed while something works."""

    def beside(self, work: Callable[[], object]) -> None:
        """Do `work` beside the notebook's own thread."""
        self.busy(True)
        self.thread = threading.Thread(target=self._to_its_end, args=(work,), daemon=True)
        self.thread.start()

    def failed(self, error: Exception) -> None:
        """Tell what happened, as text."""
        told = html.escape(f"{type(error).__name__}: {error}")
        self.status.value = f"<pre role='alert' style='white-space: pre-wrap'>{told}</pre>"

    def _to_its_end(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # whatever happens, the reader sees it and can press again
            self.failed(error)
        finally:
            self.busy(False)

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.box)


class OneButton(Pressed):
    """A lab with one button: `controls` say what `work` measures and keeps, and `drawn` shows all that was kept."""

    label: str
    asks: str  # in the status line before the first press
    working: str  # in the status line after a press

    def __init__(self) -> None:
        self.button = ipw.Button(description=self.label, button_style="primary", icon="play")
        self.button.on_click(lambda _: self.start())
        self.status = ipw.HTML(self.asks)
        self.figure = figures.live(self.drawn())

    @property
    @abstractmethod
    def controls(self) -> list[ipw.Widget]:
        """What the reader moves, from top to bottom."""

    @abstractmethod
    def work(self) -> str:
        """Measure what the controls say and keep it; the line that tells the outcome."""

    @abstractmethod
    def drawn(self) -> figures.Figure:
        """A figure of all that was kept."""

    @property
    def box(self) -> ipw.VBox:
        return ipw.VBox([*self.controls, self.button, self.status, self.figure])

    def busy(self, busy: bool) -> None:
        self.button.disabled = busy

    def start(self) -> None:
        """Measure what the controls say, beside the notebook's own thread."""
        self.status.value = self.working
        self.beside(self._work_and_show)

    def _work_and_show(self) -> None:
        self.status.value = self.work()
        figures.redraw(self.figure, self.drawn())


def labelled(kind: type[ipw.Widget], label: str, **state) -> ipw.Widget:
    """A control with its label beside it, which a screen reader reads and the keyboard reaches."""
    return kind(description=label, style=STYLE, layout=LAYOUT, **state)


def slider(label: str, value: int, low: int, high: int, step: int) -> ipw.IntSlider:
    """Whole numbers, read when the slider is let go."""
    return labelled(ipw.IntSlider, label, value=value, min=low, max=high, step=step, continuous_update=False)
