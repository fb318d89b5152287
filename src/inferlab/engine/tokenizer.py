"""Text to token ids and back, with the model's own vocabulary, on the CPU."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from inferlab.engine.protocol import Engine
from inferlab.engine.session import default_engine
from inferlab.model.find import find_model


@dataclass(frozen=True)
class Tokenizing:
    """One text and the seconds of its tokenization: the shortest of several calls, including the pipe."""

    n_tokens: int
    seconds: float


def tokenize(text: str, model: str | Path | None = None, engine: Engine | None = None) -> list[int]:
    """Token ids of `text`, opened by the model's own first token if it wants one."""
    engine = engine or default_engine()
    engine.open_vocabulary(find_model(model))
    return engine.tokenize(text)


def detokenize(tokens: Sequence[int], model: str | Path | None = None, engine: Engine | None = None) -> str:
    """Text of token ids; special tokens give no text."""
    engine = engine or default_engine()
    engine.open_vocabulary(find_model(model))
    return engine.detokenize(tokens)


def time_tokenizer(
    texts: Sequence[str], model: str | Path | None = None, repeats: int = 5, engine: Engine | None = None
) -> tuple[Tokenizing, ...]:
    """Tokenize each text `repeats` times, one after another, timing each call."""
    engine = engine or default_engine()
    with engine.exclusive():
        engine.open_vocabulary(find_model(model))
        return tuple(_timed(text, repeats, engine) for text in texts)


def _timed(text: str, repeats: int, engine: Engine) -> Tokenizing:
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        n_tokens = len(engine.tokenize(text))
        seconds.append(time.perf_counter() - began)
    return Tokenizing(n_tokens, min(seconds))
