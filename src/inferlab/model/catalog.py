"""Published models and vocabularies by name, with their cited dimensions; no file is needed."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

from inferlab.errors import ModelNotFound
from inferlab.facts import Fact, read_table


@dataclass(frozen=True)
class KnownModel:
    """A published model by its cited dimensions, under the names that `gguf.Model` uses; no file is needed.

    rope_factors: whether its file has a table of RoPE factors; n_swa: tokens in a sliding window, 0 for none;
    attention_layers: the layers with attention, where others keep a recurrent state; empty: as the architecture has it;
    metadata: other keys that llama.cpp reads from the file's header, without the architecture's prefix.
    """

    name: str
    source: str
    n_layer: int
    n_embd: int
    n_ff: int
    n_vocab: int
    n_head: int
    n_head_kv: int
    head_dim_k: int
    head_dim_v: int
    n_ctx_train: int
    tied_embeddings: bool
    files: dict[str, Fact]
    architecture: str = "llama"
    rope_freq_base: float = 10_000.0
    rope_factors: bool = False
    norm_eps: float = 1e-5
    n_expert: int = 0
    n_expert_used: int = 0
    n_ff_expert: int = 0
    n_swa: int = 0
    attention_layers: tuple[int, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)


CHANGEABLE = tuple(f.name for f in fields(KnownModel) if f.name not in ("name", "source", "files", "metadata"))
"""The dimensions that a shape may change."""


@dataclass(frozen=True)
class KnownVocabulary:
    """A published vocabulary: its kind in GGUF, its size, the tokens of two words, the texts of two tokens."""

    name: str
    source: str
    date: str
    kind: str
    n_vocab: int
    hello_world: tuple[int, ...]
    pieces: dict[int, str]


@cache
def known_vocabularies() -> dict[str, KnownVocabulary]:
    """Every vocabulary of data/facts/vocabularies.toml by its short name."""
    return {name: _vocabulary(entry) for name, entry in read_table("vocabularies").items()}


def _vocabulary(entry: dict[str, Any]) -> KnownVocabulary:
    pieces = {int(token): text for token, text in entry["pieces"].items()}
    plain = {key: entry[key] for key in ("source", "date", "kind", "n_vocab")}
    return KnownVocabulary(entry["title"], hello_world=tuple(entry["hello_world"]), pieces=pieces, **plain)


@cache
def known_models() -> dict[str, KnownModel]:
    """Every model of data/facts/models.toml by its short name."""
    return {name: _model(entry) for name, entry in read_table("models").items()}


def known_model(name: str | KnownModel) -> KnownModel:
    """A published model's shape, e.g. `known_model("mistral-7b")`; of a shape itself. Raises ModelNotFound."""
    if isinstance(name, KnownModel):
        return name
    if name not in known_models():
        raise ModelNotFound(f"There is no known model {name!r}. Known: {', '.join(sorted(known_models()))}.")
    return known_models()[name]


def _model(entry: dict[str, Any]) -> KnownModel:
    dimensions = {k: v for k, v in entry.items() if k not in ("title", "date", "head_dim", "files")}
    if "attention_layers" in dimensions:
        dimensions["attention_layers"] = tuple(dimensions["attention_layers"])
    sizes = {kind: Fact(f["bytes"], "B", f["source"], f["date"]) for kind, f in entry.get("files", {}).items()}
    head_dim = entry["head_dim"]
    return KnownModel(name=entry["title"], head_dim_k=head_dim, head_dim_v=head_dim, files=sizes, **dimensions)
