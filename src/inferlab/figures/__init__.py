"""Figures: records in, plotly figures out; a figure reads and writes no file.

Each module draws one kind of figure and is named after it; what only one page draws is in the study of that page.
Every figure has a text alternative in `layout.meta["alt"]` and the badge of its data below its axes.
Backgrounds are transparent and text has no colour of its own: the page and JupyterLab set theirs.
A module is imported when one of its names is first used, because a page draws only a few kinds of figures.
"""

from importlib import import_module
from typing import Any

_NAMES_OF = {
    "allocations": ("buffers",),
    "cold_start": ("cold_starts",),
    "depth": ("token_against_cells", "token_against_depth"),
    "kv_cache": ("cache_runs",),
    "memory": ("layer_bytes", "memory_breakdown"),
    "model_parts": ("cost_by_part", "tensor_bytes"),
    "offload": ("recorded_badge", "settings_text", "split"),
    "options": ("option_effect",),
    "pairs": ("paired_ratios",),
    "provenance": ("badge_in_short",),
    "request_times": ("requests", "summary", "timeline", "token_times", "ttft_against_prompt"),
    "showing": ("live", "on_page", "page_html", "redraw"),
    "sliders": ("slider",),
    "style": ("DECODE", "PREFILL"),
    "telemetry_panels": ("telemetry",),
}
"""Module -> its names. No module has the name of a figure: once imported, it would take the figure's place."""
_MODULE_OF = {name: f"inferlab.figures.{module}" for module, names in _NAMES_OF.items() for name in names}
_MODULE_OF["Figure"] = "plotly.graph_objects"

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"inferlab.figures has no {name!r}. It has {', '.join(__all__)}.")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
