"""Text to token ids and back in the worker, with the vocabulary of the open model."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Sequence
from typing import Any

from inferlab.engine.worker_devices import Refused

PROMPT_SEED = 4096


class Vocabulary:
    """A model's llama_vocab, which lives as long as the model's weights."""

    def __init__(self, api: Any, pointer: Any) -> None:
        self.api, self.pointer = api, pointer
        self.n_tokens: int = api.llama_vocab_n_tokens(pointer)

    def tokenize(self, text: str, special: bool) -> list[int]:
        """Ids of a text with its opening token; with `special` the text may contain special tokens, such as <s>."""
        data = text.encode("utf-8")
        size = len(data) + 8
        ids = (self.api.llama_token * size)()
        count = self.api.llama_tokenize(self.pointer, data, len(data), ids, size, True, special)
        return list(ids[:count])

    def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of the tokens; llama_detokenize would also tidy the spaces before punctuation."""
        return b"".join(map(self._bytes_of, tokens)).decode("utf-8", errors="replace")

    def random_tokens(self, n_tokens: int) -> list[int]:
        """Ids drawn with a fixed seed, the first one replaced by BOS if the model wants it, as llama-bench does."""
        generator = random.Random(PROMPT_SEED)
        tokens = [generator.randrange(self.n_tokens) for _ in range(n_tokens)]
        return self._opened(tokens) if tokens else []

    def chunks(self, text: str, n_ctx: int) -> tuple[list[list[int]], int]:
        """(every full n_ctx tokens of a text, its number of tokens); the first of each chunk is replaced by BOS.

        Cut as llama-perplexity does: tools/perplexity/perplexity.cpp, perplexity().
        """
        if self.api.llama_vocab_get_add_eos(self.pointer):
            raise Refused("This vocabulary ends every text with a token; perplexity is not defined for it here.")
        tokens = self.tokenize(text, special=False)
        starts = range(0, len(tokens) - n_ctx + 1, n_ctx)
        return [self._opened(tokens[start : start + n_ctx]) for start in starts], len(tokens)

    def _opened(self, tokens: list[int]) -> list[int]:
        """The tokens with BOS as the first; a vocabulary that adds no BOS keeps its own first token."""
        add_bos = self.api.llama_vocab_get_add_bos(self.pointer)
        return [self.api.llama_vocab_bos(self.pointer), *tokens[1:]] if add_bos else tokens

    def _bytes_of(self, token: int, size: int = 64) -> bytes:
        """The bytes of one token, none for a special one.

        llama_token_to_piece returns the negative of the size it needs when the buffer is too small.
        """
        if not 0 <= token < self.n_tokens:
            raise Refused(f"There is no token {token}; this vocabulary has {self.n_tokens}, counted from 0.")
        buffer = ctypes.create_string_buffer(size)
        count = self.api.llama_token_to_piece(self.pointer, token, buffer, size, 0, False)
        return buffer.raw[:count] if count >= 0 else self._bytes_of(token, -count)
