"""Predicted speed: against measured rates, and divided into its terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from inferlab.figures.style import DECODE, EDGE, LOG_MARKS, PREFILL, PURPLE, RED, TEAL, blank, line, stacked
from inferlab.prediction.speed import SpeedPlan, StepPlan

Pair = tuple[str, float, float, tuple[float, float]]  # name, predicted, measured, least and most predicted
PHASES = {"prefill": PREFILL, "decode": DECODE}
TERMS = {
    "weights": TEAL, "attention": PURPLE, "link": RED, "overhead": "rgba(128,128,128,0.7)",
}  # fmt: skip


def predicted_beside_measured(groups: Mapping[str, Sequence[Pair]], badge: str | None = None) -> go.Figure:
    """Each point's measured rate against its predicted one, the band as a bar; on the line both are equal.

    groups  (name, predicted, measured, (least, most) predicted), all in tokens per second, by "prefill" and "decode",
            each of which has a colour
    """
    pairs = [pair for group in groups.values() for pair in group]
    alt = f"Measured against predicted tokens per second at {len(pairs)} points, with the band of each prediction."
    figure = blank(badge, alt, "predicted tokens per second", "measured tokens per second")
    ends = min(min(p, m) for _, p, m, _ in pairs), max(max(p, m) for _, p, m, _ in pairs)
    line(figure, [(end, end) for end in ends], "equal", EDGE, marks=False)
    for name, group in groups.items():
        _predicted_points(figure, name, group)
    figure.update_layout(showlegend=len(groups) > 1)
    figure.update_xaxes(type="log", tickvals=LOG_MARKS)
    figure.update_yaxes(type="log", tickvals=LOG_MARKS)
    return figure


def _predicted_points(figure: go.Figure, group: str, pairs: Sequence[Pair]) -> None:
    bars = {"type": "data", "symmetric": False, "array": [most - p for _, p, _, (_, most) in pairs],
            "arrayminus": [p - least for _, p, _, (least, _) in pairs], "color": EDGE}  # fmt: skip
    figure.add_scatter(x=[p for _, p, _, _ in pairs], y=[m for _, _, m, _ in pairs], text=[name for name, *_ in pairs],
                       name=group, mode="markers", marker={"color": PHASES[group], "size": 8}, error_x=bars,
                       hovertemplate="%{text}: predicted %{x:.3g}, measured %{y:.3g}")  # fmt: skip


def speed_residuals(groups: Mapping[str, Sequence[Pair]], phase: str, badge: str | None = None) -> go.Figure:
    """Measured over predicted rate of "prefill" or "decode", less one, in percent; each group has a row of points."""
    left = [(group, name, 100 * (m / p - 1)) for group, pairs in groups.items() for name, p, m, _ in pairs]
    alt = f"Measured less predicted rate of {phase}, in percent of predicted, at {len(left)} points: " + "; ".join(
        f"{group} {', '.join(f'{x:.0f}' for at, _, x in left if at == group)}" for group in groups
    )
    figure = blank(badge, alt, "measured less predicted, % of predicted")
    figure.add_vline(x=0, line={"color": EDGE, "width": 2})
    figure.add_scatter(x=[x for _, _, x in left], y=[group for group, _, _ in left], text=[name for _, name, _ in left],
                       mode="markers", marker={"color": PHASES[phase], "size": 9, "opacity": 0.8},
                       hovertemplate="%{text}: %{x:.1f} %<extra></extra>")  # fmt: skip
    figure.update_layout(height=190 + 40 * len(groups))
    figure.update_yaxes(autorange="reversed", type="category")
    return figure


def step_seconds(plan: SpeedPlan, badge: str | None = None) -> go.Figure:
    """The time of the whole prompt and of one generated token, each divided into its terms."""
    steps: dict[str, StepPlan] = {"prefill": plan.prefill, "one token": plan.decode}
    text = "; ".join(f"{name} {1e3 * step.seconds:.3g} ms, bound by {step.bound_by}" for name, step in steps.items())
    figure = blank(badge, f"Predicted time by term: {text}.", "share of the step, %")
    for kind, colour in TERMS.items():
        shares = [100 * step.seconds_of(kind) / (step.seconds + step.overlap_seconds) for step in steps.values()]
        texts = [f"{1e3 * step.seconds_of(kind):.3g} ms" for step in steps.values()]
        figure.add_bar(y=list(steps), x=shares, name=kind, orientation="h", marker={"color": colour}, text=texts,
                       hovertemplate="%{y}: %{text}")  # fmt: skip
    stacked(figure, len(steps))
    return figure
