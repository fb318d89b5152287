"""Perplexity of a model on a text, and KL divergence from a reference model, by the method of llama-perplexity.

Everything is computed from llama.cpp's own logits, in the worker, in double precision; logits are not stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from inferlab.engine.client import LlamaEngine
from inferlab.engine.session import default_engine
from inferlab.errors import InvalidSettings
from inferlab.measurement.base import Measurement, common_fields
from inferlab.measurement.queued import queued
from inferlab.model.find import find_model, held_out_text
from inferlab.model.gguf import Model, ModelCard, read_gguf
from inferlab.progress import track
from inferlab.settings import Settings

CHUNK = 512
LEAST_CHUNK = 8
LOGITS_AT_ONCE = 2**24  # 64 MiB of logits a batch, for each model
MOST_ROWS = 512
PERCENTILES = (0.001, 0.01, 0.05, 0.1, 0.5, 0.9, 0.95, 0.99, 0.999)
VOCABULARY = ("tokenizer.ggml.tokens", "tokenizer.ggml.merges")


class Estimate(NamedTuple):
    """A mean over tokens and its standard error, in the same unit."""

    value: float
    standard_error: float


@dataclass(frozen=True, kw_only=True)
class Fidelity(Measurement):
    """A model compared with a reference on a text: values of each scored token, and statistics derived from them.

    nats, reference_nats  -ln(probability) of each scored token under the model and the reference
    kl_nats               divergence of the model's distribution from the reference's, at each scored token
    same_top              whether both have the same most probable token
    settings              as the engine used them for the model; the reference had its KV cache in F16
    """

    reference: ModelCard
    n_ctx: int
    nats: tuple[float, ...] = field(repr=False)
    reference_nats: tuple[float, ...] = field(repr=False)
    kl_nats: tuple[float, ...] = field(repr=False)
    same_top: tuple[bool, ...] = field(repr=False)

    @property
    def n_tokens(self) -> int:
        """Scored tokens: the second half of every chunk."""
        return len(self.nats)

    @property
    def n_chunks(self) -> int:
        return self.n_tokens // (self.n_ctx - 1 - self.n_ctx // 2)

    @property
    def perplexity(self) -> Estimate:
        """exp of the model's mean nats."""
        return _exponential(_mean(self.nats))

    @property
    def reference_perplexity(self) -> Estimate:
        return _exponential(_mean(self.reference_nats))

    @property
    def log_perplexity_ratio(self) -> Estimate:
        """ln(perplexity / reference perplexity): both scored the same tokens, so its error is smaller than either's."""
        return _mean([own - full for own, full in zip(self.nats, self.reference_nats, strict=True)])

    @property
    def kl_divergence(self) -> Estimate:
        """Mean nats of divergence a token; 0 for the reference itself."""
        return _mean(self.kl_nats)

    def change_from(self, other: Fidelity) -> Estimate:
        """Mean change of the divergence from another file's on the same text, token by token; below 0 it is smaller.

        Raises InvalidSettings where the two did not score the same tokens with the same reference.
        """
        if (self.n_tokens, self.reference_nats) != (other.n_tokens, other.reference_nats):
            raise InvalidSettings("Two files are compared only on one text with one reference. Measure both again.")
        return _mean([own - theirs for own, theirs in zip(self.kl_nats, other.kl_nats, strict=True)])

    @cached_property
    def kl_percentiles(self) -> dict[float, float]:
        """Quantiles of the divergence, at the shares that llama-perplexity reports."""
        import numpy as np

        return dict(zip(PERCENTILES, np.quantile(self.kl_nats, PERCENTILES).tolist(), strict=True))

    @property
    def max_kl_divergence(self) -> float:
        return max(self.kl_nats)

    @property
    def rms_probability_change(self) -> Estimate:
        """Root mean square of the change in the probability of the text's token (llama-perplexity's RMS Δp)."""
        square = _mean([change**2 for change in self.probability_changes])
        root = math.sqrt(square.value)
        return Estimate(root, 0.5 * square.standard_error / root if root else 0.0)

    @property
    def same_top_share(self) -> Estimate:
        """Share of scored tokens at which both have the same most probable token."""
        share = sum(self.same_top) / self.n_tokens
        return Estimate(share, math.sqrt(share * (1 - share) / (self.n_tokens - 1)))

    @cached_property
    def probability_changes(self) -> tuple[float, ...]:
        """Change in the probability of each scored token of the text."""
        return tuple(math.exp(-own) - math.exp(-full) for own, full in zip(self.nats, self.reference_nats, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Models, settings and statistics without the single tokens; estimates as [value, standard error]."""
        return {
            "model": asdict(self.model),
            "reference": asdict(self.reference),
            "type_k": self.settings.type_k,
            "type_v": self.settings.type_v,
            **{name: getattr(self, name) for name in ("n_ctx", "n_chunks", "n_tokens")},
            **{name: list(getattr(self, name)) for name in ESTIMATES},
            "max_kl_divergence": self.max_kl_divergence,
            "kl_percentiles": {str(share): value for share, value in self.kl_percentiles.items()},
        }


ESTIMATES = (
    "perplexity",
    "reference_perplexity",
    "log_perplexity_ratio",
    "kl_divergence",
    "rms_probability_change",
    "same_top_share",
)


@queued
def fidelity(
    model: str | Path | None,
    reference: str | Path | None = None,
    text: str | Path | None = None,
    n_ctx: int = CHUNK,
    settings: Settings | None = None,
    *,
    n_chunks: int | None = None,
    engine: LlamaEngine | None = None,
) -> Fidelity:
    """Compare `model` with the full-precision `reference` on a text, by the method of llama-perplexity.

    reference  None: the model itself with an F16 KV cache, to measure the loss by type_k and type_v of `settings`
    text       a text, or the path of one (None: the embedded model's held-out text)
    n_ctx      tokens of a chunk; the second half of each is scored
    settings   how the engine runs the model; the reference runs with the same ones and an F16 KV cache
    n_chunks   use only the first n_chunks (None: all full ones)

    Both models are loaded at once; the worker compares them chunk by chunk and returns only the results.
    Raises InvalidSettings for synthetic weights, different vocabularies or a text too short, ModelError, EngineRefused.
    """
    full = model if reference is None else reference
    return fidelities([(model, settings)], full, text, n_ctx, n_chunks=n_chunks, engine=engine)[0]


@queued
def fidelities(
    cases: Sequence[tuple[str | Path | None, Settings | None]],
    reference: str | Path | None,
    text: str | Path | None = None,
    n_ctx: int = CHUNK,
    *,
    n_chunks: int | None = None,
    engine: LlamaEngine | None = None,
) -> tuple[Fidelity, ...]:
    """`fidelity` of several models, each with its settings, to one reference, which reads each chunk only once.

    The reference runs with the settings of the first case and an F16 KV cache. Raises what `fidelity` raises.
    """
    engine, path = engine or default_engine(), find_model(reference)
    full, files = read_gguf(path), [(find_model(model), settings) for model, settings in cases]
    for file, _ in files:
        own = read_gguf(file)
        _require_trained(own, full)
        _require_one_vocabulary(own, full)
    with engine.exclusive(), _reference_loaded(engine, path, _chunk_settings(files[0][1], n_ctx, full)):
        return tuple(
            _fidelity(engine, file, _chunk_settings(settings, n_ctx, full), n_ctx, full, text, n_chunks)
            for file, settings in files
        )


def _fidelity(
    engine: LlamaEngine,
    file: Path,
    settings: Settings,
    n_ctx: int,
    full: Model,
    text: str | Path | None,
    n_chunks: int | None,
) -> Fidelity:
    """A model compared with the reference that is loaded."""
    own, opening = read_gguf(file), engine.open(file, settings)
    chunks = _chunks(engine, text, n_ctx, n_chunks)
    parts = [engine.compare(chunk, n_ctx // 2 + 1) for chunk in track(chunks, len(chunks), f"reading {own.name}")]
    columns = {name: tuple(value for part in parts for value in part[name]) for name in parts[0]}
    return Fidelity(**(common_fields(engine, opening, own) | columns), reference=full.card(), n_ctx=n_ctx)


@queued
def perplexity(
    text: str | Path | None = None,
    model: str | Path | None = None,
    engine: LlamaEngine | None = None,
    *,
    n_ctx: int = CHUNK,
    settings: Settings | None = None,
    n_chunks: int | None = None,
) -> Estimate:
    """exp of the mean nats per token, by the method of llama-perplexity; comparable only within one vocabulary.

    The text is cut into chunks of n_ctx tokens, each beginning with the model's first token; the second half of a chunk
    is scored, so that every scored token has context. Arguments and errors as for `fidelity`.
    """
    path, engine = find_model(model), engine or default_engine()
    header = read_gguf(path)
    _require_trained(header)
    with engine.exclusive():
        engine.open(path, _chunk_settings(settings, n_ctx, header))
        chunks = _chunks(engine, text, n_ctx, n_chunks)
        scored = track(chunks, len(chunks), f"reading {header.name}")
        return _exponential(_mean([nats for chunk in scored for nats in engine.score(chunk, n_ctx // 2 + 1)]))


def bits_per_byte(text: str, model: str | Path | None = None, engine: LlamaEngine | None = None) -> float:
    """Bits that `model` needs for each byte of `text` (UTF-8); comparable between vocabularies.

    The text is cut into chunks of 512 tokens, each opened by the model's first token; every token counts.
    Raises InvalidSettings for a model of made-up weights, which predict nothing.
    """
    return sum(token_nats(text, model, engine=engine)) / math.log(2) / len(text.encode("utf-8"))


@queued
def token_nats(
    text: str,
    model: str | Path | None = None,
    settings: Settings | None = None,
    engine: LlamaEngine | None = None,
) -> tuple[float, ...]:
    """-ln(probability) of each token of `text`, in the chunks of `bits_per_byte`.

    Two models with the same vocabulary are comparable token by token, and so are two types of the KV cache.
    """
    path, engine = find_model(model), engine or default_engine()
    _require_trained(read_gguf(path))
    with engine.exclusive():
        engine.open(path, (settings or Settings()).but(n_ctx=CHUNK, n_batch=CHUNK))
        first, *tokens = engine.tokenize(text)
        chunks = (tokens[start : start + CHUNK - 1] for start in range(0, len(tokens), CHUNK - 1))
        return tuple(nats for chunk in chunks for nats in engine.score([first, *chunk]))


@contextmanager
def _reference_loaded(engine: LlamaEngine, path: Path, settings: Settings) -> Iterator[None]:
    """Load the reference for the length of the block, beside the model that is opened in it."""
    engine.open(path, settings.but(type_k="f16", type_v="f16"))
    engine.set_reference()
    try:
        yield
    finally:
        engine.free_reference()


def _chunk_settings(settings: Settings | None, n_ctx: int, header: Model) -> Settings:
    """The settings with a context of one chunk, in batches whose logits need at most about 64 MiB."""
    if n_ctx < LEAST_CHUNK:
        raise InvalidSettings(f"n_ctx={n_ctx} leaves nothing to score. Ask for chunks of at least {LEAST_CHUNK}.")
    rows = min(MOST_ROWS, n_ctx, 2 ** int(math.log2(max(1, LOGITS_AT_ONCE // (header.n_vocab or 1)))))
    requested = settings or Settings()
    return requested.but(n_ctx=n_ctx, n_batch=rows, n_ubatch=min(rows, requested.n_ubatch), n_seq_max=1)


def _chunks(engine: LlamaEngine, text: str | Path | None, n_ctx: int, n_chunks: int | None) -> list[list[int]]:
    source = held_out_text() if text is None else text
    content = source if isinstance(source, str) else Path(source).read_text(encoding="utf-8")
    chunks, n_tokens = engine.chunks(content, n_ctx)
    if not chunks[:n_chunks]:
        raise InvalidSettings(f"The text has {n_tokens} tokens; a chunk needs n_ctx={n_ctx}. Give a longer text.")
    return chunks[:n_chunks]


def _require_trained(*headers: Model) -> None:
    for header in headers:
        if header.synthetic:
            raise InvalidSettings(f"{header.path.name} has synthetic weights; only trained weights have a perplexity.")


def _require_one_vocabulary(own: Model, full: Model) -> None:
    """KL divergence needs the same tokens in the same order, and the same merges."""
    for key in VOCABULARY:
        if _array(own, key) != _array(full, key):
            raise InvalidSettings(
                f"{own.path.name} ({own.n_vocab} tokens) and {full.path.name} ({full.n_vocab}) differ in {key}; "
                "a model can only be compared with a reference of the same vocabulary."
            )


def _array(header: Model, key: str) -> list[Any]:
    return header.array(key) if key in header.metadata else []


def _mean(values: Sequence[float]) -> Estimate:
    """Mean and standard error as in perplexity.cpp: sqrt((mean of squares - square of mean) / (n - 1))."""
    mean = math.fsum(values) / len(values)
    spread = math.fsum((value - mean) ** 2 for value in values) / len(values)
    return Estimate(mean, math.sqrt(spread / (len(values) - 1)) if len(values) > 1 else math.nan)


def _exponential(estimate: Estimate) -> Estimate:
    """exp of an estimate; its standard error to first order."""
    value = math.exp(estimate.value)
    return Estimate(value, value * estimate.standard_error)
