"""Text to token ids and back, with the model's own vocabulary, on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from inferlab.engine import Engine, default_engine
from inferlab.models import find_model


def tokenize(text: str, model: str | Path | None = None, engine: Engine | None = None) -> list[int]:
    """Token ids of `text`, opened by the model's own first token if it wants one."""
    engine = engine or default_engine()
    engine.open_vocabulary(find_model(model))
    return engine.tokenize(text)


def detokenize(tokens: Sequence[int], model: str | Path | None = None, engine: Engine | None = None) -> str:
    """Text of token ids; special tokens vanish."""
    engine = engine or default_engine()
    engine.open_vocabulary(find_model(model))
    return engine.detokenize(tokens)
