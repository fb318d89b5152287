"""What llama.cpp's server does by default."""

import pytest

import inferlab as lab
from inferlab.engine.llama_server import llama_server
from studies.serving.over_http import serve_over_http, users

pytestmark = [pytest.mark.engine, pytest.mark.timed]


def test_four_slots_answer_at_once(program):
    """Started without further options, the server has four slots, and of four requests sent together each has its
    first token before any has its last.
    """
    model = lab.tiny_model()
    with llama_server(model, program=program("llama-server")) as server:
        assert server.settings.n_seq_max == 4
        replies = serve_over_http(users(4, n_prompt=16, n_gen=200), server, model).replies
    assert max(reply.event_seconds[0] for reply in replies) < min(reply.event_seconds[-1] for reply in replies)
    assert sorted(reply.slot for reply in replies) == [0, 1, 2, 3]
