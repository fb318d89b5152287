"""A llama-server that Prometheus watches: what its metrics say over time, beside what its clients saw.

Prometheus reads counters and gauges once for each scrape; the clients stamp every token.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import median
from urllib.request import urlopen

from inferlab.engine.llama_server import HOST, llama_server
from inferlab.model.find import find_model
from inferlab.settings import Settings
from inferlab.statistics import median_interval
from studies.serving.http_serving import HttpRequest, HttpServing, serve_over_http
from studies.serving.prometheus import Prometheus, Series, watching

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

    def of(self, name: str) -> Series:
        """The series of one of QUERIES."""
        return self.series[tuple(QUERIES).index(name)]

    def tokens_seen(self, at: Iterable[float]) -> tuple[float, ...]:
        """Tokens per second that all clients got in the WINDOW_SECONDS before each time."""
        events = [pair for r in self.replies for pair in zip(r.event_seconds, r.event_tokens, strict=True)]
        return tuple(sum(n for t, n in events if when - WINDOW_SECONDS < t <= when) / WINDOW_SECONDS for when in at)


def a_minute_of_work(n_gen: int = 2000, n_users: int = 6, n_readers: int = 6) -> list[HttpRequest]:
    """One long answer; then several users at the same moment; then long prompts with short answers."""
    alone = [HttpRequest(32, n_gen)]
    together = [HttpRequest(64, n_gen // 8, 25, seed) for seed in range(1, 1 + n_users)]
    readers = [HttpRequest(1500, 8, 45 + 2 * i, 100 + i) for i in range(n_readers)]
    return [*alone, *together, *readers]


def watch_server(
    requests: Sequence[HttpRequest],
    model: str | Path | None = None,
    settings: Settings | None = None,
    interval_seconds: float = 1.0,
    program: str | Path | None = None,
) -> WatchedServing:
    """Start llama-server with --metrics and Prometheus beside it, send the requests, and ask for every series.

    program  path of prometheus; None: the one that the shell finds
    Raises EngineUnavailable where one of the two programs is missing, EngineRefused or EngineTimeout.
    """
    path = find_model(model)
    with (
        llama_server(path, settings, ["--metrics"]) as server,
        watching(server.port, interval_seconds, program) as watcher,
    ):
        serve_over_http(requests[:1], server, path)  # the first request of a server is slower, and is not counted
        time.sleep(WINDOW_SECONDS)
        began = time.time()
        serving = serve_over_http([replace(one, seed=one.seed + 1000) for one in requests], server, path)
        ended = time.time()
        time.sleep(2 * interval_seconds)
        series = tuple(_since(began, watcher.series(query, began, ended)) for query in QUERIES.values())
        return _watched(serving, watcher, series)


def _watched(serving: HttpServing, watcher: Prometheus, series: tuple[Series, ...]) -> WatchedServing:
    known = {field.name: getattr(serving, field.name) for field in fields(serving)}
    return WatchedServing(
        **known, prometheus=watcher.version, interval_seconds=watcher.interval_seconds, series=series
    )


def _since(began: float, one: Series) -> Series:
    return replace(one, seconds=tuple(round(at - began, 3) for at in one.seconds))


def scrape_pairs(
    model: str | Path | None = None,
    settings: Settings | None = None,
    every_seconds: float = 0.1,
    n_pairs: int = 15,
    n_gen: int = 200,
) -> tuple[HttpServing, ...]:
    """One answer without and one with a reader of /metrics beside it, pair after pair, in alternating order.

    Returned in the order without, with, without, with. Raises what `llama_server` and `serve_over_http` raise.
    """
    path, found = find_model(model), []
    with llama_server(path, settings, ["--metrics"]) as server:
        serve_over_http([HttpRequest(32, n_gen)], server, path)
        for number in range(n_pairs):
            pair = {}
            for scraped in (False, True) if number % 2 == 0 else (True, False):
                with _reader(server.port, every_seconds) if scraped else nullcontext():
                    pair[scraped] = serve_over_http([HttpRequest(32, n_gen, seed=1 + number)], server, path)
            found += [pair[False], pair[True]]
    return tuple(found)


@contextmanager
def _reader(port: int, every_seconds: float) -> Iterator[None]:
    """Read /metrics every few seconds in a thread of its own until the block ends."""
    ended = threading.Event()

    def read() -> None:
        while not ended.wait(every_seconds):
            urlopen(f"http://{HOST}:{port}/metrics", timeout=10).read()

    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(read)
        try:
            yield
        finally:
            ended.set()
    reading.result()


def scraping_ratio(pairs: Sequence[HttpServing]) -> tuple[float, tuple[float, float]]:
    """Decode rate with the reader over the rate without it: the median of the pairs, and its 95 % interval."""
    rates = [one.replies[0].tokens_per_second for one in pairs]
    ratios = [beside / without for without, beside in zip(rates[0::2], rates[1::2], strict=True)]
    return median(ratios), median_interval(ratios)
