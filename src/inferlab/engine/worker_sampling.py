"""Timing llama.cpp's samplers in the worker: each chain right after a decode step, on logits of a known distribution.

The step writes its logits; they are overwritten by -exponent * ln(rank), so that p is proportional to 1/rank^exponent
(Zipf's law), in a fixed random order of the token ids. The likeliest logit is LARGEST, as in a real model's range.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import Any

from inferlab.engine.worker_devices import Refused
from inferlab.engine.worker_model import LoadedModel, batch_slices

LARGEST, ORDER_SEED, HISTORY = 10.0, 4096, 64
Spec = Sequence[Any]  # protocol.Sampler as JSON carries it: name, values


def time_chains(
    loaded: LoadedModel, prompt: Sequence[int], chains: Sequence[Sequence[Spec]], exponent: float, repeats: int
) -> dict[str, Any]:
    """Seconds of llama_sampler_sample for each chain and repetition, in turns, and of each decode step before it.

    Raises Refused for a name that SAMPLERS lacks, or a prompt that leaves no cell for the token after it.
    """
    if not 0 < len(prompt) < loaded.n_ctx:
        raise Refused(f"A prompt of {len(prompt)} tokens leaves no cell for the next one in {loaded.n_ctx}.")
    made = [_chain(loaded, specs) for specs in chains]
    try:
        _prefill(loaded, prompt)
        logits = zipf_logits(loaded.vocabulary.n_tokens, exponent)
        rounds = [[_one(loaded, chain, len(prompt), logits) for chain in made] for _ in range(repeats)]
    finally:
        for chain in made:
            loaded.api.llama_sampler_free(chain)
    return {
        "decode_seconds": [step for turn in rounds for step, _ in turn],
        "seconds": [[turn[i][1] for turn in rounds] for i in range(len(made))],
    }


def zipf_logits(n_vocab: int, exponent: float) -> Any:
    """Logits of every token as float32; exponent 1 is flat, 2 is sharp."""
    import numpy as np

    by_rank = LARGEST - exponent * np.log(np.arange(1, n_vocab + 1))
    return np.random.default_rng(ORDER_SEED).permutation(by_rank).astype(np.float32)


def _prefill(loaded: LoadedModel, prompt: Sequence[int]) -> None:
    loaded.clear()
    ids = loaded.token_array(prompt)
    for start, count in batch_slices(len(prompt), loaded.n_batch):
        loaded.timed_decode(loaded.batch_of(ids, start, count))


def _one(loaded: LoadedModel, chain: Any, n_tokens: int, logits: Any) -> tuple[float, float]:
    """Seconds of one decode step at position n_tokens, and of one sample from `logits` in its place."""
    import numpy as np

    api = loaded.api
    api.llama_memory_seq_rm(loaded.memory, 0, n_tokens, -1)
    step = loaded.timed_decode(loaded.batch_of(loaded.token_array([0]), 0, 1))
    np.ctypeslib.as_array(api.llama_get_logits_ith(loaded.context, -1), logits.shape)[:] = logits
    began = time.perf_counter()
    api.llama_sampler_sample(chain, loaded.context, -1)
    return step, time.perf_counter() - began


def _chain(loaded: LoadedModel, specs: Sequence[Spec]) -> Any:
    """A sampler chain that has accepted HISTORY tokens, so that penalties have something to find."""
    api = loaded.api
    chain = api.llama_sampler_chain_init(api.llama_sampler_chain_default_params())
    for name, values in specs:
        if name not in SAMPLERS:
            raise Refused(f"There is no sampler {name!r} here. There are: {', '.join(SAMPLERS)}.")
        api.llama_sampler_chain_add(chain, SAMPLERS[name](loaded, *values))
    for token in loaded.vocabulary.random_tokens(HISTORY):
        api.llama_sampler_accept(chain, token)
    return chain


SAMPLERS = {
    "greedy": lambda loaded: loaded.api.llama_sampler_init_greedy(),
    "dist": lambda loaded, seed: loaded.api.llama_sampler_init_dist(int(seed)),
    "temperature": lambda loaded, t: loaded.api.llama_sampler_init_temp_ext(t, 0.0, 1.0),
    "top_k": lambda loaded, k: loaded.api.llama_sampler_init_top_k(int(k)),
    "top_p": lambda loaded, p: loaded.api.llama_sampler_init_top_p(p, 0),
    "min_p": lambda loaded, p: loaded.api.llama_sampler_init_min_p(p, 0),
    "penalties": lambda loaded, last_n, *strengths: loaded.api.llama_sampler_init_penalties(
        loaded.vocabulary.n_tokens, int(last_n), *strengths
    ),
    "dry": lambda loaded, multiplier, base, allowed, last_n: loaded.api.llama_sampler_init_dry(
        loaded.vocabulary.pointer, multiplier, base, int(allowed), int(last_n), ctypes.POINTER(ctypes.c_char_p)(), 0
    ),
}
"""Name of a sampler, as in --samplers -> how llama.cpp makes it; `common/sampling.cpp` makes the same."""
