"""Requests over HTTP to the llama-server of `make tools`."""

import pytest

import inferlab as lab
from inferlab.engine.llama_server import llama_server
from inferlab.errors import EngineRefused
from studies.serving.over_http import one_after_another, serve_over_http
from studies.serving.study import HttpRequest

pytestmark = [pytest.mark.engine, pytest.mark.timed]
SETTINGS = lab.Settings(n_seq_max=2, n_ctx=1024, n_threads=1)


@pytest.fixture(scope="module")
def model():
    return lab.tiny_model()


@pytest.fixture
def server(program, model):
    """A server with two slots."""
    with llama_server(model, SETTINGS, program=program("llama-server")) as server:
        yield server


def test_requests_are_launched_in_the_order_of_their_arrival(server, model):
    """A request that asks for priority waits like all others."""
    found = serve_over_http(one_after_another(6, every_seconds=0.1), server, model)
    assert found.launch_order == (0, 1, 2, 3, 4, 5)
    assert found.replies[-1].request.priority == -1000


def test_headers_come_with_the_slot(server, model):
    """So the wait for headers is the queue wait, and prefill comes after it."""
    for reply in serve_over_http([HttpRequest(200, 60, seed=seed) for seed in range(4)], server, model).replies:
        assert reply.sent_seconds < reply.launched_seconds < reply.headers_seconds + 0.01
        assert reply.headers_seconds - reply.launched_seconds < 0.25
        assert reply.launched_seconds < reply.event_seconds[0]


def test_a_request_gets_the_slot_with_the_most_similar_prompt(server, model):
    """And computes only what its slot does not hold."""
    first = [HttpRequest(64, 2, 0.3 * seed, seed, cache_prompt=True) for seed in (0, 1)]
    again = [HttpRequest(80, 2, 0.3 * (1 - seed), seed, cache_prompt=True) for seed in (0, 1)]
    slots = {reply.request.seed: reply.slot for reply in serve_over_http(first, server, model).replies}
    replies = serve_over_http(again, server, model).replies
    assert {reply.request.seed: reply.slot for reply in replies} == slots
    assert all(reply.n_cached >= 60 for reply in replies)


def test_an_event_can_carry_several_tokens(server, model):
    """A letter of three bytes is sent when it is whole, and the count of its tokens with it."""
    reply = serve_over_http([HttpRequest(8, 30, grammar='root ::= "東"+')], server, model).replies[0]
    assert reply.n_tokens == 30
    assert len(reply.event_tokens) < 30


def test_the_settings_of_the_record_are_the_servers_own(server):
    """Context, threads and allocations come from its log."""
    assert (server.settings.n_ctx, server.settings.n_threads) == (1024, 1)
    assert {one.kind for one in server.buffers} >= {"weights", "kv_cache", "compute"}


def test_a_prompt_that_is_too_long_is_an_error(server, model):
    """The server's own message is in it."""
    with pytest.raises(EngineRefused, match="exceed"):
        serve_over_http([HttpRequest(5000, 1)], server, model)


def test_a_model_that_is_none_is_an_error_with_the_servers_last_lines(program, tmp_path):
    """Before anything is sent."""
    (tmp_path / "model.gguf").write_text("no model")
    started = llama_server(tmp_path / "model.gguf", SETTINGS, program=program("llama-server"))
    with pytest.raises(EngineRefused, match="last lines"), started:
        pass
