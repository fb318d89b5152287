"""Figures of chapter 4: what the cache takes and costs, and signs by which a bottleneck is told from another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from inferlab.experiments.diagnosis import Comparison
from inferlab.figures.style import DECODE, EDGE, PREFILL, blank, line
from inferlab.measurement.kv_steps import levels
from inferlab.measurement.kv_steps import line as line_through
from inferlab.measurement.run import Run
from inferlab.model.ggml_types import CELL_STEP, padded
from inferlab.units import MIB

CACHE, CLAIM, RESIDENT, READ = "#0f9d8a", "#c0563c", "#6b7280", "#a855c7"
COLOURS = (CACHE, CLAIM, PREFILL, DECODE, READ, RESIDENT)
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")

SIGNS = {
    "disk_bytes": ("MiB from disk", lambda value: f"{max(0, value) / MIB:.0f}"),
    "load": ("load", lambda value: f"{value:.1f}x"),
    "prefill": ("prefill", lambda value: f"{value:.1f}x"),
    "token": ("token", lambda value: f"{value:.1f}x"),
    "tread": ("256 cells", lambda value: f"{value:+.2f}"),
    "jitter": ("jitter", lambda value: f"{100 * value:.0f} %"),
    "busy": ("busy cores", lambda value: f"{value:.2f}x"),
}


def cache_use(run: Run) -> go.Figure:
    """The cache along one answer: reserved, in use, looked at in a step, and what the engine's process grew by.

    In MiB against the tokens in the context. The process is read from the run's samples, if it has any.
    """
    one, reserved = run.passes[-1], run.bytes_on("kv_cache") / MIB
    cell = reserved / run.settings.n_ctx
    tokens = list(range(run.n_prompt, run.n_prompt + len(one.token_seconds)))
    looked_at = [cell * padded(n + 1) for n in tokens]
    grown = _grown(run)
    told = f"reserved {reserved:.2f} MiB throughout; in use from {cell * tokens[0]:.2f} to {cell * tokens[-1]:.2f} MiB"
    more = f"; the engine's process grew by at most {max(y for _, y in grown):.2f} MiB" if grown else ""
    figure = blank(run.badge, f"The KV cache along an answer: {told}{more}.", "tokens in the context", "MiB")
    _drawn(figure, [(n, reserved) for n in tokens], "reserved", CACHE, "solid")
    _drawn(figure, list(zip(tokens, looked_at, strict=True)), "looked at by a step", READ, "solid", shape="hv")
    _drawn(figure, [(n, cell * n) for n in tokens], "in use", DECODE, "solid")
    if grown:
        _drawn(figure, grown, "growth of the process", RESIDENT, "dash")
    figure.update_layout(showlegend=True, height=440, legend={"orientation": "v"}, margin={"t": 104})
    figure.update_yaxes(rangemode="tozero")
    return figure


def _grown(run: Run) -> list[tuple[int, float]]:
    """(tokens in the context, MiB more than at the first token) of the last pass, from samples within it."""
    one, found = run.passes[-1], []
    for sample in run.samples:
        n_done = sum(one.began + at <= sample.seconds for at in one.token_seconds) if one.began is not None else 0
        if 0 < n_done < len(one.token_seconds) and sample.rss_bytes is not None:
            found.append((run.n_prompt + n_done - 1, sample.rss_bytes))
    return [(n, (rss - found[0][1]) / MIB) for n, rss in found]


def token_against_cells(runs: Mapping[str, Sequence[Run]]) -> go.Figure:
    """Engine time of an undisturbed token against the cells it looks at: a point a tread, and the line through them."""
    first = next(iter(runs.values()))[0]
    level = {name: levels(*every) for name, every in runs.items()}
    lines = {name: line_through(points) for name, points in level.items()}
    told = "; ".join(
        f"{name}: {1e3 * of.seconds:.2f} ms and "
        f"{1e3 * CELL_STEP * of.seconds_per_cell:.3f} ms for each {CELL_STEP} cells"
        for name, of in lines.items()
    )
    figure = blank(first.badge, f"Time of a token against cells. {told}.", "cells looked at", "engine time, ms")
    for index, (name, points) in enumerate(level.items()):
        colour, dash = COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)]
        ends = [(n, 1e3 * lines[name].at(n)) for n in (min(points), max(points))]
        _drawn(figure, ends, name, colour, dash)
        figure.add_scatter(
            x=list(points), y=[1e3 * s for s in points.values()], mode="markers", name=f"{name}, treads",
            marker={"color": colour, "size": 9}, showlegend=False, hovertemplate="%{x} cells: %{y:.3f} ms",
        )  # fmt: skip
    rows = 20 * len(level)
    figure.update_layout(showlegend=True, height=400 + rows, legend={"orientation": "v"}, margin={"t": 24 + rows})
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    return figure


def pressure(claimed: Mapping[int, float], computed: Mapping[int, float], badge: str) -> go.Figure:
    """Tokens per second along a conversation: as a source drew it, and as bytes over bandwidth have it."""
    told = "; ".join(f"at {n} tokens {rate:.0f} claimed" for n, rate in claimed.items())
    last = max(computed)
    figure = blank(
        badge,
        f"Decode rate along a conversation: {told}; computed {computed[last]:.1f} at {last} tokens.",
        "tokens in the context",
        "tokens per second",
    )
    line(figure, list(claimed.items()), "as claimed", CLAIM)
    line(figure, list(computed.items()), "bytes over bandwidth", CACHE, marks=False)
    figure.update_traces(line_dash="dash", selector={"name": "as claimed"})
    figure.update_layout(showlegend=True)
    figure.update_yaxes(rangemode="tozero")
    return figure


def cache_runs(runs: Sequence[Run]) -> go.Figure:
    """Each measured cache as two bars, reserved and in use at the end, with the time of its tokens beside them."""
    names = [f"{i}: {r.n_prompt + r.n_gen} of {r.settings.n_ctx}, {r.settings.type_k}" for i, r in enumerate(runs, 1)]
    reserved = [r.bytes_on("kv_cache") / MIB for r in runs]
    used = [m * (r.n_prompt + r.n_gen) / r.settings.n_ctx for m, r in zip(reserved, runs, strict=True)]
    times = [1e3 / r.decode_tokens_per_second for r in runs]
    told = "; ".join(
        f"{n} tokens: {a:.2f} MiB reserved, {b:.2f} in use, {t:.2f} ms a token"
        for n, a, b, t in zip(names, reserved, used, times, strict=True)
    )
    badge = runs[0].badge if runs else None
    figure = blank(badge, f"Measured caches: {told or 'none yet'}.", "MiB")
    figure.add_bar(
        y=names, x=reserved, name="reserved", orientation="h", marker_color=CACHE, textposition="outside",
        text=[f"{t:.2f} ms a token" for t in times], cliponaxis=False,
    )  # fmt: skip
    figure.add_bar(y=names, x=used, name="in use", orientation="h", marker_color=DECODE)
    figure.update_layout(showlegend=True, height=240 + 60 * max(2, len(runs)))
    figure.update_annotations(xshift=-70)
    figure.update_xaxes(range=[0, 1.7 * max(reserved, default=1)])
    figure.update_yaxes(autorange="reversed", type="category")
    return figure


def signs(cases: Mapping[str, Comparison], badge: str) -> go.Figure:
    """What can be seen of each case from outside, as a table with a column a sign; nothing says what was done."""
    rows = {name: [_said(case, sign) for sign in SIGNS] for name, case in cases.items()}
    titles = [title for title, _ in SIGNS.values()]
    told = "; ".join(
        f"{name}: {', '.join(f'{t} {v}' for t, v in zip(titles, row, strict=True))}" for name, row in rows.items()
    )
    return _table(rows, titles, f"Signs of each case. {told}.", badge, EDGE)


def _said(case: Comparison, sign: str) -> str:
    value = getattr(case, sign)
    return "unknown" if value is None else SIGNS[sign][1](value)


def confusion(table: Mapping[str, Counter[str]], badge: str) -> go.Figure:
    """What was done, a row each, against what was diagnosed, a column each: how often."""
    columns = list(dict.fromkeys([*table, *(name for row in table.values() for name in row)]))
    right = sum(row[name] for name, row in table.items())
    total = sum(sum(row.values()) for row in table.values())
    wrong = [f"{name} taken for {other}" for name, row in table.items() for other in row if other != name]
    rows = {name: [str(row[other] or "") for other in columns] for name, row in table.items()}
    figure = _table(
        rows, columns, f"{right} of {total} diagnoses were right. Mistaken: {', '.join(wrong) or 'none'}.", badge, CACHE
    )
    figure.update_layout(margin={"t": 150}, height=figure.layout.height + 110)
    figure.update_xaxes(tickangle=-55)
    return figure


def _table(
    rows: Mapping[str, Sequence[str]], columns: Sequence[str], alt: str, badge: str, colour: str
) -> go.Figure:
    """Cells with text, rows and columns named; a cell that has text is tinted."""
    figure = blank(badge, alt)
    names = list(rows)
    figure.add_heatmap(
        x=list(columns), y=names, z=[[int(bool(text)) for text in rows[name]] for name in names],
        showscale=False, xgap=2, ygap=2, hoverinfo="skip",
        zmin=0, zmax=1, colorscale=[[0, "rgba(128,128,128,0.08)"], [1, _tint(colour)]],
    )  # fmt: skip
    figure.add_scatter(  # a heatmap's own text would choose its colour for a white page
        x=list(columns) * len(names), y=[name for name in names for _ in columns], mode="text",
        text=[text for name in names for text in rows[name]], textfont={"size": 11},
        hovertemplate="%{y}: %{x} %{text}<extra></extra>",
    )  # fmt: skip
    figure.update_layout(height=220 + 34 * len(names), margin={"l": 110, "t": 96, "b": 70})
    figure.update_xaxes(side="top", type="category", tickangle=-40, showgrid=False, ticks="outside")
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False, ticks="")
    figure.update_annotations(yshift=-8, xshift=-90)
    return figure


def _tint(colour: str) -> str:
    """A colour pale enough for text on either theme."""
    if not colour.startswith("#"):
        return "rgba(128,128,128,0.16)"
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.28)"


def _drawn(
    figure: go.Figure, values: Sequence[tuple[float, float]], name: str, colour: str, dash: str, shape: str = "linear"
) -> None:
    figure.add_scatter(
        x=[x for x, _ in values], y=[y for _, y in values], name=name, mode="lines",
        line={"color": colour, "width": 2, "dash": dash, "shape": shape},
        hovertemplate=f"%{{x}}: %{{y:.3f}}<extra>{name}</extra>",
    )  # fmt: skip
