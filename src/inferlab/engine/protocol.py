"""The requests that an engine takes and the replies it gives, shared by measurements, client and worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from inferlab.engine.log import Buffer, TensorPlaces
from inferlab.machine import Machine
from inferlab.settings import Settings

NEED_NO_MODEL = (
    "ready",
    "machine",
    "open",
    "simulate",
    "quantize",
    "free_reference",
    "multiply",
    "attend",
    "transfer",
    "hold_memory",
)
ProgressCallback = Callable[[int, int], None]


def ignore_progress(done: int, total: int) -> None:
    """A ProgressCallback that does nothing."""


@dataclass(frozen=True)
class Opening:
    """An open model: its buffers, the seconds of each phase of loading, the settings that llama.cpp chose, its log.

    tensors  which tensors were rearranged for the processor, and the device of each layer
    waiting  the environment variables that decide how long its threads spin, by name
    """

    buffers: tuple[Buffer, ...]
    phases: dict[str, float]
    settings: Settings
    log: str
    description: str = ""
    tensors: TensorPlaces = field(default_factory=TensorPlaces)
    waiting: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Pass:
    """The times and tokens of one prefill and one decode; seconds since the call, in order.

    prefill_seconds  engine time of the prompt: llama_decode and llama_synchronize, summed over its batches
    token_seconds    when each generated token id was known; the first is the end of TTFT
    decode_seconds   engine time of each later token: llama_decode and llama_synchronize
    tokens           the generated token ids
    decoded          (tokens after the first, engine seconds) where another tool timed only their sum
    began            when the call was made: time.perf_counter() from an engine, the run's time axis in a `Run`
    """

    prefill_seconds: float | None
    token_seconds: tuple[float, ...]
    decode_seconds: tuple[float, ...]
    tokens: tuple[int, ...]
    decoded: tuple[int, float] | None = None
    began: float | None = None


class Entry(NamedTuple):
    """One token of a step: its position in its sequence, and whether the next token is wanted."""

    token: int
    position: int
    sequence: int = 0
    wanted: bool = False


def entries_of(tokens: Sequence[int], position: int = 0, sequence: int = 0) -> list[Entry]:
    """Consecutive tokens from a position on; the next token is wanted only after the last."""
    last = len(tokens) - 1
    return [Entry(token, position + index, sequence, index == last) for index, token in enumerate(tokens)]


@dataclass(frozen=True)
class Step:
    """The result of tokens of several sequences computed together.

    seconds  engine time: llama_decode and llama_synchronize, summed over the calls of at most n_batch tokens
    picks    the likeliest next token after each entry that wanted one, in their order
    """

    seconds: float
    picks: tuple[int, ...]


class Sampler(NamedTuple):
    """One sampler of a chain: its name in --samplers (or greedy, dist), and its values as engine.worker_sampling."""

    name: str
    values: tuple[float | str, ...] = ()


class Engine(Protocol):
    """What a measurement needs from an inference engine; tests pass a scripted one. `LlamaEngine` documents each."""

    @property
    def pid(self) -> int | None: ...

    def exclusive(self) -> AbstractContextManager[Any]: ...

    def machine(self) -> Machine: ...

    def open(self, model: Path, settings: Settings) -> Opening: ...

    def generate(self, prompt: Sequence[int], n_gen: int) -> Pass: ...

    def step(self, entries: Sequence[Entry]) -> Step: ...

    def share(self, source: int, target: int) -> float: ...

    def keep(self, n_tokens: int, sequence: int | None = None) -> None: ...

    def open_vocabulary(self, model: Path) -> None: ...

    def random_prompt(self, n_prompt: int) -> list[int]: ...

    def tokenize(self, text: str) -> list[int]: ...

    def detokenize(self, tokens: Sequence[int]) -> str: ...

    def close(self) -> None: ...
