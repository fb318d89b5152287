"""Pairs of equal requests to a server; a scripted one answers."""

import json

import pytest
from http_server import scripted_server

from inferlab.errors import EngineRefused
from inferlab.measurement.http_client import whole_answer
from studies.same_answer.served_answers import DRAWN, GREEDY, REQUESTS, Asked, _Client

HOST = "127.0.0.1"


class Server:
    """What the client needs of a LlamaServer."""

    def __init__(self, port):
        self.port = port


def test_the_second_request_differs_by_what_was_asked():
    """Both have the prompt, the slot and the seed; the others run in slots of their own."""
    said = json.dumps({"tokens": [5, 6, 7]}).encode()
    with scripted_server([said], kind="application/json") as (port, bodies):
        client = _Client(Server(port), [[1, 2], [3, 4]], 3)
        assert client.compare(Asked(DRAWN, {"cache_prompt": True})) == (3, 3)
        first, second = bodies[:2]
        assert client.compare(Asked(GREEDY, beside=1)) == (3, 3)
    assert second == {**first, "cache_prompt": True}
    assert (first["seed"], first["id_slot"], first["prompt"]) == (7, 0, [1, 2])
    others = [body for body in bodies if body["id_slot"] == 1]
    assert {tuple(body["prompt"]) for body in others} == {(1, 2), (3, 4)}


def test_every_pair_repeats_its_request_or_changes_one_thing():
    """So that a difference has one cause."""
    assert all(len(one.more) + (one.beside > 0) <= 1 for one in REQUESTS.values())


@pytest.mark.parametrize(
    ("said", "status"), [(b"[1]", 200), (b"no JSON", 200), (b'{"error": "no"}', 200), (b"{}", 500)]
)
def test_an_answer_that_is_no_answer_is_refused(said, status):
    """A whole answer is one object without an error."""
    with scripted_server([said], status, "application/json") as (port, _), pytest.raises(EngineRefused):
        whole_answer(HOST, port, "/completion", {})


def test_no_server_is_refused():
    """The error names the address."""
    with pytest.raises(EngineRefused, match=r"127\.0\.0\.1:9"):
        whole_answer(HOST, 9, "/completion", {})
