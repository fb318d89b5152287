"""Timing llama.cpp's samplers in the worker: each chain right after a decode step, on logits of a known distribution.

The step writes its logits; they are overwritten by -exponent * ln(rank), so that p is proportional to 1/rank^exponent
(Zipf's law), in a fixed random order of the token ids. The likeliest logit is LARGEST, as in a real model's range.

A grammar costs by where it stands. `grammar` in a chain looks at every candidate, as llama-cpp-python has it.
`grammar_check` looks at the chosen token alone, and at every candidate only where it rejects that one; then the chain
runs again. llama-server does this (common_sampler_sample, common/sampling.cpp:594).
"""

from __future__ import annotations

import ctypes
import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from inferlab.engine.worker_devices import Refused
from inferlab.engine.worker_model import LoadedModel, batch_slices

LARGEST, ORDER_SEED, HISTORY = 10.0, 4096, 64
CHECK = "grammar_check"
Spec = Sequence[Any]  # protocol.Sampler as JSON carries it: name, values


def time_chains(
    loaded: LoadedModel, prompt: Sequence[int], chains: Sequence[Sequence[Spec]], exponent: float, repeats: int
) -> dict[str, Any]:
    """Seconds of llama_sampler_sample for each chain and repetition, and of each decode step before it.

    Every turn has the chains in another order, since a chain leaves its own data in the processor's caches.
    Raises Refused for a name that SAMPLERS lacks, or a prompt that leaves no cell for the token after it.
    """
    if not 0 < len(prompt) < loaded.n_ctx:
        raise Refused(f"A prompt of {len(prompt)} tokens leaves no cell for the next one in {loaded.n_ctx}.")
    made: list[_Chain] = []
    try:
        made.extend(_Chain(loaded, specs) for specs in chains)
        _prefill(loaded, prompt)
        logits = zipf_logits(loaded.vocabulary.n_tokens, exponent)
        order = random.Random(ORDER_SEED)
        rounds = [
            {i: _timed_sample(loaded, made[i], len(prompt), logits) for i in order.sample(range(len(made)), len(made))}
            for _ in range(repeats)
        ]
    finally:
        for chain in made:
            chain.free()
    return {
        "decode_seconds": [step for turn in rounds for step, _ in turn.values()],
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


def _timed_sample(loaded: LoadedModel, chain: _Chain, n_tokens: int, logits: Any) -> tuple[float, float]:
    """Seconds of one decode step at position n_tokens, and of one sample from `logits` in its place."""
    import numpy as np

    api = loaded.api
    api.llama_memory_seq_rm(loaded.memory, 0, n_tokens, -1)
    step = loaded.timed_decode(loaded.batch_of(loaded.token_array([0]), 0, 1))
    np.ctypeslib.as_array(api.llama_get_logits_ith(loaded.context, -1), logits.shape)[:] = logits
    chain.rewind()
    began = time.perf_counter()
    chain.sample()
    return step, time.perf_counter() - began


class _Chain:
    """A chain of samplers; with a grammar_check also that grammar, and the chain again behind the grammar.

    Each sampler has accepted HISTORY tokens, so that penalties have something to find; a grammar is at its beginning.
    """

    def __init__(self, loaded: LoadedModel, specs: Sequence[Spec]) -> None:
        self.loaded, self.api = loaded, loaded.api
        self.grammars: list[Any] = []
        self.owned: list[Any] = []
        self.candidate = self.api.llama_token_data()
        self.alone = ctypes.pointer(self.api.llama_token_data_array(ctypes.pointer(self.candidate), 1, -1, False))
        checks = [values for name, values in specs if name == CHECK]
        chosen = [(name, values) for name, values in specs if name != CHECK]
        try:
            self.first = self._chain_of(chosen)
            self.check = self._owned(self._made("grammar", checks[0])) if checks else None
            self.again = self._chain_of([("grammar", checks[0]), *chosen]) if checks else None
        except Refused:
            self.free()
            raise

    def sample(self) -> None:
        """One token, accepted: llama_sampler_sample, and after it the check of a grammar."""
        token = self.api.llama_sampler_sample(self.first, self.loaded.context, -1)
        if self.check is None:
            return
        if self._allows(token):
            self.api.llama_sampler_accept(self.check, token)
        else:
            self.api.llama_sampler_sample(self.again, self.loaded.context, -1)

    def _allows(self, token: int) -> bool:
        self.candidate.id, self.candidate.logit = token, 1.0
        self.api.llama_sampler_apply(self.check, self.alone)
        return self.candidate.logit != -math.inf

    def rewind(self) -> None:
        """Every grammar at its beginning, parsed again."""
        for grammar in self.grammars:
            self.api.llama_sampler_reset(grammar)

    def free(self) -> None:
        for sampler in self.owned:
            self.api.llama_sampler_free(sampler)
        self.owned.clear()

    def _owned(self, sampler: Any) -> Any:
        self.owned.append(sampler)
        return sampler

    def _chain_of(self, specs: Sequence[Spec]) -> Any:
        chain = self._owned(self.api.llama_sampler_chain_init(self.api.llama_sampler_chain_default_params()))
        for name, values in specs:
            self.api.llama_sampler_chain_add(chain, self._made(name, values))
        return chain

    def _made(self, name: str, values: Sequence[Any]) -> Any:
        if name not in SAMPLERS:
            raise Refused(f"There is no sampler {name!r} here. There are: {', '.join((*SAMPLERS, CHECK))}.")
        sampler = SAMPLERS[name](self.loaded, *values)
        if not sampler:
            raise Refused("llama.cpp made no grammar of this text; the last lines name the place.")
        if name == "grammar":
            self.grammars.append(sampler)
        else:
            for token in self.loaded.vocabulary.random_tokens(HISTORY):
                self.api.llama_sampler_accept(sampler, token)
        return sampler


SAMPLERS: dict[str, Callable[..., Any]] = {
    "greedy": lambda loaded: loaded.api.llama_sampler_init_greedy(),
    "dist": lambda loaded, seed: loaded.api.llama_sampler_init_dist(int(seed)),
    "temperature": lambda loaded, t: loaded.api.llama_sampler_init_temp_ext(t, 0.0, 1.0),
    "top_k": lambda loaded, k: loaded.api.llama_sampler_init_top_k(int(k)),
    "top_p": lambda loaded, p: loaded.api.llama_sampler_init_top_p(p, 0),
    "min_p": lambda loaded, p: loaded.api.llama_sampler_init_min_p(p, 0),
    "typ_p": lambda loaded, p: loaded.api.llama_sampler_init_typical(p, 0),
    "top_n_sigma": lambda loaded, n: loaded.api.llama_sampler_init_top_n_sigma(n),
    "xtc": lambda loaded, p, threshold, seed: loaded.api.llama_sampler_init_xtc(p, threshold, 0, int(seed)),
    "grammar": lambda loaded, text: loaded.api.llama_sampler_init_grammar(
        loaded.vocabulary.pointer, text.encode(), b"root"
    ),
    "penalties": lambda loaded, last_n, *strengths: loaded.api.llama_sampler_init_penalties(
        loaded.vocabulary.n_tokens, int(last_n), *strengths
    ),
    "dry": lambda loaded, multiplier, base, allowed, last_n: loaded.api.llama_sampler_init_dry(
        loaded.vocabulary.pointer, multiplier, base, int(allowed), int(last_n), ctypes.POINTER(ctypes.c_char_p)(), 0
    ),
}
"""Name of a sampler, as in --samplers -> how llama.cpp makes it; `common/sampling.cpp` makes the same."""
