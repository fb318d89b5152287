"""Prompts that come back to a server: what is sent, and what the records say of it."""

import pytest

from studies.serving import kept, study
from studies.serving.kept import CASES, Sent


def test_every_last_request_repeats_the_first():
    """And no other does, so that what is kept is that of the first."""
    for case in CASES.values():
        first, *between, last = (one.prompt for one in case.sent)
        assert first == last
        assert first not in between


@pytest.mark.parametrize("name", ["slots", "slots-smollm2"])
def test_a_record_has_every_case(name):
    """The same prompt has the same length each time, and the number of slots is that of its case."""
    servings = study.recorded(name)
    for serving, case in zip(servings, CASES.values(), strict=True):
        assert serving.settings.n_seq_max == case.n_slots
        assert [r.request.seed for r in serving.replies] == [one.prompt for one in case.sent]
        assert serving.replies[0].request.n_prompt == serving.replies[-1].request.n_prompt
        for reply, sent in zip(serving.replies, case.sent, strict=True):
            assert sent.slot in (None, reply.slot)


def test_a_request_names_its_slot_or_none(monkeypatch):
    """Random tokens of a given number, or text through the template."""
    bodies = []
    monkeypatch.setattr(kept, "stream", lambda *of: bodies.append(of[-1]))
    monkeypatch.setattr(kept, "_templated", lambda server, number: f"text {number}")

    class Server:
        port = 1

    kept._stream(Server(), Sent(2, 1), 8, 16, 1000)
    kept._stream(Server(), Sent(2), 8, None, 1000)
    assert (len(bodies[0]["prompt"]), bodies[0]["id_slot"]) == (16, 1)
    assert bodies[1]["prompt"] == "text 2"
    assert "id_slot" not in bodies[1]
    assert bodies[0]["cache_prompt"] is bodies[1]["cache_prompt"] is True
