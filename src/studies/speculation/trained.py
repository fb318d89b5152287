"""Look-ups on answers of a trained model: what is drafted and accepted in code, prose and chat, and what it gains.

Every answer gives its own tokens a pass, so that intervals are those over prompts. The first token of an answer comes
from the prompt's pass; passes, tokens a pass and seconds are of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from inferlab.measurement.base import Measurement
from inferlab.records import load, load_all
from inferlab.statistics import FASTER, SLOWER, UNDECIDED, Comparison
from studies.speculation.speculative import VerifyCost
from studies.speculation.study import SpeculativeAnswers

CHOSEN = "ngram-simple 6/16"
KINDS = ("ngram-simple", "ngram-simple 4/8", CHOSEN, "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")
CODE, PROSE, CHAT = TEXTS = "code", "prose", "chat"

Table = tuple[Sequence[str], Sequence[Sequence[str | int]]]


# --- look-ups, counted without a clock --------------------------------------------------------


def ngram_simple(text: Sequence[int], size_n: int, size_m: int) -> Sequence[int]:
    """What llama-server's `ngram-simple` proposes after a text (common/ngram-map.cpp:49).

    The tokens after the latest earlier place of the last `size_n`; none where fewer than `size_n` follow that place,
    where it is the text's first token, or where the text has at most size_n + size_m + 2 tokens.
    """
    n_cached = len(text) - 1
    if n_cached <= size_n + size_m + 1:
        return []
    tail = list(text[-size_n:])
    starts = (i for i in range(n_cached - size_n - 1, 0, -1) if text[i] == tail[0] and text[i : i + size_n] == tail)
    start = next(starts, None)
    drafted = [] if start is None else text[start + size_n : n_cached][:size_m]
    return drafted if len(drafted) >= size_n else []


class Passes(NamedTuple):
    """Passes that write one answer, by the number of tokens proposed for them, from 0; and tokens accepted in all."""

    rounds: tuple[int, ...]
    accepted: int


def passes(prompt: Sequence[int], answer: Sequence[int], size_n: int, size_m: int) -> Passes:
    """How `ngram-simple` of these sizes would have written an answer whose tokens are known."""
    text, end, rounds, accepted = [*prompt, answer[0]], len(prompt) + len(answer), [0] * (size_m + 1), 0
    whole = [*prompt, *answer]
    while len(text) < end:
        drafted = ngram_simple(text, size_n, size_m)[: end - len(text) - 1]
        hits = next((i for i, token in enumerate(drafted) if token != whole[len(text) + i]), len(drafted))
        rounds[len(drafted)] += 1
        accepted += hits
        text = whole[: len(text) + hits + 1]
    return Passes(tuple(rounds), accepted)


# --- the records ------------------------------------------------------------------------------


@dataclass(frozen=True)
class SeenCase:
    """`ngram-simple` of one pair of sizes on all seen answers of one kind of text.

    rounds    passes by the number of tokens proposed for them, from 0
    accepted  tokens
    """

    text: str
    size_n: int
    size_m: int
    rounds: tuple[int, ...]
    accepted: int


@dataclass(frozen=True, kw_only=True)
class SeenDrafts(Measurement):
    """Every pair of sizes on the half of the prompts that is seen."""

    made_with = "llama-server over HTTP"

    n_gen: int
    cases: tuple[SeenCase, ...]


@dataclass(frozen=True, kw_only=True)
class TrainedCase(SpeculativeAnswers):
    """One kind of look-up on one kind of text; seconds are of all tokens but the first.

    n_plain, n_tokens  tokens of the answer without look-ups and with them
    """

    text: str
    n_prompt: tuple[int, ...]
    n_plain: tuple[int, ...]
    n_tokens: tuple[int, ...]

    @property
    def tokens_per_pass(self) -> tuple[float, ...]:
        """Of each answer: every pass gives the accepted tokens and one of the model's own."""
        pairs = zip(self.n_tokens, self.n_accepted, strict=True)
        return tuple((n - 1) / (n - 1 - accepted) for n, accepted in pairs)

    @property
    def all_per_pass(self) -> float:
        """Tokens of all answers over their passes."""
        n = sum(self.n_tokens) - len(self.n_tokens)
        return n / (n - sum(self.n_accepted))

    @property
    def accepted_share(self) -> float | None:
        """Accepted tokens over drafted ones, as llama-server's log has it; None where nothing was drafted."""
        return sum(self.n_accepted) / sum(self.n_drafted) if any(self.n_drafted) else None

    @property
    def speedups(self) -> Comparison:
        """Seconds of a token without look-ups over seconds of one with them, pair by pair."""
        sides = zip(self.plain_seconds, self.n_plain, self.seconds, self.n_tokens, strict=True)
        return Comparison(tuple(plain / (n_plain - 1) / (own / (n - 1)) for plain, n_plain, own, n in sides))


@dataclass(frozen=True, kw_only=True)
class TrainedDrafts(Measurement):
    """One kind of look-up on every kind of text; the prompts are those that are not seen."""

    made_with = "llama-server over HTTP"

    n_gen: int
    cases: tuple[TrainedCase, ...]


@cache
def costs() -> VerifyCost:
    """What checks of the trained model cost, timed alone."""
    return load_all("epyc-2c/verify-smollm2", VerifyCost)[0]


@cache
def seen() -> tuple[SeenCase, ...]:
    """Every pair of sizes on the seen half."""
    return load("epyc-2c/seen-drafts", SeenDrafts).cases


@cache
def unseen() -> tuple[TrainedCase, ...]:
    """Every kind of look-up on every kind of text, of the prompts that no size was chosen on."""
    return tuple(case for kind in KINDS for case in load(f"epyc-2c/{record_of(kind)}", TrainedDrafts).cases)


def record_of(kind: str) -> str:
    """The name of the record of one kind, without its machine: `trained-ngram-simple-6-16`."""
    return f"trained-{kind.replace(' ', '-').replace('/', '-')}"


def unseen_case(kind: str, text: str) -> TrainedCase:
    """One of `unseen`."""
    return next(case for case in unseen() if (case.kind, case.text) == (kind, text))


def computed_seen(size_n: int, size_m: int) -> float:
    """How many times as fast the seen answers would be written: their tokens over the cost of their passes."""
    cases = [case for case in seen() if (case.size_n, case.size_m) == (size_n, size_m)]
    n_tokens = sum(sum(case.rounds) + case.accepted for case in cases)
    return n_tokens / sum(count * costs().cost(n + 1) for case in cases for n, count in enumerate(case.rounds) if count)


def best_seen() -> tuple[int, int]:
    """The sizes n and m with which the seen half would be written fastest."""
    return max({(case.size_n, case.size_m) for case in seen()}, key=lambda sizes: computed_seen(*sizes))


# --- the numbers and tables of the page -------------------------------------------------------


def numbers() -> dict[str, float | int | str]:
    """The trained model's numbers; shares in percent. `tr_` stands before each."""
    chosen = [unseen_case(CHOSEN, text) for text in TEXTS]
    verdicts = [case.speedups.verdict for case in unseen()]
    of_chat = [case.speedups.verdict for case in unseen() if case.text == CHAT]
    idle = unseen_case("ngram-mod", CHAT).speedups
    cached = [unseen_case("ngram-cache", text) for text in TEXTS]
    n, m = best_seen()
    found: dict[str, float | int | str] = {
        "n": n,
        "m": m,
        "prompts": len(chosen[0].seconds),
        "two": costs().cost(2),
        "cases": len(verdicts),
        "faster": verdicts.count(FASTER),
        "slower": verdicts.count(SLOWER),
        "undecided": verdicts.count(UNDECIDED),
        "kinds": len(KINDS),
        "chat_faster": of_chat.count(FASTER),
        "cache_share": 100 * sum(sum(case.n_accepted) for case in cached) / sum(sum(c.n_drafted) for c in cached),
        "idle": idle.ratio,
        "idle_range": "{:.2f} to {:.2f}".format(*idle.ends),
        "same": sum(k == min(a, b) for c in unseen() for k, a, b in zip(c.n_same, c.n_plain, c.n_tokens, strict=True)),
        "answers": sum(len(case.seconds) for case in unseen()),
        "computed": computed_seen(n, m),
    }
    for case in chosen:
        found[f"{case.text}_gain"] = case.speedups.ratio
        found[f"{case.text}_repeated"] = 100 * sum(case.n_repeated) / sum(case.n_plain)
    return {f"tr_{key}": value for key, value in found.items()}


def passes_table() -> Table:
    """For each kind and text, the accepted share, and tokens a pass: the median of the prompts with its interval."""
    return ("type", *TEXTS), [(kind, *(_passes_text(unseen_case(kind, text)) for text in TEXTS)) for kind in KINDS]


def _passes_text(case: TrainedCase) -> str:
    share = case.accepted_share
    accepted = "no draft" if share is None else f"{100 * share:.0f} %"
    return f"{accepted}; {_range_text(Comparison(case.tokens_per_pass))}"


def _range_text(values: Comparison) -> str:
    """`1.02 (0.99–1.05)`: short, for a table."""
    return "{:.2f} ({:.2f}–{:.2f})".format(values.ratio, *values.ends)


def gains_table() -> Table:
    """For each kind and text, how many times as fast decode was, with its interval."""
    return ("type", *TEXTS), [
        (kind, *(_range_text(unseen_case(kind, text).speedups) for text in TEXTS)) for kind in KINDS
    ]
