"""How well a model predicts a text: bits per byte and perplexity, through llama.cpp's own logits."""

from __future__ import annotations

import math
from pathlib import Path

from inferlab.engine import Engine, default_engine
from inferlab.errors import InvalidSettings
from inferlab.gguf import read_gguf
from inferlab.models import find_model
from inferlab.settings import Settings

CHUNK = 512


def bits_per_byte(text: str, model: str | Path | None = None, engine: Engine | None = None) -> float:
    """Bits that `model` needs for each byte of `text` (UTF-8); comparable between vocabularies.

    The text is cut into chunks of 512 tokens, each opened by the model's first token; every token counts.
    Raises InvalidSettings for a model of made-up weights, whose predictions mean nothing.
    """
    nats = _nats(text, model, engine)
    return sum(nats) / math.log(2) / len(text.encode("utf-8"))


def perplexity(text: str, model: str | Path | None = None, engine: Engine | None = None) -> float:
    """exp of the mean nats per token over the same chunks; comparable only within one vocabulary."""
    nats = _nats(text, model, engine)
    return math.exp(sum(nats) / len(nats))


def token_nats(
    text: str,
    model: str | Path | None = None,
    settings: Settings | None = None,
    engine: Engine | None = None,
) -> tuple[float, ...]:
    """Nats that each token of `text` costs: its surprise, over the same chunks; `settings` say how the engine runs.

    Two runs of one vocabulary are comparable token by token, e.g. with another type of the KV cache.
    """
    return tuple(_nats(text, model, engine, settings))


def _nats(
    text: str, model: str | Path | None, engine: Engine | None, settings: Settings | None = None
) -> list[float]:
    path, engine = find_model(model), engine or default_engine()
    if read_gguf(path).synthetic:
        raise InvalidSettings(f"{path.name} has synthetic weights; only trained ones can be judged by a text.")
    with engine.held():
        engine.open(path, (settings or Settings()).but(n_ctx=CHUNK, n_batch=CHUNK))
        first, *tokens = engine.tokenize(text)
        chunks = (tokens[start : start + CHUNK - 1] for start in range(0, len(tokens), CHUNK - 1))
        return [nats for chunk in chunks for nats in engine.score([first, *chunk])]
