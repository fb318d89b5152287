"""An engine without a KV cache: every token is computed from the whole text before it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from inferlab.engine.protocol import Engine, Pass
from inferlab.engine.session import default_engine


class NoCacheEngine:
    """Wraps an engine and generates each token with a new request that has all the text so far as its prompt.

    Use it in place of an engine: `lab.measure(n_prompt=16, n_gen=64, engine=NoCacheEngine())`.
    In its passes prefill_seconds is the time of the first token and decode_seconds that of each later one.
    """

    def __init__(self, engine: Engine | None = None) -> None:
        self.engine = engine or default_engine()

    def generate(self, prompt: Sequence[int], n_gen: int) -> Pass:
        """Greedy decoding; each token is the wrapped engine's first one after a prompt of all tokens before it."""
        began = time.perf_counter()
        tokens: list[int] = []
        engine_seconds, token_seconds = [], []
        for _ in range(n_gen):
            single = self.engine.generate([*prompt, *tokens], 1)
            tokens += single.tokens
            engine_seconds.append(single.prefill_seconds)
            token_seconds.append(time.perf_counter() - began)
        first, later = engine_seconds[0] if engine_seconds else None, tuple(engine_seconds[1:])
        return Pass(first, tuple(token_seconds), later, tuple(tokens), began=began)

    def __getattr__(self, name: str) -> Any:
        """All other attributes are those of the wrapped engine."""
        return getattr(self.engine, name)
