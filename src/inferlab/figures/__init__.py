"""What a measurement looks like: records in, plotly figures out, no input or output of its own.

Every figure carries a text alternative in `layout.meta["alt"]` and, below its axes, the badge of its data.
Backgrounds are transparent and text has no colour of its own: the page and JupyterLab set theirs.
"""

from plotly.graph_objects import Figure

from inferlab.figures.allocations import buffers
from inferlab.figures.anatomy import block, growth, kv_readings, recomputed, tensor_bytes
from inferlab.figures.atlas import atlas_bytes, atlas_rates
from inferlab.figures.bottlenecks import cache_runs, cache_use, confusion, pressure, signs, token_against_cells
from inferlab.figures.cold_start import cold_start, cold_starts
from inferlab.figures.memory import context_against_memory, layer_bytes, memory_breakdown, plan_beside_run, residuals
from inferlab.figures.offload import described, recorded_badge, split
from inferlab.figures.quantization import (
    bits_per_weight,
    choices,
    fidelity,
    mixed_types,
    pareto,
    published_rates,
    rates,
    roundings,
    search,
    super_block,
)
from inferlab.figures.requests import requests, summary, timeline, token_times, ttft_against_prompt
from inferlab.figures.roofline import rates_against_length, roof_at, roofline
from inferlab.figures.serving import crowd_steps, crowds, depths, foresight, prefixes, slots, speculations
from inferlab.figures.showing import live, on_page, page_html, redraw, register_page_renderer
from inferlab.figures.sliders import slider
from inferlab.figures.speed import predicted_beside_measured, speed_residuals, step_seconds
from inferlab.figures.style import DECODE, PREFILL
from inferlab.figures.telemetry import telemetry
from inferlab.figures.tuning import attention_ways, host_layers, option, pairs, residence, search_rounds

__all__ = [
    "DECODE",
    "PREFILL",
    "Figure",
    "atlas_bytes",
    "atlas_rates",
    "attention_ways",
    "bits_per_weight",
    "block",
    "buffers",
    "cache_runs",
    "cache_use",
    "choices",
    "cold_start",
    "cold_starts",
    "confusion",
    "context_against_memory",
    "crowd_steps",
    "crowds",
    "depths",
    "described",
    "fidelity",
    "foresight",
    "growth",
    "host_layers",
    "kv_readings",
    "layer_bytes",
    "live",
    "memory_breakdown",
    "mixed_types",
    "on_page",
    "option",
    "page_html",
    "pairs",
    "pareto",
    "plan_beside_run",
    "predicted_beside_measured",
    "prefixes",
    "pressure",
    "published_rates",
    "rates",
    "rates_against_length",
    "recomputed",
    "recorded_badge",
    "redraw",
    "register_page_renderer",
    "requests",
    "residence",
    "residuals",
    "roof_at",
    "roofline",
    "roundings",
    "search",
    "search_rounds",
    "signs",
    "slider",
    "slots",
    "speculations",
    "speed_residuals",
    "split",
    "step_seconds",
    "summary",
    "super_block",
    "telemetry",
    "tensor_bytes",
    "timeline",
    "token_against_cells",
    "token_times",
    "ttft_against_prompt",
]
