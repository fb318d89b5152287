"""Known models for tests: the smallest of each architecture, whole or with few layers."""

from __future__ import annotations

from functools import cache
from typing import Any

from inferlab.model.architectures import n_params
from inferlab.model.catalog import known_models

FEW_LAYERS = {
    "gemma4": 25,
    "gemma3n": 30,
    "nemotron_h": 13,
    "nemotron_h_moe": 6,
    "kimi-linear": 4,
    "kimi-k3": 4,
    "deepseek4": 4,
    "minimax-m3": 5,
    "llama4": 4,
    "qwen3vl": 4,
    "qwen3vlmoe": 4,
    "glm-dsa": 5,
}
"""Layers with which each kind that the architecture has is there; 2 elsewhere, 4 of those with states."""


@cache
def smallest() -> tuple[str, ...]:
    """The known model with the fewest weights of each architecture, in the order of the list."""
    least: dict[str, str] = {}
    for name in sorted(known_models(), key=lambda name: n_params(known_models()[name])):
        least.setdefault(known_models()[name].architecture, name)
    return tuple(name for name in known_models() if name in least.values())


def few(name: str) -> dict[str, Any]:
    """Changes that leave few layers, few and narrow experts, a narrow feed-forward network and a small vocabulary."""
    known = known_models()[name]
    has_state = known.attention_layers or "ssm.state_size" in known.metadata
    n_layer = FEW_LAYERS.get(known.architecture, 4 if has_state else 2)
    changes: dict[str, Any] = {"n_layer": n_layer, "n_vocab": 512}
    if known.attention_layers and not known.architecture.startswith("nemotron"):
        changes["attention_layers"] = (n_layer - 1,)
    if known.n_ff:
        changes["n_ff"] = 512
    if known.n_ff_expert:
        changes["n_ff_expert"] = 512
    return changes | ({"n_expert": 16, "n_expert_used": 4} if known.n_expert > 16 else {})
