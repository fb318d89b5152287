"""A server's dashboard: what Prometheus scraped, beside what the clients saw."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from inferlab.figures.style import DECODE, GREY, OLIVE, PINK, PURPLE, RED, TEAL, blank, from_zero
from inferlab.measurement.prometheus import Series
from inferlab.measurement.watched_server import QUERIES, WINDOW_SECONDS, WatchedServing

STEP_SECONDS = 0.5
PANEL_PIXELS, GAP_PIXELS, TOP_PIXELS = 130, 42, 96
PANELS = (
    ("requests", {"running": ("running", OLIVE), "waiting": ("waiting for a slot", PURPLE)}),
    (
        "answer tokens per second, mean of 5 s",
        {"answers": ("rate of the counter", RED), "calls": ("calls times running", TEAL)},
    ),
    ("prompt tokens per second, mean of 5 s", {"prompts": ("rate of the prompts' counter", PINK)}),
    ("predicted_tokens_seconds, tokens per second", {"gauge": ("the gauge", GREY)}),
)
"""Title of each panel -> name of each query in it, with its name in the legend and its colour."""


def dashboard(one: WatchedServing) -> go.Figure:
    """Requests, answer tokens per second and the gauge of the rate, over the time of the requests."""
    figure = blank(one.badge, _alt(one))
    heights = [PANEL_PIXELS] * len(PANELS)
    inside = sum(heights) + GAP_PIXELS * (len(PANELS) - 1)
    figure.set_subplots(rows=len(PANELS), cols=1, shared_xaxes=True, vertical_spacing=GAP_PIXELS / inside)
    margin = figure.layout.margin
    figure.update_layout(height=inside + TOP_PIXELS + margin.b, margin_t=TOP_PIXELS, showlegend=True, legend_y=1.07)
    for row, (title, queries) in enumerate(PANELS, 1):
        _panel(figure, row, title, [(*shown, one.of(name)) for name, shown in queries.items()])
    _line(figure, 2, "tokens that the clients got", DECODE, _seen(one), "dot")
    highest = max(max(one.of(name).values, default=0) for name in ("answers", "calls"))
    figure.update_yaxes(from_zero(max(highest, *_seen(one).values), 0, 3), row=2, col=1)
    figure.update_xaxes(range=[0, one.seconds], zeroline=False)
    figure.update_xaxes(title_text="seconds since the first request", row=len(PANELS), col=1)
    return figure


def _seen(one: WatchedServing) -> Series:
    at = [STEP_SECONDS * i for i in range(1 + int(one.seconds / STEP_SECONDS))]
    return Series("", tuple(at), one.tokens_seen(at))


def _panel(figure: go.Figure, row: int, title: str, lines: Sequence[tuple[str, str, Series]]) -> None:
    for name, colour, series in lines:
        _line(figure, row, name, colour, series)
    figure.update_yaxes(from_zero(max(max(s.values, default=0) for *_, s in lines), 0, 3), row=row, col=1)
    figure.add_annotation(
        text=title, showarrow=False, font={"size": 12}, xref="paper", x=0, xanchor="left",
        yref=f"y{row if row > 1 else ''} domain", y=1, yanchor="bottom",
    )  # fmt: skip


def _line(figure: go.Figure, row: int, name: str, colour: str, series: Series, dash: str = "solid") -> None:
    figure.add_scatter(
        x=series.seconds, y=series.values, name=name, mode="lines", line={"color": colour, "width": 2, "dash": dash},
        hovertemplate=f"%{{x:.1f}} s: %{{y:.4g}}<extra>{name}</extra>", row=row, col=1,
    )  # fmt: skip


def _alt(one: WatchedServing) -> str:
    most = {name: max(one.of(name).values, default=0) for name in QUERIES}
    return (
        f"{len(one.replies)} requests to a server in {one.seconds:.0f} s, scraped every {one.interval_seconds:g} s. "
        f"At most {most['running']:.0f} run and {most['waiting']:.0f} wait. Answer tokens per second over "
        f"{WINDOW_SECONDS} s: the clients got at most {max(_seen(one).values):.0f}, the rate of the counter is at most "
        f"{most['answers']:.0f}, decode calls times running requests at most {most['calls']:.0f}. "
        f"Prompt tokens per second are at most {most['prompts']:.0f}. The gauge is at most {most['gauge']:.0f}."
    )
