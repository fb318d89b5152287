"""The same answer twice: bits of costs, tokens of answers."""

import pytest

import inferlab as lab
from inferlab.errors import InvalidSettings
from inferlab.measurement.same_answer import CHANGES, REFERENCE, Change, Compared, n_same, pieces, same_answers, threads

SMALL = {"n_prompts": 2, "n_prompt": 24, "n_gen": 6, "progress": False}


def test_answers_agree_up_to_the_first_other_token():
    """What agrees after it does not count."""
    assert [n_same((1, 2, 3), other) for other in ((1, 2, 3), (1, 9, 3), (9, 2, 3), (1, 2))] == [3, 1, 0, 2]


def test_other_bits_are_counted_from_the_second_token_of_the_text():
    """The first token has no cost."""
    one = Compared("x", (0.0, 0.0, 1e-9, 0.0, 1e-3), ())
    assert (one.n_other_bits, one.first_other) == (2, 4)
    assert one.bits_text == "other bits at 2 of 5 tokens, from token 4, at most 0.001 nats apart"
    same, beside = Compared("x", (0.0,), ()), Compared("x", (), ())
    assert (same.first_other, same.bits_text, beside.bits_text) == (None, "the same bits", "not scored")


def test_a_text_must_have_enough_tokens():
    """The error says how many there are."""
    assert pieces([1, 2, 3, 4, 5], 2, 2) == [[1, 2], [3, 4]]
    with pytest.raises(InvalidSettings, match="5 tokens"):
        pieces([1, 2, 3, 4, 5], 3, 2)


@pytest.mark.engine
def test_a_change_of_nothing_changes_no_bit():
    """Both sides are computed; an answer beside others has a place in each table."""
    changes = {"nothing": CHANGES["nothing"], "beside": Change(REFERENCE, REFERENCE, beside=1)}
    found = same_answers("tiny", changes=changes, **SMALL)
    assert found.change("nothing").n_other_bits == found.n_other_answers("nothing") == 0
    assert [len(one.n_same) for one in found.compared] == [2, 2]
    assert [len(one.nats_apart) for one in found.compared] == [SMALL["n_prompt"] - 1, 0]
    with pytest.raises(InvalidSettings, match="only nothing, beside"):
        found.change("another")


@pytest.mark.engine
def test_threads_change_no_bit_in_a_short_text():
    """llama.cpp cuts the cells among the threads only from 512 cells on."""
    found = same_answers("tiny", changes={"one": Change(REFERENCE, threads(REFERENCE, 1))}, **SMALL)
    assert found.change("one").n_other_bits == 0


def test_in_the_record_threads_matter_after_256_tokens_with_flash_attention():
    """The pass over token 257 is the first with 512 cells, and gives the cost of token 258."""
    found = lab.load("epyc-2c/same-answers")
    assert found.change("1 thread, not 2").first_other == 258
    assert found.change("three other answers beside").nats_apart == ()
    for name in ("nothing", "1 thread, not 2, without flash attention", "1 thread, not 2, KV cache in q8_0"):
        assert found.change(name).n_other_bits == found.n_other_answers(name) == 0
    assert len(found.compared[0].n_same) >= 30


def test_the_recorded_server_repeats_itself_alone():
    """And with another seed it does not."""
    served = lab.load("epyc-2c/served-answers")
    assert served.n_other_answers("greedy, asked again") == served.n_other_answers("seed 7, asked again") == 0
    assert served.n_other_answers("seed 7, every candidate, asked again") == 0
    assert served.n_other_answers("seed 7, then seed 8") > len(served.compared[0].n_same) / 2
