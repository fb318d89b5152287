"""Base classes of the live labs: labelled controls, and work in a background thread when a button is pressed."""

from __future__ import annotations

import html
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

import ipywidgets as ipw

from inferlab import figures, progress
from inferlab.widgets.fit_figure import FitFigure

STYLE, LAYOUT = {"description_width": "9em"}, {"width": "min(34em, 95%)"}


class LiveLab(ABC):
    """A lab whose buttons start work in a background thread, so the notebook stays usable; errors go to `status`."""

    status: ipw.HTML
    thread: threading.Thread | None = None
    before_waiting: str | None = None  # what `status` said before a wait in the queue of measurements

    @property
    @abstractmethod
    def box(self) -> ipw.VBox:
        """All widgets of the lab, from top to bottom."""

    @abstractmethod
    def set_busy(self, busy: bool) -> None:
        """Disable the controls while work runs, and enable them afterwards."""

    def run_in_background(self, work: Callable[[], object]) -> None:
        """Run `work` in a background thread."""
        self.set_busy(True)
        self.thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self.thread.start()

    def failed(self, error: Exception) -> None:
        """Show the error in `status`."""
        message = html.escape(f"{type(error).__name__}: {error}")
        self.status.value = f"<pre role='alert' style='white-space: pre-wrap'>{message}</pre>"

    def show_line(self, line: str) -> None:
        """Show what is waited for in `status`; an empty line brings back what stood there."""
        if self.before_waiting is None:
            self.before_waiting = self.status.value
        self.status.value = html.escape(line) if line else self.before_waiting

    def _run(self, work: Callable[[], object]) -> None:
        self.before_waiting = None
        try:
            with progress.shown_by(self.show_line):
                work()
        except Exception as error:  # any error is shown, and the buttons work again
            self.failed(error)
        finally:
            self.set_busy(False)

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.box)


class OneButtonLab(LiveLab):
    """A lab with one button: `work` measures with the values of `controls`, and `draw` shows all measurements."""

    label: str
    idle_text: str  # status line before the first press
    busy_text: str  # status line while it works

    def __init__(self) -> None:
        self.button = ipw.Button(description=self.label, button_style="primary", icon="play")
        self.button.on_click(lambda _: self.start())
        self.status = ipw.HTML(self.idle_text)
        self.figure = figures.live(self.draw())
        self.place = ipw.VBox()
        self._show_figure()

    @property
    @abstractmethod
    def controls(self) -> list[ipw.Widget]:
        """The controls, from top to bottom."""

    @abstractmethod
    def work(self) -> str:
        """Measure with the controls' values, keep the result, and return a line that describes it."""

    @abstractmethod
    def draw(self) -> figures.Figure:
        """A figure of all measurements so far."""

    @property
    def box(self) -> ipw.VBox:
        return ipw.VBox([*self.controls, self.button, self.status, self.place])

    def set_busy(self, busy: bool) -> None:
        self.button.disabled = busy

    def start(self) -> None:
        """Measure with the controls' values, in a background thread."""
        self.status.value = self.busy_text
        self.run_in_background(self._work_and_show)

    def _work_and_show(self) -> None:
        self.status.value = self.work()
        figures.redraw(self.figure, self.draw())
        self._show_figure()

    def _show_figure(self) -> None:
        """Put the figure into its place once it has something to show: axes alone would tell numbers of nothing."""
        has_points = any(trace.x is not None and len(trace.x) for trace in self.figure.data)
        if has_points and not self.place.children:
            self.place.children = (self.figure, FitFigure(self.figure))


def labelled(kind: type[ipw.Widget], label: str, **state) -> ipw.Widget:
    """A control with a label beside it, for the eye and for screen readers; reachable by keyboard."""
    return kind(description=label, style=STYLE, layout=LAYOUT, **state)


def slider(label: str, value: int, low: int, high: int, step: int) -> ipw.IntSlider:
    """A slider of whole numbers; its value changes when it is released."""
    return labelled(ipw.IntSlider, label, value=value, min=low, max=high, step=step, continuous_update=False)
