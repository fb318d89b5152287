"""Requests to a server: what is sent, whose launch is whose, workloads, and servers in turns."""

from dataclasses import replace

import pytest
from fakes import CPU_ONLY
from http_server import answer, scripted_server
from measurement_http import a_serving, a_stream

import inferlab as lab
from inferlab.engine.llama_server import Launch
from inferlab.errors import InvalidSettings
from inferlab.settings import Settings
from studies.serving import over_http
from studies.serving.over_http import body_of, serve_over_http
from studies.serving.study import HttpRequest


class ScriptedServer:
    """What `serve_over_http` needs of a LlamaServer."""

    settings, buffers = Settings(n_seq_max=4), ()

    def __init__(self, port):
        self.port, self.asked = port, 0

    def launches(self):
        self.asked += 1
        return () if self.asked == 1 else (Launch(0.0, 2),)


def test_launches_belong_to_the_answers_of_their_slot():
    """A slot serves one after another, so its launches are in the order in which its answers ended."""
    streams = [a_stream(sent=10.0, first=12.0, slot=1), a_stream(sent=10.1, first=10.5, slot=1), a_stream(sent=10.2)]
    one = a_serving(streams, [Launch(11.9, 1), Launch(10.3, 0), Launch(10.2, 1)])
    assert [reply.launched_seconds for reply in one.replies] == pytest.approx([1.9, 0.2, 0.3])
    assert one.launch_order == (1, 2, 0)


def test_a_launch_that_the_log_lacks_stays_unknown():
    """No launch is guessed: the other slots keep theirs."""
    streams = [a_stream(slot=0), a_stream(slot=1), a_stream(sent=10.4, slot=1)]
    one = a_serving(streams, [Launch(10.2, 0), Launch(10.2, 1)])
    assert [reply.queue_seconds for reply in one.replies] == [pytest.approx(0.2), None, None]
    assert one.replies[1].prefill_seconds is None
    assert one.launch_order == (0,)


def test_replies_are_in_the_order_of_sending():
    """Whatever thread came first, and each keeps its own request."""
    requests = [HttpRequest(8, 4, 0.3, seed=1), HttpRequest(8, 4, seed=2)]
    one = a_serving([a_stream(sent=10.3), a_stream()], [], requests)
    assert [reply.request.seed for reply in one.replies] == [2, 1]
    assert [reply.sent_seconds for reply in one.replies] == pytest.approx([0, 0.3])


def test_a_body_says_what_the_request_says():
    """Exact length, greedy, streamed; what is not set is not sent; equal seeds begin alike."""
    long, short = (body_of(HttpRequest(n, 5, seed=3), 1000) for n in (20, 10))
    assert long["prompt"][:10] == short["prompt"]
    assert short["prompt"] != body_of(HttpRequest(10, 5, seed=4), 1000)["prompt"]
    assert (short["n_predict"], short["ignore_eos"], short["cache_prompt"]) == (5, True, False)
    assert not {"priority", "grammar"} & set(short)
    assert body_of(HttpRequest(1, 1, priority=0, grammar="root"), 9)["priority"] == 0


def test_requests_are_served_by_a_server(monkeypatch):
    """The fields of a measurement, and what the server reported itself."""
    monkeypatch.setattr(over_http, "this_machine", lambda: CPU_ONLY)
    with scripted_server(answer(slot=2)) as (port, bodies):
        one = serve_over_http([HttpRequest(6, 5)], ScriptedServer(port), lab.tiny_model(), n_cores=1)
    reply = one.replies[0]
    assert len(bodies[0]["prompt"]) == 6
    assert (reply.slot, reply.n_cached, reply.n_tokens, one.n_cores) == (2, 3, 5, 1)
    assert (reply.server_prompt_seconds, reply.server_decode_seconds) == (0.02, 0.04)
    assert "llama-server over HTTP" in one.badge


@pytest.mark.parametrize("requests", [[], [HttpRequest(0, 1)], [HttpRequest(1, 0)]])
def test_a_request_without_a_token_is_refused(requests):
    """Nothing is sent."""
    with pytest.raises(InvalidSettings, match="a token"):
        serve_over_http(requests, ScriptedServer(1), lab.tiny_model())


@pytest.mark.timed
def test_requests_are_sent_when_they_say(monkeypatch):
    """Two that say the same moment are sent together, the third later."""
    monkeypatch.setattr(over_http, "this_machine", lambda: CPU_ONLY)
    requests = [HttpRequest(1, 1, seed=0), HttpRequest(1, 1, seed=1), HttpRequest(1, 1, 0.3, seed=2)]
    monkeypatch.setattr(over_http, "LOG_SECONDS", 0.0)
    with scripted_server(answer()) as (port, _):
        replies = serve_over_http(requests, ScriptedServer(port), lab.tiny_model()).replies
    assert replies[1].sent_seconds < 0.15 < replies[2].sent_seconds
    assert replies[2].request == requests[2]


def test_workloads_are_what_they_are_called():
    """Users come at the same moment, each with a prompt of its own; the long prompt and the priority come last."""
    assert {request.after_seconds for request in over_http.users(4)} == {0.0}
    assert len({request.seed for request in over_http.users(4)}) == 4
    *running, long = over_http.beside_long_prompt()
    assert long.n_prompt > 10 * max(one.n_prompt for one in running)
    assert long.after_seconds > 0
    sent = over_http.one_after_another(5)
    assert [one.priority for one in sent] == [None] * 4 + [-1000]
    assert [one.after_seconds for one in sent] == sorted(one.after_seconds for one in sent)


def test_servers_take_turns(monkeypatch):
    """Each wave goes to each server before the next repetition; every wave has prompts of its own."""
    sent = []

    class Started:
        def __init__(self, *_, **more):
            self.name = more["cores"]

        def __enter__(self):
            return self

        def __exit__(self, *_):
            sent.append(("stopped", self.name))

    def serve(requests, server, path, n_cores):
        sent.append((server.name, n_cores, requests[0].n_prompt, requests[0].seed))
        return replace(a_serving([a_stream()], []), n_cores=n_cores)

    monkeypatch.setattr(over_http, "llama_server", Started)
    monkeypatch.setattr(over_http, "serve_over_http", serve)
    servers = [over_http.Served(cores=(0,)), over_http.Served()]
    waves = [[HttpRequest(1, 1)], [HttpRequest(2, 1)]]
    found = over_http.serve_in_turns(waves, lab.tiny_model(), servers, repeats=2)
    *counted, one, two = sent
    assert [entry[:3] for entry in counted[2:]] == [((0,), 1, 1), (None, None, 1), ((0,), 1, 2), (None, None, 2)] * 2
    assert len({entry[3] for entry in counted}) == len(counted) == 10
    assert len(found) == 8
    assert {one, two} == {("stopped", (0,)), ("stopped", None)}


def test_without_the_program_the_recorded_run_is_shown(monkeypatch):
    """And it is said which of the two it is."""
    monkeypatch.setattr(over_http, "built_program", lambda name: None)
    assert len(over_http.serve_or_load("epyc-2c/http-order", [[HttpRequest(1, 1)]], "no model at all")) > 1
    assert "recorded" in over_http.origin()
    monkeypatch.setattr(over_http, "built_program", lambda name: name)
    monkeypatch.setattr(over_http, "serve_in_turns", lambda waves, *args, **named: (waves, args, named))
    assert over_http.serve_or_load("x", [], 1, repeats=2) == ([], (1,), {"repeats": 2})
    assert over_http.origin() == "The results are measured on this machine."
