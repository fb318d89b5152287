"""The best settings for one model on one machine, and how sure it is that they are better than the ones before.

Two halves that share no measurement. Successive halving (Jamieson and Talwalkar 2016) looks for a winner: every
candidate is measured briefly, the better half again and longer, until one is left. Then the winner meets the settings
it started from in pairs, one right after the other, in changing order; only these pairs say whether it is better.
The best of many short measurements looks better than it is, so the search's own numbers are never the answer.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from inferlab.engine.option_names import spellings
from inferlab.engine.protocol import Engine, Opening
from inferlab.engine.session import default_engine
from inferlab.errors import InferlabError, InvalidSettings
from inferlab.machine import Machine
from inferlab.measurement.base import Measurement, common_fields, with_context
from inferlab.model.find import find_model
from inferlab.model.gguf import read_gguf
from inferlab.progress import bar
from inferlab.settings import Settings
from inferlab.statistics import CONFIDENCE, median_interval, sign_confidence

SEARCH_SHARE = 0.6  # of the budget; the rest is for the pairs
LEAST_PAIRS, MOST_PAIRS = 5, 10  # five of five is the fewest that can reach 95 %
LOSSY = ("type_k", "type_v")
UBATCHES = (64, 256, 1024)
NAMES = tuple(field.name for field in fields(Settings))


@dataclass(frozen=True)
class Candidate:
    """Some settings by what they change, and the seconds of each counted request; or the reason why there are none."""

    changes: dict[str, Any]
    seconds: tuple[float, ...] = ()
    error: str | None = None

    @property
    def median_seconds(self) -> float:
        """Infinite for what could not be measured."""
        return median(self.seconds) if self.seconds else float("inf")


@dataclass(frozen=True)
class Pair:
    """One request with the settings before and one with the winner's, measured right after each other, in seconds."""

    before_seconds: float
    after_seconds: float

    @property
    def ratio(self) -> float:
        """How many times as fast the winner was."""
        return self.before_seconds / self.after_seconds


@dataclass(frozen=True, kw_only=True)
class Tuning(Measurement):
    """What `tune` found: the settings before and after, every measurement that led there, and the pairs that judge.

    settings  the settings before, with the engine's own number of threads; buffers and links are theirs
    after     the winner's
    rounds    the candidates of each round of halving, each with the seconds of all its requests up to then
    names     the options that were tried
    in_time   False when the budget ended the search, or the pairs, early
    """

    after: Settings
    names: tuple[str, ...]
    n_prompt: int
    n_gen: int
    rounds: tuple[tuple[Candidate, ...], ...]
    pairs: tuple[Pair, ...] = ()
    in_time: bool = True

    @property
    def changes(self) -> dict[str, Any]:
        """The options in which the winner differs, with its values."""
        return {n: getattr(self.after, n) for n in self.names if getattr(self.after, n) != getattr(self.settings, n)}

    @property
    def ratio(self) -> float | None:
        """How many times as fast the winner answers, the median over the pairs; None without pairs."""
        return median(pair.ratio for pair in self.pairs) if self.pairs else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The bootstrap 95 % interval of `ratio`; None below ten pairs."""
        return median_interval([pair.ratio for pair in self.pairs])

    @property
    def confidence(self) -> float | None:
        """Confidence that the winner is faster at all, by the exact sign test over the pairs; None without any."""
        return sign_confidence([pair.before_seconds - pair.after_seconds for pair in self.pairs])

    @property
    def better(self) -> bool:
        """Whether the pairs leave less than 5 % to chance."""
        return (self.confidence or 0) >= CONFIDENCE

    @property
    def best(self) -> Settings:
        """What to use: the winner where it is better, else the settings as they were."""
        return self.after if self.better else self.settings

    @property
    def spellings(self) -> dict[str, str]:
        """`best` for llama.cpp's server, llama-cpp-python and Ollama."""
        return spellings(self.best, self.names, self.model.file)

    @property
    def verdict(self) -> str:
        """One sentence: better by how much and how surely, or that no difference was found."""
        if not self.changes:
            return "No difference found: of all candidates, the settings as they were did best."
        told = ", ".join(f"{name}={value!r}" for name, value in self.changes.items())
        if self.ratio is None:
            return f"Not judged: {told} did best in the search, but no time was left to compare."
        sure = f"{self.ratio:.2f} times as fast in {len(self.pairs)} pairs, confidence {self.confidence or 0:.1%}"
        return f"Better: {told}: {sure}." if self.better else f"No difference found: {told}: {sure}."

    def __str__(self) -> str:
        early = [] if self.in_time else ["The budget ended this early; a larger one may find more."]
        return "\n".join([self.verdict, *early, "", *(f"{k}:\n  {_indented(v)}" for k, v in self.spellings.items())])


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def tune(
    model: str | Path | None = None,
    settings: Settings | None = None,
    budget_seconds: float = 120,
    over: Mapping[str, Sequence[Any]] | None = None,
    n_prompt: int = 256,
    n_gen: int = 32,
    lossy: bool = False,
    engine: Engine | None = None,
    progress: bool | None = None,
) -> Tuning:
    """The settings that answer a request of `n_prompt` and `n_gen` tokens soonest here, and how sure that is.

    over      the options and values to try; without it those that leave the text alone: threads, ubatch, flash
              attention, and with a device the layers on it
    lossy     also try, or allow in `over`, what changes the model's output: the types of the cache

    Judge it by `better` and `confidence`; `spellings` says the result in the words of three programs.
    Raises InvalidSettings for an option that does not exist, or that is lossy without `lossy`; ModelError; EngineError
    where the settings one starts from cannot be measured.
    """
    engine, before = engine or default_engine(), settings or Settings()
    if not budget_seconds > 0:
        raise InvalidSettings(f"budget_seconds={budget_seconds!r} must be more than 0.")
    path = find_model(model)
    header = read_gguf(path)
    with engine.exclusive():
        machine = engine.machine()
        before = _with_threads(with_context(before, n_prompt, n_gen), machine)
        grid = _grid(over, before, machine, header.n_layer, n_prompt, lossy)
        bench = _Bench(engine, path, before, n_prompt, n_gen, budget_seconds)
        with bar(100, f"tuning {header.name}", progress) as bench.reached:
            rounds, halved = _halved(bench, candidates(grid, before))
            pairs, paired = _paired(bench, rounds[-1][0].changes)
        facts = common_fields(engine, bench.opening, header) | {"settings": before}
    return Tuning(
        **facts,
        after=before.but(**rounds[-1][0].changes),
        names=tuple(grid),
        n_prompt=n_prompt,
        n_gen=n_gen,
        rounds=rounds,
        pairs=pairs,
        in_time=halved and paired,
    )


# --- candidates -------------------------------------------------------------------------------


def _with_threads(settings: Settings, machine: Machine) -> Settings:
    """The settings with the numbers of threads that the engine would choose, so that they can be compared."""
    n_threads = settings.n_threads or machine.n_cores or 1
    return settings.but(n_threads=n_threads, n_threads_batch=settings.n_threads_batch or n_threads)


def _grid(
    over: Mapping[str, Sequence[Any]] | None,
    before: Settings,
    machine: Machine,
    n_layer: int,
    n_prompt: int,
    lossy: bool,
) -> dict[str, tuple[Any, ...]]:
    """The options and values to try, checked; the value that is set already comes first."""
    grid = dict(over) if over is not None else _usual(before, machine, n_layer, n_prompt)
    if lossy and over is None:
        grid |= {name: ("f16", "q8_0") for name in LOSSY}
    for name, values in grid.items():
        if name not in NAMES:
            raise InvalidSettings(f"There is no option {name!r} to tune. There are: {', '.join(NAMES)}.")
        if name in LOSSY and not lossy:
            raise InvalidSettings(f"{name} changes what the model says; ask for that with lossy=True.")
        if isinstance(values, str) or not tuple(values):
            raise InvalidSettings(f"over={{{name!r}: {values!r}}} must be a list of values, of at least one.")
    return {name: tuple(dict.fromkeys((getattr(before, name), *values))) for name, values in grid.items()}


def _usual(before: Settings, machine: Machine, n_layer: int, n_prompt: int) -> dict[str, tuple[Any, ...]]:
    """Options that leave the text alone, with few values each; ubatches beyond the prompt would all be the same."""
    cores = machine.n_cores or 1
    largest = min(before.n_ubatch, n_prompt)
    grid: dict[str, tuple[Any, ...]] = {
        "n_threads": tuple(sorted({max(1, cores // 4), max(1, cores // 2), cores})),
        "n_ubatch": tuple(size for size in UBATCHES if size < largest or before.n_ubatch < size <= n_prompt),
        "flash_attn": ("off",) if before.flash_attn == "auto" else ("on", "off"),
    }
    if machine.gpus or before.rpc_servers:
        grid["n_gpu_layers"] = (-1, (n_layer + 1) // 2, 0)
    return {name: values or (getattr(before, name),) for name, values in grid.items()}


def candidates(grid: Mapping[str, Sequence[Any]], before: Settings) -> tuple[Candidate, ...]:
    """Every combination by what it changes in `before`, which comes first as the one that changes nothing."""
    combined = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    changed = [{n: v for n, v in one.items() if v != getattr(before, n)} for one in combined]
    return tuple(Candidate(changes) for changes in sorted(changed, key=len))


# --- measuring --------------------------------------------------------------------------------


class _Bench:
    """Times requests within a budget."""

    def __init__(
        self, engine: Engine, path: Path, before: Settings, n_prompt: int, n_gen: int, budget_seconds: float
    ) -> None:
        self.engine, self.path, self.before = engine, path, before
        self.n_prompt, self.n_gen = n_prompt, n_gen
        self.budget_seconds, self.began = budget_seconds, time.monotonic()
        self.slowest = 0.0  # seconds of a request, opening shared out
        self.opening: Opening | None = None  # of the settings before
        self.reached = lambda percent: None

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def seconds(self, changes: Mapping[str, Any], repeats: int) -> tuple[float, ...]:
        """Seconds from the call to the last token of each request, after one that is not counted."""
        began = self.elapsed
        opening = self.engine.open(self.path, self.before.but(**changes))
        if not changes:
            self.opening = opening
        tokens = self.engine.random_prompt(self.n_prompt)
        self.engine.generate(tokens, self.n_gen)
        found = tuple(self.engine.generate(tokens, self.n_gen).token_seconds[-1] for _ in range(repeats))
        self.slowest = max(self.slowest, (self.elapsed - began) / (repeats + 1))
        self.reached(min(100, int(100 * self.elapsed / self.budget_seconds)))
        return found

    def affords(self, longest: float, share: float = 1.0) -> bool:
        """Whether something that lasts `longest` seconds ends within that share of the budget."""
        return self.elapsed + longest <= share * self.budget_seconds


def _halved(bench: _Bench, waiting: tuple[Candidate, ...]) -> tuple[tuple[tuple[Candidate, ...], ...], bool]:
    """The rounds of halving, each sorted from the fastest, and whether the budget let them end.

    Each round measures its candidates as often as all rounds before it together, and hands on the better half.
    """
    rounds: list[tuple[Candidate, ...]] = []
    repeats = 1
    while len(waiting) > 1 or not rounds:
        measured, complete = _round(bench, waiting, repeats, required=not rounds)
        rounds.append(tuple(sorted(measured, key=lambda one: one.median_seconds)))
        if not complete:
            return tuple(rounds), False
        waiting, repeats = rounds[-1][: max(1, len(waiting) // 2)], max(1, len(rounds[-1][0].seconds))
    return tuple(rounds), True


def _round(
    bench: _Bench, waiting: tuple[Candidate, ...], repeats: int, required: bool
) -> tuple[list[Candidate], bool]:
    """The candidates measured further, as far as the budget goes; if `required`, the first one in any case."""
    done: list[Candidate] = []
    longest = 0.0
    for one in waiting:
        if not bench.affords(longest, SEARCH_SHARE) and not (required and not done):
            return [*done, *waiting[len(done) :]], False
        began = bench.elapsed
        done.append(_measured(bench, one, repeats))
        longest = max(longest, bench.elapsed - began)
    return done, True


def _measured(bench: _Bench, one: Candidate, repeats: int) -> Candidate:
    """The candidate with further seconds; one that fails keeps the reason, unless it changes nothing."""
    try:
        return replace(one, seconds=(*one.seconds, *bench.seconds(one.changes, repeats)))
    except InferlabError as error:
        if not one.changes:
            raise
        return replace(one, seconds=(), error=f"{type(error).__name__}: {error}")


def _paired(bench: _Bench, changes: Mapping[str, Any]) -> tuple[tuple[Pair, ...], bool]:
    """Pairs of requests, before and after, in changing order, and whether there was time for enough of them."""
    pairs: list[Pair] = []
    while changes and len(pairs) < MOST_PAIRS and bench.affords(4 * bench.slowest):
        pairs.append(_pair(bench, changes, swapped=len(pairs) % 2 == 1))
    return tuple(pairs), not changes or len(pairs) >= LEAST_PAIRS


def _pair(bench: _Bench, changes: Mapping[str, Any], swapped: bool) -> Pair:
    if swapped:
        after, before = bench.seconds(changes, 1)[0], bench.seconds({}, 1)[0]
    else:
        before, after = bench.seconds({}, 1)[0], bench.seconds(changes, 1)[0]
    return Pair(before, after)
