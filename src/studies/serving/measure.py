"""The calls that made the records: requests to llama-server in turns, and a server that Prometheus watches."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from urllib.request import urlopen

from inferlab.engine.llama_server import HOST, llama_server
from inferlab.model.synthetic_model import make_shape
from inferlab.settings import Settings
from studies import recipes
from studies.recipes import Recipe
from studies.serving.over_http import (
    Served,
    beside_long_prompt,
    one_after_another,
    serve_in_turns,
    serve_over_http,
    users,
)
from studies.serving.prometheus import watching
from studies.serving.study import ARMS, QUERIES, WINDOW_SECONDS, HttpRequest, HttpServing, Series, WatchedServing


def _model() -> Path:
    return make_shape("llama-3.2-1b", "Q4_K_M", n_layer=4, n_vocab=8192)


def _slots(n: int, n_ctx: int) -> Settings:
    return Settings(n_seq_max=n, n_ctx=n_ctx)


# --- requests in turns ------------------------------------------------------------------------


def order(n: int, every_seconds: float, n_slots: int, n_ctx: int, repeats: int) -> tuple[HttpServing, ...]:
    """Requests one after another; the last one asks to be the first."""
    return serve_in_turns([one_after_another(n, every_seconds)], _model(), [Served(_slots(n_slots, n_ctx))], repeats)


def at_once(
    counts: Sequence[int], n_prompt: int, n_gen: int, n_slots: int, n_ctx: int, repeats: int
) -> tuple[HttpServing, ...]:
    """Different numbers of users who send at the same moment."""
    sent = [users(n, n_prompt, n_gen) for n in counts]
    return serve_in_turns(sent, _model(), [Served(_slots(n_slots, n_ctx))], repeats)


def long_prompt(sizes: Sequence[tuple[int, int]], n_slots: int, n_ctx: int, repeats: int) -> tuple[HttpServing, ...]:
    """A long prompt beside running answers, with several pairs of n_batch and n_ubatch."""
    settings = [_slots(n_slots, n_ctx).but(n_batch=n_batch, n_ubatch=n_ubatch) for n_batch, n_ubatch in sizes]
    return serve_in_turns([beside_long_prompt()], _model(), list(map(Served, settings)), repeats)


def lengths(n_prompts: Sequence[int], n_gen: int, n_ctx: int, repeats: int) -> tuple[HttpServing, ...]:
    """Prompts of several lengths, one at a time."""
    sent = [users(1, n, n_gen) for n in n_prompts]
    return serve_in_turns(sent, _model(), [Served(_slots(1, n_ctx))], repeats)


def events(grammar: str, n_prompt: int, n_gen: int, n_ctx: int, repeats: int) -> tuple[HttpServing, ...]:
    """Answers without a grammar and with one, in turns."""
    sent = [[HttpRequest(n_prompt, n_gen, grammar=one)] for one in ("", grammar)]
    return serve_in_turns(sent, _model(), [Served(_slots(1, n_ctx))], repeats)


def threads(
    choices: Sequence[tuple[int, tuple[int, ...] | None]], n_prompt: int, n_gen: int, n_ctx: int, repeats: int
) -> tuple[HttpServing, ...]:
    """Servers with a number of threads on some cores (None: all), in turns."""
    servers = [Served(_slots(1, n_ctx).but(n_threads=n, n_threads_batch=n), cores) for n, cores in choices]
    return serve_in_turns([users(1, n_prompt, n_gen)], _model(), servers, repeats)


def same_prompts_again(n_prompt: int, n_more: int, n_gen: int, n_slots: int, n_ctx: int) -> tuple[HttpServing, ...]:
    """A prompt for each slot, then the same in reverse order with `n_more` tokens each; a slot may keep beginnings."""
    path, seeds = _model(), range(10, 10 + n_slots)
    sent = [
        [HttpRequest(n, n_gen, 0.5 * place, seed, cache_prompt=True) for place, seed in enumerate(in_order)]
        for n, in_order in ((n_prompt, seeds), (n_prompt + n_more, seeds[::-1]))
    ]
    with llama_server(path, _slots(n_slots, n_ctx)) as server:
        return tuple(serve_over_http(wave, server, path) for wave in sent)


# --- a server whose metrics are read ----------------------------------------------------------


def a_minute_of_work() -> list[HttpRequest]:
    """One long answer; then six users at the same moment; then long prompts with short answers."""
    together = [HttpRequest(64, 250, 25, seed) for seed in range(1, 7)]
    readers = [HttpRequest(1500, 8, 45 + 2 * i, 100 + i) for i in range(6)]
    return [HttpRequest(32, 2000), *together, *readers]


def watch_server(
    requests: Sequence[HttpRequest], model: Path, settings: Settings, interval_seconds: float
) -> WatchedServing:
    """Start llama-server with --metrics and Prometheus beside it, send the requests, and ask for every series."""
    with llama_server(model, settings, ["--metrics"]) as server, watching(server.port, interval_seconds) as watcher:
        serve_over_http(requests[:1], server, model)  # the first request of a server is slower, and is not counted
        time.sleep(WINDOW_SECONDS)
        began = time.time()
        serving = serve_over_http([replace(one, seed=one.seed + 1000) for one in requests], server, model)
        ended = time.time()
        time.sleep(2 * interval_seconds)
        series = tuple(_since(began, watcher.series(query, began, ended)) for query in QUERIES.values())
        known = {one.name: getattr(serving, one.name) for one in fields(serving)}
        return WatchedServing(**known, prometheus=watcher.version, interval_seconds=interval_seconds, series=series)


def _since(began: float, one: Series) -> Series:
    return replace(one, seconds=tuple(round(at - began, 3) for at in one.seconds))


def scrape_pairs(
    model: Path, settings: Settings, every_seconds: float, n_pairs: int, n_gen: int
) -> tuple[HttpServing, ...]:
    """One answer without and one with a reader of /metrics beside it, pair after pair, in alternating order.

    Returned in the order without, with, without, with.
    """
    found: list[HttpServing] = []
    with llama_server(model, settings, ["--metrics"]) as server:
        serve_over_http([HttpRequest(32, n_gen)], server, model)
        for number in range(n_pairs):
            pair = {}
            for scraped in (False, True) if number % 2 == 0 else (True, False):
                with _reader(server.port, every_seconds) if scraped else nullcontext():
                    pair[scraped] = serve_over_http([HttpRequest(32, n_gen, seed=1 + number)], server, model)
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


def watched(n_slots: int, n_ctx: int, interval_seconds: float) -> WatchedServing:
    """A minute of work for the shape, watched."""
    return watch_server(a_minute_of_work(), _model(), _slots(n_slots, n_ctx), interval_seconds)


def scraped(n_ctx: int, every_seconds: float, n_pairs: int, n_gen: int) -> tuple[HttpServing, ...]:
    """Answers of the shape in pairs, without and with a reader of /metrics."""
    return scrape_pairs(_model(), _slots(1, n_ctx), every_seconds, n_pairs, n_gen)


FOUR = {"n_slots": 4, "n_ctx": 8192}
LENGTHS = 16, 32, 64, 128, 256, 512, 1024, 2048, 4096
ON_CORES = (1, (0,)), (2, (0,)), (2, None), (4, None)
RECIPES: Mapping[str, Recipe] = {
    "http-order": partial(order, n=10, every_seconds=0.02, **FOUR, repeats=10),
    "http-users": partial(at_once, (1, 2, 4, 8, 16), n_prompt=64, n_gen=32, **FOUR, repeats=7),
    "http-long-prompt": partial(long_prompt, tuple(ARMS.values()), **FOUR, repeats=15),
    "http-prompts": partial(lengths, LENGTHS, n_gen=2, n_ctx=4352, repeats=5),
    "http-events": partial(events, 'root ::= "東"+', n_prompt=64, n_gen=48, n_ctx=1024, repeats=5),
    "http-cores": partial(threads, ON_CORES, n_prompt=64, n_gen=32, n_ctx=1024, repeats=15),
    "http-slots": partial(same_prompts_again, n_prompt=256, n_more=16, n_gen=8, **FOUR),
    "watched-server": partial(watched, n_slots=2, n_ctx=8192, interval_seconds=1.0),
    "http-scraped": partial(scraped, n_ctx=1024, every_seconds=0.1, n_pairs=15, n_gen=200),
}

if __name__ == "__main__":
    recipes.main(RECIPES)
