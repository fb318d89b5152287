"""How well a text is predicted: bits per byte from llama.cpp's own logits."""

import math

import pytest

import inferlab as lab
from inferlab.divergence import CHUNK, bits_per_byte, perplexity
from inferlab.engine import LlamaEngine
from inferlab.errors import EngineRefused, InvalidSettings
from inferlab.gguf import read_gguf
from inferlab.models import tiny_model
from inferlab.settings import Settings

TEXT = "The function returns a new list of the same length. If the argument is not a string, an error is raised. " * 30


@pytest.fixture
def engine():
    engine = LlamaEngine()
    yield engine
    engine.close()


def test_a_uniform_guess_is_the_worst_that_a_trained_model_may_do():
    """Real text costs far fewer bits than the logarithm of the vocabulary's size."""
    assert 0.05 < bits_per_byte(TEXT) < math.log2(4096) / 3
    assert 1 < perplexity(TEXT).value < 4096 / 10


def test_a_coarser_cache_moves_the_scores(engine):
    """With keys and values in four bits every token's cost shifts a little, and more than in eight."""
    plain, eight, four = (
        lab.token_nats(TEXT[:1000], settings=Settings(type_k=kind, type_v=kind), engine=engine)
        for kind in ("f16", "q8_0", "q4_0")
    )
    shifts = [sum(abs(a - b) for a, b in zip(plain, other, strict=True)) for other in (eight, four)]
    assert 0 < shifts[0] < shifts[1]


def test_scores_follow_the_chosen_tokens(engine):
    """The greedy continuation is the likeliest: no other last token costs less."""
    engine.open(tiny_model(), Settings(n_ctx=CHUNK, n_batch=CHUNK))
    prompt = engine.tokenize("The function returns")
    (best,) = engine.generate(prompt, 1).tokens
    costs = {token: engine.score([*prompt, token])[-1] for token in (best, 300, 400, 500)}
    assert min(costs, key=costs.get) == best


def test_what_does_not_fit_the_context_is_refused(engine):
    """A score needs all tokens in one context, and at least two of them."""
    engine.open(tiny_model(), Settings(n_ctx=CHUNK, n_batch=CHUNK))
    for tokens in ([1], [1] * (CHUNK + 1)):
        with pytest.raises(EngineRefused, match="cannot be scored"):
            engine.score(tokens)


def test_synthetic_weights_are_not_judged(monkeypatch):
    """A made-up model has a speed and a size, and nothing to say."""
    made_up = read_gguf(tiny_model())
    made_up.metadata["inferlab.synthetic"] = True
    monkeypatch.setattr("inferlab.divergence.read_gguf", lambda path: made_up)
    with pytest.raises(InvalidSettings, match="synthetic weights"):
        lab.bits_per_byte(TEXT)
