"""Measured against predicted rates of cards that took no part in the model, with the band of the prediction."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from inferlab.figures.style import DECODE, EDGE, LOG_DECADES, PREFILL, blank, line
from inferlab.prediction.card_rates import fitted
from inferlab.prediction.expected import SIBLINGS
from inferlab.results.public_rates import DECODE as DECODED
from inferlab.results.public_rates import PROMPT
from studies.public_rates.fit import backend_of
from studies.public_rates.judge import Judged, of_split
from studies.public_rates.study import card_title, case_of, errors

COLOURS = {DECODED: DECODE, PROMPT: PREFILL}
FAINT = {DECODED: "rgba(217,119,6,0.16)", PROMPT: "rgba(59,130,196,0.16)"}
"""The colours of the phases for the bands under the points."""
SYMBOLS = {False: ("whole on the card", "circle"), True: ("a part in RAM", "diamond-open")}
HOVER = "%{text}<br>predicted %{x:.3g}, measured %{y:.3g} tokens/s<extra></extra>"


def cards_left_out() -> go.Figure:
    """A point for each published rate of a card that was left out; the band is of cards whose chip others have."""
    found = {phase: of_split("cards", phase, partial=None) for phase in COLOURS}
    badge = f"cited: {sum(map(len, found.values()))} published results; predicted without any of the same card"
    text = [
        f"{phase} {len(some)} points, half of those whole on the card within "
        f"{errors('cards', phase).quantile(0.5, once=True):.0%}"
        for phase, some in found.items()
    ]
    figure = blank(
        badge,
        f"Measured against predicted tokens per second of cards left out: {'; '.join(text)}.",
        "predicted tokens per second",
        "measured tokens per second",
    )
    every = [_predicted(one) for some in found.values() for one in some]
    for phase, some in found.items():
        _band(figure, phase, some)
    line(figure, [(end, end) for end in (min(every), max(every))], "equal", EDGE, marks=False)
    for phase, some in found.items():
        for partial, (name, symbol) in SYMBOLS.items():
            _points(figure, phase, name, symbol, [one for one in some if one.row.is_partial == partial])
    figure.update_xaxes(type="log", tickvals=LOG_DECADES)
    figure.update_yaxes(type="log", tickvals=LOG_DECADES)
    figure.update_layout(showlegend=True, height=520)
    return figure


def _predicted(one: Judged) -> float:
    return one.row.rate * (1 + one.share)


def _band(figure: go.Figure, phase: str, some: Sequence[Judged]) -> None:
    """From the least to the most of what is predicted, the rates in which nine of ten shall lie."""
    least, most = fitted()["bands"]["token" if phase == DECODED else "prompt"][SIBLINGS]
    low, high = min(map(_predicted, some)), max(map(_predicted, some))
    figure.add_scatter(
        x=[low, high, high, low],
        y=[low * least, high * least, high * most, low * most],
        name=f"{phase}, band",
        mode="none",
        fill="toself",
        fillcolor=FAINT[phase],
        hoverinfo="skip",
    )


def _points(figure: go.Figure, phase: str, name: str, symbol: str, some: Sequence[Judged]) -> None:
    figure.add_scatter(
        x=[float(f"{_predicted(one):.4g}") for one in some],
        y=[one.row.rate for one in some],
        text=[f"{card_title(one.row)}, {backend_of(one.row)}: {case_of(one.row)}" for one in some],
        name=f"{phase}, {name}",
        mode="markers",
        opacity=0.55,
        marker={"color": COLOURS[phase], "size": 6, "symbol": symbol},
        hovertemplate=HOVER,
    )
