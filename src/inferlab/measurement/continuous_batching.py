"""Requests through slots: a batch that waits for its longest answer, or one whose places are filled as they fall free.

A slot is a sequence of the context. Every step carries one token of each running answer and the prompt of each
request that has just got its slot, as in llama.cpp's server (tools/server/server-context.cpp, update_slots).
Time is engine time, summed over the steps, so that both ways are judged by the engine alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from inferlab.engine.protocol import Engine, Entry, entries_of
from inferlab.engine.session import default_engine
from inferlab.errors import InvalidSettings
from inferlab.measurement.base import Measurement, common_fields
from inferlab.measurement.batching import roomy
from inferlab.model.find import find_model
from inferlab.model.gguf import read_gguf
from inferlab.settings import Settings


@dataclass(frozen=True)
class Request:
    """What somebody asks for: so many tokens of prompt, so many of answer."""

    n_prompt: int
    n_gen: int


@dataclass(frozen=True)
class Answered:
    """One request as it was served; seconds since the first step began."""

    number: int
    request: Request
    slot: int
    began_seconds: float
    first_seconds: float
    ended_seconds: float


@dataclass(frozen=True, kw_only=True)
class Schedule(Measurement):
    """All requests, served; step_seconds and running say of each step how long it took, for how many."""

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
        """Tokens of all answers per second of engine time, prompts' time included."""
        return sum(one.request.n_gen for one in self.answered) / self.seconds

    @property
    def busy_share(self) -> float:
        """Mean share of the slots that a step had something to do for."""
        return sum(self.running) / (len(self.running) * self.n_slots)


@dataclass
class _Running:
    """A request in its slot while it is served."""

    number: int
    request: Request
    began_seconds: float
    first_seconds: float | None = None
    n_done: int = 0
    last: int = 0


@dataclass
class _Scheduler:
    """Slots, the queue before them and the clock."""

    engine: Engine
    waiting: deque[tuple[int, Request]]
    slots: list[_Running | None]
    now: float = 0.0
    answered: list[Answered] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    running: list[int] = field(default_factory=list)

    def admit(self) -> None:
        """Give every free slot to whoever waits longest."""
        for index, one in enumerate(self.slots):
            if one is None and self.waiting:
                self.slots[index] = _Running(*self.waiting.popleft(), self.now)

    def step(self) -> None:
        """One step for all slots in use: a prompt for those that begin, one token for the others."""
        taken = [(slot, one) for slot, one in enumerate(self.slots) if one]
        done = self.engine.step([entry for slot, one in taken for entry in self._entries(slot, one)])
        self.now += done.seconds
        self.step_seconds.append(done.seconds)
        self.running.append(len(taken))
        for (slot, one), token in zip(taken, done.picks, strict=True):
            self._note(slot, one, token)

    def _entries(self, slot: int, one: _Running) -> list[Entry]:
        if not one.n_done:
            return entries_of(self.engine.random_prompt(one.request.n_prompt), sequence=slot)
        return [Entry(one.last, one.request.n_prompt + one.n_done - 1, slot, True)]

    def _note(self, slot: int, one: _Running, token: int) -> None:
        """A token came: the first one is noted, the last one frees the slot."""
        one.n_done, one.last = one.n_done + 1, token
        one.first_seconds = self.now if one.first_seconds is None else one.first_seconds
        if one.n_done == one.request.n_gen:
            times = one.began_seconds, one.first_seconds, self.now
            self.answered.append(Answered(one.number, one.request, slot, *times))
            self.slots[slot] = None
            self.engine.keep(0, slot)


def schedule(
    requests: Sequence[Request],
    model: str | Path | None = None,
    settings: Settings | None = None,
    n_slots: int = 4,
    continuous: bool = True,
    engine: Engine | None = None,
) -> Schedule:
    """Serve requests that all wait from the beginning, in their order; returns the `Schedule`.

    continuous=False admits nobody before every slot is free: a batch is as long as its longest answer.
    Raises InvalidSettings, ModelError, EngineRefused or EngineCrashed.
    """
    if not requests or n_slots < 1 or min(min(one.n_prompt, one.n_gen) for one in requests) < 1:
        raise InvalidSettings("There must be a slot and a request, each with a token of prompt and of answer at least.")
    engine = engine or default_engine()
    path = find_model(model)
    longest = max(one.n_prompt + one.n_gen for one in requests)
    with engine.exclusive():
        opening = engine.open(path, roomy(settings or Settings(), n_slots, longest))
        engine.keep(0)
        desk = _Scheduler(engine, deque(enumerate(requests, 1)), [None] * n_slots)
        while desk.waiting or any(desk.slots):
            if continuous or not any(desk.slots):
                desk.admit()
            desk.step()
        facts = common_fields(engine, opening, read_gguf(path))
    return Schedule(
        **facts,
        n_slots=n_slots,
        continuous=continuous,
        answered=tuple(sorted(desk.answered, key=lambda one: one.number)),
        step_seconds=tuple(desk.step_seconds),
        running=tuple(desk.running),
    )
