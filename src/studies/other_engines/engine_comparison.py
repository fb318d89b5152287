"""Several engines on the same weights and tokens, on the CPU: answers, seconds and memory by one harness.

Every engine stays open in a process of its own, and all answer the same prompt in each turn, one after the other.
Prompts are random tokens, new in each turn, so that no engine finds a prompt in a cache of prefixes; a second request
with the same prompt then shows which engine has such a cache. Time is taken in the engine's process, token by token.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Protocol

from inferlab.engine.client import LlamaEngine
from inferlab.errors import InvalidSettings, OtherEngineFailed
from inferlab.measurement.base import Measurement, common_fields, with_context
from inferlab.measurement.pytorch import peak_growth
from inferlab.measurement.queued import queued
from inferlab.measurement.same_answer import n_same
from inferlab.model.gguf import read_gguf
from inferlab.settings import Settings
from studies.other_engines.engines.client import OtherEngine
from studies.other_engines.engines.conversion import WEIGHTS, converted
from studies.other_engines.engines.protocol import Answer, Request

LLAMA, REFERENCE = "llama.cpp", "F16"
FIRST_TOKEN = 300  # special tokens and single bytes lie below, in the vocabularies that are used here
PAUSE_SECONDS = 0.2  # the threads of some engines wait busily for a while after their work


@dataclass(frozen=True)
class EngineRow:
    """One engine with one kind of weights; a list has one entry for each turn.

    version        of the engine, with what it stands on
    grown_bytes    peak growth of its process until its first answer; None if the system does not report it
    first_seconds  from the request to the first token: prefill, and the choice of that token
    step_seconds   of each later token, on average
    again_seconds  from the request to the first token for the prompt of the same turn, a second time
    same           tokens at the beginning of the answer that are those of llama.cpp in F16
    """

    engine: str
    weights: str
    version: str
    grown_bytes: int | None
    first_seconds: tuple[float, ...]
    step_seconds: tuple[float, ...]
    again_seconds: tuple[float, ...]
    same: tuple[int, ...]

    @property
    def name(self) -> str:
        """`OpenVINO, Q4_0`."""
        return f"{self.engine}, {self.weights}"

    @property
    def first(self) -> float:
        """Median seconds to the first token."""
        return median(self.first_seconds)

    @property
    def step(self) -> float:
        """Median seconds of a later token."""
        return median(self.step_seconds)

    @property
    def again(self) -> float:
        """Median ratio of the second request's seconds to the first one's, turn by turn."""
        return median(b / a for a, b in zip(self.first_seconds, self.again_seconds, strict=True))


@dataclass(frozen=True, kw_only=True)
class EngineComparison(Measurement):
    """Engines on one model; the common fields are those of llama.cpp with F16 weights.

    missing  (engine, weights, reason) of what could not be measured
    """

    n_prompt: int
    n_gen: int
    rows: tuple[EngineRow, ...]
    missing: tuple[tuple[str, str, str], ...] = ()

    def of(self, engine: str, weights: str) -> EngineRow:
        """The row of an engine with some weights."""
        return next(row for row in self.rows if (row.engine, row.weights) == (engine, weights))

    def ratio(self, row: EngineRow, other: EngineRow, what: str) -> float:
        """Median of a row's seconds over another's, turn by turn; `what` is "first" or "step"."""
        pairs = zip(getattr(row, f"{what}_seconds"), getattr(other, f"{what}_seconds"), strict=True)
        return median(a / b for a, b in pairs)


class Entrant(Protocol):
    """An engine of the comparison, as the harness sees it; its process has started, and no model is open."""

    @property
    def pid(self) -> int | None: ...

    def open(self) -> str: ...

    def generate(self, tokens: Sequence[int], n_gen: int) -> Answer: ...

    def close(self) -> None: ...


class LlamaEntrant:
    """llama.cpp with one file, in a worker of its own."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self.path, self.settings, self.engine = path, settings, LlamaEngine()
        self.commit = self.engine.machine().llama_cpp_commit  # starts the worker

    @property
    def pid(self) -> int | None:
        return self.engine.pid

    def open(self) -> str:
        """Load the model; the version."""
        self.opening = self.engine.open(self.path, self.settings)
        return f"llama.cpp {self.commit}"

    def generate(self, tokens: Sequence[int], n_gen: int) -> Answer:
        done = self.engine.generate(tokens, n_gen)
        return Answer(done.tokens, done.token_seconds)

    def close(self) -> None:
        self.engine.close()


class OtherEntrant:
    """Another engine, in its process."""

    def __init__(self, request: Request) -> None:
        self.request, self.engine = request, OtherEngine()
        self.pid, self.generate, self.close = self.engine.pid, self.engine.generate, self.engine.close

    def open(self) -> str:
        """Load the model; the version."""
        return self.engine.open(self.request)


@queued
def compare_engines(
    files: Mapping[str, Path],
    folder: Path,
    settings: Settings | None = None,
    n_prompt: int = 128,
    n_gen: int = 16,
    repeats: int = 15,
    weights: Mapping[str, Sequence[str]] = WEIGHTS,
) -> EngineComparison:
    """Measure llama.cpp on each of `files` and every engine with each of its `weights`, in turns.

    files     type -> GGUF file of the same weights; F16 is the reference, and what is converted into `folder`
    settings  of llama.cpp; its n_threads counts for every engine that has such a setting
    Raises InvalidSettings without an F16 file or for too few tokens, ModelError, EngineRefused or EngineCrashed.
    Another engine that fails is named in `missing`.
    """
    if REFERENCE not in files or min(n_prompt, n_gen) < 2 or repeats < 1:
        raise InvalidSettings("files needs an F16 file, n_prompt and n_gen at least 2, and repeats at least 1.")
    settings = with_context(settings or Settings(n_threads=2, n_threads_batch=2), n_prompt, n_gen)
    starts: dict[tuple[str, str], Callable[[], Entrant]] = {
        (LLAMA, type): partial(LlamaEntrant, path, settings) for type, path in files.items()
    }
    for engine, kind in ((engine, kind) for engine, kinds in weights.items() for kind in kinds):
        starts[engine, kind] = partial(_other, engine, kind, files, folder, settings)
    return _measured(starts, files[REFERENCE], n_prompt, n_gen, repeats)


def _other(engine: str, weights: str, files: Mapping[str, Path], folder: Path, settings: Settings) -> OtherEntrant:
    type = weights.split()[0] if engine == "OpenVINO" else REFERENCE
    if type not in files:
        raise OtherEngineFailed(f"{engine} needs a file in {type}, and none was given.")
    path = converted(engine, weights, files[type], folder)
    return OtherEntrant(Request(engine, weights, path, settings.n_threads, settings.n_ctx))


def _measured(
    starts: Mapping[tuple[str, str], Callable[[], Entrant]], model: Path, n_prompt: int, n_gen: int, repeats: int
) -> EngineComparison:
    header, missing, begun = read_gguf(model), [], {}
    try:
        for key, start in starts.items():
            try:
                begun[key] = _Begun(start(), prompt(header.n_vocab, n_prompt, -1), n_gen)
            except OtherEngineFailed as reason:
                missing.append((*key, str(reason)))
        reference = begun[LLAMA, REFERENCE]
        for turn in range(repeats):
            tokens = prompt(header.n_vocab, n_prompt, turn)
            expected = reference.answered(tokens, n_gen)
            for one in begun.values():
                if one is not reference:
                    one.answered(tokens, n_gen, expected)
        rows = tuple(one.row(*key) for key, one in begun.items())
        common = common_fields(reference.entrant.engine, reference.entrant.opening, header)
    finally:
        for one in begun.values():
            one.entrant.close()
    return EngineComparison(**common, n_prompt=n_prompt, n_gen=n_gen, rows=rows, missing=tuple(missing))


class _Begun:
    """An engine that has given its first answer, which is not counted, and what it has answered since."""

    def __init__(self, entrant: Entrant, tokens: Sequence[int], n_gen: int) -> None:
        self.entrant = entrant
        self.samples: list[tuple[float, float, float, int]] = []
        with peak_growth(entrant.pid) as grown:
            self.version = entrant.open()
            entrant.generate(tokens, n_gen)
        self.grown_bytes = grown[0]

    def answered(self, tokens: Sequence[int], n_gen: int, expected: Sequence[int] = ()) -> tuple[int, ...]:
        """Ask once and once more; the tokens of the first answer."""
        time.sleep(PAUSE_SECONDS)
        answer = self.entrant.generate(tokens, n_gen)
        again = self.entrant.generate(tokens, 1)
        first, last = answer.seconds[0], answer.seconds[-1]
        same = n_same(answer.tokens, expected or answer.tokens)
        self.samples.append((first, (last - first) / (n_gen - 1), again.seconds[0], same))
        return answer.tokens

    def row(self, engine: str, weights: str) -> EngineRow:
        first, step, again, same = zip(*self.samples, strict=True)
        return EngineRow(engine, weights, self.version, self.grown_bytes, first, step, again, same)


def prompt(n_vocab: int, n_prompt: int, turn: int) -> list[int]:
    """Random token ids, the same for every engine and others in each turn; the lowest, special ones are left out."""
    return random.Random(turn).choices(range(FIRST_TOKEN, n_vocab), k=n_prompt)
