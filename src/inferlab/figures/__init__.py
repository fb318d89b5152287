"""Figures: records in, plotly figures out; a figure reads and writes no file.

Each module draws one kind of figure and is named after it.
Every figure has a text alternative in `layout.meta["alt"]` and the badge of its data below its axes.
Backgrounds are transparent and text has no colour of its own: the page and JupyterLab set theirs.
A module is imported when one of its names is first used, because a page draws only a few kinds of figures.
"""

from importlib import import_module

# A module with the name of one of its functions is imported at once: later it would take that name for itself.
# ruff: noqa: F401
from inferlab.figures.load_memory import load_memory, load_peaks
from inferlab.figures.ram_reads import ram_reads
from inferlab.figures.request_memory import request_memory
from inferlab.figures.requests import requests, summary, timeline, token_times, ttft_against_prompt
from inferlab.figures.roofline import rates_against_length, roofline, roofline_at
from inferlab.figures.telemetry import telemetry

_NAMES_OF = {
    "allocations": ("buffers", "resident_memory"),
    "atlas": ("atlas_rates",),
    "attention": ("attention_against_tokens",),
    "batching": ("batch_rates", "batch_steps", "batch_steps_by_kernel"),
    "block_pool": ("card_shares",),
    "cold_start": ("cold_starts",),
    "context_layers": ("layers_against_context",),
    "continuous_batching": ("slots",),
    "depth": ("rate_against_depth", "token_against_cells", "token_against_depth"),
    "diagnosis": ("confusion_matrix", "symptoms"),
    "engine_choice": ("outside_the_card",),
    "engine_comparison": ("engine_rates",),
    "graph": ("graph_walk",),
    "http_serving": (
        "http_rates", "http_waits", "longest_pauses", "request_clock", "running_answers", "ttft_over_http",
    ),
    "importance": ("losses_by_text", "losses_with_matrix"),
    "journey": ("conversation_clock",),
    "kernel_rates": ("mix_rates", "repacking"),
    "kv_cache": ("cache_runs", "cache_use", "kv_formulas"),
    "link_rates": ("link_ladder",),
    "load_memory": ("load_memory", "load_peaks"),
    "memory": ("context_against_memory", "layer_bytes", "memory_breakdown", "memory_residuals"),
    "model_parts": ("cost_by_part", "tensor_bytes"),
    "no_cache": ("time_without_cache",),
    "offload": ("recorded_badge", "settings_text", "split"),
    "options": ("host_layers", "option_effect"),
    "pairs": ("paired_ratios",),
    "prefix_cache": ("prefix_reuse",),
    "provenance": ("badge_in_short",),
    "quant_tradeoffs": ("fidelity", "pareto", "published_mix_rates", "type_choices"),
    "quant_types": ("bits_per_weight", "mixed_types", "super_block"),
    "ram_reads": ("ram_reads",),
    "request_memory": ("request_memory",),
    "requests": ("requests", "summary", "timeline", "token_times", "ttft_against_prompt"),
    "roofline": ("rates_against_length", "roofline", "roofline_at"),
    "rounding": ("rounding_errors", "scale_search"),
    "serving_overhead": ("token_split",),
    "several_cards": ("bytes_by_split",),
    "showing": ("live", "on_page", "page_html", "redraw"),
    "sliders": ("slider",),
    "speculative": ("verification_costs",),
    "style": ("DECODE", "PREFILL"),
    "telemetry": ("telemetry",),
    "training_ledger": ("ledger_bytes",),
    "tune": ("tuning_pairs", "tuning_rounds"),
    "utilization": ("averaged_utilization",),
    "waiting": ("decode_against_spin",),
    "watched_server": ("dashboard",),
}
_MODULE_OF = {name: f"inferlab.figures.{module}" for module, names in _NAMES_OF.items() for name in names}
_MODULE_OF["Figure"] = "plotly.graph_objects"

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str):
    if name not in _MODULE_OF:
        raise AttributeError(f"inferlab.figures has no {name!r}. It has {', '.join(__all__)}.")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
