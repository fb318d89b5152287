"""Drafts and their checks on two cores: what a check costs, what is accepted, what decode gains, and what is predicted.

Position 1 is the first drafted token. A token is *tried* if every token before it in its draft was accepted; only then
does its own acceptance say something about the drafter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import median
from typing import NamedTuple

from inferlab.facts import cited_facts
from inferlab.measurement.base import Measurement
from inferlab.model.synthetic_model import shape
from inferlab.options.speculation import N_MAX, speculation_types
from inferlab.prediction.cost import bytes_read
from inferlab.prediction.speed import is_of_experts
from inferlab.records import load, load_all
from inferlab.statistics import Comparison, compared
from studies.speculation.bounds import least_acceptance, most_speedup, predicted_speedup
from studies.speculation.speculative import Round, Speculation, VerifyCost

PROSE, REPEATING, CODE = "prose", "repeating", "code"
PENALIZED = "prose, repetition penalized"
FEW_DRAFTED = 8
"""Drafted tokens an answer below which llama-server's own work for speculation is nearly all that differs."""
LENGTHS = 2, 4, 8, 64
"""Tokens in a pass of a mixture."""

Table = tuple[Sequence[str], Sequence[Sequence[str | int]]]


# --- the records ------------------------------------------------------------------------------


@dataclass(frozen=True)
class DraftedAnswer:
    """One answer, without the drafter and with it; seconds of decode in the engine.

    rounds           passes of the model by the number of tokens proposed for them, from 0
    tried, accepted  drafts in which the token at each position was tried, and in which it was accepted
    n_same           tokens that both answers have in common from the beginning
    n_repeated       tokens of the answer that follow the same four tokens as once before in the same answer
    checks           seconds of the passes by the number of tokens proposed for them; they add up to check_seconds
    """

    rounds: tuple[int, ...]
    tried: tuple[int, ...]
    accepted: tuple[int, ...]
    n_same: int
    n_repeated: int
    plain_seconds: float
    draft_seconds: float
    check_seconds: float
    checks: tuple[float, ...] = ()

    @property
    def n_proposed(self) -> int:
        """Tokens proposed."""
        return sum(n * rounds for n, rounds in enumerate(self.rounds))

    @property
    def speedup(self) -> float:
        """Seconds without the drafter over seconds with it."""
        return self.plain_seconds / (self.draft_seconds + self.check_seconds)


@dataclass(frozen=True)
class AcceptanceCase:
    """All answers to the prompts of one kind with one drafter."""

    text: str
    drafter: str
    answers: tuple[DraftedAnswer, ...]

    def acceptance(self, position: int) -> float:
        """Share of the tried tokens at this position, from 1, that were accepted."""
        tried = sum(answer.tried[position - 1] for answer in self.answers)
        return sum(answer.accepted[position - 1] for answer in self.answers) / tried

    @property
    def pooled(self) -> float:
        """Share of all tried tokens that were accepted, the a of a geometric draft."""
        return self._n_accepted / sum(sum(answer.tried) for answer in self.answers)

    @property
    def accepted_share(self) -> float:
        """Accepted tokens over proposed ones, as llama-server's log has it."""
        return self._n_accepted / sum(answer.n_proposed for answer in self.answers)

    @property
    def _n_accepted(self) -> int:
        return sum(sum(answer.accepted) for answer in self.answers)

    def check_cost(self, n_proposed: int, n_gen: int) -> float:
        """Cost of a pass with so many proposals while answers are written, in tokens without a drafter.

        The median over the answers that had such passes.
        """
        return median(
            answer.checks[n_proposed] / answer.rounds[n_proposed] / (answer.plain_seconds / (n_gen - 1))
            for answer in self.answers
            if answer.rounds[n_proposed]
        )

    def draft_cost(self, n_gen: int) -> float:
        """Cost of one proposed token, in tokens without a drafter: the median over the answers."""
        return median(
            answer.draft_seconds / answer.n_proposed / (answer.plain_seconds / (n_gen - 1)) for answer in self.answers
        )


@dataclass(frozen=True, kw_only=True)
class Acceptance(Measurement):
    """Every drafter on every kind of text."""

    n_draft: int
    n_prompt: int
    n_gen: int
    cases: tuple[AcceptanceCase, ...]


def by_position(rounds: Sequence[Round], n_draft: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """For each position of a draft, the rounds in which its token was tried and in which it was accepted.

    tried at k = rounds with proposed >= k and accepted >= k - 1,    accepted at k = rounds with accepted >= k
    """
    positions = range(1, n_draft + 1)
    tried = tuple(sum(round_.proposed >= k and round_.accepted >= k - 1 for round_ in rounds) for k in positions)
    return tried, tuple(sum(round_.accepted >= k for round_ in rounds) for k in positions)


@dataclass(frozen=True, kw_only=True)
class SpeculativeAnswers:
    """One kind of speculation; a number for each prompt, in the order of the prompts.

    plain_seconds, seconds  decode without speculation and with it
    n_drafted, n_accepted   tokens
    n_same                  tokens that both answers have in common from the beginning
    n_repeated              tokens of the plain answer that repeat it, as in `DraftedAnswer`
    """

    kind: str
    plain_seconds: tuple[float, ...]
    seconds: tuple[float, ...]
    n_drafted: tuple[int, ...]
    n_accepted: tuple[int, ...]
    n_same: tuple[int, ...]
    n_repeated: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class ServedCase(SpeculativeAnswers):
    """One kind of speculation on one task of the embedded model; every answer has the same number of tokens."""

    task: str

    @property
    def speedups(self) -> Comparison:
        """Seconds without speculation over seconds with it, pair by pair."""
        return compared(self.seconds, self.plain_seconds)


@dataclass(frozen=True, kw_only=True)
class ServedSpeculation(Measurement):
    """Every kind on every task."""

    made_with = "llama-server over HTTP"

    n_prompt: int
    n_gen: int
    cases: tuple[ServedCase, ...]


@cache
def shape_costs() -> dict[str, VerifyCost]:
    """What checks of the shape cost, by the kernels that multiply its weights."""
    return {kernels(costs): costs for costs in load_all("epyc-2c/verify-shape", VerifyCost)}


@cache
def by_chance() -> tuple[Speculation, ...]:
    """The shape with drafts that cost nothing and are accepted by chance."""
    return load_all("epyc-2c/fixed-acceptance", Speculation)


@cache
def accepted() -> Acceptance:
    """The embedded model with four drafters on three kinds of text."""
    return load("epyc-2c/acceptance", Acceptance)


@cache
def served() -> ServedSpeculation:
    """llama-server with each kind of speculation and without."""
    return load("epyc-2c/served-speculation", ServedSpeculation)


def kernels(measurement: VerifyCost | Speculation) -> str:
    """The kernels of a measurement, short enough for a legend."""
    return measurement.kernels_text.removesuffix(" from 8 tokens")


def interval_text(speedups: Comparison) -> str:
    """`1.02 (0.99 to 1.05)`: the median with its 95 % interval."""
    return "{:.2f} ({:.2f} to {:.2f})".format(speedups.ratio, *speedups.ends)


# --- the numbers of the page ------------------------------------------------------------------


def numbers() -> dict[str, float | int]:
    """The numbers of the page on speculation; shares and differences in percent."""
    return {
        **cost_numbers(),
        **reported_numbers(),
        **chance_numbers(),
        **acceptance_numbers(),
        **served_numbers(),
        **prediction_numbers(),
    }


def cost_numbers() -> dict[str, float | int]:
    """llama-server's types, and what its default of three proposals can gain by the cost of a check."""
    costs, types = shape_costs().values(), speculation_types().values()
    default = [most_speedup(each.cost(N_MAX + 1), N_MAX) for each in costs]
    return {
        "n_types": len(types),
        "n_without": sum(not each.needs_a_model for each in types),
        "most_default": max(default),
        "least_default": min(default),
        "n_turns": min(len(each.seconds[1]) for each in costs),
    }


def reported_numbers() -> dict[str, float]:
    """What a mixture can gain by its bytes, and what others reported, times as fast."""
    rates = {name: fact.value for name, fact in cited_facts("reported_drafts").items()}
    flash = {
        f"flash_{key}": rates[f"flash-{task}-{how}"] / rates[f"flash-{task}-plain"]
        for key, task, how in (
            ("one_least", "cpp", "one"),
            ("one_most", "summary", "one"),
            ("three_least", "explain", "three"),
            ("three_most", "summary", "three"),
        )
    }
    return {
        "mixture_limit": (N_MAX + 1) / mixture().more_bytes[N_MAX + 1],
        "dense_gain": rates["dense-one-proposal"] / rates["dense-plain"],
        "dense_most_cost": 2 * rates["dense-plain"] / rates["dense-one-proposal"],
        **flash,
    }


class Mixture(NamedTuple):
    """A pass over several tokens of a mixture whose tokens choose their experts at random, by its number of tokens.

    n_expert    experts in a layer
    woken       experts read in a layer: n_expert (1 - (1 - n_used / n_expert)^n)
    more_bytes  bytes read, in passes over one token
    """

    n_expert: int
    woken: dict[int, float]
    more_bytes: dict[int, float]


def mixture() -> Mixture:
    """Computed for Qwen3 30B A3B in Q4_K_M."""
    model = shape("qwen3-30b-a3b", "Q4_K_M")
    read = bytes_read(model)
    of_experts = sum(read[tensor.name] for tensor in model.tensors if is_of_experts(tensor))
    rest = sum(read.values()) - of_experts
    n_expert, n_used = model.number("expert_count"), model.number("expert_used_count")
    woken = {n: n_expert * (1 - (1 - n_used / n_expert) ** n) for n in LENGTHS}
    more = {n: (rest + of_experts * woken[n] / n_used) / (rest + of_experts) for n in LENGTHS}
    return Mixture(n_expert, woken, more)


def chance_numbers() -> dict[str, float | int]:
    """A perfect and free drafter, without repacked weights."""
    perfect = {run.n_draft: run for run in by_chance() if not run.settings.use_extra_bufts and run.acceptance == 1}
    low, high = perfect[1].speedups.ends
    largest = max(perfect.values(), key=lambda run: run.speedup)
    return {
        "one_token": perfect[1].speedup,
        "one_token_low": low,
        "one_token_high": high,
        "three_tokens": perfect[3].speedup,
        "largest_n": largest.n_draft,
        "largest": largest.speedup,
    }


def acceptance_numbers() -> dict[str, float | int]:
    """Drafts of the embedded model by position, and how much its answers repeat themselves."""
    record = accepted()
    repeated = {case.text: [answer.n_repeated for answer in case.answers] for case in record.cases}
    return {
        "n_draft": record.n_draft,
        "n_answers": len(record.cases[0].answers),
        "n_gen": record.n_gen,
        # percent of the tokens of the median answer that repeat it; the first five cannot, and drafters change none
        **{f"repeated_{text}": 100 * median(repeated[text]) / (record.n_gen - 5) for text in (PROSE, CODE)},
    }


def again_numbers() -> dict[str, float | int | str]:
    """What the same drafts gave when they were repeated with threads that spin for a bounded time.

    again_equal      answers whose rounds drafted and accepted as before, of the prompts that are still the same
    first_cost, again_cost  of a proposal of a copy, in tokens: the median over copies and kinds of text
    again_lost       copies and kinds of text whose median answer took longer than without a drafter
    """
    before, again = accepted(), load("epyc-2c/acceptance-again", Acceptance)
    pairs = [pair for pair in zip(before.cases, again.cases, strict=True) if pair[0].text != CODE]
    answers = [both for pair in pairs for both in zip(*(case.answers for case in pair), strict=True)]
    copies = [pair for pair in zip(before.cases, again.cases, strict=True) if pair[0].drafter.startswith("copy")]
    first, second = (median(pair[side].draft_cost(before.n_gen) for pair in copies) for side in (0, 1))
    return {
        "again_date": again.date,
        "again_answers": len(answers),
        "again_equal": sum((old.rounds, old.accepted) == (new.rounds, new.accepted) for old, new in answers),
        "first_cost": first,
        "again_cost": second,
        "again_copies": len(copies),
        "again_lost": sum(median(answer.speedup for answer in pair[1].answers) < 1 for pair in copies),
    }


def served_numbers() -> dict[str, float | int]:
    """llama-server with speculation against plain decode."""
    record = served()
    few = [case for case in record.cases if sum(case.n_drafted) < FEW_DRAFTED * len(case.n_drafted)]
    of_few = Comparison(tuple(ratio for case in few for ratio in case.speedups.ratios))
    cached = [case for case in record.cases if case.kind == "ngram-cache"]
    return {
        "few_speedup": of_few.ratio,
        "few_low": of_few.ends[0],
        "few_high": of_few.ends[1],
        "cache_share": 100 * sum(sum(case.n_accepted) for case in cached) / sum(sum(case.n_drafted) for case in cached),
    }


class Predicted(NamedTuple):
    """A case whose speed-up is predicted from every second answer, and measured in the others.

    draft_cost, check_cost  of a proposal and of the longest check in the run, in tokens without a drafter
    limit                   the most that any acceptance can gain
    alone, in_run           predicted with the cost of passes timed alone, and with that of the checks in the run
    measured                speed-ups of the other answers
    """

    drafter: str
    text: str
    draft_cost: float
    check_cost: float
    limit: float
    alone: float
    in_run: float
    measured: Comparison

    @property
    def speedup(self) -> float:
        """The median of those measured."""
        return self.measured.ratio


@cache
def embedded_costs() -> VerifyCost:
    """What checks of the embedded model cost, timed alone, in the type that the drafters were measured with."""
    file = accepted().model.file
    return next(costs for costs in load_all("epyc-2c/verify-tiny", VerifyCost) if costs.model.file == file)


def predictions() -> list[Predicted]:
    """Every drafter on every kind of text."""
    return list(map(_predicted, accepted().cases))


def _predicted(case: AcceptanceCase) -> Predicted:
    known, n_draft, n_gen = replace(case, answers=case.answers[::2]), accepted().n_draft, accepted().n_gen
    rounds = [sum(answer.rounds[n] for answer in known.answers) for n in range(n_draft + 1)]
    costs, cost, a = embedded_costs(), known.draft_cost(n_gen), known.pooled
    return Predicted(
        drafter=case.drafter,
        text=case.text,
        draft_cost=cost,
        check_cost=known.check_cost(n_draft, n_gen),
        limit=most_speedup(costs.cost(n_draft + 1), n_draft, cost),
        alone=predicted_speedup(costs.cost, rounds, a, cost),
        in_run=predicted_speedup(lambda n: known.check_cost(n - 1, n_gen), rounds, a, cost),
        measured=Comparison(tuple(answer.speedup for answer in case.answers[1::2])),
    )


def prediction_numbers() -> dict[str, float | int]:
    """Predicted speed-ups against measured ones."""
    cases = predictions()
    must_lose = [case.speedup for case in cases if case.limit <= 1]
    return {
        "median_off": 100 * median(abs(case.in_run / case.speedup - 1) for case in cases),
        "alone_off": 100 * median(abs(case.alone / case.speedup - 1) for case in cases),
        "n_must_lose": len(must_lose),
        "n_lost": sum(value < 1 for value in must_lose),
        "n_predicted": len(cases),
        "n_sides": sum((case.in_run > 1) == (case.speedup > 1) for case in cases),
        "n_below_limit": sum(case.speedup <= case.limit for case in cases),
        "v_alone": embedded_costs().cost(9),
        "v_in_run": median(case.check_cost for case in cases),
    }


# --- its tables: heads and rows ---------------------------------------------------------------


def costs_table() -> Table:
    """For each kernel, the cost of passes over several tokens."""
    sizes = 2, 4, 9, 16, 17
    heads = "kernels", *(f"v({n})" for n in sizes)
    return heads, [(name, *(f"{costs.cost(n):.2f}" for n in sizes)) for name, costs in shape_costs().items()]


def mixture_table() -> Table:
    """For passes over several tokens of a mixture, the experts and bytes read, and the cost that was reported."""
    read, facts = mixture(), cited_facts("reported_drafts")
    reported = {n: n * facts["mixture-pass-1"].value / facts[f"mixture-pass-{n}"].value for n in (2, 4, 8)}
    return ("tokens in the pass", *map(str, LENGTHS)), [
        (f"experts read in a layer, of {read.n_expert}", *(f"{read.woken[n]:.0f}" for n in LENGTHS)),
        ("bytes read, in passes over one token", *(f"{read.more_bytes[n]:.2f}" for n in LENGTHS)),
        ("v(n), reported", *(f"{reported[n]:.2f}" if n in reported else "–" for n in LENGTHS)),
    ]


def positions_table() -> Table:
    """For each drafter on prose, the share of tried tokens that were accepted, by position."""
    cases = [case for case in accepted().cases if case.text == PROSE]
    heads = "drafter", "1st, %", "2nd", "4th", "8th", "all tried", "all proposed"
    shares = [[*map(case.acceptance, (1, 2, 4, 8)), case.pooled, case.accepted_share] for case in cases]
    return heads, [
        (case.drafter, *(f"{100 * share:.0f}" for share in row)) for case, row in zip(cases, shares, strict=True)
    ]


def served_table() -> Table:
    """For each kind of speculation, the speed-up of decode on each task."""
    tasks = REPEATING, PROSE, PENALIZED
    rows: dict[str, dict[str, str]] = {}
    for case in served().cases:
        text = "{:.2f} ({:.2f}–{:.2f})".format(case.speedups.ratio, *case.speedups.ends)
        rows.setdefault(case.kind, {})[case.task] = text
    return ("type", *tasks), [(kind, *map(texts.__getitem__, tasks)) for kind, texts in rows.items()]


def bounds_table() -> Table:
    """For each kernel, the least acceptance with which a draft of some lengths and costs pays."""
    drafts = ((1, 0.0), (3, 0.0), (8, 0.0), (15, 0.0), (3, 0.1), (8, 0.1))
    heads = "kernels", *(f"{n} at {cost}" if cost else f"{n} free" for n, cost in drafts)
    rows = []
    for name, costs in shape_costs().items():
        least = [least_acceptance(costs.cost(n_draft + 1), n_draft, draft_cost) for n_draft, draft_cost in drafts]
        rows.append((name, *("never" if share is None else f"{100 * share:.0f} %" for share in least)))
    return heads, rows


def chance_table() -> Table:
    """For each draft that is accepted by chance, its limit, the speed-up computed, and the one measured."""
    heads = "kernels", "proposals", "accepted", "limit", "computed", "measured"
    rows: list[Sequence[str | int]] = []
    for run in by_chance():
        costs, n_draft = shape_costs()[kernels(run)], run.n_draft
        tried, hit = by_position([step for rounds in run.rounds for step in rounds], n_draft)
        a = sum(hit) / sum(tried)
        speedups = most_speedup(costs.cost(n_draft + 1), n_draft), costs.speedup(a, n_draft)
        texts = (f"{speedup:.2f}" for speedup in speedups)
        rows.append((kernels(run), n_draft, f"{100 * a:.0f} %", *texts, interval_text(run.speedups)))
    return heads, rows


def predicted_table() -> Table:
    """For each drafter and text, the cost of a proposal, the limit, the speed-ups predicted, and the one measured."""
    heads = "drafter", "text", "d", "limit", "predicted", "with v in the run", "measured"
    return heads, [
        (
            case.drafter,
            case.text,
            *(f"{value:.2f}" for value in (case.draft_cost, case.limit, case.alone)),
            f"{case.in_run:.2f} (v = {case.check_cost:.2f})",
            interval_text(case.measured),
        )
        for case in predictions()
    ]
