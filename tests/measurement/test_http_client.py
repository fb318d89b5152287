"""The client of a streaming server, against one that answers as it was written here."""

import pytest
from http_server import answer, event, scripted_server

from inferlab.errors import EngineRefused, EngineTimeout
from inferlab.measurement.http_client import stream, whole_answer


def ask(port, seconds=60.0):
    return stream("127.0.0.1", port, "/completion", {"prompt": [1, 2]}, seconds)


@pytest.mark.timed
def test_each_event_is_stamped_when_it_arrives():
    """A pause of the server lies between two events, not before the first or after the last."""
    first, *rest = answer()
    with scripted_server([first, 0.2, *rest]) as (port, bodies):
        stamped = ask(port)
    times = [event.seconds for event in stamped.events]
    assert bodies == [{"prompt": [1, 2]}]
    assert stamped.sent_seconds < stamped.headers_seconds <= times[0] < times[-1] <= stamped.ended_seconds
    assert times[1] - times[0] == pytest.approx(0.2, abs=0.1)
    assert times[0] - stamped.sent_seconds < 0.15


def test_an_event_has_its_data_and_its_bytes():
    """Pings, which are comments, are no events; two events in one chunk of HTTP are two."""
    text = event({"content": "é", "stop": False, "tokens_predicted": 2})
    with scripted_server([b":\n\n", text + text, answer()[-1]]) as (port, _):
        stamped = ask(port).events[:-1]
    assert [part.data["content"] for part in stamped] == ["é", "é"]
    assert [part.n_bytes for part in stamped] == [len(text)] * 2


@pytest.mark.parametrize(
    ("pieces", "more", "said"),
    [
        ([b'{"error": "no"}'], {"status": 400, "kind": "application/json"}, "answered 400"),
        ([b"<html>"], {"kind": "text/html"}, "text/html"),
        ([event({"error": {"message": "Context size has been exceeded."}})], {}, "exceeded"),
        ([b"data: 7\n\n"], {}, "not an object"),
        ([b"data: {\n\n"], {}, "broke off"),
        ([answer()[0]], {"cut": True}, "broke off"),
    ],
)
def test_what_is_no_answer_is_refused(pieces, more, said):
    """An error of the server, another kind of answer, and a stream that breaks off are told apart."""
    with scripted_server(pieces, **more) as (port, _), pytest.raises(EngineRefused, match=said):
        ask(port)


def test_a_silent_server_is_not_waited_for_for_ever():
    """After the time without a byte the request is given up."""
    with scripted_server([answer()[0], 60.0]) as (port, _), pytest.raises(EngineTimeout, match="sent nothing"):
        ask(port, seconds=0.2)


def test_nobody_listens():
    """A port without a server is an error of the library."""
    with scripted_server([]) as (port, _):
        pass
    with pytest.raises(EngineRefused, match="broke off"):
        ask(port)


@pytest.mark.parametrize(
    ("said", "status"), [(b"[1]", 200), (b"no JSON", 200), (b'{"error": "no"}', 200), (b"{}", 500)]
)
def test_an_answer_that_is_no_answer_is_refused(said, status):
    """A whole answer is one object without an error."""
    with scripted_server([said], status, "application/json") as (port, _), pytest.raises(EngineRefused):
        whole_answer("127.0.0.1", port, "/completion", {})


def test_no_server_is_refused():
    """The error names the address."""
    with pytest.raises(EngineRefused, match=r"127\.0\.0\.1:9"):
        whole_answer("127.0.0.1", 9, "/completion", {})
