"""What fills a shape's file where a published model has its training: a made-up vocabulary, made-up weights.

Speed and memory do not depend on what the weights say; that they are plain, finite numbers does matter.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

import numpy as np

from inferlab.errors import InvalidSettings
from inferlab.gguf import STRING, PackedArray

SPECIAL = ("<unk>", "<s>", "</s>")
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
LEAST_TOKENS = len(SPECIAL) + len(BYTES) + 1
WORD = "\N{LOWER ONE EIGHTH BLOCK}"  # SentencePiece's mark for a space
DIGITS = 6
UNKNOWN, CONTROL, NORMAL, BYTE = 2, 3, 1, 6  # llama_token_type (llama-vocab.h)
INT32, FLOAT32 = 5, 6


def vocabulary(n_vocab: int) -> dict[str, Any]:
    """Metadata of a SentencePiece vocabulary of `n_vocab` entries: three special ones, all bytes, numbered words.

    Every text can be tokenized (byte by byte), every token becomes text; the words say nothing.
    Raises InvalidSettings for fewer entries than the bytes need.
    """
    if not LEAST_TOKENS <= n_vocab <= 10**DIGITS:
        raise InvalidSettings(f"n_vocab={n_vocab:,} must be from {LEAST_TOKENS} to {10**DIGITS:,} tokens.")
    return {"tokenizer.ggml.model": "llama", **_arrays(n_vocab), **_special_ids()}


def _special_ids() -> dict[str, Any]:
    ids = {"unknown": 0, "bos": 1, "eos": 2}
    return {f"tokenizer.ggml.{name}_token_id": number for name, number in ids.items()}


@cache
def _arrays(n_vocab: int) -> dict[str, PackedArray]:
    scores = -np.arange(n_vocab, dtype="<f4")
    kinds = np.full(n_vocab, NORMAL, "<i4")
    kinds[: len(SPECIAL)] = UNKNOWN, CONTROL, CONTROL
    kinds[len(SPECIAL) : LEAST_TOKENS - 1] = BYTE
    return {
        "tokenizer.ggml.tokens": PackedArray(STRING, n_vocab, _tokens(n_vocab)),
        "tokenizer.ggml.scores": PackedArray(FLOAT32, n_vocab, scores.tobytes()),
        "tokenizer.ggml.token_type": PackedArray(INT32, n_vocab, kinds.tobytes()),
    }


def _tokens(n_vocab: int) -> bytes:
    """Length and text of each token; the numbered words all have the same length, so NumPy lays them out."""
    named = b"".join(struct.pack("<Q", len(text)) + text.encode() for text in (*SPECIAL, *BYTES))
    numbers = np.arange(LEAST_TOKENS - 1, n_vocab)
    mark = WORD.encode()
    words = np.empty(len(numbers), [("length", "<u8"), ("mark", f"S{len(mark)}"), ("digits", "u1", DIGITS)])
    words["length"], words["mark"] = len(mark) + DIGITS, mark
    words["digits"] = numbers[:, None] // 10 ** np.arange(DIGITS)[::-1] % 10 + ord("0")
    return named + words.tobytes()
