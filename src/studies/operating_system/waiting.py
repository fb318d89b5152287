"""How long a waiting OpenMP thread spins before it sleeps, and what that costs on an idle and on a busy machine.

GOMP_SPINCOUNT is the number of turns of libgomp's waiting loop (libgomp, "Environment Variables"). Each value has a
worker of its own that stays open; the values take turns, so that a slow minute of the machine meets all of them.

python -m studies.operating_system.operating_system waiting-tiny waiting-shape --out FOLDER
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from inferlab.engine import openmp
from inferlab.engine.client import LlamaEngine
from inferlab.engine.protocol import Engine
from inferlab.errors import EngineRefused
from inferlab.measurement import paired
from inferlab.measurement.base import Measurement, common_fields
from inferlab.measurement.surroundings import Surrounding
from inferlab.model.gguf import read_gguf
from inferlab.progress import track
from inferlab.settings import Settings
from inferlab.statistics import median_interval

SPINS = (0, 100, 1_000, 2_000, 10_000, None)
"""The values compared; None is libgomp's own, 300,000 on this kind of processor."""
LIMIT_SECONDS = 6.0
N_ROUNDS = 15


@dataclass(frozen=True)
class Situation:
    """What computes beside the worker that is timed: programs of one thread that only compute, and other workers."""

    name: str
    n_neighbors: int = 0
    n_workers: int = 1


SITUATIONS = (
    Situation("nothing beside it"),
    Situation("one busy program", n_neighbors=1),
    Situation("two busy programs", n_neighbors=2),
    Situation("a second worker", n_workers=2),
)


@dataclass(frozen=True)
class Case:
    """The passes of one value in one situation; None for a pass that had no result within the limit.

    prefill_rates, decode_rates  tokens per second of each round; rounds of all values in a situation correspond
    """

    situation: str
    spin: int | None
    prefill_rates: tuple[float | None, ...]
    decode_rates: tuple[float | None, ...]

    @property
    def label(self) -> str:
        """The value of GOMP_SPINCOUNT in words."""
        return "default" if self.spin is None else f"{self.spin:,}"

    def rates(self, phase: str) -> tuple[float, ...]:
        """Tokens per second of each round, 0 where there was no result; `phase` is "prefill" or "decode"."""
        return tuple(rate or 0.0 for rate in getattr(self, f"{phase}_rates"))

    def rate(self, phase: str) -> float:
        """The median of `rates`."""
        return median(self.rates(phase))

    @property
    def n_without_result(self) -> int:
        return self.decode_rates.count(None)


@dataclass(frozen=True, kw_only=True)
class Waiting(Measurement):
    """One model in every situation, with every value of GOMP_SPINCOUNT.

    limit_seconds  after which a pass counts as one without a result
    """

    n_prompt: int
    n_gen: int
    limit_seconds: float
    cases: tuple[Case, ...]

    @property
    def text(self) -> str:
        """A line for each case: its median rates, and how many passes had no result."""
        return "\n".join(
            f"{one.situation}, {one.label}: prefill {one.rate('prefill'):.3g}, decode "
            f"{one.rate('decode'):.3g} tokens/s, {one.n_without_result} of {len(one.decode_rates)} without a result"
            for one in self.cases
        )

    @property
    def situations(self) -> tuple[str, ...]:
        """The situations in their order."""
        return tuple(dict.fromkeys(case.situation for case in self.cases))

    @property
    def spins(self) -> tuple[int | None, ...]:
        """The values that were compared, in their order."""
        return tuple(dict.fromkeys(case.spin for case in self.cases))

    @property
    def n_rounds(self) -> int:
        """How often each value had its turn in each situation."""
        return len(self.cases[0].decode_rates)

    def case(self, situation: str, spin: int | None) -> Case:
        """The passes of one value in one situation."""
        return next(case for case in self.cases if (case.situation, case.spin) == (situation, spin))

    def ratios(self, situation: str, spin: int | None, base: int | None, phase: str = "decode") -> tuple[float, ...]:
        """Rate over that of `base`, round by round; rounds in which `base` had no result are left out."""
        pairs = zip(self.case(situation, spin).rates(phase), self.case(situation, base).rates(phase), strict=True)
        return tuple(rate / other for rate, other in pairs if other)

    def ratio_text(self, situation: str, spin: int | None, base: int | None, phase: str = "decode") -> str:
        """`paired.ratio_text` of `ratios`; "-" for fewer than have an interval."""
        ratios = self.ratios(situation, spin, base, phase)
        interval = median_interval(ratios)
        return paired.ratio_text(median(ratios), interval) if interval else "-"


def environment(spin: int | None) -> dict[str, str]:
    """What a worker's environment has for a value, so that no bound of our own stands in for libgomp's choice."""
    return {openmp.SPIN_COUNT: openmp.DEFAULT if spin is None else str(spin)}


def measure_waiting(
    path: Path,
    n_prompt: int = 128,
    n_gen: int = 32,
    n_rounds: int = N_ROUNDS,
    situations: Sequence[Situation] = SITUATIONS,
    spins: Sequence[int | None] = SPINS,
    limit_seconds: float = LIMIT_SECONDS,
    engine_with: Callable[[int | None], Engine] | None = None,
) -> Waiting:
    """Measure a model in every situation; Linux with libgomp. Raises what the engine raises, time limits excepted."""
    start = engine_with or (lambda spin: LlamaEngine(limit_seconds, environment(spin)))
    settings = Settings(n_ctx=256, devices=(), flash_attn="on")
    work = _Work(path, settings, n_prompt, n_gen)
    with ExitStack() as stack:
        engines, beside = ({spin: stack.enter_context(closing(start(spin))) for spin in spins} for _ in range(2))
        opening = engines[spins[0]].open(path, settings)
        common = common_fields(engines[spins[0]], opening, read_gguf(path))
        cases = [case for situation in situations for case in _in(situation, work, engines, beside, n_rounds)]
    common["waiting"] = {}  # the cases say it, each its own
    return Waiting(**common, n_prompt=n_prompt, n_gen=n_gen, limit_seconds=limit_seconds, cases=tuple(cases))


@dataclass(frozen=True)
class _Work:
    """One pass: a prompt of random tokens and an answer, after a short pass that is not counted."""

    path: Path
    settings: Settings
    n_prompt: int
    n_gen: int

    def rates(self, engine: Engine) -> tuple[float | None, float | None]:
        """Tokens per second of prefill and decode; (None, None) without a result in time."""
        try:
            engine.open(self.path, self.settings)
            prompt = engine.random_prompt(self.n_prompt)
            engine.generate(prompt[:8], 2)
            done = engine.generate(prompt, self.n_gen)
        except EngineRefused:
            return None, None
        return self.n_prompt / done.prefill_seconds, len(done.decode_seconds) / sum(done.decode_seconds)


def _in(
    situation: Situation,
    work: _Work,
    engines: Mapping[int | None, Engine],
    beside: Mapping[int | None, Engine],
    n_rounds: int,
) -> list[Case]:
    """All rounds of one situation, in a new order each."""
    found: dict[int | None, list[tuple[float | None, float | None]]] = {spin: [] for spin in engines}
    with _neighbors(situation.n_neighbors):
        for number in track(range(n_rounds), n_rounds, situation.name):
            order = list(engines)
            random.Random(number).shuffle(order)
            for spin in order:
                with _computing(work, beside[spin]) if situation.n_workers > 1 else nullcontext():
                    found[spin].append(work.rates(engines[spin]))
    return [Case(situation.name, spin, *zip(*rates, strict=True)) for spin, rates in found.items()]


@contextmanager
def _neighbors(number: int) -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(number):
            stack.enter_context(Surrounding(neighbor_nice=0).neighbor())
        yield


@contextmanager
def _computing(work: _Work, engine: Engine) -> Iterator[None]:
    """Another worker that does the same work over and over while the block runs."""
    ended, began = threading.Event(), threading.Event()

    def repeat() -> None:
        while not ended.is_set():
            work.rates(engine)
            began.set()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        began.wait()
        yield
    finally:
        ended.set()
        thread.join()
