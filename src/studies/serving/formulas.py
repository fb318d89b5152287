"""The same recorded answers by the formulas of several benchmark programs, each applied to the same times.

    TPOT of guidellm  latency / n            TPOT of vLLM  (latency - TTFT) / (n - 1)

A latency is from sending a request until its last text; n is the number of its tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median, quantiles
from typing import Any

from studies.serving.study import HttpReply, waves_of

FEW, MANY = 1, 8
"""Users whose requests are compared."""


def latency_seconds(reply: HttpReply) -> float:
    """From sending a request until its last text."""
    return reply.event_seconds[-1] - reply.sent_seconds


def ttft_ms(reply: HttpReply) -> float:
    """Time to the first token at the client."""
    return 1e3 * reply.ttft_seconds


def guidellm_tpot_ms(reply: HttpReply) -> float:
    """TPOT of guidellm, which contains the queue and the prompt."""
    return 1e3 * latency_seconds(reply) / reply.n_tokens


def vllm_tpot_ms(reply: HttpReply) -> float:
    """TPOT of vLLM, which begins when the first token has come."""
    return 1e3 * (latency_seconds(reply) - reply.ttft_seconds) / (reply.n_tokens - 1)


def tpot_factor(reply: HttpReply) -> float:
    """TPOT of guidellm over that of vLLM."""
    return guidellm_tpot_ms(reply) / vllm_tpot_ms(reply)


def server_rate(reply: HttpReply) -> float:
    """Tokens per second as the server reports them."""
    return (reply.n_tokens - 1) / reply.server_decode_seconds


def gaps_ms(replies: Sequence[HttpReply]) -> tuple[float, float]:
    """The 99th percentile and the largest of the times between two events of each answer."""
    gaps = [1e3 * pause for r in replies for pause in r.pauses]
    return quantiles(gaps, n=100)[98], max(gaps)


def groups() -> dict[str, list[HttpReply]]:
    """Replies of one user, of eight, and among these of those that got a slot first and of those that waited."""
    first, waited = [], []
    for wave in waves_of(MANY):
        ordered = sorted(wave.replies, key=lambda r: r.launched_seconds)
        first += ordered[: wave.settings.n_seq_max]
        waited += ordered[wave.settings.n_seq_max :]
    alone = [reply for wave in waves_of(FEW) for reply in wave.replies]
    return {"one": alone, "eight": first + waited, "first": first, "waited": waited}


def numbers() -> dict[str, float | int]:
    """The numbers of *One answer, several numbers* on the page *Which tool for what*: medians of each group."""
    replies = groups()
    ttft, factor = (_medians(of, replies) for of in (ttft_ms, tpot_factor))
    gap_p99, gap_most = gaps_ms(replies["eight"])
    return {
        "factor_waited": factor["waited"],
        "factor_one": factor["one"],
        **{f"ttft_{name}_s": ttft[name] / 1e3 for name in ("first", "waited")},
        **{f"ttft_factor_{name}": ttft[name] / ttft["one"] for name in ("first", "waited")},
        "whole_gain": 100 * (_whole_rate(MANY) / _whole_rate(FEW) - 1),
        "gap_p99": gap_p99,
        "gap_most": gap_most,
        "n_gen": replies["one"][0].n_tokens,
        "slots": waves_of(MANY)[0].settings.n_seq_max,
    }


def formulas_table() -> tuple[Sequence[str], list[Sequence[str | float]]]:
    """Heads and rows: a number of each program for each group, and whether it contains the queue."""
    by_group = groups()
    heads = "number", "1 user", "8 users", "first 4", "last 4", "contains the queue"
    gaps_p99, gaps_most = zip(*map(gaps_ms, by_group.values()), strict=True)
    whole = {name: _whole_rate(FEW if name == "one" else MANY) for name in by_group}
    return heads, [
        ("TTFT at the client, ms", *_medians(ttft_ms, by_group).values(), "yes"),
        ("TPOT of guidellm, ms", *_medians(guidellm_tpot_ms, by_group).values(), "yes"),
        ("TPOT of vLLM, ms", *_medians(vllm_tpot_ms, by_group).values(), "no"),
        ("gap, p99, ms", *gaps_p99, "no"),
        ("gap, longest, ms", *gaps_most, "no"),
        ("server's own rate, tokens/s", *_medians(server_rate, by_group).values(), "no"),
        ("whole run, tokens/s", *whole.values(), "mixed in"),
    ]


def program_numbers(programs: Any) -> dict[str, float | int]:
    """How far the decode rates of programs differ, in percent, by a record of the kind "benchmark programs"."""
    empty, filled = (programs.rate(f"llama-bench: decode{what}") for what in (" from an empty cache", ", 1 at once"))
    names = "this book", "llama-bench", "llama-batched-bench"
    decode = [programs.rate(f"{name}: decode, 1 at once") for name in names]
    return {
        "bench_prompt": programs.n_prompt,
        "bench_off": 100 * (max(decode) / min(decode) - 1),
        "empty_gain": 100 * (empty / filled - 1),
    }


def _medians(of: Callable[[HttpReply], float], by_group: Mapping[str, Sequence[HttpReply]]) -> dict[str, float]:
    return {name: median(map(of, replies)) for name, replies in by_group.items()}


def _whole_rate(n: int) -> float:
    return median(wave.tokens_per_second for wave in waves_of(n))
