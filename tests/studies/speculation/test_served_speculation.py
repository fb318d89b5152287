"""Answers of two servers in turn; scripted ones answer."""

import json

import pytest
from fakes import CARD, CPU_ONLY
from http_server import scripted_server

from inferlab.errors import InvalidSettings
from inferlab.settings import Settings
from studies.speculation.served_speculation import KINDS, PENALTY, Client, ServedCase, ServedSpeculation


class Server:
    """What the client needs of a LlamaServer."""

    def __init__(self, port):
        self.port = port


def said(ms, **more):
    return [json.dumps({"tokens": [5, 6, 7], "timings": {"predicted_ms": ms, **more}}).encode()]


def test_a_pair_has_the_seconds_and_the_drafts_of_both_servers():
    """What the servers report; the first request of each is not counted, and the servers take turns."""
    drafted = said(20.0, draft_n=8, draft_n_accepted=6)
    with (
        scripted_server(said(40.0), kind="application/json") as (plain, plain_bodies),
        scripted_server(drafted, kind="application/json") as (other, bodies),
    ):
        case = Client(Server(plain), Server(other), 3).compare("ngram-mod", "prose", [[1, 2], [3]], PENALTY)
    assert case.speedups == (2.0, 2.0)
    assert (case.n_drafted, case.n_accepted, case.n_same) == ((8, 8), (6, 6), (3, 3))
    assert case.accepted_share == 0.75
    assert bodies == plain_bodies
    assert [body["prompt"] for body in bodies] == [[1, 2], [1, 2], [3]]
    assert bodies[0]["repeat_penalty"] == PENALTY["repeat_penalty"]


def test_without_a_draft_there_is_no_share():
    """Unknown stays unknown, and too few pairs have no interval."""
    case = ServedCase("ngram-mod", "prose", (0.2,), (0.1,), (0,), (0,), (4,), (0,))
    assert (case.accepted_share, case.interval, case.speedup) == (None, None, 2.0)
    found = ServedSpeculation(
        model=CARD, settings=Settings(n_ctx=256), machine=CPU_ONLY, n_prompt=8, n_gen=4, cases=(case,)
    )
    assert found.of("ngram-mod", "prose") is case
    with pytest.raises(InvalidSettings, match="only: ngram-mod on prose"):
        found.of("ngram-mod", "code")


def test_every_kind_is_a_type_of_llama_server():
    """And is accepted by the check of flags."""
    from inferlab.options.speculation import speculation_types

    assert {flags[1] for flags in KINDS.values()} <= set(speculation_types())
