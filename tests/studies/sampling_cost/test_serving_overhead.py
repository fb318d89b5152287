"""Where a token's time goes between llama-bench and a client; a scripted server answers."""

import json

import pytest
from fakes import BUFFERS, CARD, CPU_ONLY, ScriptedEngine
from http_server import scripted_server

from inferlab.engine.protocol import Step
from inferlab.errors import InvalidSettings
from inferlab.settings import Settings
from studies.sampling_cost.benchmark_programs import BenchmarkPrograms
from studies.sampling_cost.sampling import WORDS
from studies.sampling_cost.serving_overhead import (
    REQUESTS,
    _Client,
    compare_with_server,
    lost_seconds,
    token_parts,
    token_seconds,
)

RATES = {
    "llama-bench": (1000.0, 1000.0),
    "server: one candidate, not streamed": (500.0, 500.0),
    "server: one candidate": (250.0, 250.0),
    "server: default": (125.0, 125.0),
    "client: default": (100.0, 100.0),
}


class Server:
    """What the client needs of a LlamaServer."""

    def __init__(self, port):
        self.port = port


class PickingEngine(ScriptedEngine):
    """Finds the token with the number of the position the likeliest."""

    def keep(self, n_tokens, sequence=None):
        assert n_tokens == 0

    def step(self, entries):
        return Step(1.0, tuple(one.position for one in entries if one.wanted))


def made(rates):
    """A record with these rates."""
    shared = {"model": CARD, "settings": Settings(n_ctx=256), "machine": CPU_ONLY, "buffers": BUFFERS}
    return BenchmarkPrograms(**shared, n_prompt=8, n_gen=4, rates=rates)


def test_the_parts_of_a_token_add_up_to_the_clients():
    """1 ms of decode, 1 of the loop, 2 of streaming, 4 of sampling and 2 on the way to the client are 10 ms."""
    parts = token_parts(made(RATES), "default")
    assert {name: round(1e3 * seconds, 9) for name, seconds in parts.items()} == {
        "decode": 1, "server's loop": 1, "streaming": 2, "sampling": 4, "way to the client": 2,
    }  # fmt: skip
    assert sum(parts.values()) == pytest.approx(token_seconds(made(RATES), "client: default"))


def test_a_loss_is_paired_by_turns():
    """The second turn is slower for both, and the loss is that of its pair."""
    found = made({"one": (100.0, 50.0), "other": (50.0, 25.0)})
    assert lost_seconds(found, "one", "other") == pytest.approx((0.01, 0.02))


def test_an_answer_in_one_piece_has_no_rate_of_the_client():
    """The server reports its own seconds; the request is what was asked beside the prompt."""
    said = json.dumps({"timings": {"predicted_per_second": 30.0, "prompt_per_second": 90.0}}).encode()
    with scripted_server([said], kind="application/json") as (port, bodies):
        found = _Client(Server(port), [1, 2, 3], 5).rates({"stream": False, "top_k": 1})
    assert found == {"server: {}": 30.0, "prefill: {}": 90.0}
    assert (bodies[0]["prompt"], bodies[0]["n_predict"], bodies[0]["top_k"]) == ([1, 2, 3], 5, 1)


def test_a_changed_token_is_one_that_was_not_the_likeliest():
    """Three tokens of prompt: the likeliest answer would be 2, 3, 4; the server's has one other."""
    with scripted_server([json.dumps({"tokens": [2, 9, 4]}).encode()], kind="application/json") as (port, bodies):
        changed = _Client(Server(port), [7, 7, 7], 3).changed(PickingEngine(), {"grammar": WORDS})
    assert changed == pytest.approx(1 / 3)
    assert (bodies[0]["temperature"], bodies[0]["grammar"]) == (0, WORDS)


@pytest.mark.parametrize("asked", [{"n_prompt": 0}, {"n_gen": 1}, {"turns": 0}])
def test_nothing_to_time_is_refused(asked):
    """An answer of one token has no decode."""
    with pytest.raises(InvalidSettings, match="at least"):
        compare_with_server("tiny", **asked)


def test_each_request_in_the_backend_has_its_twin():
    """So that they can be compared turn by turn."""
    twins = [name for name in REQUESTS if name.endswith(", in the backend")]
    assert len(twins) == 4
    for name in twins:
        assert {**REQUESTS[name.removesuffix(", in the backend")], "backend_sampling": True} == REQUESTS[name]
