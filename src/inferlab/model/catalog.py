"""Published models and vocabularies by name, with their cited dimensions; no file is needed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from typing import Any

from inferlab.errors import ModelNotFound
from inferlab.facts import Fact, parsed, read_table, table_text


@dataclass(frozen=True)
class KnownModel:
    """A published model by its cited dimensions, under the names that `gguf.Model` uses; no file is needed.

    rope_factors: whether its file has a table of RoPE factors; n_swa: tokens in a sliding window, 0 for none;
    attention_layers: the layers with attention, where others keep a recurrent state; empty: as the architecture has it;
    optional: tensors that not every file of the architecture has, as its layout calls them ("qkv_bias");
    files: bytes of published files; a type that llama-quantize does not know is its maker's own mix;
    usual_type: the mix in which its file is most often downloaded; companions: bytes of files that go beside it;
    metadata: other keys that llama.cpp reads from the file's header, without the architecture's prefix; they overrule
    the dimensions, and a list has one value for each layer.
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
    optional: tuple[str, ...] = ()
    usual_type: str = "Q4_K_M"
    companions: dict[str, Fact] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)


FIXED = ("name", "source", "files", "companions", "optional", "usual_type", "metadata")
CHANGEABLE = tuple(f.name for f in fields(KnownModel) if f.name not in FIXED)
"""The dimensions that a shape may change."""

HEAD_KEYS = (("k", "key"), ("v", "value"))
ENTRY = re.compile(r'^\[(?:"([^"]+)"|([\w-]+))\]$', re.MULTILINE)
LISTED = 6
SAME_SHAPE = {"instruct", "it", "gguf", "meta", "ollama"}
"""Words in names of files and repositories that change neither a shape nor its trained context."""
TITLE = re.compile(r'^title = "(.*?)"', re.MULTILINE)


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


class KnownModels(Mapping[str, KnownModel]):
    """The models of data/facts/models.toml by their short names; each is read when it is asked for."""

    def __init__(self, text: str) -> None:
        self._head, self._entries = _split(text)
        self._read: dict[str, KnownModel] = {}

    def __getitem__(self, name: str) -> KnownModel:
        if name not in self._read:
            self._read[name] = _model(parsed(self._entries[name])[name])
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    @property
    def titles(self) -> dict[str, str]:
        """Short name -> title, without reading the entries."""
        return {name: TITLE.findall(text)[0] for name, text in self._entries.items()}

    @property
    def last_look(self) -> str:
        """The month in which the list was last compared with what is published: "2026-11"."""
        told: str = parsed(self._head)["last_look"]
        return told


@cache
def known_models() -> KnownModels:
    """Every model of data/facts/models.toml by its short name, family by family, the newest first."""
    return KnownModels(table_text("models"))


def _split(text: str) -> tuple[str, dict[str, str]]:
    """What stands before the first entry, and the text of each entry with its own tables."""
    heads = [*ENTRY.finditer(text)]
    ends = [head.start() for head in heads[1:]] + [len(text)]
    entries = {head[1] or head[2]: text[head.start() : end] for head, end in zip(heads, ends, strict=True)}
    return text[: heads[0].start()], entries


def known_model(name: str | KnownModel) -> KnownModel:
    """A published model's shape, e.g. `known_model("mistral-7b")`; of a shape itself. Raises ModelNotFound."""
    if isinstance(name, KnownModel):
        return name
    key = known_name(name)
    if key is None:
        raise ModelNotFound(
            f"There is no known model {name!r}. {near_names(name)} The list has {len(known_models())} models and is of "
            f"{known_models().last_look}; `inferlab plan` takes a file of any other."
        )
    return known_models()[key]


def known_name(name: object) -> str | None:
    """The short name that is meant by "qwen3.6-27b" or by a title, as "Llama 4 Scout 17B 16E"; None if none is."""
    written = _short(str(name))
    return written if written in known_models() else _titled().get(written)


@cache
def _titled() -> dict[str, str]:
    return {_short(title): name for name, title in known_models().titles.items()}


def _short(written: str) -> str:
    return written.strip().lower().replace(" ", "-").replace("_", "-")


def meant_name(name: object) -> str | None:
    """The short name that a looser spelling means, as "llama4 scout", "gemma3:12b" or "Qwen 3 8B Instruct".

    Without the words that do not change a shape its words must be all those of a name. None for the name of a file.
    """
    written = str(name)
    is_path = re.search(r"[/\\]|\.gguf$", written, re.IGNORECASE)
    return None if is_path else _joined().get(_as_one(_words(written)))


def _words(written: str) -> list[str]:
    """Small words without those that do not change a shape; a family is parted from its number, as in "qwen3"."""
    parted = re.sub(r"(?<![a-z])([a-z]{2,})(?=\d)", r"\1 ", written.lower())
    return [word for word in re.split(r"[\s_:-]+", parted) if word and word not in SAME_SHAPE]


@cache
def _words_of(known: str) -> set[str]:
    return {*_words(known), *_words(known_models().titles[known])}


@cache
def _joined() -> dict[str, str]:
    titles = known_models().titles
    return {_as_one(_words(written)): known for known in titles for written in (titles[known], known)}


def _as_one(words: list[str]) -> str:
    """The words without spaces between letters: "gpt oss 20b" and "gptoss 20b" are one, "3 1b" and "31b" are not."""
    return re.sub(r"(?<=[a-z]) (?=[a-z])", "", " ".join(words))


def _with_words(words: list[str]) -> list[str]:
    """The names that have all these words, one of which must be of letters alone."""
    if not any(word.isalpha() and len(word) > 2 for word in words):
        return []
    return [known for known in known_models() if _words_of(known).issuperset(words)]


def near_names(name: str) -> str:
    """A sentence with the known names that this one can mean, else with those of its family that are most like it."""
    if several := _with_words(_words(name)):
        several = get_close_matches(_short(name), several, n=LISTED, cutoff=0)
        return f"Did you mean {' or '.join(several)}?"
    written, names = _short(name), [*known_models()]
    letters = re.match("[a-z]+", written)
    family = [known for known in names if letters and known.startswith(letters[0])]
    near = get_close_matches(written, family or names, n=3, cutoff=0.3 if family else 0.6)
    return f"Did you mean {' or '.join(near)}?" if near else f"Such names are {', '.join(names[:5])}."


def _model(entry: dict[str, Any]) -> KnownModel:
    left = ("title", "date", "file", "head_dim", "files", "companions", "logged")
    dimensions = {k: _plain(v) for k, v in entry.items() if k not in left}
    sizes: dict[str, Any] = {part: _sizes(entry.get(part, {})) for part in ("files", "companions")}
    own = dimensions.get("metadata", {})
    widths = {f"head_dim_{x}": own.get(f"attention.{key}_length", entry["head_dim"]) for x, key in HEAD_KEYS}
    return KnownModel(name=entry["title"], **sizes, **widths, **dimensions)


def _sizes(entry: dict[str, Any]) -> dict[str, Fact]:
    return {kind: Fact(f["bytes"], "B", f["source"], f["date"]) for kind, f in entry.items()}


def _plain(value: Any) -> Any:
    """Lists as tuples, which nobody can change."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return tuple(value) if isinstance(value, list) else value
