"""Tuning: the fastest settings for one model on one machine, and whether they are faster than the old ones.

Two stages that share no measurement. Successive halving (Jamieson and Talwalkar 2016) finds a winner: every candidate
is measured briefly, the faster half again and longer, until one is left. Then the winner and the original settings are
measured in pairs, one right after the other, in alternating order; only these pairs decide whether the winner is
faster or slower, by `statistics.verdict`. The best of many short measurements is partly luck, so the
numbers of the search are not used for that.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product, takewhile
from pathlib import Path
from statistics import median
from typing import Any

from inferlab.engine.protocol import Engine, Opening
from inferlab.engine.session import default_engine
from inferlab.errors import InferlabError, InvalidSettings
from inferlab.machine import Machine
from inferlab.measurement.base import Measurement, common_fields, with_context
from inferlab.measurement.turns import in_turns
from inferlab.model.find import find_model
from inferlab.model.gguf import read_gguf
from inferlab.options.lines import option_lines
from inferlab.progress import bar
from inferlab.settings import Settings
from inferlab.statistics import ENOUGH, FASTER, Comparison, compared

SEARCH_SHARE = 0.6  # of the budget; the rest is for the comparison in pairs
MOST_PAIRS = 10
LOSSY = ("type_k", "type_v")
UBATCHES = (64, 256, 1024)
PROGRAMS = ("llama-server", "llama-cpp-python", "ollama")
EVERY_LAYER = 999  # more than any model has; a program that counts layers offloads all of them
NAMES = tuple(field.name for field in fields(Settings))


@dataclass(frozen=True)
class Candidate:
    """Settings, given by their changes, and the seconds of each counted request; or the error of measuring them."""

    changes: dict[str, Any]
    seconds: tuple[float, ...] = ()
    error: str | None = None

    @property
    def median_seconds(self) -> float:
        """Median of the seconds; infinite if the candidate could not be measured."""
        return median(self.seconds) if self.seconds else float("inf")


@dataclass(frozen=True)
class RequestPair:
    """One request with the original settings and one with the winner's, measured right after each other, in seconds."""

    before_seconds: float
    after_seconds: float


@dataclass(frozen=True, kw_only=True)
class Tuning(Measurement):
    """The result of `tune`: original and winning settings, all measurements of the search, and the pairs.

    settings  the original settings, with the engine's own number of threads; buffers and links are theirs
    after     the winner's settings
    rounds    the candidates of each round of halving, each with the seconds of all its requests so far
    names     the options that were tried
    in_time   False if the budget ended the search, or the comparison in pairs, early
    """

    after: Settings
    names: tuple[str, ...]
    n_prompt: int
    n_gen: int
    rounds: tuple[tuple[Candidate, ...], ...]
    pairs: tuple[RequestPair, ...] = ()
    in_time: bool = True

    @property
    def summary(self) -> tuple[str, list[tuple[str, str]]]:
        """The verdict, and the settings to use as lines for three programs."""
        return self.verdict, list(self.lines.items())

    @property
    def changes(self) -> dict[str, Any]:
        """The options in which the winner differs, with its values."""
        return {n: getattr(self.after, n) for n in self.names if getattr(self.after, n) != getattr(self.settings, n)}

    @property
    def compared(self) -> Comparison:
        """Seconds before over seconds after, pair by pair: above 1 the winner is faster. It needs a pair."""
        return compared((pair.after_seconds for pair in self.pairs), (pair.before_seconds for pair in self.pairs))

    @property
    def better(self) -> bool:
        """Whether the winner of the search is faster, by the pairs."""
        return self.compared.verdict == FASTER

    @property
    def best(self) -> Settings:
        """The settings to use: the winner's if it is better, else the original ones."""
        return self.after if self.better else self.settings

    @property
    def lines(self) -> dict[str, str]:
        """The tuned options of `best` as lines for llama-server, llama-cpp-python and Ollama."""
        tuned = {name: getattr(self.best, name) for name in self.names if getattr(self.best, name) is not None}
        return {
            program: "\n".join(part.text for part in option_lines(tuned, program, self.model.file, EVERY_LAYER))
            for program in PROGRAMS
        }

    @property
    def finding(self) -> str:
        """Faster, Slower, No difference found, or Not judged with too few pairs: what they say of the winner."""
        return self.compared.verdict.capitalize() if self.compared.interval else "Not judged"

    @property
    def measured(self) -> str:
        """The ratio of the pairs and its interval in words; "" without pairs."""
        if not self.pairs:
            return ""
        ratio, n_pairs, (low, high) = self.compared.ratio, len(self.pairs), self.compared.ends
        if n_pairs < ENOUGH:
            return f"{ratio:.2f} times as fast, pairs {n_pairs} of the {ENOUGH} that are needed"
        return f"{ratio:.2f} times as fast in {n_pairs} pairs (95\u00a0% interval {low:.2f} to {high:.2f})"

    @property
    def verdict(self) -> str:
        """One sentence: faster or slower, by how much, or that no difference was found or judged."""
        if not self.changes:
            return "Nothing better found: of all candidates, the settings as they were did best."
        changes = ", ".join(f"{name}={value!r}" for name, value in self.changes.items())
        if not self.pairs:
            return f"Not judged: {changes} did best in the search, but no time was left to compare."
        return f"{self.finding}: with {changes}, {self.measured}."

    def __str__(self) -> str:
        early = [] if self.in_time else ["The budget ended this early; a larger one may find more."]
        return "\n".join([self.verdict, *early, "", *(f"{k}:\n  {_indented(v)}" for k, v in self.lines.items())])


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
    """Find the settings with the shortest time for a request of `n_prompt` and `n_gen` tokens on this machine.

    over      the options and values to try; None: those that do not change the output: threads, ubatch, flash
              attention, and with a device the layers on it
    lossy     also try, or allow in `over`, options that change the output: the types of the KV cache

    Use `better` and `compared` to judge the result; `lines` has it as one pastes it into three programs.
    Raises InvalidSettings for an option that does not exist, or that is lossy without `lossy`; ModelError; EngineError
    if the original settings cannot be measured.
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
        timer = _RequestTimer(engine, path, before, n_prompt, n_gen, budget_seconds)
        with bar(100, f"tuning {header.name}", progress) as timer.reached:
            rounds, halved = _successive_halving(timer, candidates(grid, before))
            pairs, paired = _compare_in_pairs(timer, rounds[-1][0].changes)
        common = common_fields(engine, timer.opening, header) | {"settings": before}
    return Tuning(
        **common,
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
    """The settings with the numbers of threads that the engine would choose, for comparison with candidates."""
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
    """The options and values to try, checked; the original value comes first."""
    grid = dict(over) if over is not None else _default_grid(before, machine, n_layer, n_prompt)
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


def _default_grid(before: Settings, machine: Machine, n_layer: int, n_prompt: int) -> dict[str, tuple[Any, ...]]:
    """Options that do not change the output, with few values each; ubatches beyond the prompt have no effect."""
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
    """Every combination, given by its changes to `before`; `before` itself, without changes, comes first."""
    combined = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    changed = [{n: v for n, v in values.items() if v != getattr(before, n)} for values in combined]
    return tuple(Candidate(changes) for changes in sorted(changed, key=len))


# --- measuring --------------------------------------------------------------------------------


class _RequestTimer:
    """Measures requests, and keeps count of the budget."""

    def __init__(
        self, engine: Engine, path: Path, before: Settings, n_prompt: int, n_gen: int, budget_seconds: float
    ) -> None:
        self.engine, self.path, self.before = engine, path, before
        self.n_prompt, self.n_gen = n_prompt, n_gen
        self.budget_seconds, self.began = budget_seconds, time.monotonic()
        self.slowest = 0.0  # seconds per request, opening included
        self.opening: Opening  # with the original settings, which are measured first
        self.reached = lambda percent: None

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def seconds(self, changes: Mapping[str, Any], repeats: int) -> tuple[float, ...]:
        """Seconds from the call to the last token of each request, after a warm-up request."""
        began = self.elapsed
        opening = self.engine.open(self.path, self.before.but(**changes))
        if not changes:
            self.opening = opening
        tokens = self.engine.random_prompt(self.n_prompt)
        self.engine.generate(tokens, self.n_gen)
        seconds = tuple(self.engine.generate(tokens, self.n_gen).token_seconds[-1] for _ in range(repeats))
        self.slowest = max(self.slowest, (self.elapsed - began) / (repeats + 1))
        self.reached(min(100, int(100 * self.elapsed / self.budget_seconds)))
        return seconds

    def has_time_for(self, longest: float, share: float = 1.0) -> bool:
        """Whether `longest` more seconds end within that share of the budget."""
        return self.elapsed + longest <= share * self.budget_seconds


def _successive_halving(
    timer: _RequestTimer, remaining: tuple[Candidate, ...]
) -> tuple[tuple[tuple[Candidate, ...], ...], bool]:
    """The rounds of successive halving, each sorted from the fastest, and whether the budget was enough.

    Each round measures its candidates as often as all rounds before it together; the faster half stays.
    """
    rounds: list[tuple[Candidate, ...]] = []
    repeats = 1
    while len(remaining) > 1 or not rounds:
        measured, complete = _round(timer, remaining, repeats, required=not rounds)
        rounds.append(tuple(sorted(measured, key=lambda candidate: candidate.median_seconds)))
        if not complete:
            return tuple(rounds), False
        remaining, repeats = rounds[-1][: max(1, len(remaining) // 2)], max(1, len(rounds[-1][0].seconds))
    return tuple(rounds), True


def _round(
    timer: _RequestTimer, remaining: tuple[Candidate, ...], repeats: int, required: bool
) -> tuple[list[Candidate], bool]:
    """The candidates with further measurements, until the budget ends; if `required`, the first one in any case."""
    done: list[Candidate] = []
    longest = 0.0
    for candidate in remaining:
        if not timer.has_time_for(longest, SEARCH_SHARE) and not (required and not done):
            return [*done, *remaining[len(done) :]], False
        began = timer.elapsed
        done.append(_measured(timer, candidate, repeats))
        longest = max(longest, timer.elapsed - began)
    return done, True


def _measured(timer: _RequestTimer, candidate: Candidate, repeats: int) -> Candidate:
    """The candidate with further seconds, or with its error; an error of the original settings is raised."""
    try:
        return replace(candidate, seconds=(*candidate.seconds, *timer.seconds(candidate.changes, repeats)))
    except InferlabError as error:
        if not candidate.changes:
            raise
        return replace(candidate, seconds=(), error=f"{type(error).__name__}: {error}")


def _compare_in_pairs(timer: _RequestTimer, changes: Mapping[str, Any]) -> tuple[tuple[RequestPair, ...], bool]:
    """Pairs of requests, before and after, in alternating order, and whether there was time for enough of them."""
    if not changes:
        return (), True
    in_time = takewhile(lambda _: timer.has_time_for(4 * timer.slowest), range(MOST_PAIRS))
    before, after = in_turns(lambda side: timer.seconds(side, 1)[0], ({}, changes), in_time)
    return tuple(map(RequestPair, before, after)), len(before) >= ENOUGH
