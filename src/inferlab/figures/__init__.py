"""Figures: records in, plotly figures out; a figure reads and writes no file.

Each module draws one kind of figure and is named after it.
Every figure has a text alternative in `layout.meta["alt"]` and the badge of its data below its axes.
Backgrounds are transparent and text has no colour of its own: the page and JupyterLab set theirs.
"""

from plotly.graph_objects import Figure

from inferlab.figures.allocations import buffers, resident_memory
from inferlab.figures.atlas import atlas_bytes, atlas_rates
from inferlab.figures.attention import attention_against_tokens
from inferlab.figures.batching import batch_rates, batch_steps, batch_steps_by_kernel
from inferlab.figures.block_pool import card_shares, cells_held, footprint_factors
from inferlab.figures.cold_start import cold_start, cold_starts
from inferlab.figures.context_layers import layers_against_context
from inferlab.figures.continuous_batching import slots
from inferlab.figures.depth import rate_against_depth, token_against_cells, token_against_depth
from inferlab.figures.diagnosis import confusion_matrix, symptoms
from inferlab.figures.engine_choice import outside_the_card
from inferlab.figures.engine_comparison import engine_rates
from inferlab.figures.graph import graph_walk
from inferlab.figures.http_serving import (
    http_rates,
    http_waits,
    longest_pauses,
    request_clock,
    running_answers,
    ttft_over_http,
)
from inferlab.figures.importance import changed_codes, losses_by_text, losses_with_matrix, matrix_searches
from inferlab.figures.journey import conversation_clock
from inferlab.figures.kernel_rates import mix_rates, repacking, type_rates
from inferlab.figures.kv_cache import cache_runs, cache_use, kv_formulas
from inferlab.figures.link_rates import link_ladder
from inferlab.figures.load_memory import load_memory, load_peaks
from inferlab.figures.memory import (
    context_against_memory,
    layer_bytes,
    memory_breakdown,
    memory_residuals,
    plan_beside_run,
)
from inferlab.figures.model_parts import cost_by_part, tensor_bytes
from inferlab.figures.no_cache import operations_without_cache, time_without_cache
from inferlab.figures.offload import recorded_badge, settings_text, split
from inferlab.figures.options import host_layers, option_effect
from inferlab.figures.pairs import paired_ratios
from inferlab.figures.prefix_cache import prefix_reuse
from inferlab.figures.provenance import badge_in_short
from inferlab.figures.quant_tradeoffs import fidelity, pareto, published_mix_rates, type_choices
from inferlab.figures.quant_types import bits_per_weight, mixed_types, super_block
from inferlab.figures.ram_reads import ram_reads
from inferlab.figures.request_memory import request_memory
from inferlab.figures.requests import requests, summary, timeline, token_times, ttft_against_prompt
from inferlab.figures.roofline import rates_against_length, roofline, roofline_at
from inferlab.figures.rounding import rounding_errors, scale_search
from inferlab.figures.serving_overhead import token_split
from inferlab.figures.several_cards import bytes_by_split
from inferlab.figures.showing import live, on_page, page_html, redraw, register_page_renderer
from inferlab.figures.sliders import slider
from inferlab.figures.speculative import speculation_seconds, speedup_against_acceptance, verification_costs
from inferlab.figures.speed import predicted_beside_measured, speed_residuals, step_seconds
from inferlab.figures.start_wait import start_waits
from inferlab.figures.style import DECODE, PREFILL
from inferlab.figures.telemetry import telemetry
from inferlab.figures.training_ledger import ledger_bytes, ledger_seconds
from inferlab.figures.tune import tuning_pairs, tuning_rounds
from inferlab.figures.utilization import averaged_utilization
from inferlab.figures.waiting import decode_against_spin
from inferlab.figures.watched_server import dashboard

__all__ = [
    "DECODE",
    "PREFILL",
    "Figure",
    "atlas_bytes",
    "atlas_rates",
    "attention_against_tokens",
    "averaged_utilization",
    "badge_in_short",
    "batch_rates",
    "batch_steps",
    "batch_steps_by_kernel",
    "bits_per_weight",
    "buffers",
    "bytes_by_split",
    "cache_runs",
    "cache_use",
    "card_shares",
    "cells_held",
    "changed_codes",
    "cold_start",
    "cold_starts",
    "confusion_matrix",
    "context_against_memory",
    "conversation_clock",
    "cost_by_part",
    "dashboard",
    "decode_against_spin",
    "engine_rates",
    "fidelity",
    "footprint_factors",
    "graph_walk",
    "host_layers",
    "http_rates",
    "http_waits",
    "kv_formulas",
    "layer_bytes",
    "layers_against_context",
    "ledger_bytes",
    "ledger_seconds",
    "link_ladder",
    "live",
    "load_memory",
    "load_peaks",
    "longest_pauses",
    "losses_by_text",
    "losses_with_matrix",
    "matrix_searches",
    "memory_breakdown",
    "memory_residuals",
    "mix_rates",
    "mixed_types",
    "on_page",
    "operations_without_cache",
    "option_effect",
    "outside_the_card",
    "page_html",
    "paired_ratios",
    "pareto",
    "plan_beside_run",
    "predicted_beside_measured",
    "prefix_reuse",
    "published_mix_rates",
    "ram_reads",
    "rate_against_depth",
    "rates_against_length",
    "recorded_badge",
    "redraw",
    "register_page_renderer",
    "repacking",
    "request_clock",
    "request_memory",
    "requests",
    "resident_memory",
    "roofline",
    "roofline_at",
    "rounding_errors",
    "running_answers",
    "scale_search",
    "settings_text",
    "slider",
    "slots",
    "speculation_seconds",
    "speed_residuals",
    "speedup_against_acceptance",
    "split",
    "start_waits",
    "step_seconds",
    "summary",
    "super_block",
    "symptoms",
    "telemetry",
    "tensor_bytes",
    "time_without_cache",
    "timeline",
    "token_against_cells",
    "token_against_depth",
    "token_split",
    "token_times",
    "ttft_against_prompt",
    "ttft_over_http",
    "tuning_pairs",
    "tuning_rounds",
    "type_choices",
    "type_rates",
    "verification_costs",
]
