"""Greedy answers and costs of tokens before and after a change, in this process and from a llama-server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median

from inferlab.measurement.same_answer import Compared, SameAnswers
from inferlab.records import load

THREADS, PIECES = "1 thread, not 2", "prompt in pieces of 32"
BESIDE, GREEDY = "three other answers beside", "greedy, "
Table = tuple[Sequence[str], Sequence[Sequence[str]]]


@dataclass(frozen=True, kw_only=True)
class ServedAnswers(SameAnswers):
    """Pairs of equal requests to one server, or to two with other settings.

    nats_apart  of the tokens of all answers before their first difference; empty where the server told no costs
    """

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
    here, _ = recorded()
    return {
        "n": len(here.change(THREADS).n_same),
        "n_prompt": here.n_prompt,
        "n_gen": here.n_gen,
        "cpu": here.machine.cpu,
        "commit": here.machine.llama_cpp_commit.removesuffix("-dirty"),
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
    """Heads and rows: for each second request with a seed, the answers that differ, and the earliest place."""
    _, served = recorded()
    rows = []
    for compared in served.compared:
        if compared.change.startswith(GREEDY):
            continue  # they stand beside the trained model's
        answers, least = f"{served.n_other_answers(compared.change)} of {len(compared.n_same)}", min(compared.n_same)
        rows.append((compared.change, answers, str(1 + least) if least < served.n_gen else "–"))
    return ("second request", "other answers", "earliest difference, token"), rows


# --- a trained model --------------------------------------------------------------------------

KEPT, THREE, IN_F16 = "prompt kept in the slot", "3 other answers beside", "1 thread, not 2, weights in F16"
EMBEDDED = {
    "asked again": (1, f"{GREEDY}asked again"),
    THREADS: (0, THREADS),
    PIECES: (0, PIECES),
    KEPT: (1, f"{GREEDY}prompt kept in the slot"),
    THREE: (1, f"{GREEDY}three others beside"),
}
"""A change of the trained model -> the record of the embedded one that has it, and its name there."""


@cache
def real() -> dict[str, tuple[ServedAnswers, Compared]]:
    """Every change of SmolLM2's greedy answers, by its name, with the record that has it."""
    records = {name: load(f"epyc-2c/smollm2-{name}", ServedAnswers) for name in ("settings", "beside-1", "beside-3")}
    found = {compared.change: (record, compared) for record in records.values() for compared in record.compared}
    f16 = load("epyc-2c/smollm2-f16", ServedAnswers)
    return found | {IN_F16: (f16, f16.change(THREADS))}


def real_table() -> Table:
    """Heads and rows: for each change, other answers and other bits of SmolLM2, and other answers of the embedded."""
    rows = [(change, *_told(record, compared), _embedded(change)) for change, (record, compared) in real().items()]
    heads = (
        "changed",
        "other answers",
        "first other token: earliest, median",
        "other bits",
        "most, nats",
        "embedded model",
    )
    return heads, rows


def _told(record: ServedAnswers, compared: Compared) -> tuple[str, str, str, str]:
    """Other answers, where they begin, the share of costs with other bits, and the largest difference."""
    ends = [1 + n for n in compared.n_same if n < record.n_gen]
    return (
        f"{len(ends)} of {len(compared.n_same)}",
        f"{min(ends)}, {median(ends):.0f}" if ends else "–",
        f"{100 * compared.n_other_bits / len(compared.nats_apart):.0f} %",
        f"{max(compared.nats_apart):.2g}" if compared.n_other_bits else "–",
    )


def _embedded(change: str) -> str:
    """Other answers of the embedded model, or that it was not asked."""
    if change not in EMBEDDED:
        return "–"
    number, name = EMBEDDED[change]
    record = recorded()[number]
    return f"{record.n_other_answers(name)} of {len(record.change(name).n_same)}"


def real_numbers() -> dict[str, int]:
    """The numbers of the page about SmolLM2: how many greedy answers there are, and how many stay the same."""
    changes = {"again": "asked again", "threads": THREADS, "f16": IN_F16, "beside": THREE}
    found = {key: real()[change] for key, change in changes.items()}
    same = {key: len(one.n_same) - record.n_other_answers(one.change) for key, (record, one) in found.items()}
    record, again = found["again"]
    embedded = {"f16": recorded()[0], "q4_1": load("epyc-2c/same-answers-q4_1", SameAnswers)}
    return {
        "real_n": len(again.n_same),
        "real_gen": record.n_gen,
        **{f"real_{key}": n for key, n in same.items()},
        **{
            f"tiny_{type}": len(of.change(THREADS).n_same) - of.n_other_answers(THREADS)
            for type, of in embedded.items()
        },
    }
