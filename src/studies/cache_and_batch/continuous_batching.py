"""Static and continuous batching: requests served through slots, with engine time of every step.

Static batching refills the slots when the longest answer of a batch is complete, continuous batching refills each slot
as soon as it is free.

A slot is a sequence of the context. Every step computes one token of each running answer and the prompt of each
request that has just been given a slot, as in llama.cpp's server (tools/server/server-context.cpp, update_slots).
Time is engine time, summed over the steps, so both methods are compared without scheduling overhead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from inferlab.engine.protocol import Engine, Entry, entries_of
from inferlab.engine.session import default_engine
from inferlab.errors import InvalidSettings
from inferlab.measurement.base import Measurement, common_fields, with_context
from inferlab.measurement.queued import queued
from inferlab.model.find import find_model
from inferlab.model.gguf import read_gguf
from inferlab.settings import Settings


@dataclass(frozen=True)
class Request:
    """One request: the number of tokens in its prompt and in its answer."""

    n_prompt: int
    n_gen: int


@dataclass(frozen=True)
class Answered:
    """One request after it was served; times are seconds since the first step began."""

    number: int
    request: Request
    slot: int
    began_seconds: float
    first_seconds: float
    ended_seconds: float


@dataclass(frozen=True, kw_only=True)
class Schedule(Measurement):
    """All requests after they were served.

    step_seconds  engine time of each step
    running       slots in use in each step
    """

    n_slots: int
    continuous: bool
    answered: tuple[Answered, ...]
    step_seconds: tuple[float, ...]
    running: tuple[int, ...]

    @property
    def seconds(self) -> float:
        """Engine time until the last answer was complete."""
        return sum(self.step_seconds)

    @property
    def tokens_per_second(self) -> float:
        """Tokens of all answers per second of engine time, including the time of the prompts."""
        return sum(answered.request.n_gen for answered in self.answered) / self.seconds

    @property
    def busy_share(self) -> float:
        """Mean share of the slots that were in use in a step."""
        return sum(self.running) / (len(self.running) * self.n_slots)


@dataclass
class _Running:
    """A request in its slot while it is served."""

    number: int
    request: Request
    began_seconds: float
    first_seconds: float = 0.0
    tokens: list[int] = field(default_factory=list)

    def entries(self, engine: Engine, slot: int) -> list[Entry]:
        """What a step computes for it: its prompt, and then its newest token."""
        if not self.tokens:
            return entries_of(engine.random_prompt(self.request.n_prompt), sequence=slot)
        return [Entry(self.tokens[-1], self.request.n_prompt + len(self.tokens) - 1, slot, True)]


@queued
def schedule(
    requests: Sequence[Request],
    model: str | Path | None = None,
    settings: Settings | None = None,
    n_slots: int = 4,
    continuous: bool = True,
    engine: Engine | None = None,
) -> Schedule:
    """Serve requests in their order, all of them waiting from the start; returns the `Schedule`.

    continuous=False admits requests only when every slot is free: a batch takes as long as its longest answer.
    Raises InvalidSettings, ModelError, EngineRefused or EngineCrashed.
    """
    if not requests or n_slots < 1 or min(min(request.n_prompt, request.n_gen) for request in requests) < 1:
        raise InvalidSettings("There must be a slot and a request, each with a token of prompt and of answer at least.")
    engine, path = engine or default_engine(), find_model(model)
    longest = max(requests, key=lambda request: request.n_prompt + request.n_gen)
    with engine.exclusive():
        with_slots = with_context(settings or Settings(), longest.n_prompt, longest.n_gen, n_slots)
        opening = engine.open(path, with_slots)
        engine.keep(0)
        answered, step_seconds, running = _served(engine, deque(enumerate(requests, 1)), n_slots, continuous)
        common = common_fields(engine, opening, read_gguf(path))
    answered.sort(key=lambda answer: answer.number)
    return Schedule(
        **common,
        n_slots=n_slots,
        continuous=continuous,
        answered=tuple(answered),
        step_seconds=tuple(step_seconds),
        running=tuple(running),
    )


def _served(
    engine: Engine, waiting: deque[tuple[int, Request]], n_slots: int, continuous: bool
) -> tuple[list[Answered], list[float], list[int]]:
    """Answers as they end, and seconds and slots in use of each step.

    A step computes the prompt of each new request and one token of each other one.
    """
    slots: dict[int, _Running] = {}
    answered, step_seconds, running = [], [], []
    now = 0.0
    while waiting or slots:
        for slot in range(n_slots) if continuous or not slots else ():
            if slot not in slots and waiting:
                slots[slot] = _Running(*waiting.popleft(), now)
        in_use = sorted(slots.items())
        done = engine.step([entry for slot, own in in_use for entry in own.entries(engine, slot)])
        now += done.seconds
        step_seconds.append(done.seconds)
        running.append(len(in_use))
        for (slot, own), token in zip(in_use, done.picks, strict=True):
            own.first_seconds = own.first_seconds if own.tokens else now
            own.tokens.append(token)
            if len(own.tokens) == own.request.n_gen:
                answered.append(Answered(own.number, own.request, slot, own.began_seconds, own.first_seconds, now))
                del slots[slot]
                engine.keep(0, slot)
    return answered, step_seconds, running


def requests(n_prompt: int, answers: Sequence[int]) -> list[Request]:
    """A request for each answer's number of tokens, with prompts of equal length."""
    return [Request(n_prompt, n_gen) for n_gen in answers]


def both_ways(
    waiting: Sequence[Request], model: str | Path, settings: Settings, n_slots: int, engine: Engine | None = None
) -> dict[str, Schedule]:
    """The same requests served with "static" and then with "continuous" batching; raises what `schedule` raises."""
    ways = {"static": False, "continuous": True}
    return {name: schedule(waiting, model, settings, n_slots, way, engine) for name, way in ways.items()}
