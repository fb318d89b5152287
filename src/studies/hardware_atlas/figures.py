"""The atlas: measured against predicted rates of every record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import plotly.graph_objects as go

from inferlab.atlas.entries import LOOPBACK, PHASES, AtlasEntry, rate_errors, typical
from inferlab.figures.style import DECODE, EDGE, LOG_DECADES, PREFILL, blank, line
from inferlab.machine import HOST_DEVICE

COLOURS = {"prefill": PREFILL, "decode": DECODE}
CARD = "a GPU"
SYMBOLS = {HOST_DEVICE: "circle", LOOPBACK: "diamond", CARD: "star"}
Spot = tuple[str, str, float, float]


def atlas_rates(entries: Sequence[AtlasEntry], badge: str | None = None) -> go.Figure:
    """Measured against predicted tokens per second, by phase; the symbol says on which kind of device.

    Runs that were disturbed on purpose are left out.
    """
    counted = [entry for entry in entries if not entry.disturbed]
    text = [
        f"{phase} {len(errors)} points, median error {typical(errors):.1%}"
        for phase in PHASES
        if (errors := rate_errors(counted, phase))
    ]
    figure = blank(
        badge,
        f"Measured against predicted tokens per second: {'; '.join(text) or 'none'}.",
        "predicted tokens per second",
        "measured tokens per second",
    )
    spots = {
        phase: [(e.device, _about(e), c.predicted, c.measured) for e in counted if (c := e.checked(phase))]
        for phase in PHASES
    }
    _equal(figure, [spot for several in spots.values() for spot in several])
    for phase, several in spots.items():
        _scatter(figure, phase, COLOURS[phase], several)
    return figure


def _about(entry: AtlasEntry) -> str:
    return f"{entry.machine}/{entry.record}: {entry.model}, {entry.type}, {entry.settings}, {entry.n_prompt} tokens"


def _equal(figure: go.Figure, spots: Iterable[Spot]) -> None:
    """The line on which both are equal, and logarithmic axes."""
    values = [value for spot in spots for value in spot[2:]]
    if values:
        line(figure, [(end, end) for end in (min(values), max(values))], "equal", EDGE, marks=False)
    figure.update_xaxes(type="log", tickvals=LOG_DECADES)
    figure.update_yaxes(type="log", tickvals=LOG_DECADES)
    figure.update_layout(showlegend=True)


def _scatter(figure: go.Figure, name: str, colour: str, spots: Sequence[Spot]) -> None:
    """A trace for each kind of device, so that the legend tells them apart."""
    for kind, symbol in SYMBOLS.items():
        if several := [spot for spot in spots if _kind(spot[0]) == kind]:
            figure.add_scatter(
                x=[s[2] for s in several],
                y=[s[3] for s in several],
                text=[s[1] for s in several],
                name=f"{name}, {kind}",
                mode="markers",
                opacity=0.75,
                marker={"color": colour, "size": 8, "symbol": symbol},
                hovertemplate=f"%{{text}}<br>predicted %{{x:.4g}}, measured %{{y:.4g}} tokens/s<extra>{name}</extra>",
            )


def _kind(device: str) -> str:
    """The kind of a device; `loopback device + host` counts as a loopback device."""
    if device == HOST_DEVICE:
        return HOST_DEVICE
    return LOOPBACK if LOOPBACK in device else CARD
