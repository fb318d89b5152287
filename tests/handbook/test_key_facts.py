"""Facts that several pages tell: one computation, one answer."""

from pathlib import Path

import pytest

from handbook import key_facts
from inferlab.errors import InferlabError
from inferlab.instruments import answered, planner
from inferlab.instruments.dropped import DroppedFiles


def test_the_longest_context_ends_where_the_training_did():
    """Memory may hold a longer context than the model was trained for; then the training decides."""
    assert key_facts.answer("longest mistral-7b-v0.3 q8_0") == "32,768"
    tokens = int(key_facts.answer("room mistral-7b-v0.3 q8_0").replace(",", ""))
    assert tokens > 32_768


@pytest.mark.parametrize("model", ["mistral-7b-v0.3", "llama-3.1-8b", "gemma-3-4b"])
@pytest.mark.parametrize("cache_type", ["f16", "q8_0"])
def test_the_planner_says_the_same(model, cache_type):
    """A reader who opens the planner with this model and a card of 8 GB finds the number that the pages tell."""
    asked = {**planner.DEFAULTS, "model": model, "type_k": cache_type, "type_v": cache_type}
    largest = answered("planner", asked, DroppedFiles(Path("nowhere")))["data"]["answers"]["largest_n_ctx"]
    assert largest["value"] == key_facts.longest_context(model, cache_type)


@pytest.mark.parametrize("asked", ["longest llama-3.1-8b", "shortest llama-3.1-8b f16", "longest llama-9 f16"])
def test_an_unknown_question_fails_the_build(asked):
    """A word too few, another word, an unknown model: the page is told, and shows no number."""
    with pytest.raises((ValueError, InferlabError)):
        key_facts.answer(asked)
