"""Streams and servings for tests, from times that the test wrote."""

from dataclasses import fields

from fakes import CARD, CPU_ONLY
from http_server import TIMINGS

from inferlab.engine.llama_server import Launch
from inferlab.measurement.http_client import Event, Stream
from inferlab.settings import Settings
from studies.serving.over_http import replies_of
from studies.serving.study import QUERIES, HttpRequest, HttpServing, Series, WatchedServing


def a_stream(sent=10.0, first=10.5, n_done=(1, 2, 4), slot=0, step=0.1):
    """A stream as the client returns it: an event each `step` seconds from `first` on."""
    some = [Event(first + i * step, 50, {"stop": False, "tokens_predicted": n}) for i, n in enumerate(n_done)]
    end = some[-1].seconds
    last = Event(end, 900, {"stop": True, "id_slot": slot, "timings": TIMINGS})
    return Stream(sent, sent + 0.01, [*some, last], end)


def a_serving(streams, launches, requests=None):
    requests = requests or [HttpRequest(8, 4)] * len(streams)
    replies = replies_of(requests, streams, launches)
    return HttpServing(model=CARD, settings=Settings(n_seq_max=2), machine=CPU_ONLY, replies=replies)


def watched(serving=None, values=(0.0, 1.0)):
    """A serving with the same two values in every series."""
    serving = serving or a_serving([a_stream()], [Launch(10.2, 0)])
    known = {field.name: getattr(serving, field.name) for field in fields(serving)}
    series = tuple(Series(query, (0.0, 1.0), tuple(values)) for query in QUERIES.values())
    return WatchedServing(**known, prometheus="2.42.0", interval_seconds=1.0, series=series)
