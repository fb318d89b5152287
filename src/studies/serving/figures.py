"""Requests to a server over HTTP: a clock of each, waits and rates over users, pauses beside a long prompt.

A server's dashboard: what Prometheus scraped, beside what the clients saw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import plotly.graph_objects as go

from inferlab.figures.style import (
    DECODE,
    EDGE,
    GREY,
    LOG_MARKS,
    OLIVE,
    PINK,
    PREFILL,
    PURPLE,
    RED,
    TEAL,
    blank,
    from_zero,
    heading,
    samples_and_medians,
    tick_values,
    y_from_zero,
)
from inferlab.measurement.base import common_badge
from inferlab.units import seconds_text
from studies.serving.study import (
    CLAIMED_MS,
    QUERIES,
    WINDOW_SECONDS,
    HttpReply,
    HttpServing,
    Series,
    WatchedServing,
    longest_pause,
    ttft_by_length,
)

SMALLEST_MS = 1.0
ARM_PIXELS = 70


def request_clock(serving: HttpServing) -> go.Figure:
    """Each request as a bar over time: the wait for a slot, then prefill, then decode."""
    known = [reply for reply in serving.replies if reply.queue_seconds is not None]
    text = "; ".join(
        f"queue {seconds_text(reply.queue_seconds)}, prefill {seconds_text(reply.prefill_seconds)}, "
        f"decode {seconds_text(reply.decode_seconds)}"
        for reply in known
    )
    alt = f"{len(known)} requests to a server with {serving.settings.n_seq_max} slots: {text}."
    figure = blank(serving.badge, alt, x="seconds since the first request was sent")
    parts = {
        "queue": (GREY, [r.sent_seconds for r in known], [r.queue_seconds for r in known]),
        "prefill": (PREFILL, [r.launched_seconds for r in known], [r.prefill_seconds for r in known]),
        "decode": (DECODE, [r.event_seconds[0] for r in known], [r.decode_seconds for r in known]),
    }
    for name, (colour, base, seconds) in parts.items():
        figure.add_bar(
            y=[f"request {i}" for i in range(1, len(known) + 1)],
            x=seconds,
            base=base,
            orientation="h",
            name=name,
            marker_color=colour,
            hovertemplate=f"{name}: %{{base:.3f}} to %{{x:.3f}} s<extra></extra>",
        )
    figure.update_layout(barmode="overlay", showlegend=True, height=210 + 26 * max(4, len(known)), bargap=0.25)
    figure.update_yaxes(autorange="reversed", type="category")
    return figure


def http_waits(servings: Sequence[HttpServing]) -> go.Figure:
    """Time to the first token and queue wait against users who send at the same moment: medians of all requests."""
    by_users = _by_users(servings)
    first = {n: [1e3 * reply.ttft_seconds for reply in replies] for n, replies in by_users.items()}
    queue = {
        n: [1e3 * r.queue_seconds for r in replies if r.queue_seconds is not None] for n, replies in by_users.items()
    }
    figure = blank(
        common_badge(servings),
        "Time to the first token, and the part of it that is queue wait, in the median of all requests: "
        + "; ".join(f"{n} users {median(first[n]):.0f} ms, queue {median(queue[n]):.0f} ms" for n in first)
        + ".",
        x="users who send at the same moment",
        y="milliseconds",
    )
    for name, values, colour in (("first token", first, PREFILL), ("queue wait", queue, GREY)):
        _samples(figure, values, name, colour)
    return _over_users(figure, list(by_users))


def http_rates(servings: Sequence[HttpServing]) -> go.Figure:
    """Tokens per second of each answer while it is written, and of all together with prompts and waiting."""
    each = {
        n: [r.tokens_per_second for r in replies if r.tokens_per_second] for n, replies in _by_users(servings).items()
    }
    total = {n: [wave.tokens_per_second for wave in servings if len(wave.replies) == n] for n in each}
    figure = blank(
        common_badge(servings),
        "Tokens per second in the median: "
        + "; ".join(f"{n} users {median(total[n]):.0f} together, {median(each[n]):.0f} each" for n in each)
        + ".",
        x="users who send at the same moment",
        y="tokens per second",
    )
    _samples(figure, total, "together, prompts and waiting included", TEAL)
    _samples(figure, each, "each, while decoding", DECODE)
    return _over_users(figure, list(each))


def _by_users(servings: Sequence[HttpServing]) -> dict[int, list[HttpReply]]:
    sizes = sorted({len(wave.replies) for wave in servings})
    return {n: [reply for wave in servings if len(wave.replies) == n for reply in wave.replies] for n in sizes}


def _samples(figure: go.Figure, by_size: Mapping[int, Sequence[float]], name: str, colour: str) -> None:
    every = [(n, value) for n, values in by_size.items() for value in values]
    samples_and_medians(figure, every, [(n, median(values)) for n, values in by_size.items()], name, colour)


def _over_users(figure: go.Figure, sizes: Sequence[int]) -> go.Figure:
    figure.update_layout(showlegend=True)
    figure.update_xaxes(tickvals=tick_values(sizes), rangemode="tozero")
    y_from_zero(figure)
    return figure


def ttft_over_http(servings: Sequence[HttpServing]) -> go.Figure:
    """Time to the first token against prompt length, both logarithmic; CLAIMED_MS is drawn as a band."""
    milliseconds = ttft_by_length(servings)
    sizes, highest = sorted(milliseconds), max(map(max, milliseconds.values()))
    figure = blank(
        common_badge(servings),
        "Time to the first token against prompt length: "
        + "; ".join(f"{n} tokens {seconds_text(median(milliseconds[n]) / 1e3)}" for n in sizes)
        + ".",
        x="prompt tokens",
        y="first token, ms",
    )
    figure.add_hrect(*CLAIMED_MS, fillcolor=GREY, opacity=0.2, line_width=0)
    heading(figure, "gray: what is claimed, {:g} to {:g} ms".format(*CLAIMED_MS))
    _samples(figure, {n: milliseconds[n] for n in sizes}, "first token", PREFILL)
    figure.update_xaxes(type="log", tickvals=tick_values(sizes, log=True))
    marks = [mark for mark in LOG_MARKS if SMALLEST_MS <= mark <= 2 * highest]
    figure.update_yaxes(type="log", tickvals=marks, ticktext=[f"{mark:g}" for mark in marks])
    return figure


def running_answers(arms: Mapping[str, Sequence[HttpServing]]) -> go.Figure:
    """Tokens of running answers as marks over time while a long prompt is read: a row of each server's middle run."""
    middle = {name: sorted(several, key=longest_pause)[len(several) // 2] for name, several in arms.items()}
    figure = blank(
        common_badge(list(middle.values())),
        "Tokens of running answers beside a long prompt. Longest pause: "
        + "; ".join(f"{name} {seconds_text(longest_pause(wave))}" for name, wave in middle.items())
        + ".",
        x="seconds since the long prompt was sent",
    )
    names = [name.replace(", ", "<br>") for name in middle]
    longs = [wave.replies[-1] for wave in middle.values()]
    figure.add_bar(
        y=names,
        x=[long.ttft_seconds for long in longs],
        base=[0] * len(longs),
        orientation="h",
        width=0.3,
        name="long prompt until its first token",
        marker_color=PREFILL,
        opacity=0.45,
        hovertemplate="%{x:.2f} s",
    )
    marks = [
        (at - wave.replies[-1].sent_seconds, name)
        for name, wave in zip(names, middle.values(), strict=True)
        for reply in wave.replies[:-1]
        for at in reply.event_seconds
    ]
    figure.add_scatter(
        x=[at for at, _ in marks],
        y=[name for _, name in marks],
        mode="markers",
        name="token of a running answer",
        marker={"symbol": "line-ns", "size": 16, "line": {"width": 1.5, "color": DECODE}},
        hovertemplate="%{x:.3f} s",
    )
    figure.update_layout(showlegend=True, height=230 + ARM_PIXELS * len(names), barmode="overlay")
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_xaxes(zeroline=True, zerolinecolor=EDGE)
    return figure


def longest_pauses(arms: Mapping[str, Sequence[HttpServing]]) -> go.Figure:
    """For each server the longest pause of the running answers and the long prompt's first token: each run a point."""
    figure = blank(
        common_badge([wave for several in arms.values() for wave in several]),
        "Beside a long prompt, medians: "
        + "; ".join(
            f"{name}: longest pause of a running answer {seconds_text(median(map(longest_pause, several)))}, "
            f"first token of the long prompt {seconds_text(median(o.replies[-1].ttft_seconds for o in several))}"
            for name, several in arms.items()
        )
        + ".",
        y="seconds",
    )
    names = [name.replace(", ", "<br>") for name in arms]
    what = {
        "longest pause between two tokens": (longest_pause, DECODE),
        "first token of the long prompt": (lambda wave: wave.replies[-1].ttft_seconds, PURPLE),
    }
    for label, (of, colour) in what.items():
        every = [(name, of(wave)) for name, several in zip(names, arms.values(), strict=True) for wave in several]
        middle = [(name, median(map(of, several))) for name, several in zip(names, arms.values(), strict=True)]
        samples_and_medians(figure, every, middle, label, colour)
    figure.update_layout(showlegend=True)
    figure.update_xaxes(type="category")
    y_from_zero(figure)
    return figure


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


def dashboard(serving: WatchedServing) -> go.Figure:
    """Requests, answer tokens per second and the gauge of the rate, over the time of the requests."""
    figure = blank(serving.badge, _alt(serving))
    heights = [PANEL_PIXELS] * len(PANELS)
    inside = sum(heights) + GAP_PIXELS * (len(PANELS) - 1)
    figure.set_subplots(rows=len(PANELS), cols=1, shared_xaxes=True, vertical_spacing=GAP_PIXELS / inside)
    margin = figure.layout.margin
    figure.update_layout(height=inside + TOP_PIXELS + margin.b, margin_t=TOP_PIXELS, showlegend=True, legend_y=1.07)
    for row, (title, queries) in enumerate(PANELS, 1):
        for name, shown in queries.items():
            _line(figure, row, *shown, serving.series_of(name))
        highest = max(max(serving.series_of(name).values, default=0) for name in queries)
        figure.update_yaxes(from_zero(highest, 0, 3), row=row, col=1)
        figure.add_annotation(
            text=title,
            showarrow=False,
            font={"size": 12},
            xref="paper",
            x=0,
            xanchor="left",
            yref=f"y{row if row > 1 else ''} domain",
            y=1,
            yanchor="bottom",
        )
    _line(figure, 2, "tokens that the clients got", DECODE, _seen(serving), "dot")
    highest = max(max(serving.series_of(name).values, default=0) for name in ("answers", "calls"))
    figure.update_yaxes(from_zero(max(highest, *_seen(serving).values), 0, 3), row=2, col=1)
    figure.update_xaxes(range=[0, serving.seconds], zeroline=False)
    figure.update_xaxes(title_text="seconds since the first request", row=len(PANELS), col=1)
    return figure


def _seen(serving: WatchedServing) -> Series:
    at = [STEP_SECONDS * i for i in range(1 + int(serving.seconds / STEP_SECONDS))]
    return Series("", tuple(at), serving.tokens_seen(at))


def _line(figure: go.Figure, row: int, name: str, colour: str, series: Series, dash: str = "solid") -> None:
    figure.add_scatter(
        x=series.seconds,
        y=series.values,
        name=name,
        mode="lines",
        line={"color": colour, "width": 2, "dash": dash},
        hovertemplate=f"%{{x:.1f}} s: %{{y:.4g}}<extra>{name}</extra>",
        row=row,
        col=1,
    )


def _alt(serving: WatchedServing) -> str:
    most = {name: max(serving.series_of(name).values, default=0) for name in QUERIES}
    return (
        f"{len(serving.replies)} requests to a server in {serving.seconds:.0f} s, "
        f"scraped every {serving.interval_seconds:g} s. "
        f"At most {most['running']:.0f} run and {most['waiting']:.0f} wait. Answer tokens per second over "
        f"{WINDOW_SECONDS} s: the clients got at most {max(_seen(serving).values):.0f}, the rate of the counter is at "
        f"most {most['answers']:.0f}, decode calls times running requests at most {most['calls']:.0f}. "
        f"Prompt tokens per second are at most {most['prompts']:.0f}. The gauge is at most {most['gauge']:.0f}."
    )
