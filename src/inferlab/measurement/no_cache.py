"""An engine without a memory: every token is computed from the whole text before it, as if no KV cache existed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from inferlab.engine.protocol import Engine, Pass
from inferlab.engine.session import default_engine


class NoCacheEngine:
    """Another engine, asked for one token at a time with all text so far, so that nothing of it is kept.

    Put it where an engine goes: `lab.measure(n_prompt=16, n_gen=64, engine=lab.ForgetfulEngine())`.
    In its passes prefill_seconds belongs to the first token, decode_seconds to each later one, as ever.
    """

    def __init__(self, engine: Engine | None = None) -> None:
        self.engine = engine or default_engine()

    def generate(self, prompt: Sequence[int], n_gen: int) -> Pass:
        """Greedy, like the engine it asks; each token is that engine's first after a prompt of everything before."""
        began = time.perf_counter()
        tokens: list[int] = []
        engine_seconds, token_seconds = [], []
        for _ in range(n_gen):
            one = self.engine.generate([*prompt, *tokens], 1)
            tokens += one.tokens
            engine_seconds.append(one.prefill_seconds)
            token_seconds.append(time.perf_counter() - began)
        first, later = engine_seconds[0] if engine_seconds else None, tuple(engine_seconds[1:])
        return Pass(first, tuple(token_seconds), later, tuple(tokens), began=began)

    def __getattr__(self, name: str) -> Any:
        """Everything else is the engine's own."""
        return getattr(self.engine, name)
