"""Drafts and their checks on two cores: what a check costs, what is accepted, what decode gains, and what is predicted.

Position 1 is the first drafted token. A token is *tried* if every token before it in its draft was accepted; only then
does its own acceptance say something about the drafter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple

from inferlab.facts import cited_facts
from inferlab.measurement.base import Measurement
from inferlab.model.synthetic_model import shape
from inferlab.options.speculation import N_MAX, speculation_types
from inferlab.prediction.cost import bytes_read
from inferlab.prediction.speed import is_of_experts
from inferlab.records import load
from inferlab.statistics import FASTER, SLOWER, UNDECIDED, median_interval, verdict
from studies.speculation.bounds import least_acceptance, most_speedup, predicted_speedup
from studies.speculation.speculative import Round, Speculation, VerifyCost

PROSE, REPEATING, CODE = "prose", "repeating", "code"
PENALIZED = "prose, repetition penalized"
FEW_DRAFTED = 8
"""Drafted tokens an answer below which llama-server's own work for speculation is nearly all that differs."""
LENGTHS = 2, 4, 8, 64
"""Tokens in a pass of a mixture."""

Table = tuple[Sequence[str], list[Sequence[str]]]


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
        tried = sum(one.tried[position - 1] for one in self.answers)
        return sum(one.accepted[position - 1] for one in self.answers) / tried

    @property
    def pooled(self) -> float:
        """Share of all tried tokens that were accepted, the a of a geometric draft."""
        return self._n_accepted / sum(sum(one.tried) for one in self.answers)

    @property
    def accepted_share(self) -> float:
        """Accepted tokens over proposed ones, as llama-server's log has it."""
        return self._n_accepted / sum(one.n_proposed for one in self.answers)

    @property
    def _n_accepted(self) -> int:
        return sum(sum(one.accepted) for one in self.answers)

    def check_cost(self, n_proposed: int, n_gen: int) -> float:
        """Cost of a pass with so many proposals while answers are written, in tokens without a drafter.

        The median over the answers that had such passes.
        """
        return median(
            one.checks[n_proposed] / one.rounds[n_proposed] / (one.plain_seconds / (n_gen - 1))
            for one in self.answers
            if one.rounds[n_proposed]
        )

    def draft_cost(self, n_gen: int) -> float:
        """Cost of one proposed token, in tokens without a drafter: the median over the answers."""
        return median(one.draft_seconds / one.n_proposed / (one.plain_seconds / (n_gen - 1)) for one in self.answers)


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
    tried = tuple(sum(one.proposed >= k and one.accepted >= k - 1 for one in rounds) for k in positions)
    return tried, tuple(sum(one.accepted >= k for one in rounds) for k in positions)


@dataclass(frozen=True)
class ServedCase:
    """One kind of speculation on one task; a number for each prompt, in the order of the prompts.

    plain_seconds, seconds  decode without speculation and with it
    n_drafted, n_accepted   tokens
    n_same                  tokens that both answers have in common from the beginning
    n_repeated              tokens of the plain answer that repeat it, as in `DraftedAnswer`
    """

    kind: str
    task: str
    plain_seconds: tuple[float, ...]
    seconds: tuple[float, ...]
    n_drafted: tuple[int, ...]
    n_accepted: tuple[int, ...]
    n_same: tuple[int, ...]
    n_repeated: tuple[int, ...]

    @property
    def speedups(self) -> tuple[float, ...]:
        """Seconds without speculation over seconds with it, pair by pair."""
        return tuple(plain / one for plain, one in zip(self.plain_seconds, self.seconds, strict=True))

    @property
    def verdict(self) -> str:
        """Whether speculation made decode FASTER or SLOWER, or UNDECIDED."""
        return verdict(median_interval(self.speedups))


@dataclass(frozen=True, kw_only=True)
class ServedSpeculation(Measurement):
    """Every kind on every task."""

    made_with = "llama-server over HTTP"

    n_prompt: int
    n_gen: int
    cases: tuple[ServedCase, ...]

    def of(self, kind: str, task: str) -> ServedCase:
        """One case."""
        return next(one for one in self.cases if (one.kind, one.task) == (kind, task))


def shape_costs() -> dict[str, VerifyCost]:
    """What checks of the shape cost, by the kernels that multiply its weights."""
    return {kernels(one): one for one in load("epyc-2c/verify-shape", VerifyCost)}


def by_chance() -> tuple[Speculation, ...]:
    """The shape with drafts that cost nothing and are accepted by chance."""
    return load("epyc-2c/fixed-acceptance", Speculation)


def accepted() -> Acceptance:
    """The embedded model with four drafters on three kinds of text."""
    return load("epyc-2c/acceptance", Acceptance)


def served() -> ServedSpeculation:
    """llama-server with each kind of speculation and without."""
    return load("epyc-2c/served-speculation", ServedSpeculation)


def kernels(one: VerifyCost | Speculation) -> str:
    """The kernels of a measurement, short enough for a legend."""
    return one.kernels_text.removesuffix(" from 8 tokens")


def interval_text(values: Sequence[float]) -> str:
    """`1.02 (0.99 to 1.05)`: the median with its 95 % interval."""
    low, high = median_interval(values)
    return f"{median(values):.2f} ({low:.2f} to {high:.2f})"


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
    default = [most_speedup(one.cost(N_MAX + 1), N_MAX) for one in costs]
    return {
        "n_types": len(types),
        "n_without": sum(not one.needs_a_model for one in types),
        "most_default": max(default),
        "least_default": min(default),
        "n_turns": min(len(one.seconds[1]) for one in costs),
    }


def reported_numbers() -> dict[str, float]:
    """What a mixture can gain by its bytes, and what others reported, times as fast."""
    found = {name: fact.value for name, fact in cited_facts("reported_drafts").items()}
    flash = {
        f"flash_{key}": found[f"flash-{task}-{how}"] / found[f"flash-{task}-plain"]
        for key, task, how in (
            ("one_least", "cpp", "one"),
            ("one_most", "summary", "one"),
            ("three_least", "explain", "three"),
            ("three_most", "summary", "three"),
        )
    }
    return {
        "mixture_limit": (N_MAX + 1) / mixture().more_bytes[N_MAX + 1],
        "dense_gain": found["dense-one-proposal"] / found["dense-plain"],
        "dense_most_cost": 2 * found["dense-plain"] / found["dense-one-proposal"],
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
    perfect = {one.n_draft: one for one in by_chance() if not one.settings.use_extra_bufts and one.acceptance == 1}
    low, high = median_interval(perfect[1].speedups)
    largest = max(perfect.values(), key=lambda one: one.speedup)
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
    found = accepted()
    lookups = [one for one in found.cases if one.drafter.startswith("lookup")]
    return {
        "n_draft": found.n_draft,
        "n_answers": len(found.cases[0].answers),
        "n_gen": found.n_gen,
        "lookup_rise": sum(one.acceptance(2) > one.acceptance(1) for one in lookups),
        "n_lookups": len(lookups),
        **{f"repeated_{text}": _repeated(found, text) for text in (PROSE, CODE)},
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
        "again_equal": sum((one.rounds, one.accepted) == (two.rounds, two.accepted) for one, two in answers),
        "first_cost": first,
        "again_cost": second,
        "again_copies": len(copies),
        "again_lost": sum(median(answer.speedup for answer in pair[1].answers) < 1 for pair in copies),
    }


def _repeated(found: Acceptance, text: str) -> float:
    """Percent of the tokens of the median answer that repeat it; the first five cannot. The drafter changes none."""
    case = next(one for one in found.cases if one.text == text)
    return 100 * median(one.n_repeated for one in case.answers) / (found.n_gen - 5)


def served_numbers() -> dict[str, float | int]:
    """llama-server with speculation against plain decode."""
    found = served()
    verdicts = [one.verdict for one in found.cases]
    few = [one for one in found.cases if sum(one.n_drafted) < FEW_DRAFTED * len(one.n_drafted)]
    pairs = [value for one in few for value in one.speedups]
    low, high = median_interval(pairs)
    cached = [one for one in found.cases if one.kind == "ngram-cache"]
    return {
        "n_pairs": len(found.cases[0].seconds),
        "served_prompt": found.n_prompt,
        "served_gen": found.n_gen,
        "n_same": sum(n == found.n_gen for one in found.cases for n in one.n_same),
        "n_all": sum(len(one.n_same) for one in found.cases),
        "n_faster": verdicts.count(FASTER),
        "n_slower": verdicts.count(SLOWER),
        "n_undecided": verdicts.count(UNDECIDED),
        "n_cases": len(verdicts),
        "n_few": len(few),
        "few_speedup": median(pairs),
        "few_low": low,
        "few_high": high,
        "cache_share": 100 * sum(sum(one.n_accepted) for one in cached) / sum(sum(one.n_drafted) for one in cached),
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
    measured: tuple[float, ...]

    @property
    def speedup(self) -> float:
        """The median of those measured."""
        return median(self.measured)


def embedded_costs() -> VerifyCost:
    """What checks of the embedded model cost, timed alone, in the type that the drafters were measured with."""
    file = accepted().model.file
    return next(one for one in load("epyc-2c/verify-tiny", VerifyCost) if one.model.file == file)


def predictions() -> list[Predicted]:
    """Every drafter on every kind of text."""
    found, costs = accepted(), embedded_costs()
    return [_predicted(one, found.n_draft, found.n_gen, costs) for one in found.cases]


def _predicted(one: AcceptanceCase, n_draft: int, n_gen: int, costs: VerifyCost) -> Predicted:
    known = replace(one, answers=one.answers[::2])
    rounds = [sum(answer.rounds[n] for answer in known.answers) for n in range(n_draft + 1)]
    cost, a = known.draft_cost(n_gen), known.pooled
    return Predicted(
        drafter=one.drafter,
        text=one.text,
        draft_cost=cost,
        check_cost=known.check_cost(n_draft, n_gen),
        limit=most_speedup(costs.cost(n_draft + 1), n_draft, cost),
        alone=predicted_speedup(costs.cost, rounds, a, cost),
        in_run=predicted_speedup(lambda n: known.check_cost(n - 1, n_gen), rounds, a, cost),
        measured=tuple(answer.speedup for answer in one.answers[1::2]),
    )


def prediction_numbers() -> dict[str, float | int]:
    """Predicted speed-ups against measured ones."""
    found = predictions()
    must_lose = [one.speedup for one in found if one.limit <= 1]
    return {
        "median_off": 100 * median(abs(one.in_run / one.speedup - 1) for one in found),
        "alone_off": 100 * median(abs(one.alone / one.speedup - 1) for one in found),
        "n_must_lose": len(must_lose),
        "n_lost": sum(value < 1 for value in must_lose),
        "n_predicted": len(found),
        "n_sides": sum((one.in_run > 1) == (one.speedup > 1) for one in found),
        "n_below_limit": sum(one.speedup <= one.limit for one in found),
        "v_alone": embedded_costs().cost(9),
        "v_in_run": median(one.check_cost for one in found),
    }


# --- its tables: heads and rows ---------------------------------------------------------------


def costs_table() -> Table:
    """For each kernel, the cost of passes over several tokens."""
    sizes = 2, 4, 9, 16, 17
    heads = "kernels", *(f"v({n})" for n in sizes)
    return heads, [(name, *(f"{one.cost(n):.2f}" for n in sizes)) for name, one in shape_costs().items()]


def mixture_table() -> Table:
    """For passes over several tokens of a mixture, the experts and bytes read, and the cost that was reported."""
    found, facts = mixture(), cited_facts("reported_drafts")
    reported = {n: n * facts["mixture-pass-1"].value / facts[f"mixture-pass-{n}"].value for n in (2, 4, 8)}
    return ("tokens in the pass", *map(str, LENGTHS)), [
        (f"experts read in a layer, of {found.n_expert}", *(f"{found.woken[n]:.0f}" for n in LENGTHS)),
        ("bytes read, in passes over one token", *(f"{found.more_bytes[n]:.2f}" for n in LENGTHS)),
        ("v(n), reported", *(f"{reported[n]:.2f}" if n in reported else "–" for n in LENGTHS)),
    ]


def positions_table() -> Table:
    """For each drafter on prose, the share of tried tokens that were accepted, by position."""
    cases = [one for one in accepted().cases if one.text == PROSE]
    heads = "drafter", "1st, %", "2nd", "4th", "8th", "all tried", "all proposed"
    shares = [[*map(one.acceptance, (1, 2, 4, 8)), one.pooled, one.accepted_share] for one in cases]
    return heads, [
        (one.drafter, *(f"{100 * share:.0f}" for share in row)) for one, row in zip(cases, shares, strict=True)
    ]


def served_table() -> Table:
    """For each kind of speculation, the speed-up of decode on each task."""
    found, tasks = served(), (REPEATING, PROSE, PENALIZED)
    kinds = dict.fromkeys(one.kind for one in found.cases)
    return ("type", *tasks), [(kind, *(_served_text(found.of(kind, task)) for task in tasks)) for kind in kinds]


def _served_text(one: ServedCase) -> str:
    low, high = median_interval(one.speedups)
    return f"{median(one.speedups):.2f} ({low:.2f}–{high:.2f})"


def bounds_table() -> Table:
    """For each kernel, the least acceptance with which a draft of some lengths and costs pays."""
    drafts = ((1, 0.0), (3, 0.0), (8, 0.0), (15, 0.0), (3, 0.1), (8, 0.1))
    heads = "kernels", *(f"{n} at {cost}" if cost else f"{n} free" for n, cost in drafts)
    return heads, [(name, *(_least_text(one, *draft) for draft in drafts)) for name, one in shape_costs().items()]


def _least_text(one: VerifyCost, n_draft: int, draft_cost: float) -> str:
    least = least_acceptance(one.cost(n_draft + 1), n_draft, draft_cost)
    return "never" if least is None else f"{100 * least:.0f} %"


def chance_table() -> Table:
    """For each draft that is accepted by chance, its limit, the speed-up computed, and the one measured."""
    heads = "kernels", "proposals", "accepted", "limit", "computed", "measured"
    costs = {one.kernels_text: one for one in shape_costs().values()}
    return heads, [_chance_row(one, costs[one.kernels_text]) for one in by_chance()]


def _chance_row(one: Speculation, costs: VerifyCost) -> Sequence[str | int]:
    tried, hit = by_position([step for rounds in one.rounds for step in rounds], one.n_draft)
    a = sum(hit) / sum(tried)
    limit, computed = most_speedup(costs.cost(one.n_draft + 1), one.n_draft), costs.speedup(a, one.n_draft)
    accepted_text = f"{100 * a:.0f} %"
    return kernels(one), one.n_draft, accepted_text, f"{limit:.2f}", f"{computed:.2f}", interval_text(one.speedups)


def predicted_table() -> Table:
    """For each drafter and text, the cost of a proposal, the limit, the speed-ups predicted, and the one measured."""
    heads = "drafter", "text", "d", "limit", "predicted", "with v in the run", "measured"
    return heads, [_predicted_row(one) for one in predictions()]


def _predicted_row(one: Predicted) -> Sequence[str]:
    costs = (f"{value:.2f}" for value in (one.draft_cost, one.limit, one.alone))
    return one.drafter, one.text, *costs, f"{one.in_run:.2f} (v = {one.check_cost:.2f})", interval_text(one.measured)
