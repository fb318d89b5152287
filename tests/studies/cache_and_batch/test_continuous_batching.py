"""Requests served through slots, by static and by continuous batching."""

import pytest
from fakes import BatchEngine

from inferlab.errors import InvalidSettings
from inferlab.settings import Settings
from studies.cache_and_batch.continuous_batching import Request, both_ways, requests, schedule

CROWD = [Request(2, n) for n in (1, 4, 2, 3)]


def served(continuous, requests=CROWD, n_slots=2):
    return schedule(requests, n_slots=n_slots, continuous=continuous, engine=BatchEngine(lambda n: 1.0))


def test_a_static_batch_is_as_long_as_its_longest_answer():
    """Two batches of two answers, of 1 and 4 tokens and of 2 and 3: four steps and three."""
    found = served(continuous=False)
    assert found.seconds == 7
    assert [one.began_seconds for one in found.answered] == [0, 0, 4, 4]
    assert found.busy_share == pytest.approx((1 + 4 + 2 + 3) / (7 * 2))


def test_a_free_slot_is_filled_at_once():
    """The third request begins when the first one ends, and the number of steps is as small as the slots allow."""
    found = served(continuous=True)
    assert [one.began_seconds for one in found.answered] == [0, 0, 1, 3]
    assert found.seconds == 6
    assert found.tokens_per_second == pytest.approx(10 / 6)


def test_every_answer_is_complete_and_on_a_clock():
    """All requested tokens are generated; the first after the step with the prompt, the last when its slot is freed."""
    engine = BatchEngine(lambda n: 1.0)
    found = schedule(CROWD, n_slots=2, engine=engine)
    for one in found.answered:
        assert one.ended_seconds - one.began_seconds == one.request.n_gen
        assert one.first_seconds == one.began_seconds + 1
    assert sum(engine.steps) == sum(one.n_prompt + one.n_gen - 1 for one in CROWD)


def test_both_ways_serve_the_same_requests():
    """Static first, and each with every request."""
    waiting = requests(2, (1, 4, 2, 3))
    ways = both_ways(waiting, "tiny", Settings(), n_slots=2, engine=BatchEngine(lambda n: 1.0))
    assert waiting == CROWD
    assert {name: one.seconds for name, one in ways.items()} == {"static": 7, "continuous": 6}


def test_with_one_slot_both_methods_are_equal():
    """A negative control: with one slot no request waits for another one of its batch."""
    assert served(True, n_slots=1).seconds == served(False, n_slots=1).seconds == 10


@pytest.mark.engine
def test_llama_cpp_serves_by_both_methods(engine):
    """The same requests take fewer steps when each slot is refilled as soon as it is free."""
    requests = [Request(8, n) for n in (2, 9, 2, 9)]
    static, continuous = (schedule(requests, n_slots=2, continuous=way, engine=engine) for way in (False, True))
    assert len(continuous.running) < len(static.running)
    assert [one.number for one in continuous.answered] == [1, 2, 3, 4]


@pytest.mark.parametrize("asked", [([], 2), ([Request(2, 0)], 2), (CROWD, 0)])
def test_an_empty_request_is_refused(asked):
    """A request has a token of prompt and of answer, and there is a slot for it."""
    with pytest.raises(InvalidSettings, match="at least"):
        served(True, *asked)
