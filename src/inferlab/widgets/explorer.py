"""One figure for every value of its controls: drawn anew by a kernel, or drawn in advance for a built page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets as ipw

from inferlab import figures
from inferlab.figures.sliders import indices
from inferlab.widgets.fit_figure import FitFigure
from inferlab.widgets.live_lab import labelled


def explore(
    draw: Callable[..., figures.Figure], over: Mapping[str, Sequence[Any]], start: int = 0
) -> Explorer | figures.Figure:
    """Draw for every value of `over`: controls that draw again in JupyterLab, `figures.slider` on a built page.

    `start` counts combinations, the last name's values changing fastest.
    """
    return figures.slider(draw, over, start) if figures.on_page() else Explorer(draw, over, start)


class Explorer:
    """A slider for each name; `values` are the sliders' values, and the figure is `draw(**values)`."""

    def __init__(self, draw: Callable[..., figures.Figure], over: Mapping[str, Sequence[Any]], start: int = 0) -> None:
        self.draw = draw
        self.controls = _controls(over, start)
        for control in self.controls.values():
            control.observe(lambda _: self.redraw(), "value")
        self.figure = figures.live(draw(**self.values))

    @property
    def values(self) -> dict[str, Any]:
        return {name: control.value for name, control in self.controls.items()}

    def redraw(self) -> None:
        """Draw the figure for the present values."""
        figures.redraw(self.figure, self.draw(**self.values))

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(ipw.VBox([*self.controls.values(), self.figure, FitFigure(self.figure)]))


def _controls(over: Mapping[str, Sequence[Any]], start: int) -> dict[str, ipw.SelectionSlider]:
    """A slider for each name, at the values of combination `start`."""
    at = indices(over, start)
    return {
        name: labelled(ipw.SelectionSlider, name, options=[(f"{v}", v) for v in values], index=at[name])
        for name, values in over.items()
    }
