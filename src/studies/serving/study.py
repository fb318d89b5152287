"""Requests to llama-server over HTTP: when each was sent, given a slot, answered with its first token, and complete.

        queue wait = launched - sent        prefill = first token - launched        decode = last token - first token

The clients run on the same computer, in a thread each, so they use a part of its cores.
Seconds count from the first request that was sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from statistics import median

from inferlab.measurement.base import Measurement
from inferlab.records import load, load_all
from inferlab.statistics import Comparison, compared

CLAIMED_MS = 50, 200
"""Time to the first token that a claim gives without a length of the prompt."""
ARMS = {"-b 2048, -ub 512": (2048, 512), "-b 2048, -ub 128": (2048, 128), "-b 128, -ub 128": (128, 128)}
"""Servers that were measured beside a long prompt -> their n_batch and n_ubatch."""
WINDOW_SECONDS = 5
QUERIES = {
    "running": "llamacpp:requests_processing",
    "waiting": "llamacpp:requests_deferred",
    "answers": f"rate(llamacpp:tokens_predicted_total[{WINDOW_SECONDS}s])",
    "calls": f"rate(llamacpp:n_decode_total[{WINDOW_SECONDS}s]) * llamacpp:requests_processing",
    "prompts": f"rate(llamacpp:prompt_tokens_total[{WINDOW_SECONDS}s])",
    "gauge": "llamacpp:predicted_tokens_seconds",
}
"""Names of the queries in PromQL; the metrics are those of llama.cpp's tools/server/server-task.cpp."""


# --- what is recorded -------------------------------------------------------------------------


@dataclass(frozen=True)
class HttpRequest:
    """One request: random tokens as its prompt, and an answer of exactly n_gen tokens.

    after_seconds  when it is sent, after the first
    seed           requests with the same seed have the same prompt, up to the shorter one's length
    priority       a number in the request's JSON, as vLLM takes one; None: not sent
    cache_prompt   whether a beginning that is in the slot may be used again
    grammar        llama.cpp's grammar for the answer; "": none
    """

    n_prompt: int
    n_gen: int
    after_seconds: float = 0.0
    seed: int = 0
    priority: int | None = None
    cache_prompt: bool = False
    grammar: str = ""


@dataclass(frozen=True)
class HttpReply:
    """The answer to a request.

    slot                 the slot that computed it
    launched_seconds     when it was given the slot, by the server's log; None where the log has no line for it
    headers_seconds      when the headers had arrived
    event_seconds        when each event with text had arrived
    event_tokens         how many tokens each of them carried
    event_bytes          the bytes of each
    n_cached             prompt tokens that the server did not compute again
    server_prompt_seconds, server_decode_seconds   what the server itself reported
    """

    request: HttpRequest
    slot: int
    sent_seconds: float
    launched_seconds: float | None
    headers_seconds: float
    event_seconds: tuple[float, ...]
    event_tokens: tuple[int, ...]
    event_bytes: tuple[int, ...]
    ended_seconds: float
    n_cached: int
    server_prompt_seconds: float
    server_decode_seconds: float

    @property
    def queue_seconds(self) -> float | None:
        """From sending the request until it was given a slot; None if unknown."""
        return None if self.launched_seconds is None else self.launched_seconds - self.sent_seconds

    @property
    def ttft_seconds(self) -> float:
        """From sending the request until its first text."""
        return self.event_seconds[0] - self.sent_seconds

    @property
    def prefill_seconds(self) -> float | None:
        """From the launch until the first text; None if unknown."""
        return None if self.launched_seconds is None else self.event_seconds[0] - self.launched_seconds

    @property
    def decode_seconds(self) -> float:
        """From the first text until the last."""
        return self.event_seconds[-1] - self.event_seconds[0]

    @property
    def n_tokens(self) -> int:
        """Tokens of the answer."""
        return sum(self.event_tokens)

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens after the first event, per second of decode; None for an answer in one event."""
        return sum(self.event_tokens[1:]) / self.decode_seconds if len(self.event_seconds) > 1 else None

    @property
    def pauses(self) -> tuple[float, ...]:
        """Seconds between two events."""
        return tuple(after - before for before, after in pairwise(self.event_seconds))


@dataclass(frozen=True, kw_only=True)
class HttpServing(Measurement):
    """Requests to one llama-server, in the order of their sending; settings.n_seq_max is the number of its slots.

    n_cores  cores that the server was bound to; None: all
    """

    made_with = "llama-server over HTTP"

    replies: tuple[HttpReply, ...]
    n_cores: int | None = None

    @property
    def seconds(self) -> float:
        """From the first sending until the last text."""
        return max(reply.event_seconds[-1] for reply in self.replies) - min(r.sent_seconds for r in self.replies)

    @property
    def tokens_per_second(self) -> float:
        """Tokens of all answers over `seconds`, so the prompts and the waiting count."""
        return sum(reply.n_tokens for reply in self.replies) / self.seconds

    @property
    def launch_order(self) -> tuple[int, ...]:
        """The places of the requests in `replies`, in the order in which they were given a slot."""
        known = (i for i, reply in enumerate(self.replies) if reply.launched_seconds is not None)
        return tuple(sorted(known, key=lambda i: self.replies[i].launched_seconds))


@dataclass(frozen=True)
class Series:
    """The answer to a query of PromQL: a value at each time at which there was one.

    seconds  since the epoch as Prometheus gives them; a record counts them from its first request
    """

    query: str
    seconds: tuple[float, ...]
    values: tuple[float, ...]

    def between(self, began: float, ended: float) -> tuple[float, ...]:
        """The values from one time to another."""
        return tuple(value for at, value in zip(self.seconds, self.values, strict=True) if began <= at <= ended)


@dataclass(frozen=True, kw_only=True)
class WatchedServing(HttpServing):
    """Requests to a llama-server, and the series that Prometheus had of it meanwhile.

    prometheus        its version
    interval_seconds  between two scrapes
    series            one for each of QUERIES, in their order; seconds since the first request, to about 0.1 s
    """

    prometheus: str
    interval_seconds: float
    series: tuple[Series, ...]

    def series_of(self, name: str) -> Series:
        """The series of one of QUERIES."""
        return self.series[tuple(QUERIES).index(name)]

    def tokens_seen(self, at: Iterable[float]) -> tuple[float, ...]:
        """Tokens per second that all clients got in the WINDOW_SECONDS before each time."""
        events = [pair for r in self.replies for pair in zip(r.event_seconds, r.event_tokens, strict=True)]
        return tuple(sum(n for t, n in events if when - WINDOW_SECONDS < t <= when) / WINDOW_SECONDS for when in at)


# --- readings ---------------------------------------------------------------------------------


@cache
def recorded(name: str) -> tuple[HttpServing, ...]:
    """The waves of http-NAME: "users", "prompts", "long-prompt", "order", "slots", "slots-smollm2", "events", …"""
    return load_all(f"epyc-2c/http-{name}", HttpServing)


def watched() -> WatchedServing:
    """A minute of work of a server that Prometheus scraped."""
    return load("epyc-2c/watched-server", WatchedServing)


def longest_pause(serving: HttpServing) -> float:
    """Seconds of the longest pause between two tokens of the answers that run beside the last request."""
    return max(max(reply.pauses) for reply in serving.replies[:-1])


def arms() -> dict[str, list[HttpServing]]:
    """The waves beside a long prompt of each of ARMS, in the order of their turns."""
    waves = recorded("long-prompt")
    return {
        name: [wave for wave in waves if (wave.settings.n_batch, wave.settings.n_ubatch) == sizes]
        for name, sizes in ARMS.items()
    }


def waves_of(n: int) -> list[HttpServing]:
    """The recorded waves of n users who send at the same moment."""
    return [wave for wave in recorded("users") if len(wave.replies) == n]


def ttft_by_length(waves: Iterable[HttpServing]) -> dict[int, list[float]]:
    """Tokens of a prompt -> milliseconds until the first token of each wave's first request."""
    milliseconds: dict[int, list[float]] = {}
    for wave in waves:
        milliseconds.setdefault(wave.replies[0].request.n_prompt, []).append(1e3 * wave.replies[0].ttft_seconds)
    return milliseconds


def scraping(pairs: Sequence[HttpServing]) -> Comparison:
    """Decode rate with a reader of /metrics over the rate without; pairs in the order without, with, without, with."""
    rates = [serving.replies[0].tokens_per_second for serving in pairs]
    return compared(rates[0::2], rates[1::2])


# --- the numbers of the pages -----------------------------------------------------------------


def numbers() -> dict[str, float | int | str]:
    """The numbers of the page *One request on a clock*."""
    of_waits = {**pause_numbers(), **user_numbers(), **length_numbers()}
    return {**of_waits, **slot_numbers(), **event_numbers(), **thread_numbers()}


def pause_numbers() -> dict[str, float | int | str]:
    """Running answers beside a long prompt: medians in seconds, and the changes from the default sizes."""
    large, ub, small = arms().values()
    pauses = [list(map(longest_pause, waves)) for waves in (large, ub, small)]
    firsts = [[wave.replies[-1].ttft_seconds for wave in waves] for waves in (large, ub, small)]
    in_large, in_ub, in_small = map(median, pauses)
    n_long, first = large[0].replies[-1].request.n_prompt, median(firsts[0])
    return {
        "pause_large": in_large,
        "pause_ub": in_ub,
        "pause_small": in_small,
        "long_large": first,
        "long_ub": median(firsts[1]),
        "long_small": median(firsts[2]),
        "n_pairs": len(large),
        "n_shorter": sum(b < a for a, b in zip(pauses[0], pauses[2], strict=True)),
        "ub_change": 100 * (median(b / a for a, b in zip(pauses[0], pauses[1], strict=True)) - 1),
        "n_long": n_long,
        "n_cores": large[0].machine.n_cores,
        "ub_said": "It stayed about the same" if abs(in_ub / in_large - 1) < 0.1 else "It did not stay the same",
        "prefill_rate": n_long / first,
        "pause_expected": 128 * first / n_long,
    }


def user_numbers() -> dict[str, float | int | str]:
    """Users who send at the same moment: medians of all requests, in ms, tokens per second and percent."""
    by_users = {n: waves_of(n) for n in (1, 2, 4, 8, 16)}
    replies = {n: [reply for wave in waves for reply in wave.replies] for n, waves in by_users.items()}
    first = replies[1][0].request
    waits = [sorted(1e3 * r.queue_seconds for r in wave.replies) for wave in by_users[8]]
    share = 100 * median(r.queue_seconds / r.ttft_seconds for r in replies[16])
    every = [reply for wave in (*recorded("users"), *recorded("order")) for reply in wave.replies]
    return {
        "user_prompt": first.n_prompt,
        "user_gen": first.n_gen,
        **{f"queue_{n}": 1e3 * median(r.queue_seconds for r in every) for n, every in replies.items()},
        **{f"first_{n}": 1e3 * median(r.ttft_seconds for r in every) for n, every in replies.items()},
        **{f"each_{n}": median(r.tokens_per_second for r in every) for n, every in replies.items()},
        **{f"total_{n}": median(wave.tokens_per_second for wave in waves) for n, waves in by_users.items()},
        "early_8": max(wave[3] for wave in waits),
        "late_8": min(wave[4] for wave in waits),
        "queue_share_16": share,
        "share_said": "More than 60 %" if share > 60 else "At most 60 %",
        "headers_ms": 1e3 * median(r.headers_seconds - r.launched_seconds for r in every),
        "n_every": len(every),
    }


def slot_numbers() -> dict[str, float | int]:
    """Slots in the order of arrival, and what the second request waited; times in ms."""
    waves = recorded("order")
    return {
        "n_waves": len(waves),
        "n_in_order": sum(wave.launch_order == tuple(range(len(wave.replies))) for wave in waves),
        "n_sent": len(waves[0].replies),
        "second_wait": 1e3 * median(wave.replies[1].queue_seconds for wave in waves),
        "second_sent": 1e3 * waves[0].replies[1].request.after_seconds,
    }


def length_numbers() -> dict[str, float | int | str]:
    """First tokens over lengths of the prompt: the shortest in ms, the longest in s, and lengths inside CLAIMED_MS."""
    medians = {n: median(values) for n, values in ttft_by_length(recorded("prompts")).items()}
    inside = [n for n, ms in medians.items() if CLAIMED_MS[0] <= ms <= CLAIMED_MS[1]]
    return {
        "least_length": min(medians),
        "most_length": max(medians),
        "ttft_least": medians[min(medians)],
        "ttft_most": medians[max(medians)] / 1e3,
        "inside": f"{min(inside)} to {max(inside)}" if inside else "none",
    }


def event_numbers() -> dict[str, int]:
    """Events and tokens of answers of letters of three bytes."""
    letters = [reply for wave in recorded("events") for reply in wave.replies if reply.request.grammar]
    return {
        "letters_events": sum(len(r.event_seconds) for r in letters),
        "letters_tokens": sum(r.n_tokens for r in letters),
    }


def thread_numbers() -> dict[str, float | int]:
    """What twice as many threads as cores cost, in percent of the decode rate, on one core and on two."""
    rates: dict[tuple[int, int | None], list[float]] = {}
    for wave in recorded("cores"):
        rates.setdefault((wave.settings.n_threads, wave.n_cores), []).append(wave.replies[0].tokens_per_second)
    return {
        "over_1": 100 * (1 - median(rates[2, 1]) / median(rates[1, 1])),
        "over_2": 100 * (1 - median(rates[4, None]) / median(rates[2, None])),
        "n_turns": len(rates[2, 1]),
    }


def watched_numbers() -> dict[str, float | str]:
    """What the metrics said in the middle of a long answer, beside what its client got, in tokens per second."""
    serving = watched()
    middle = WINDOW_SECONDS, serving.replies[0].ended_seconds - 1
    counter, calls, gauge = (serving.series_of(name).between(*middle) for name in ("answers", "calls", "gauge"))
    seen = serving.tokens_seen(at for at in serving.series_of("answers").seconds if middle[0] <= at <= middle[1])
    return {
        "counter_during": max(counter),
        "seen_during": sum(seen) / len(seen),
        "calls_during": sum(calls) / len(calls),
        "gauge_during": max(gauge),
        "counter_after": max(serving.series_of("answers").values),
        "interval": serving.interval_seconds,
        "version": serving.prometheus,
        "scraped": scraping(recorded("scraped")).text,
    }
