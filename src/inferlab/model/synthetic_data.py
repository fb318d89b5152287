"""Makes the data of a shape's file: a synthetic vocabulary and random weights.

Speed and memory do not depend on the values of weights, if all are normal, finite numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from inferlab.errors import InvalidSettings
from inferlab.model.ggml_types import TYPES
from inferlab.model.gguf import STRING, PackedArray, Tensor
from inferlab.units import MIB

if TYPE_CHECKING:
    import numpy as np

SPECIAL = ("<unk>", "<s>", "</s>")
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # SentencePiece's mark for a space
MARK = SPACE.encode()
LEAST_TOKENS = len(SPECIAL) + len(BYTES) + 1
DIGITS = 6
UNKNOWN, CONTROL, NORMAL, BYTE = 2, 3, 1, 6  # llama_token_type (llama-vocab.h)
INT32, FLOAT32 = 5, 6

POOL_BYTES = 8 * MIB
SEED = 20261121
SIGMA = 0.02  # standard deviation of the weights, about that of a freshly initialized model
LEAST = 2**-10  # of plain floats: far from float16's subnormal numbers, which begin below 2**-14
ONE_EACH = ("ssm_a", "ssm_d", "ssm_norm.weight")  # of two dimensions, yet one number for each head or value
SPREAD = (0.75, 1.25)  # by which the scales of blocks differ


@dataclass(frozen=True)
class Block:
    """Bytes of a quantized block that are not random: its scales, and block scales that must stay small.

    scales: byte offset -> value that gives weights of standard deviation SIGMA around 0 with random codes;
    masks: (first byte, end, bits kept, bits set), which also set a scale that is no 16-bit float of its own: MXFP4's
    exponent, and the upper half of IQ1_M's, whose four nibbles lie in the top of the four words scales[].
    """

    scales: dict[int, float]
    masks: tuple[tuple[int, int, int, int], ...] = field(default=())


# The structs of ggml-common.h (lines 180-447). A scale is SIGMA over the deviation of code x small scale;
# a minimum lies half the codes' range below, so that the weights' mean is 0.
BLOCKS = {
    "Q4_0": Block({0: SIGMA / 4.6}),
    "Q4_1": Block({0: SIGMA / 4.6, 2: -7.5 * SIGMA / 4.6}),
    "Q5_0": Block({0: SIGMA / 9.2}),
    "Q5_1": Block({0: SIGMA / 9.2, 2: -15.5 * SIGMA / 9.2}),
    "Q8_0": Block({0: SIGMA / 74}),
    "Q2_K": Block({80: SIGMA / 11.8, 82: 1.5 * SIGMA / 11.8}),
    "Q3_K": Block({108: SIGMA / 42}),
    "Q4_K": Block({0: SIGMA / 60, 2: 7.5 * SIGMA / 60}, ((4, 12, 0x0F, 0),)),
    "Q5_K": Block({0: SIGMA / 120, 2: 15.5 * SIGMA / 120}, ((4, 12, 0x0F, 0),)),
    "Q6_K": Block({208: SIGMA / 163}, ((192, 208, 0x0F, 0),)),
    "IQ4_NL": Block({0: SIGMA / 70}),
    "IQ4_XS": Block({0: SIGMA / 131}, ((2, 4, 0, 0xAA), (4, 8, 0x33, 0))),
    "MXFP4": Block({}, ((0, 1, 0, 120),)),  # E8M0, half of 2**(120 - 127): ggml stores its codes doubled
    "IQ3_S": Block({0: SIGMA / 140}),
    "IQ3_XXS": Block({0: SIGMA / 142}),
    "IQ2_S": Block({0: SIGMA / 56.4}),
    "IQ2_XS": Block({0: SIGMA / 55.9}),
    "IQ2_XXS": Block({0: SIGMA / 53.3}),
    "IQ1_M": Block({}, ((53, 54, 0x0F, 0x90), (55, 56, 0x0F, 0x10))),  # 0x19.. = 2**-9 * (1.25 to 1.5), SIGMA / 7.2
    "IQ1_S": Block({0: SIGMA / 7.2}),
    "Q2_0": Block({0: SIGMA}, ((2, 18, 0xAA, 0),)),  # of the codes -1, 0, 1 and 2, which no quantizer writes, -1 and 1
    "TQ2_0": Block({64: SIGMA}, ((0, 64, 0xAA, 0),)),
    "TQ1_0": Block({52: SIGMA / 0.817}),
    "Q1_0": Block({0: SIGMA}),
}


def weights(tensor: Tensor, seed: int) -> Iterator[memoryview]:
    """The bytes of a tensor in pieces of at most 8 MiB: matrices random, norms 1, biases and numbers 0, a decay -1.

    Matrices are copied from one pool of random blocks per type, starting at a block that `seed` selects.
    """
    import numpy as np

    if tensor.type == "I32":
        yield memoryview(bytes(tensor.n_bytes))
        return
    if len(tensor.shape) == 1 or tensor.name.endswith(ONE_EACH):
        value = -1 if tensor.name.endswith("ssm_a") else tensor.name.endswith(("weight", "norm", "ssm_d"))
        yield memoryview(np.full(tensor.n_elements, value, "<f4").tobytes())
        return
    pool = _pool(tensor.type)
    start = TYPES[tensor.type].block_bytes * (seed * 7919 % (len(pool) // TYPES[tensor.type].block_bytes))
    left = tensor.n_bytes
    while left:
        piece = pool[start : start + left]
        yield piece
        left, start = left - len(piece), 0


@cache
def _pool(type: str) -> memoryview:
    """About 8 MiB of valid blocks of one type."""
    import numpy as np

    generator = np.random.default_rng(SEED)
    kind = TYPES[type]
    if type in BLOCKS:
        return memoryview(_blocks(BLOCKS[type], POOL_BYTES // kind.block_bytes, kind.block_bytes, generator).tobytes())
    plain = generator.normal(0, SIGMA, POOL_BYTES // kind.block_bytes).astype("<f4")
    plain[np.abs(plain) < LEAST] = LEAST
    if type == "BF16":
        return memoryview((plain.view("<u4") >> 16).astype("<u2").tobytes())
    return memoryview(plain.astype({"F32": "<f4", "F16": "<f2"}[type]).tobytes())


def _blocks(block: Block, count: int, width: int, generator: np.random.Generator) -> np.ndarray:
    import numpy as np

    blocks = generator.integers(0, 256, (count, width), np.uint8)
    for first, end, kept, added in block.masks:
        blocks[:, first:end] = blocks[:, first:end] & kept | added
    factors = generator.uniform(*SPREAD, count)
    for offset, value in block.scales.items():
        blocks[:, offset : offset + 2] = (factors * value).astype("<f2")[:, None].view(np.uint8)
    return blocks


def vocabulary(n_vocab: int) -> dict[str, Any]:
    """Metadata of a SentencePiece vocabulary of `n_vocab` entries: three special ones, all bytes, numbered words.

    Every text can be tokenized (byte by byte), and every token has a text; the words have no meaning.
    Raises InvalidSettings for fewer entries than the bytes need.
    """
    if not LEAST_TOKENS <= n_vocab <= 10**DIGITS:
        raise InvalidSettings(f"n_vocab={n_vocab:,} must be from {LEAST_TOKENS} to {10**DIGITS:,} tokens.")
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": PackedArray(STRING, n_vocab, _tokens_bytes(n_vocab), partial(_tokens, n_vocab)),
        "tokenizer.ggml.scores": PackedArray(FLOAT32, n_vocab, 4 * n_vocab, partial(_scores, n_vocab)),
        "tokenizer.ggml.token_type": PackedArray(INT32, n_vocab, 4 * n_vocab, partial(_kinds, n_vocab)),
        **_special_ids(),
    }


def _special_ids() -> dict[str, Any]:
    ids = {"unknown": 0, "bos": 1, "eos": 2}
    return {f"tokenizer.ggml.{name}_token_id": number for name, number in ids.items()}


@cache
def _scores(n_vocab: int) -> bytes:
    return struct.pack(f"<{n_vocab}f", -0.0, *range(-1, -n_vocab, -1))


@cache
def _kinds(n_vocab: int) -> bytes:
    named = (UNKNOWN, CONTROL, CONTROL, *(BYTE for _ in BYTES))
    return struct.pack(f"<{n_vocab}i", *named, *(NORMAL for _ in range(n_vocab - len(named))))


@cache
def _tokens(n_vocab: int) -> bytes:
    """Length and text of each token; every numbered word has the same length."""
    start = struct.pack("<Q", len(MARK) + DIGITS) + MARK
    return _named_tokens() + b"".join(b"%b%0*d" % (start, DIGITS, number) for number in range(LEAST_TOKENS, n_vocab))


def _tokens_bytes(n_vocab: int) -> int:
    return len(_named_tokens()) + (n_vocab - LEAST_TOKENS) * (8 + len(MARK) + DIGITS)


def _named_tokens() -> bytes:
    return b"".join(struct.pack("<Q", len(text)) + text for text in map(str.encode, (*SPECIAL, *BYTES, SPACE)))
