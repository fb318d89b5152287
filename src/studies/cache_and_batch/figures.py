"""What a shared prefix saves, which request has which slot, and the time of a token with a KV cache and without."""

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
    PREFILL,
    PURPLE,
    RED,
    SERIES_COLOURS,
    TEAL,
    blank,
    dashed_line,
    line,
    points,
    samples_and_medians,
    tick_values,
    y_from_zero,
)
from inferlab.measurement.base import common_badge
from inferlab.measurement.batching import BatchedDecode
from inferlab.measurement.run import Run
from inferlab.model.ggml_types import padded
from inferlab.units import MIB
from studies.cache_and_batch.continuous_batching import Schedule
from studies.cache_and_batch.prefix_cache import PrefixReuse


def prefix_reuse(reuse: PrefixReuse) -> go.Figure:
    """Engine time to the first token in ms against the length of the shared prefix, with and without reuse."""
    ways = {"everything is read": "whole_seconds", "the beginning is shared": "reused_seconds"}
    text = "; ".join(
        f"{prefix.n_shared} shared tokens: {1e3 * median(prefix.whole_seconds):.1f} ms without, "
        f"{1e3 * median(prefix.reused_seconds):.1f} ms with reuse"
        for prefix in reuse.prefixes
    )
    figure = blank(
        reuse.badge, f"Time to the first token. {text}.", x="tokens of the common beginning", y="first token, ms"
    )
    for (name, field), colour in zip(ways.items(), (PREFILL, TEAL), strict=True):
        _milliseconds(figure, name, colour, {prefix.n_shared: getattr(prefix, field) for prefix in reuse.prefixes})
    figure.update_xaxes(rangemode="tozero")
    return figure


def _milliseconds(figure: go.Figure, name: str, colour: str, seconds: Mapping[int, Sequence[float]]) -> None:
    """Every sample in milliseconds at its number, and the medians joined."""
    every = [(n, 1e3 * sample) for n, samples in seconds.items() for sample in samples]
    medians = [(n, 1e3 * median(samples)) for n, samples in seconds.items()]
    samples_and_medians(figure, every, medians, name, colour)
    figure.update_layout(showlegend=True)
    figure.update_xaxes(tickvals=tick_values([*seconds]))
    y_from_zero(figure)


SMALLEST_NUMBER = 9
"""Pixels of a request's number in its bar; one that would be smaller is left out."""


def slots(schedules: Mapping[str, Schedule]) -> go.Figure:
    """Each request as a bar in its slot over engine time, for several schedules of the same requests."""
    text = "; ".join(
        f"{name}: {served.seconds:.2f} s for {len(served.answered)} requests, "
        f"slots busy {100 * served.busy_share:.0f} %"
        for name, served in schedules.items()
    )
    figure = blank(next(iter(schedules.values())).badge, f"Requests in slots. {text}.", x="seconds of engine time")
    for (name, served), colour in zip(schedules.items(), SERIES_COLOURS, strict=False):
        _answer_bars(figure, name, served, colour)
    n_rows = sum(served.n_slots for served in schedules.values())
    figure.update_layout(barmode="overlay", height=190 + 30 * n_rows, bargap=0.15)
    figure.update_layout(uniformtext={"minsize": SMALLEST_NUMBER, "mode": "hide"})
    figure.update_yaxes(autorange="reversed", type="category")
    return figure


def _answer_bars(figure: go.Figure, name: str, served: Schedule, colour: str) -> None:
    answers = sorted(served.answered, key=lambda a: (a.slot, a.began_seconds))
    figure.add_bar(
        y=[f"{name} {a.slot + 1}" for a in answers],
        x=[a.ended_seconds - a.began_seconds for a in answers],
        base=[a.began_seconds for a in answers],
        orientation="h",
        name=name,
        marker_color=colour,
        marker_line={"width": 1, "color": "rgba(255,255,255,0.8)"},
        text=[a.number for a in answers],
        textposition="inside",
        textangle=0,
        insidetextanchor="middle",
        insidetextfont={"color": "white"},
        customdata=[a.request.n_gen for a in answers],
        hovertemplate="request %{text}: %{customdata} tokens, began at %{base:.2f} s<extra></extra>",
    )


def time_without_cache(runs: Sequence[Run]) -> go.Figure:
    """Engine time of the next token in ms against the tokens before it, without and with a KV cache.

    Without: prefill of the whole text. With: decode of one token at that depth. Medians of the passes.
    """
    lengths = [run.n_prompt for run in runs]
    again = [1e3 * run.prefill_seconds for run in runs]
    last = [1e3 * median(s for each in run.passes for s in each.decode_seconds) for run in runs]
    text = "; ".join(
        f"{n} tokens: {a:.2f} ms without, {b:.2f} ms with" for n, a, b in zip(lengths, again, last, strict=True)
    )
    figure = blank(
        runs[0].badge,
        f"Time for the next token, without a cache and with it. {text}.",
        x="tokens before it",
        y="engine time, ms",
    )
    every = [(run.n_prompt, 1e3 * each.prefill_seconds) for run in runs for each in run.passes]
    points(figure, every, "one pass", RED)
    line(figure, list(zip(lengths, again, strict=True)), "without a cache", RED)
    line(figure, list(zip(lengths, last, strict=True)), "with a cache", TEAL)
    figure.update_traces(selector={"name": "one pass"}, showlegend=False)
    figure.update_layout(showlegend=True)
    figure.update_xaxes(rangemode="tozero")
    y_from_zero(figure)
    return figure


def batch_rates(measured: BatchedDecode) -> go.Figure:
    """Tokens per second against the number of sequences: all together, each, and (dotted) n times one."""
    batches, alone = measured.points, measured.at(1).tokens_per_second
    sizes = [batch.n_sequences for batch in batches]
    figure = blank(
        measured.badge,
        "Tokens per second, all together and each: "
        + "; ".join(f"{b.n_sequences}: {b.tokens_per_second:.1f}, {b.each_tokens_per_second:.1f}" for b in batches)
        + ".",
        x="sequences at once",
        y="tokens/s",
    )
    figure.add_scatter(
        x=sizes, y=[n * alone for n in sizes], name="n times one", mode="lines", line={"color": EDGE, "dash": "dot"}
    )
    for name, colour, rate in (
        ("all together", DECODE, lambda n, s: n / s),
        ("each of them", PURPLE, lambda n, s: 1 / s),
    ):
        every = [(b.n_sequences, rate(b.n_sequences, s)) for b in batches for s in b.step_seconds]
        medians = [(b.n_sequences, rate(b.n_sequences, b.median_seconds)) for b in batches]
        samples_and_medians(figure, every, medians, name, colour)
    figure.update_layout(showlegend=True)
    figure.update_xaxes(type="log", tickvals=tick_values(sizes, log=True))
    figure.update_yaxes(type="log", tickvals=LOG_MARKS)
    return figure


def batch_steps(measured: BatchedDecode, expected: Mapping[int, float] | None = None) -> go.Figure:
    """Milliseconds of a step against the number of sequences in it: every step a point, the medians joined.

    expected  seconds by number of sequences, drawn as a dotted line
    """
    figure = blank(
        measured.badge,
        "Engine time of a step with one token for each sequence: "
        + "; ".join(f"{b.n_sequences}: {1e3 * b.median_seconds:.2f} ms" for b in measured.points)
        + ".",
        x="sequences at once",
        y="ms a step",
    )
    points(figure, [(b.n_sequences, 1e3 * s) for b in measured.points for s in b.step_seconds], "one step", DECODE)
    line(figure, [(b.n_sequences, 1e3 * b.median_seconds) for b in measured.points], "median", DECODE)
    if expected:
        line(figure, [(n, 1e3 * seconds) for n, seconds in expected.items()], "expected", GREY, marks=False)
        figure.data[-1].line.dash = "dot"
        figure.data[0].showlegend = False
        figure.update_layout(showlegend=True)
    figure.update_xaxes(tickvals=tick_values([b.n_sequences for b in measured.points]))
    y_from_zero(figure)
    return figure


def batch_steps_by_kernel(kernels: Mapping[str, BatchedDecode]) -> go.Figure:
    """Milliseconds of a step against the number of sequences in it: a line for each name, every step a point."""
    text = "; ".join(
        f"{name}: " + ", ".join(f"{b.n_sequences} {1e3 * b.median_seconds:.1f} ms" for b in measured.points)
        for name, measured in kernels.items()
    )
    figure = blank(
        common_badge(list(kernels.values())),
        f"Engine time of a step by sequences. {text}.",
        x="sequences at once",
        y="ms a step",
    )
    for (name, measured), colour in zip(kernels.items(), SERIES_COLOURS, strict=False):
        _milliseconds(figure, name, colour, {b.n_sequences: b.step_seconds for b in measured.points})
    return figure


def cache_use(run: Run) -> go.Figure:
    """MiB of the KV cache during one answer: reserved, in use, read by a step, and the growth of the engine's process.

    Against the tokens in the context. The growth comes from the run's samples, if it has any.
    """
    reserved = run.bytes_on("kv_cache") / MIB
    cell = reserved / run.settings.n_ctx
    tokens = list(range(run.n_prompt, run.n_prompt + len(run.passes[-1].token_seconds)))
    looked_at = [cell * padded(n + 1) for n in tokens]
    grown = _grown(run)
    text = f"reserved {reserved:.2f} MiB throughout; in use from {cell * tokens[0]:.2f} to {cell * tokens[-1]:.2f} MiB"
    more = f"; the engine's process grew by at most {max(0.01, *(y for _, y in grown)):.2f} MiB" if grown else ""
    figure = blank(run.badge, f"The KV cache along an answer: {text}{more}.", "tokens in the context", "MiB")
    dashed_line(figure, [(n, reserved) for n in tokens], "reserved", TEAL, "solid")
    dashed_line(figure, list(zip(tokens, looked_at, strict=True)), "looked at by a step", PURPLE, "solid", shape="hv")
    dashed_line(figure, [(n, cell * n) for n in tokens], "in use", OLIVE, "solid")
    if grown:
        dashed_line(figure, grown, "growth of the process", GREY, "dash")
    figure.update_layout(showlegend=True, height=440, legend={"orientation": "v"}, margin={"t": 104})
    y_from_zero(figure)
    return figure


def _grown(run: Run) -> list[tuple[int, float]]:
    """(tokens in the context, MiB more than at the first token) of the last pass, from samples within it."""
    last, sampled = run.passes[-1], []
    if last.began is None:
        return []
    for sample in run.samples:
        n_done = sum(last.began + at <= sample.seconds for at in last.token_seconds)
        if 0 < n_done < len(last.token_seconds) and sample.rss_bytes is not None:
            sampled.append((run.n_prompt + n_done - 1, sample.rss_bytes))
    return [(n, (rss - sampled[0][1]) / MIB) for n, rss in sampled]
