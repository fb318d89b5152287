"""Scoring a text in the worker, alone or beside a reference model; rows of logits never leave this process."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

from inferlab.engine.worker_devices import Refused
from inferlab.engine.worker_model import LoadedModel, batch_slices

MOST_KEPT_BYTES = 2**26


class Scoring:
    """Scores of token sequences.

    reference  the model that was set aside for comparison, or None
    kept       its logits of texts that it has read, up to MOST_KEPT_BYTES: several models are compared on one text
    """

    def __init__(self) -> None:
        self.reference: LoadedModel | None = None
        self.kept: dict[tuple[int, ...], list[Any]] = {}

    def score(self, loaded: LoadedModel, tokens: Sequence[int], first: int) -> list[float]:
        """Nats of tokens[first:], each given all tokens before it."""
        from inferlab.engine.logits import nats_of

        return [nats for actual, logits in rows(loaded, tokens, first) for nats in nats_of(logits, actual)]

    def compare(self, loaded: LoadedModel, tokens: Sequence[int], first: int) -> dict[str, list[Any]]:
        """The loaded model beside the reference on tokens[first:], batch by batch: columns of logits.ComparedLosses."""
        from inferlab.engine.logits import ComparedLosses, compared

        if self.reference is None:
            raise Refused("No reference is set aside: the engine is fresh, or has freed it.")
        columns = ComparedLosses([], [], [], [])
        both = zip(rows(loaded, tokens, first), self._reference_rows(self.reference, tokens, first), strict=True)
        for (actual, logits), reference_logits in both:
            columns.extend(compared(logits, reference_logits, actual))
        return columns._asdict()

    def _reference_rows(self, reference: LoadedModel, tokens: Sequence[int], first: int) -> Iterator[Any]:
        """The reference's logits for tokens[first:], batch after batch, kept for the next model if they fit."""
        if (key := (first, *tokens)) in self.kept:
            yield from self.kept[key]
            return
        left_bytes = MOST_KEPT_BYTES - sum(part.nbytes for parts in self.kept.values() for part in parts)
        copies: list[Any] = []
        for _, logits in rows(reference, tokens, first):
            left_bytes -= logits.nbytes
            copies = [*copies, logits.copy()] if left_bytes >= 0 else []
            yield logits
        if left_bytes >= 0:
            self.kept[key] = copies

    def set_reference(self, loaded: LoadedModel) -> None:
        """Set a loaded model aside as the reference, in place of an earlier one."""
        self.free_reference(besides=loaded)
        self.reference = loaded

    def free_reference(self, besides: LoadedModel | None) -> None:
        """Free the reference, if there is one; weights that the loaded model `besides` shares with it stay."""
        freed, self.reference = self.reference, None
        self.kept.clear()
        if freed:
            freed.free(besides)


def rows(loaded: LoadedModel, tokens: Sequence[int], first: int) -> Iterator[tuple[Any, Any]]:
    """(actual tokens, logits that predict them) for tokens[first:], one llama_decode after another.

    The logits are llama.cpp's own memory, which its next decode overwrites.
    """
    import numpy as np

    if not 1 <= first < len(tokens) <= loaded.n_ctx:
        raise Refused(f"{len(tokens)} tokens from {first} on cannot be scored in a context of {loaded.n_ctx}.")
    loaded.clear()
    actual, ids = np.array(tokens), loaded.token_array(tokens)
    for start, count in batch_slices(len(tokens) - 1, loaded.n_batch):
        wanted = [start + index >= first - 1 for index in range(count)]
        _decode_with_logits(loaded, ids, start, wanted)
        if any(wanted):
            shape = (sum(wanted), loaded.vocabulary.n_tokens)
            logits = np.ctypeslib.as_array(loaded.api.llama_get_logits(loaded.context), shape)
            yield actual[start + count + 1 - len(logits) : start + count + 1], logits


def _decode_with_logits(loaded: LoadedModel, ids: Any, start: int, wanted: Sequence[bool]) -> None:
    """llama_decode of as many ids as `wanted` is long, computing logits after those where it is true."""
    flags = (ctypes.c_int8 * len(wanted))(*wanted)
    batch = loaded.batch_of(ids, start, len(wanted))
    batch.logits = flags
    loaded.decode(batch)
