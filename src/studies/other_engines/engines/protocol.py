"""What an engine is asked and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Answer(NamedTuple):
    """Generated token ids, and the seconds from the request until each was known."""

    tokens: tuple[int, ...]
    seconds: tuple[float, ...]


@dataclass(frozen=True)
class Opened:
    """A model in an engine: greedy decoding of so many tokens after a prompt, and the engine's version."""

    generate: Callable[[Sequence[int], int], Answer]
    version: str


class Request(NamedTuple):
    """Which engine opens which file or folder: `weights` is a name of `conversion`, n_ctx in tokens."""

    engine: str
    weights: str
    path: Path
    n_threads: int
    n_ctx: int
