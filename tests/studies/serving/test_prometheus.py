"""Prometheus as a program beside a measurement; a scripted server answers in its place."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlparse

import pytest

from inferlab.errors import EngineRefused, EngineUnavailable
from studies.serving.prometheus import Prometheus, Series, configuration, watching


@contextmanager
def answering(results):
    """A Prometheus on a scripted server, and the queries that it was sent."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            path = urlparse(self.path)
            asked.append(parse_qs(path.query))
            data = {"version": "2.42.0"} if "buildinfo" in path.path else {"result": results}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"status": "success", "data": data}).encode())

        def log_message(self, *_):
            """Callback that writes nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield Prometheus(server.server_address[1], 1.0), asked
        finally:
            server.shutdown()


def test_a_query_gives_times_and_values():
    """Prometheus writes values as text; the step of the query is the interval of the scrapes."""
    with answering([{"metric": {}, "values": [[10.0, "1.5"], [11.0, "2"]]}]) as (watcher, asked):
        found = watcher.series("rate(x[5s])", 10.0, 11.0)
    assert found == Series("rate(x[5s])", (10.0, 11.0), (1.5, 2.0))
    assert asked[-1] == {"query": ["rate(x[5s])"], "start": ["10.0"], "end": ["11.0"], "step": ["1.0"]}


def test_values_between_two_times():
    """Both ends are part of it."""
    assert Series("x", (1.0, 2.0, 3.0), (4.0, 5.0, 6.0)).between(2.0, 3.0) == (5.0, 6.0)


def test_the_version_is_asked_for():
    """It stands in every record."""
    with answering([]) as (watcher, _):
        assert watcher.version == "2.42.0"


@pytest.mark.parametrize("results", [[], [{"values": []}, {"values": []}]])
def test_a_query_must_have_one_series(results):
    """None means a wrong name, several mean another server's metrics."""
    with answering(results) as (watcher, _), pytest.raises(EngineRefused, match="instead of one"):
        watcher.series("x", 0, 1)


def test_without_an_answer_the_path_is_named():
    """A Prometheus that has ended is an error of the engine's kind, and is not ready."""
    gone = Prometheus(9, 1.0)
    assert not gone.is_ready
    with pytest.raises(EngineRefused, match="buildinfo"):
        _ = gone.version


def test_without_the_program_the_error_says_what_to_install():
    """Nothing else of the library needs it."""
    with pytest.raises(EngineUnavailable, match="apt install"), watching(1, program="no-such-prometheus"):
        pass


def test_a_program_that_ends_at_once_is_reported():
    """With its status."""
    with pytest.raises(EngineRefused, match="status"), watching(1, program="false"):
        pass


def test_the_configuration_scrapes_one_target():
    """JSON, which is YAML too; an interval below a second is written in milliseconds."""
    made = json.loads(configuration(8080, 0.5))
    assert made["global"]["scrape_interval"] == "500ms"
    assert made["scrape_configs"][0]["static_configs"] == [{"targets": ["127.0.0.1:8080"]}]
