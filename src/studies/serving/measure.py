"""The calls that made the records: requests to llama-server in turns, and a server that Prometheus watches."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import fields, replace
from functools import partial
from itertools import count
from pathlib import Path
from urllib.request import urlopen

from inferlab.engine.llama_server import llama_server
from inferlab.machine import LOOPBACK_ADDRESS
from inferlab.measurement.turns import in_turns
from inferlab.model.find import find_model
from inferlab.model.synthetic_model import make_shape
from inferlab.settings import Settings
from studies import recipes
from studies.recipes import Recipe
from studies.serving.kept import kept_prompts
from studies.serving.over_http import (
    Served,
    beside_long_prompt,
    one_after_another,
    serve_in_turns,
    serve_over_http,
    users,
)
from studies.serving.prometheus import watching
from studies.serving.study import ARMS, QUERIES, WINDOW_SECONDS, HttpRequest, HttpServing, WatchedServing


def _model() -> Path:
    return make_shape("llama-3.2-1b", "Q4_K_M", n_layer=4, n_vocab=8192)


def shape_in_turns(
    waves: Sequence[Sequence[HttpRequest]], servers: Sequence[Served], repeats: int
) -> tuple[HttpServing, ...]:
    """Waves of requests to servers of the shape, in turns."""
    return serve_in_turns(waves, _model(), servers, repeats)


def kept_by_shape(**sizes: int) -> tuple[HttpServing, ...]:
    """Prompts of random tokens that come back to a server of the shape."""
    return kept_prompts(_model(), **sizes)


def kept_by_model(name: str, **sizes: int) -> tuple[HttpServing, ...]:
    """Prompts of text that come back to a server of a trained model."""
    return kept_prompts(find_model(name), **sizes)


# --- a server whose metrics are read ----------------------------------------------------------


def a_minute_of_work() -> list[HttpRequest]:
    """One long answer; then six users at the same moment; then long prompts with short answers."""
    together = [HttpRequest(64, 250, 25, seed) for seed in range(1, 7)]
    readers = [HttpRequest(1500, 8, 45 + 2 * i, 100 + i) for i in range(6)]
    return [HttpRequest(32, 2000), *together, *readers]


def watch_server(
    requests: Sequence[HttpRequest], settings: Settings, interval_seconds: float, model: Path | None = None
) -> WatchedServing:
    """Start llama-server with --metrics and Prometheus beside it, send the requests, and ask for every series.

    model  None: the shape
    """
    model = model or _model()
    with llama_server(model, settings, ["--metrics"]) as server, watching(server.port, interval_seconds) as watcher:
        serve_over_http(requests[:1], server, model)  # the first request of a server is slower, and is not counted
        time.sleep(WINDOW_SECONDS)
        began = time.time()
        serving = serve_over_http([replace(each, seed=each.seed + 1000) for each in requests], server, model)
        ended = time.time()
        time.sleep(2 * interval_seconds)
        every = [watcher.series(query, began, ended) for query in QUERIES.values()]
        series = tuple(replace(each, seconds=tuple(round(at - began, 3) for at in each.seconds)) for each in every)
        known = {each.name: getattr(serving, each.name) for each in fields(serving)}
        return WatchedServing(**known, prometheus=watcher.version, interval_seconds=interval_seconds, series=series)


def scrape_pairs(
    settings: Settings, every_seconds: float, n_pairs: int, n_gen: int, model: Path | None = None
) -> tuple[HttpServing, ...]:
    """One answer without and one with a reader of /metrics beside it, pair after pair, in alternating order.

    Returned in the order without, with, without, with. model  None: the shape
    """
    model = model or _model()
    seeds = {scraped: count(1) for scraped in (False, True)}
    with llama_server(model, settings, ["--metrics"]) as server:
        serve_over_http([HttpRequest(32, n_gen)], server, model)

        def once(scraped: bool) -> HttpServing:
            with _reader(server.port, every_seconds) if scraped else nullcontext():
                return serve_over_http([HttpRequest(32, n_gen, seed=next(seeds[scraped]))], server, model)

        without, beside = in_turns(once, (False, True), range(n_pairs))
    return tuple(serving for pair in zip(without, beside, strict=True) for serving in pair)


@contextmanager
def _reader(port: int, every_seconds: float) -> Iterator[None]:
    """Read /metrics every few seconds in a thread of its own until the block ends."""
    ended = threading.Event()

    def read() -> None:
        while not ended.wait(every_seconds):
            urlopen(f"http://{LOOPBACK_ADDRESS}:{port}/metrics", timeout=10).read()

    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(read)
        try:
            yield
        finally:
            ended.set()
    reading.result()


FOUR = Settings(n_seq_max=4, n_ctx=8192)
ONE = Settings(n_seq_max=1, n_ctx=1024)
ON_CORES = (1, (0,)), (2, (0,)), (2, None), (4, None)
"""Threads of a server, and the cores that it may use; None: all."""
RECIPES: Mapping[str, Recipe] = {
    "http-order": partial(shape_in_turns, [one_after_another()], [Served(FOUR)], repeats=10),
    "http-users": partial(shape_in_turns, [users(n) for n in (1, 2, 4, 8, 16)], [Served(FOUR)], repeats=7),
    "http-long-prompt": partial(
        shape_in_turns,
        [beside_long_prompt()],
        [Served(FOUR.but(n_batch=n_batch, n_ubatch=n_ubatch)) for n_batch, n_ubatch in ARMS.values()],
        repeats=15,
    ),
    "http-prompts": partial(
        shape_in_turns, [users(1, 2**power, 2) for power in range(4, 13)], [Served(ONE.but(n_ctx=4352))], repeats=5
    ),
    "http-events": partial(
        shape_in_turns,
        [[HttpRequest(64, 48, grammar=grammar)] for grammar in ("", 'root ::= "東"+')],
        [Served(ONE)],
        repeats=5,
    ),
    "http-cores": partial(
        shape_in_turns,
        [users(1)],
        [Served(ONE.but(n_threads=n, n_threads_batch=n), cores) for n, cores in ON_CORES],
        repeats=15,
    ),
    "http-slots": partial(kept_by_shape, n_gen=8, n_ctx=2048, one_copy_mib=12, n_prompt=1024),
    "http-slots-smollm2": partial(kept_by_model, "smollm2", n_gen=8, n_ctx=2048, one_copy_mib=30),
    "watched-server": partial(watch_server, a_minute_of_work(), Settings(n_seq_max=2, n_ctx=8192), 1.0),
    "http-scraped": partial(scrape_pairs, ONE, every_seconds=0.1, n_pairs=15, n_gen=200),
}

if __name__ == "__main__":
    recipes.main(RECIPES)
