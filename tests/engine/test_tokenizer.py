"""Text to token ids and back."""

import pytest
from fakes import ScriptedEngine

import inferlab as lab
from inferlab.engine.tokenizer import time_tokenizer
from inferlab.errors import EngineRefused
from inferlab.model.find import tiny_model


@pytest.mark.engine
def test_text_opens_with_the_models_own_first_token():
    """The embedded model begins every text with token 0, which vanishes on the way back."""
    assert lab.tokenize("", tiny_model()) == [0]
    assert lab.tokenize("The function", tiny_model())[0] == 0
    assert lab.detokenize([0], tiny_model()) == ""


@pytest.mark.engine
@pytest.mark.parametrize(
    "text", ["def f(x): return x + 1", "a , b ; SELECT ... FROM x", " two\n\n  lines\t", "Zürich 東京 🙂"]
)
def test_text_survives_the_round_trip(text):
    """Every byte comes back, spaces before punctuation and characters unknown to the vocabulary included."""
    assert lab.detokenize(lab.tokenize(text, tiny_model()), tiny_model()) == text


@pytest.mark.engine
@pytest.mark.parametrize("token", [-1, 4096, 2**31 - 1])
def test_an_unknown_token_id_is_refused(token):
    """A number outside the vocabulary is an error of ours, not a crash of llama.cpp."""
    with pytest.raises(EngineRefused, match="this vocabulary has 4096"):
        lab.detokenize([token], tiny_model())


def test_another_engine_can_be_asked():
    """Both directions go through whatever engine is given."""
    assert lab.tokenize("a bc", tiny_model(), ScriptedEngine()) == [1, 2]
    assert lab.detokenize([1, 2], tiny_model(), ScriptedEngine()) == "x xx"


@pytest.mark.engine
def test_tokenizing_is_timed_text_by_text():
    """Each text has its number of tokens and the shortest time of its calls."""
    short, long = time_tokenizer(["The function", "The function " * 50], tiny_model(), repeats=2)
    assert short.n_tokens == len(lab.tokenize("The function", tiny_model()))
    assert short.seconds > 0
    assert short.n_tokens < long.n_tokens
