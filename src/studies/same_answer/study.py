"""Greedy answers and costs of tokens before and after a change, in this process and from a llama-server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from inferlab.measurement.same_answer import SameAnswers
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
Table = tuple[Sequence[str], Sequence[Sequence[str]]]


@dataclass(frozen=True, kw_only=True)
class ServedAnswers(SameAnswers):
    """Pairs of equal requests to one server; nothing is scored, so `nats_apart` is empty."""

    made_with = "llama-server over HTTP"


@cache
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
        "again_other": sum(first != again.change(first.change) for first in before.compared),
        "again_changes": len(again.compared),
    }


def numbers() -> dict[str, int | str]:
    """The numbers of the page *The same answer twice*."""
    here, served = recorded()
    n, pieces = len(here.change(THREADS).n_same), here.change(PIECES)
    return {
        "n": n,
        "n_prompt": here.n_prompt,
        "n_gen": here.n_gen,
        "cpu": here.machine.cpu,
        "commit": here.machine.llama_cpp_commit.removesuffix("-dirty"),
        "repeated": n - served.n_other_answers(SERVED["again"]),
        "repeated_beside": n - served.n_other_answers(SERVED["beside"]),
        "first": here.change(THREADS).first_other,
        "threads_bits": here.change(THREADS).n_other_bits,
        "without": here.change(WITHOUT).n_other_bits,
        "quantized": here.change(QUANTIZED).n_other_bits,
        "pieces": pieces.n_other_bits,
        "scored": len(pieces.nats_apart),
        "pieces_answers": here.n_other_answers(PIECES),
        **{key: served.n_other_answers(name) for key, name in SERVED.items()},
    }


def bits_table() -> Table:
    """Heads and rows: for each change, the costs of tokens that differ, and the answers."""
    here, _ = recorded()
    rows = []
    for compared in here.compared:
        n_scored, other = len(compared.nats_apart), compared.n_other_bits
        bits = f"{other} of {n_scored}" if n_scored else "not scored"
        most = f"{max(compared.nats_apart):.1g}" if other else "–"
        answers = f"{here.n_other_answers(compared.change)} of {len(compared.n_same)}"
        rows.append((compared.change, bits, str(compared.first_other or "–"), most, answers))
    return ("changed", "other bits", "from token", "most, nats", "other answers"), rows


def served_table() -> Table:
    """Heads and rows: for each second request, the answers that differ, and the earliest place."""
    _, served = recorded()
    rows = []
    for compared in served.compared:
        answers, least = f"{served.n_other_answers(compared.change)} of {len(compared.n_same)}", min(compared.n_same)
        rows.append((compared.change, answers, str(1 + least) if least < served.n_gen else "–"))
    return ("second request", "other answers", "earliest difference, token"), rows
