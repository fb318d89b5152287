"""Cold starts: seconds of each phase until the first token."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from inferlab.figures.style import OLIVE, RED, blank, stacked
from inferlab.measurement.cold_start import FILE_PHASES, ColdStart
from inferlab.units import seconds_text

GROUPS = {
    "header and vocabulary": (("check", "header", "vocabulary", "tensor_list"), OLIVE),
    "getting at the weights": (FILE_PHASES, "#0f766e"),
    "context": (("kv_cache", "graph_reserve"), "#8b5cf6"),
    "warm-up": (("warm_up",), RED),
}
"""What `cold_starts` draws: the phases after the process was made, in their order."""


def cold_starts(starts: Sequence[ColdStart]) -> go.Figure:
    """Several cold starts, one bar each, from the moment at which the process runs: four groups of phases, stacked.

    The label has the load mode, the state of the page cache, and the time before: making the process.
    """
    names = [f"{i}: {_loaded(s)}<br>{s.page_cache_text}<br>process {_process_text(s)}" for i, s in enumerate(starts, 1)]
    text = ". ".join(f"{i}: {_loaded(s)}, {s.page_cache_text}, {_phases_text(s)}" for i, s in enumerate(starts, 1))
    figure = blank(starts[0].badge, f"Cold starts. {text}.", x="milliseconds since the process runs")
    for name, (phases, colour) in GROUPS.items():
        values = [1e3 * sum(start.phases.get(phase, 0.0) for phase in phases) for start in starts]
        figure.add_bar(
            y=names,
            x=values,
            name=name,
            orientation="h",
            marker_color=colour,
            hovertemplate=f"{name} %{{x:.2f}} ms<extra></extra>",
        )
    stacked(figure, len(starts))
    figure.update_layout(height=280 + 64 * len(starts))
    return figure


def _loaded(start: ColdStart) -> str:
    """How the file comes into memory, in words; `load_mode` where there are none."""
    mode = start.settings.load_mode
    return {"mmap": "mapped", "none": "read into buffers", "direct_io": "read past the page cache"}.get(mode, mode)


def _process_text(start: ColdStart) -> str:
    return seconds_text(start.phases.get("process"))


def _title(phase: str) -> str:
    return {"kv_cache": "KV cache", "warm_up": "warm-up"}.get(phase, phase.replace("_", " "))


def _phases_text(start: ColdStart) -> str:
    phases = ", ".join(f"{_title(name)} {seconds_text(seconds)}" for name, seconds in start.phases.items())
    return f"{seconds_text(start.wall_seconds)} in all: {phases}"
