"""Greedy answers and costs of tokens before and after a change, in this process and from a llama-server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inferlab.measurement.same_answer import Compared, SameAnswers
from inferlab.records import load

THREADS, QUANTIZED = "1 thread, not 2", "1 thread, not 2, KV cache in q8_0"
WITHOUT, PIECES = "1 thread, not 2, without flash attention", "prompt in pieces of 32"
SERVED = {
    "again": "seed 7, asked again",
    "every": "seed 7, every candidate, three others beside",
    "seeds": "seed 7, then seed 8",
    "beside": "seed 7, three others beside",
    "kept": "seed 7, prompt kept in the slot",
    "greedy_beside": "greedy, three others beside",
    "greedy_kept": "greedy, prompt kept in the slot",
}
"""Name of a number -> the pairs of requests whose different answers it counts."""


@dataclass(frozen=True, kw_only=True)
class ServedAnswers(SameAnswers):
    """Pairs of equal requests to one server; nothing is scored, so `nats_apart` is empty."""

    made_with = "llama-server over HTTP"


def recorded() -> tuple[SameAnswers, ServedAnswers]:
    """Both sides of each change in this process, and pairs of requests to a llama-server."""
    return load("epyc-2c/same-answers", SameAnswers), load("epyc-2c/served-answers", ServedAnswers)


def again_numbers() -> dict[str, int | str]:
    """What the same call gave when it was repeated: changes whose bits or answers are others than before."""
    before, _ = recorded()
    again = load("epyc-2c/same-answers-again", SameAnswers)
    return {
        "again_date": again.date,
        "first_date": before.date,
        "again_other": sum(one != again.of(one.change) for one in before.compared),
        "again_changes": len(again.compared),
    }


def numbers() -> dict[str, int | str]:
    """The numbers of the page *The same answer twice*."""
    found, served = recorded()
    n, pieces = len(found.of(THREADS).n_same), found.of(PIECES)
    return {
        "n": n,
        "n_prompt": found.n_prompt,
        "n_gen": found.n_gen,
        "cpu": found.machine.cpu,
        "commit": found.machine.llama_cpp_commit.removesuffix("-dirty"),
        "repeated": n - served.n_other_answers(SERVED["again"]),
        "repeated_beside": n - served.n_other_answers(SERVED["beside"]),
        "first": found.of(THREADS).first_other,
        "threads_bits": found.of(THREADS).n_other_bits,
        "without": found.of(WITHOUT).n_other_bits,
        "quantized": found.of(QUANTIZED).n_other_bits,
        "pieces": pieces.n_other_bits,
        "scored": len(pieces.nats_apart),
        "pieces_answers": found.n_other_answers(PIECES),
        **{key: served.n_other_answers(name) for key, name in SERVED.items()},
    }


def bits_table() -> tuple[Sequence[str], list[Sequence[str]]]:
    """Heads and rows: for each change, the costs of tokens that differ, and the answers."""
    found, _ = recorded()
    heads = "changed", "other bits", "from token", "most, nats", "other answers"
    return heads, [_bits_row(one, found) for one in found.compared]


def _bits_row(one: Compared, found: SameAnswers) -> Sequence[str]:
    n_scored = len(one.nats_apart)
    return (
        one.change,
        f"{one.n_other_bits} of {n_scored}" if n_scored else "not scored",
        str(one.first_other or "–"),
        f"{max(one.nats_apart):.1g}" if one.n_other_bits else "–",
        f"{found.n_other_answers(one.change)} of {len(one.n_same)}",
    )


def served_table() -> tuple[Sequence[str], list[Sequence[str]]]:
    """Heads and rows: for each second request, the answers that differ, and the earliest place."""
    _, served = recorded()
    return ("second request", "other answers", "earliest difference, token"), [
        (
            one.change,
            f"{served.n_other_answers(one.change)} of {len(one.n_same)}",
            str(1 + min(one.n_same)) if min(one.n_same) < served.n_gen else "–",
        )
        for one in served.compared
    ]
