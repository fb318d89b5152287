"""Tuning in figures: one option at a time, layers on the host, a search and its judgement, and what lies in RAM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

import plotly.graph_objects as go

from inferlab.experiments.sweep import Sweep
from inferlab.experiments.tune import Candidate, Tuning
from inferlab.figures.style import DECODE, EDGE, LOG_MARKS, PREFILL, blank, line, points, stacked
from inferlab.measurement.memory import Residence
from inferlab.measurement.run import Run
from inferlab.measurement.torch_attention import Timings
from inferlab.statistics import least_squares
from inferlab.units import MIB

RATES = {"prefill": "prefill_tokens_per_second", "decode": "decode_tokens_per_second"}
COLOURS = {"prefill": PREFILL, "decode": DECODE}
DASHES = ("solid", "dot", "dash", "dashdot")
WAYS = {"flash": ("flash kernel", "#0f9d8a"), "math": ("table of scores", "#a855c7")}
QUANTITIES = {
    "extra_bytes": (lambda one: (one.extra_bytes or 0) / MIB, "MiB"),
    "seconds": (lambda one: one.median_seconds, "s"),
}
RESIDENT = {
    "file, ordinary pages": (lambda r: r.file_bytes - r.file_huge_bytes, "#3b82c4"),
    "file, huge pages": (lambda r: r.file_huge_bytes, "#0f9d8a"),
    "own, ordinary pages": (lambda r: r.own_bytes - r.huge_bytes, "#d97706"),
    "own, huge pages": (lambda r: r.huge_bytes, "#a855c7"),
}


def option(sweep: Sweep, name: str, phases: tuple[str, ...] = ("prefill", "decode")) -> go.Figure:
    """Rates over one option of a sweep, as multiples of those at its first value; every pass is a point.

    Another option of the sweep makes a line for each of its values. Lines join medians.
    """
    drawn = [(phase, index, *one) for phase in phases for index, one in enumerate(_series(sweep, name))]
    figure = blank(
        sweep.runs[0].badge,
        f"Rates over {name}: " + "; ".join(_told(phase, label, runs) for phase, _, label, runs in drawn) + ".",
        x=name,
        y=f"rate, relative to {name}={_text(next(iter(drawn[0][3])))}",
    )
    for phase, index, label, runs in drawn:
        _rate_line(figure, phase, label, runs, DASHES[index % len(DASHES)])
    figure.add_hline(1, line={"color": EDGE, "dash": "dot"})
    figure.update_layout(showlegend=True)
    figure.update_xaxes(type="category")
    figure.update_yaxes(rangemode="tozero")
    return figure


def _series(sweep: Sweep, name: str) -> Iterator[tuple[str, dict[Any, Run]]]:
    """For each combination of the other options, a label and the runs by this option's value."""
    found: dict[str, dict[Any, Run]] = {}
    for point in sweep.points:
        others = ", ".join(f"{other}={_text(value)}" for other, value in point.changes.items() if other != name)
        if point.run:
            found.setdefault(others, {})[point.changes[name]] = point.run
    yield from found.items()


def _rate_line(figure: go.Figure, phase: str, label: str, runs: Mapping[Any, Run], dash: str) -> None:
    every = {value: run.points(RATES[phase]) for value, run in runs.items()}
    first = median(next(iter(every.values())))
    colour, title = COLOURS[phase], f"{phase}, {label}" if label else phase
    points(figure, [(_text(v), rate / first) for v, rates in every.items() for rate in rates], title, colour)
    figure.data[-1].showlegend = False
    figure.add_scatter(
        x=[_text(value) for value in every], y=[median(rates) / first for rates in every.values()], name=title,
        mode="lines+markers", line={"color": colour, "width": 2, "dash": dash}, marker={"size": 8},
        customdata=[median(rates) for rates in every.values()],
        hovertemplate="%{x}: %{customdata:.1f} tokens/s, %{y:.2f} times<extra></extra>",
    )  # fmt: skip


def _told(phase: str, label: str, runs: Mapping[Any, Run]) -> str:
    rates = ", ".join(f"{_text(value)} {median(run.points(RATES[phase])):.1f}" for value, run in runs.items())
    return f"{phase}{f' with {label}' if label else ''}, tokens/s: {rates}"


def _text(value: Any) -> str:
    return {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def host_layers(sweep: Sweep, n_layer: int) -> go.Figure:
    """Time of a token over the layers left on the host, with the straight line through the medians, and its rate.

    The line is that of 1 to n_layer layers; with none or all of them no pass is divided. The rate, on the right axis,
    is 1000 divided by the line.
    """
    runs = {max(0, n_layer + 1 - p.changes["n_gpu_layers"]): p.run for p in sweep.points if p.run}
    runs = dict(sorted(runs.items()))
    times = {left: [1000 / rate for rate in run.points(RATES["decode"])] for left, run in runs.items()}
    middle = {left: median(ms) for left, ms in times.items()}
    divided = {left: ms for left, ms in middle.items() if 1 <= left <= n_layer}
    fit = least_squares(list(divided), list(divided.values()))
    figure = blank(
        next(iter(runs.values())).badge,
        "Time of a token: " + ", ".join(f"{left} layers on the host {ms:.1f} ms" for left, ms in middle.items())
        + f"; line: {fit.intercept:.1f} ms and {fit.slope:.2f} ms for each layer.",
        x="layers on the host, output layer counted",
        y="ms a token",
    )  # fmt: skip
    points(figure, [(left, one) for left, ms in times.items() for one in ms], "ms a token", DECODE)
    fitted = [(left, fit.at(left)) for left in range(1, n_layer + 1)]
    line(figure, fitted, "straight line", DECODE, marks=False)
    figure.add_scatter(
        x=[left for left, _ in fitted], y=[1000 / ms for _, ms in fitted], name="its rate", yaxis="y2", mode="lines",
        line={"color": PREFILL, "dash": "dot"}, hovertemplate="%{x}: %{y:.1f} tokens/s<extra></extra>",
    )  # fmt: skip
    second = {"title": "tokens/s", "overlaying": "y", "side": "right", "rangemode": "tozero", "showgrid": False,
              "tickmode": "auto", "nticks": 5}  # fmt: skip
    figure.update_layout(showlegend=True, yaxis2=second, yaxis_rangemode="tozero", margin_r=60)
    return figure


def search_rounds(found: Tuning) -> go.Figure:
    """The rounds of a search: every candidate's median seconds, the survivors joined, the settings before marked."""
    figure = blank(
        found.badge,
        f"A search in {len(found.rounds)} rounds over {len(found.rounds[0])} candidates: "
        + "; ".join(_round_told(index, one) for index, one in enumerate(found.rounds, 1)) + ".",
        x="round",
        y=f"seconds for {found.n_prompt} + {found.n_gen} tokens",
    )  # fmt: skip
    for candidate in found.rounds[0]:
        own = [(index, one) for index, many in enumerate(found.rounds, 1) for one in many if _same(one, candidate)]
        _candidate(figure, [(index, one) for index, one in own if one.seconds])
    figure.update_xaxes(dtick=1, range=[0.7, len(found.rounds) + 0.3])
    figure.update_yaxes(rangemode="tozero")
    return figure


def _candidate(figure: go.Figure, own: list[tuple[int, Candidate]]) -> None:
    if not own:
        return
    changes = own[0][1].changes
    name = ", ".join(f"{key}={_text(value)}" for key, value in changes.items()) or "as it was"
    figure.add_scatter(
        x=[index for index, _ in own], y=[one.median_seconds for _, one in own], name=name, mode="lines+markers",
        line={"color": PREFILL if changes else DECODE, "width": 1 if changes else 3}, marker={"size": 8},
        opacity=0.6 if changes else 1, hovertemplate=f"{name}: %{{y:.3f}} s<extra>round %{{x}}</extra>",
    )  # fmt: skip


def _same(one: Candidate, other: Candidate) -> bool:
    return one.changes == other.changes


def _round_told(index: int, candidates: tuple[Candidate, ...]) -> str:
    seconds = [one.median_seconds for one in candidates if one.seconds]
    span = f"{min(seconds):.3f} to {max(seconds):.3f} s" if seconds else "nothing measured"
    return f"round {index}, {len(candidates)} candidates, {span}"


def pairs(found: Tuning) -> go.Figure:
    """How many times as fast the winner was in each pair; 1 is no difference, the band the interval of the median."""
    ratios = [pair.ratio for pair in found.pairs]
    figure = blank(found.badge, found.verdict, x="pair", y="times as fast")
    if found.interval:
        low, high = found.interval
        figure.add_hrect(low, high, fillcolor=PREFILL, opacity=0.15, line_width=0)
    figure.add_scatter(
        x=list(range(1, len(ratios) + 1)), y=ratios, mode="markers", marker={"size": 11, "color": PREFILL},
        hovertemplate="pair %{x}: %{y:.3f} times as fast<extra></extra>",
    )  # fmt: skip
    figure.add_hline(1, line={"color": EDGE, "dash": "dot"})
    if not ratios:
        told = "no pair was measured:<br>the settings as they were did best,<br>or the budget ended"
        figure.add_scatter(x=[1], y=[1], mode="text", text=[told], textposition="top center", hoverinfo="skip")
        figure.update_xaxes(range=[0.5, 1.5], showticklabels=False, showgrid=False, title="")
    figure.update_xaxes(dtick=1)
    return figure


def residence(found: Mapping[str, Residence], badge: str) -> go.Figure:
    """Resident bytes of the engine's process, a bar for each case: pages of the file and its own, huge or not."""
    told = "; ".join(
        f"{name}: " + ", ".join(f"{kind} {size(one) / MIB:.1f} MiB" for kind, (size, _) in RESIDENT.items())
        for name, one in found.items()
    )
    figure = blank(badge, f"Resident memory right after loading: {told}.", x="MiB")
    for kind, (size, colour) in RESIDENT.items():
        figure.add_bar(
            y=list(found), x=[size(one) / MIB for one in found.values()], name=kind, orientation="h",
            marker_color=colour, hovertemplate=f"{kind}: %{{x:.1f}} MiB<extra>%{{y}}</extra>",
        )  # fmt: skip
    stacked(figure, len(found))
    figure.update_annotations(xshift=-105)
    return figure


def attention_ways(timings: Timings, quantity: str = "extra_bytes") -> go.Figure:
    """Attention over the number of tokens, with the flash kernel and with the table of scores, both axes logarithmic.

    `quantity` is "extra_bytes", in MiB, or "seconds".
    """
    of, unit = QUANTITIES[quantity]
    known = {way: [(n, of(one)) for n, one in timings.of(way).items() if of(one)] for way in WAYS}
    told = "; ".join(f"{WAYS[w][0]}: " + ", ".join(f"{n} {v:.3g} {unit}" for n, v in own) for w, own in known.items())
    figure = blank(timings.badge, f"Attention by number of tokens: {told}.", x="tokens", y=unit)
    for way, own in known.items():
        line(figure, own, *WAYS[way])
    figure.update_layout(showlegend=True)
    figure.update_xaxes(type="log", tickvals=[n for n, _ in known["math"]])
    figure.update_yaxes(type="log", tickvals=LOG_MARKS)
    return figure
