"""Speculative decoding: what the verification of a draft costs."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from inferlab.figures.style import EDGE, SERIES_COLOURS, blank, line, y_from_zero
from inferlab.measurement.base import common_badge
from inferlab.statistics import Comparison
from studies.speculation.speculative import VerifyCost


def verification_costs(costs: Mapping[str, VerifyCost]) -> go.Figure:
    """Cost of a pass over n tokens against n, with 95 % intervals, and the line of n single passes.

    costs  verification costs by name; on or above the line a draft of n - 1 tokens can gain nothing
    """
    sizes = sorted({n for kernel in costs.values() for n in kernel.seconds})
    said = "; ".join(
        f"{name}: {', '.join(f'{n} tokens {kernel.cost(n):.2f}' for n in sorted(kernel.seconds) if n > 1)}"
        for name, kernel in costs.items()
    )
    badge = common_badge(list(costs.values()))
    figure = blank(badge, f"Cost of a pass in passes over one token. {said}.", x="tokens in the pass", y="cost")
    for (name, kernel), colour in zip(costs.items(), SERIES_COLOURS, strict=False):
        line(figure, [(n, kernel.cost(n)) for n in sorted(kernel.seconds)], name, colour)
        figure.data[-1].error_y = _interval_bars(kernel)
    line(figure, [(n, n) for n in sizes], "n single passes", EDGE, marks=False)
    figure.update_layout(showlegend=True)
    y_from_zero(figure)
    return figure


def _interval_bars(kernel: VerifyCost) -> dict:
    """Bars from the cost to the ends of its interval; none where there is no interval."""
    costs = [Comparison(kernel.ratios(n)) for n in sorted(kernel.seconds)]
    above, below = zip(*((cost.ends[1] - cost.ratio, cost.ratio - cost.ends[0]) for cost in costs), strict=True)
    return {"array": above, "arrayminus": below}
