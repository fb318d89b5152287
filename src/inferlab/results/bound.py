"""The bound on a measured decode rate: the rated bandwidth of its card, over the bytes that a token needs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from inferlab.errors import InferlabError
from inferlab.model.architectures import n_params
from inferlab.model.catalog import known_models
from inferlab.model.gguf import Model
from inferlab.model.quant_mixes import MIXES
from inferlab.model.synthetic_model import shape
from inferlab.prediction.cards import KnownCard, known_cards
from inferlab.prediction.decode_bound import token_bytes
from inferlab.results.result import Result, printed

ALIKE = 0.01
"""By how much the bytes of a file may differ from those of the known model that is taken for it."""
NEAR = 0.001
"""By how much the number of weights may differ between models that are compared as one."""
NOISE = re.compile(r"\(radv [^()]{1,40}\)|\b(nvidia|amd|intel|graphics|gpu)\b|\(r\)|\(tm\)|[®™]", re.IGNORECASE)
SIZE = re.compile(r"\b\d+ ?gi?b\b|\bgddr\d\w*\b", re.IGNORECASE)
LONGEST = 200
"""Characters of a description that are read, more than llama.cpp writes: the next pattern takes long on more."""
TYPE = re.compile(r"\S*\d\S*[BM](?: MoE)?\s+(.+)$|\?B\s+(.+)$")
WORDS = {" - Medium": "_M", " - Small": "_S", " - Large": "_L"}
BITS = re.compile(r" - [\d.]+ bpw.*$")
OTHER_WORDS = {"Q2_K_M": "Q2_K", "all F32": "F32", "IQ3_S mix": "IQ3_M", "MXFP4 MoE": "MXFP4_MOE"}
"""What llama.cpp calls a file type in its descriptions (llama_ftype_name, llama-model-loader.cpp:32-76)."""


@dataclass(frozen=True)
class Bound:
    """The most tokens per second of one sequence that a card's bandwidth allows, if each token needs all of n_bytes.

    known  whether n_bytes are the bytes that a token of a known model needs, with its cache: then it is an upper limit.
           Else they are all weights of the file, and a token may need fewer: a row of the embedding, some experts
    """

    card: KnownCard
    n_bytes: int
    known: bool

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.card.bandwidth_bytes_per_second / self.n_bytes


def card_named(result: Result) -> KnownCard | None:
    """The card of the list that the file names; None where it names none, or one that is sold with two bandwidths."""
    names = {_plain(name) for name in (result.cpu if result.on_processor else result.gpu).split(", ")} - {""}
    if len(names) != 1:
        return None
    cards = _cards_by_name().get(names.pop(), [])
    return cards[0] if len({card.bandwidth_bytes_per_second for card in cards}) == 1 else None


@cache
def _cards_by_name() -> dict[str, list[KnownCard]]:
    cards: dict[str, list[KnownCard]] = {}
    for card in known_cards().values():
        cards.setdefault(_plain(card.title), []).append(card)
    return cards


def _plain(name: str) -> str:
    return " ".join(SIZE.sub(" ", NOISE.sub(" ", name)).lower().split())


def bound_of(result: Result, card: KnownCard | None) -> Bound | str:
    """The bound of a decode test on a card, or why there is none."""
    if result.n_sequences > 1:
        return "several sequences were decoded together"
    if card is None:
        return "no card of the list is named"
    if result.on_processor and not card.unified:
        return "the weights lie in RAM, whose bandwidth is not known"
    if result.settings.get("split_mode") in ("row", "tensor") and ", " in result.gpu:
        return "several cards read at the same time"
    model = known_model_of(result)
    if model:
        kinds = result.settings.get("type_k", "f16"), result.settings.get("type_v", "f16")
        try:
            return Bound(card, token_bytes(model, *kinds, depth=result.n_depth), True)
        except InferlabError:
            pass
    return Bound(card, result.model_bytes, False) if result.model_bytes else "the file does not say the model's bytes"


def layers_on_gpu(result: Result) -> tuple[int, int] | None:
    """(layers on the GPU, all of them) of a known model that lies there in part; the output layer counts as one."""
    model, asked = known_model_of(result), result.settings.get("n_gpu_layers", "")
    n_layers = model.n_layer + 1 if model else 0
    return (int(asked), n_layers) if asked.isdecimal() and 0 < int(asked) < n_layers else None


def known_model_of(result: Result) -> Model | None:
    """The known model with as many weights of this type, and nearly as many bytes; None if there is none."""
    mix, architecture = type_of(result.model), result.model.partition(" ")[0]
    weights = printed(result.n_params) if result.from_table else result.n_params
    name = _names(architecture).get(weights) if weights else None
    if not name or mix is None or not result.model_bytes:
        return None
    model = _shape(name, mix)
    return model if abs(model.tensor_bytes / result.model_bytes - 1) < ALIKE else None


def known_names_of(result: Result) -> tuple[str, ...]:
    """The known models of the architecture with nearly as many weights, in any type and its makers' own mixes.

    Several have the same tensors, such as a model and one that was trained further. Those that the name of the file
    names come first, then those with the nearest number of weights. Empty if there is none.
    """
    n = result.n_params
    if not n:
        return ()

    def is_near(counted: int) -> bool:
        return abs(counted / n - 1) < NEAR or (result.from_table and printed(counted) == printed(n))

    def rank(one: tuple[int, str]) -> tuple[int, int]:
        return -len(one[1]) * is_named(one[1], result.file), abs(one[0] - n)

    near = (one for one in _counted(result.model.partition(" ")[0]) if is_near(one[0]))
    return tuple(name for _, name in sorted(near, key=rank))


def is_named(name: str, file: str) -> bool:
    """Whether the name of a file has that of a known model in it, however its words are parted."""
    return _letters(name) in _letters(file)


def _letters(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


@cache
def _counted(architecture: str) -> list[tuple[int, str]]:
    """The known models of an architecture, each with its number of weights before it."""
    return [(n_params(known), name) for name, known in known_models().items() if known.architecture == architecture]


@cache
def _names(architecture: str) -> dict[int | str, str]:
    """Number of weights, also as a table has it -> the known model of the architecture."""
    counted = _counted(architecture)
    return {printed(n): name for n, name in counted} | dict(counted)


@cache
def _shape(name: str, mix: str) -> Model:
    return shape(name, mix)


def type_of(description: str) -> str | None:
    """The file type in llama.cpp's description of a model: `llama 8B Q4_K - Medium` -> `Q4_K_M`; None if unknown."""
    match = TYPE.search(description[:LONGEST])
    name = (match[1] or match[2]) if match else ""
    for words, letter in WORDS.items():
        name = name.replace(words, letter)
    name = BITS.sub("", name)
    name = OTHER_WORDS.get(name, name)
    return name if name in MIXES else None
