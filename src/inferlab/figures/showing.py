"""How a figure is displayed: as a widget in JupyterLab, as HTML on a built page."""

from __future__ import annotations

import os

import plotly.graph_objects as go
import plotly.io as pio

from inferlab.figures.provenance import provenance_html, without_badge


def on_page() -> bool:
    """True in the kernel that executes a page of the book, which sets INFERLAB_PAGE; False everywhere else."""
    return os.environ.get("INFERLAB_PAGE") == "1"


def live(figure: go.Figure) -> go.FigureWidget:
    """The figure as a widget that can be redrawn in place."""
    return go.FigureWidget(figure)


def redraw(shown: go.FigureWidget, figure: go.Figure) -> None:
    """Replace the figure that a widget shows, at the width that it has."""
    width = shown.layout.width
    with shown.batch_update():
        shown.data = ()
        shown.add_traces(list(figure.data))
        shown.layout = figure.layout
        shown.layout.width = width


def page_html(figure: go.Figure | dict) -> str:
    """A figure for a built page: its JSON, from which the build makes drawing and controls; its provenance below."""
    drawn, badges = without_badge(figure if isinstance(figure, dict) else figure.to_dict())
    text = pio.to_json(drawn, validate=False).replace("</", "<\\/")
    return f'<div class="lab-figure"><script type="application/json">{text}</script></div>{provenance_html(badges)}'
