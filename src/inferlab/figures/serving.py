"""Several sequences in figures: crowds, slots, shared beginnings, depths and drafts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import plotly.graph_objects as go

from inferlab.figures.style import DECODE, EDGE, LOG_MARKS, PREFILL, blank, line, points, stacked
from inferlab.measurement.batching import BatchedDecode
from inferlab.measurement.continuous_batching import Schedule
from inferlab.measurement.depth import DepthScaling
from inferlab.measurement.prefix_cache import PrefixReuse
from inferlab.measurement.speculative import Speculation, VerifyCost

REUSED, DRAFT = "#0f9d8a", "#a855c7"
COLOURS = (DECODE, PREFILL, REUSED, DRAFT)
Pairs = Sequence[tuple[float, float]]


def crowds(serving: BatchedDecode) -> go.Figure:
    """Tokens a second over the number of sequences, together and each, both axes logarithmic; dotted: n times one."""
    crowd, alone = serving.crowds, serving.at(1).tokens_per_second
    sizes = [one.n_sequences for one in crowd]
    figure = blank(
        serving.badge,
        "Tokens per second, all together and each: "
        + "; ".join(f"{c.n_sequences}: {c.tokens_per_second:.1f}, {c.each_tokens_per_second:.1f}" for c in crowd)
        + ".",
        x="sequences at once",
        y="tokens/s",
    )
    figure.add_scatter(
        x=sizes, y=[n * alone for n in sizes], name="n times one", mode="lines", line={"color": EDGE, "dash": "dot"}
    )
    for name, colour, of in (
        ("all together", DECODE, lambda n, s: n / s), ("each of them", PREFILL, lambda n, s: 1 / s)
    ):  # fmt: skip
        every = [(one.n_sequences, of(one.n_sequences, s)) for one in serving.crowds for s in one.step_seconds]
        medians = [(c.n_sequences, of(c.n_sequences, c.median_seconds)) for c in serving.crowds]
        _joined(figure, every, medians, name, colour)
    figure.update_layout(showlegend=True)
    figure.update_xaxes(type="log", tickvals=sizes)
    figure.update_yaxes(type="log", tickvals=LOG_MARKS)
    return figure


def _joined(figure: go.Figure, every: Pairs, medians: Pairs, name: str, colour: str) -> None:
    """Every sample as a point, the medians as a line, and one name for both in the legend."""
    points(figure, every, name, colour)
    figure.data[-1].showlegend = False
    line(figure, medians, name, colour)


def crowd_steps(serving: BatchedDecode, expected: Mapping[int, float] | None = None) -> go.Figure:
    """Milliseconds of a step over the number of sequences in it: every step a point, the medians joined.

    `expected` are seconds by number of sequences, drawn as a dotted line.
    """
    figure = blank(
        serving.badge,
        "Engine time of a step with one token for each sequence: "
        + "; ".join(f"{one.n_sequences}: {1e3 * one.median_seconds:.2f} ms" for one in serving.crowds)
        + ".",
        x="sequences at once",
        y="ms a step",
    )
    points(figure, [(one.n_sequences, 1e3 * s) for one in serving.crowds for s in one.step_seconds], "one step", DECODE)
    line(figure, [(one.n_sequences, 1e3 * one.median_seconds) for one in serving.crowds], "median", DECODE)
    if expected:
        line(figure, [(n, 1e3 * seconds) for n, seconds in expected.items()], "expected", PREFILL, marks=False)
        figure.data[-1].line.dash = "dot"
        figure.data[0].showlegend = False
        figure.update_layout(showlegend=True)
    figure.update_xaxes(tickvals=[one.n_sequences for one in serving.crowds])
    figure.update_yaxes(rangemode="tozero")
    return figure


def slots(schedules: Mapping[str, Schedule]) -> go.Figure:
    """Who had which slot when, for several ways of serving the same requests, on one axis of engine time."""
    told = "; ".join(
        f"{name}: {one.seconds:.2f} s for {len(one.answered)} requests, slots busy {100 * one.busy_share:.0f} %"
        for name, one in schedules.items()
    )
    figure = blank(next(iter(schedules.values())).badge, f"Requests in slots. {told}.", x="seconds of engine time")
    for (name, one), colour in zip(schedules.items(), COLOURS, strict=False):
        _answers(figure, name, one, colour)
    n_rows = sum(one.n_slots for one in schedules.values())
    figure.update_layout(barmode="overlay", height=190 + 30 * n_rows, bargap=0.15)
    figure.update_yaxes(autorange="reversed", type="category")
    return figure


def _answers(figure: go.Figure, name: str, one: Schedule, colour: str) -> None:
    found = sorted(one.answered, key=lambda a: (a.slot, a.began_seconds))
    figure.add_bar(
        y=[f"{name} {a.slot + 1}" for a in found], x=[a.ended_seconds - a.began_seconds for a in found],
        base=[a.began_seconds for a in found], orientation="h", name=name, marker_color=colour,
        marker_line={"width": 1, "color": "rgba(255,255,255,0.8)"}, text=[a.number for a in found],
        textposition="inside", textangle=0, insidetextanchor="middle", insidetextfont={"color": "white"},
        customdata=[a.request.n_gen for a in found],
        hovertemplate="request %{text}: %{customdata} tokens, began at %{base:.2f} s<extra></extra>",
    )  # fmt: skip


def prefixes(reuse: PrefixReuse) -> go.Figure:
    """Engine time to the first token over the length of a common beginning, with and without reuse."""
    ways = {"everything is read": "whole_seconds", "the beginning is shared": "reused_seconds"}
    told = "; ".join(
        f"{one.n_shared} shared tokens: {1e3 * median(one.whole_seconds):.1f} ms without, "
        f"{1e3 * median(one.reused_seconds):.1f} ms with reuse"
        for one in reuse.prefixes
    )
    figure = blank(
        reuse.badge, f"Time to the first token. {told}.", x="tokens of the common beginning", y="first token, ms"
    )
    for (name, of), colour in zip(ways.items(), (PREFILL, REUSED), strict=True):
        every = [(one.n_shared, 1e3 * s) for one in reuse.prefixes for s in getattr(one, of)]
        medians = [(one.n_shared, 1e3 * median(getattr(one, of))) for one in reuse.prefixes]
        _joined(figure, every, medians, name, colour)
    figure.update_layout(showlegend=True)
    figure.update_xaxes(tickvals=[one.n_shared for one in reuse.prefixes], rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    return figure


def depths(found: Mapping[str, DepthScaling]) -> go.Figure:
    """Milliseconds of a token over the cells that it looks at, a line for each model."""
    told = "; ".join(
        f"{name}: " + ", ".join(f"{n} cells {1e3 * one.median_seconds(n):.2f} ms" for n in one.seconds)
        for name, one in found.items()
    )
    figure = blank(next(iter(found.values())).badge, f"Time of a token. {told}.", x="cells in use", y="ms a token")
    for (name, one), colour in zip(found.items(), COLOURS, strict=False):
        every = [(n, 1e3 * s) for n, many in one.seconds.items() for s in many]
        medians = [(n, 1e3 * one.median_seconds(n)) for n in one.seconds]
        _joined(figure, every, medians, name, colour)
    figure.update_layout(showlegend=True)
    figure.update_xaxes(tickvals=list(next(iter(found.values())).seconds), rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    return figure


def speculations(found: Mapping[str, Speculation]) -> go.Figure:
    """Where the time of the same answer goes: plain decode, and proposals with their checks; medians of the passes."""
    names = [f"{name}, {'drafted' if drafted else 'plain'}" for name in found for drafted in (False, True)]
    told = "; ".join(
        f"{name}: {_share(one.acceptance)} accepted, {one.tokens_per_round:.2f} tokens a pass, "
        f"{one.speedup:.2f} times as fast"
        for name, one in found.items()
    )
    figure = blank(next(iter(found.values())).badge, f"Speculative decoding. {told}.", x="milliseconds")
    plain = [value for one in found.values() for value in (1e3 * median(one.plain_seconds), 0)]
    checks = [value for one in found.values() for value in (0, _part(one, "check_seconds"))]
    drafts = [value for one in found.values() for value in (0, _part(one, "draft_seconds"))]
    for name, values, colour in (
        ("one token a pass", plain, DECODE), ("checks", checks, PREFILL), ("proposals", drafts, DRAFT)
    ):  # fmt: skip
        figure.add_bar(
            y=names, x=values, name=name, orientation="h", marker_color=colour,
            hovertemplate=f"{name}: %{{x:.1f}} ms<extra>%{{y}}</extra>",
        )  # fmt: skip
    stacked(figure, len(names))
    return figure


def _part(one: Speculation, of: str) -> float:
    return 1e3 * median(sum(getattr(r, of) for r in rounds) for rounds in one.rounds)


def _share(value: float | None) -> str:
    return "nothing to be" if value is None else f"{100 * value:.0f} %"


def foresight(found: Mapping[float, Speculation], prices: Mapping[str, VerifyCost], n_draft: int) -> go.Figure:
    """Speed-up over the chance of a hit: measured passes by it, and what the prices of passes lead one to expect."""
    rates = [at / 20 for at in range(21)]
    told = "; ".join(f"{100 * rate:.0f} % hits: {one.speedup:.2f}" for rate, one in found.items())
    badge = next(iter(found.values())).badge
    alt = f"Speed-up with {n_draft} proposals a pass. Measured, {told}."
    figure = blank(badge, alt, x="chance that a proposal is right, %", y="times as fast")
    for (name, one), colour in zip(prices.items(), COLOURS, strict=False):
        expected = [(100 * rate, one.speedup(rate, n_draft)) for rate in rates]
        line(figure, expected, f"expected: {name}", colour, marks=False)
    points(figure, [(100 * rate, s) for rate, one in found.items() for s in one.speedups], "measured", DECODE)
    figure.add_hline(1, line={"color": EDGE, "dash": "dot"})
    figure.update_layout(showlegend=True)
    figure.update_yaxes(rangemode="tozero")
    return figure
