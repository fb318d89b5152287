"""Turns on a server: which prompt each sends, what is read of the log, and what is refused."""

import random

import pytest

import inferlab as lab
from inferlab.engine.llama_server import refuse_ignored
from inferlab.errors import InvalidSettings
from inferlab.settings import Settings
from studies.windows_and_states import kept_prompts
from studies.windows_and_states.kept_prompts import AGAIN, EDIT, GO_ON, NEW, keep_in_variants, keep_prompts

TINY = lab.tiny_model()


def next_prompt(kind):
    chance = random.Random(0)
    return kept_prompts._next(kind, list(range(9)), list(range(11)), range(100, 200), chance, 5, 3)


def test_each_kind_of_turn_has_its_prompt():
    """Going on keeps the answer, asking again sends the same, an edit keeps the beginning and the end."""
    assert next_prompt(GO_ON)[:11] == list(range(11))
    assert len(next_prompt(GO_ON)) == 14
    assert next_prompt(AGAIN) == list(range(9))
    edited = next_prompt(EDIT)
    assert (edited[:3], edited[6:], len(edited)) == ([0, 1, 2], [6, 7, 8], 9)
    assert min(edited[3:6]) >= 100
    assert len(next_prompt(NEW)) == 5


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"kinds": ("new", "retry")}, "found \\['new', 'retry'\\]"),
        ({"kinds": (GO_ON,)}, "the first is 'new'"),
        ({"settings": Settings(n_ctx=4096, n_seq_max=2)}, "turns need one slot"),
        ({"settings": Settings()}, "n_ctx=None: turns need"),
        ({"n_first": 5000}, "need 5,2.* cells, and n_ctx=4,096"),
    ],
)
def test_turns_that_cannot_be_sent_are_refused(changed, told):
    """Before a server is started."""
    with pytest.raises(InvalidSettings, match=told):
        keep_prompts(TINY, **({"kinds": (NEW,)} | changed))


def test_a_variant_that_is_not_there_is_refused():
    """The error lists those that there are."""
    with pytest.raises(InvalidSettings, match=r"no variant 'all'.* There are: defaults, no checkpoints"):
        keep_in_variants(TINY, ("all",))


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("--cache-reuse", "srv load_model: cache_reuse is not supported by this context, it will be disabled"),
        ("--swa-full", "srv load_model: swa_full is not supported by this model, it will be disabled"),
        ("--context-shift", "srv load_model: ctx_shift is not supported by multimodal, it will be disabled"),
    ],
)
def test_an_option_that_the_server_turns_off_is_refused(option, line):
    """The server warns and goes on without it; without the option there is nothing to refuse."""
    with pytest.raises(InvalidSettings, match=f"{option} is not supported by .*llama-server would go on without it"):
        refuse_ignored((option, "1"), line)
    refuse_ignored((), line)
    refuse_ignored((option,), "srv load_model: ready")
