"""The model of a card: the time of a token and of a prompt, from bytes, operations and the card's ratings.

A token on top of `depth` cells, with B bytes and F operations a second as the card is rated:

    seconds = weight_bytes / (reached B)      weights are read once; no memory reaches its rating
            + weights unpack / F              their blocks are unpacked and multiplied, which small cards feel
            + tensors launch                  a kernel must be started for each, whatever its size
            + expert_layers route             experts are chosen, sorted and added
            + state_layers state              a recurrent state is read and written
            + cache_bytes / (reached_cache B) keys and values are read
            + scores score / F                and multiplied, which counts where many heads share them

A prompt of `tokens`, in ubatches of at most n_ubatch:

    seconds = (dense (1 + fill / ubatch) + expert (1 + fill_experts / tokens of an expert) / experts) / (matrix F)
            + ubatches (touched_bytes reread / B + layers layer + expert_layers route)
            + states state / F + scores score / F

A matrix that gets few tokens keeps its units idle: `fill` tokens more would take as long. An expert gets few. What
lies in RAM is computed by the host for a token, and sent to the card for each ubatch of a prompt:

    a token     + host_bytes / host_rate + host_layers crossing
    a prompt    + ubatches host_touched_bytes / bus_rate

The coefficients are fitted to public results (`studies.public_rates.fit`) and stand in data/public_rates/model.toml.
Kernels get faster with llama.cpp's builds: the coefficients are those of `present`, and `yearly` says by what factor
older ones are slower. All functions take numbers or arrays of them alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Number = Any
"""A float, or an array of floats with one for each case."""


@dataclass(frozen=True)
class TokenWork:
    """What one token needs of a card, in bytes, numbers and operations; what lies in RAM beside it."""

    weight_bytes: Number
    weights: Number
    tensors: Number
    expert_layers: Number
    state_layers: Number
    cache_bytes: Number
    scores: Number
    host_bytes: Number = 0.0
    host_layers: Number = 0.0


@dataclass(frozen=True)
class PromptWork:
    """What a prompt needs of a card; `tokens_of_expert` in one ubatch, `touched_bytes` in each of them."""

    tokens: Number
    ubatch: Number
    ubatches: Number
    dense: Number
    expert: Number
    tokens_of_expert: Number
    touched_bytes: Number
    layers: Number
    expert_layers: Number
    states: Number
    scores: Number
    host_touched_bytes: Number = 0.0


@dataclass(frozen=True)
class TokenRates:
    """The coefficients of a token, of one backend, generation of chips and type of weights; seconds and shares."""

    reached: Number
    unpack: Number
    launch: Number
    route: Number
    state: Number
    reached_cache: Number
    score: Number
    host_rate: Number = 1.0
    crossing: Number = 0.0


@dataclass(frozen=True)
class PromptRates:
    """The coefficients of a prompt."""

    matrix: Number
    fill: Number
    experts: Number
    fill_experts: Number
    reread: Number
    layer: Number
    route: Number
    state: Number
    score: Number
    bus_rate: Number = 1.0


def token_seconds(work: TokenWork, rates: TokenRates, bandwidth: Number, flops: Number) -> Number:
    """Seconds of one token; bytes and operations a second as the card is rated."""
    on_card = (
        work.weight_bytes / (rates.reached * bandwidth)
        + work.weights * rates.unpack / flops
        + work.tensors * rates.launch
        + work.expert_layers * rates.route
        + work.state_layers * rates.state
        + work.cache_bytes / (rates.reached_cache * bandwidth)
        + work.scores * rates.score / flops
    )
    return on_card + work.host_bytes / rates.host_rate + work.host_layers * rates.crossing


def prompt_seconds(work: PromptWork, rates: PromptRates, bandwidth: Number, flops: Number) -> Number:
    """Seconds of a prompt into an empty cache, or on top of what `scores` counts."""
    dense = work.dense * (1 + rates.fill / work.ubatch)
    expert = work.expert * (1 + rates.fill_experts / work.tokens_of_expert) / rates.experts
    each_ubatch = (
        work.touched_bytes * rates.reread / bandwidth
        + work.layers * rates.layer
        + work.expert_layers * rates.route
        + work.host_touched_bytes / rates.bus_rate
    )
    return (
        (dense + expert) / (rates.matrix * flops)
        + work.ubatches * each_ubatch
        + (work.states * rates.state + work.scores * rates.score) / flops
    )
