"""Requests to a server over HTTP: a clock of each, waits and rates over users, pauses beside a long prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import plotly.graph_objects as go

from inferlab.figures.style import (
    DECODE,
    EDGE,
    GREY,
    LOG_MARKS,
    PREFILL,
    PURPLE,
    TEAL,
    blank,
    heading,
    samples_and_medians,
    tick_values,
    y_from_zero,
)
from inferlab.measurement.base import common_badge
from inferlab.measurement.http_serving import HttpReply, HttpServing
from inferlab.measurement.http_workloads import longest_pause
from inferlab.units import seconds_text

SMALLEST_MS = 1.0
ARM_PIXELS = 70


def request_clock(one: HttpServing) -> go.Figure:
    """Each request as a bar over time: the wait for a slot, then prefill, then decode."""
    known = [reply for reply in one.replies if reply.queue_seconds is not None]
    text = "; ".join(map(_clock_text, known))
    alt = f"{len(known)} requests to a server with {one.settings.n_seq_max} slots: {text}."
    figure = blank(one.badge, alt, x="seconds since the first request was sent")
    parts = {
        "queue": (GREY, [r.sent_seconds for r in known], [r.queue_seconds for r in known]),
        "prefill": (PREFILL, [r.launched_seconds for r in known], [r.prefill_seconds for r in known]),
        "decode": (DECODE, [r.event_seconds[0] for r in known], [r.decode_seconds for r in known]),
    }
    for name, (colour, base, seconds) in parts.items():
        figure.add_bar(
            y=[f"request {i}" for i in range(1, len(known) + 1)], x=seconds, base=base, orientation="h", name=name,
            marker_color=colour, hovertemplate=f"{name}: %{{base:.3f}} to %{{x:.3f}} s<extra></extra>",
        )  # fmt: skip
    figure.update_layout(barmode="overlay", showlegend=True, height=210 + 26 * max(4, len(known)), bargap=0.25)
    figure.update_yaxes(autorange="reversed", type="category")
    return figure


def _clock_text(reply: HttpReply) -> str:
    times = map(seconds_text, (reply.queue_seconds, reply.prefill_seconds, reply.decode_seconds))
    return "queue {}, prefill {}, decode {}".format(*times)


def http_waits(servings: Sequence[HttpServing]) -> go.Figure:
    """Time to the first token and queue wait against users who send at the same moment: medians of all requests."""
    by_users = _by_users(servings)
    first = {n: [1e3 * reply.ttft_seconds for reply in replies] for n, replies in by_users.items()}
    queue = {n: [1e3 * r.queue_seconds for r in replies if r.queue_seconds is not None]
             for n, replies in by_users.items()}  # fmt: skip
    figure = blank(
        common_badge(servings),
        "Time to the first token, and the part of it that is queue wait, in the median of all requests: "
        + "; ".join(f"{n} users {median(first[n]):.0f} ms, queue {median(queue[n]):.0f} ms" for n in first) + ".",
        x="users who send at the same moment", y="milliseconds",
    )  # fmt: skip
    for name, found, colour in (("first token", first, PREFILL), ("queue wait", queue, GREY)):
        _samples(figure, found, name, colour)
    return _over_users(figure, list(by_users))


def http_rates(servings: Sequence[HttpServing]) -> go.Figure:
    """Tokens per second of each answer while it is written, and of all together with prompts and waiting."""
    each = {n: [r.tokens_per_second for r in replies if r.tokens_per_second]
            for n, replies in _by_users(servings).items()}  # fmt: skip
    total = {n: [one.tokens_per_second for one in servings if len(one.replies) == n] for n in each}
    figure = blank(
        common_badge(servings),
        "Tokens per second in the median: "
        + "; ".join(f"{n} users {median(total[n]):.0f} together, {median(each[n]):.0f} each" for n in each) + ".",
        x="users who send at the same moment", y="tokens per second",
    )  # fmt: skip
    _samples(figure, total, "together, prompts and waiting included", TEAL)
    _samples(figure, each, "each, while decoding", DECODE)
    return _over_users(figure, list(each))


def _by_users(servings: Sequence[HttpServing]) -> dict[int, list[HttpReply]]:
    sizes = sorted({len(one.replies) for one in servings})
    return {n: [reply for one in servings if len(one.replies) == n for reply in one.replies] for n in sizes}


def _samples(figure: go.Figure, found: Mapping[int, Sequence[float]], name: str, colour: str) -> None:
    every = [(n, value) for n, values in found.items() for value in values]
    samples_and_medians(figure, every, [(n, median(values)) for n, values in found.items()], name, colour)


def _over_users(figure: go.Figure, sizes: Sequence[int]) -> go.Figure:
    figure.update_layout(showlegend=True)
    figure.update_xaxes(tickvals=tick_values(sizes), rangemode="tozero")
    y_from_zero(figure)
    return figure


def ttft_over_http(servings: Sequence[HttpServing], claimed_ms: tuple[float, float] | None = None) -> go.Figure:
    """Time to the first token against prompt length, both logarithmic; `claimed_ms` is drawn as a band."""
    found: dict[int, list[float]] = {}
    for one in servings:
        found.setdefault(one.replies[0].request.n_prompt, []).append(1e3 * one.replies[0].ttft_seconds)
    sizes, highest = sorted(found), max(map(max, found.values()))
    figure = blank(
        common_badge(servings),
        "Time to the first token against prompt length: "
        + "; ".join(f"{n} tokens {seconds_text(median(found[n]) / 1e3)}" for n in sizes) + ".",
        x="prompt tokens", y="first token, ms",
    )  # fmt: skip
    if claimed_ms:
        figure.add_hrect(*claimed_ms, fillcolor=GREY, opacity=0.2, line_width=0)
        heading(figure, f"gray: what is claimed, {claimed_ms[0]:g} to {claimed_ms[1]:g} ms")
    _samples(figure, {n: found[n] for n in sizes}, "first token", PREFILL)
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
        + "; ".join(f"{name} {seconds_text(longest_pause(one))}" for name, one in middle.items()) + ".",
        x="seconds since the long prompt was sent",
    )  # fmt: skip
    names = [name.replace(", ", "<br>") for name in middle]
    longs = [one.replies[-1] for one in middle.values()]
    figure.add_bar(
        y=names, x=[long.ttft_seconds for long in longs], base=[0] * len(longs), orientation="h", width=0.3,
        name="long prompt until its first token", marker_color=PREFILL, opacity=0.45, hovertemplate="%{x:.2f} s",
    )  # fmt: skip
    marks = [(at - one.replies[-1].sent_seconds, name) for name, one in zip(names, middle.values(), strict=True)
             for reply in one.replies[:-1] for at in reply.event_seconds]  # fmt: skip
    figure.add_scatter(
        x=[at for at, _ in marks], y=[name for _, name in marks], mode="markers", name="token of a running answer",
        marker={"symbol": "line-ns", "size": 16, "line": {"width": 1.5, "color": DECODE}}, hovertemplate="%{x:.3f} s",
    )  # fmt: skip
    figure.update_layout(showlegend=True, height=230 + ARM_PIXELS * len(names), barmode="overlay")
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_xaxes(zeroline=True, zerolinecolor=EDGE)
    return figure


def longest_pauses(arms: Mapping[str, Sequence[HttpServing]]) -> go.Figure:
    """For each server the longest pause of the running answers and the long prompt's first token: each run a point."""
    figure = blank(
        common_badge([one for several in arms.values() for one in several]),
        "Beside a long prompt, medians: "
        + "; ".join(
            f"{name}: longest pause of a running answer {seconds_text(median(map(longest_pause, several)))}, "
            f"first token of the long prompt {seconds_text(median(o.replies[-1].ttft_seconds for o in several))}"
            for name, several in arms.items()
        ) + ".",
        y="seconds",
    )  # fmt: skip
    names = [name.replace(", ", "<br>") for name in arms]
    what = {
        "longest pause between two tokens": (longest_pause, DECODE),
        "first token of the long prompt": (lambda one: one.replies[-1].ttft_seconds, PURPLE),
    }
    for label, (of, colour) in what.items():
        every = [(name, of(one)) for name, several in zip(names, arms.values(), strict=True) for one in several]
        middle = [(name, median(map(of, several))) for name, several in zip(names, arms.values(), strict=True)]
        samples_and_medians(figure, every, middle, label, colour)
    figure.update_layout(showlegend=True)
    figure.update_xaxes(type="category")
    y_from_zero(figure)
    return figure
