"""The model in NumPy: its logits are llama.cpp's, its cache changes nothing but the work."""

import numpy as np
import pytest

import inferlab as lab
from inferlab.engine.client import LlamaEngine
from inferlab.errors import UnsupportedArchitecture
from inferlab.model import numpy_llama
from inferlab.settings import Settings

TEXT = "The following function returns a string that is used to convert the object."


@pytest.fixture(scope="module")
def scored():
    """Token ids of a text and llama.cpp's nats for them."""
    engine = LlamaEngine()
    engine.open(lab.tiny_model(), Settings(n_ctx=256))
    tokens = engine.tokenize(TEXT)
    nats = np.array(engine.score(tokens))
    engine.close()
    return tokens, nats


@pytest.fixture(scope="module")
def tiny():
    return lab.read_gguf(lab.tiny_model())


def nats(model, order, tokens):
    return numpy_llama.Llama(model, order).nats(tokens)


@pytest.mark.engine
def test_the_miniature_is_the_engine_in_other_words(tiny, scored):
    """Norm first, results added: each token's surprise is llama.cpp's, up to the rounding of 16 bits."""
    tokens, engine = scored
    assert abs(nats(tiny, numpy_llama.NORM_FIRST, tokens) - engine).max() < 0.01


@pytest.mark.engine
@pytest.mark.parametrize("order", [numpy_llama.NORM_LAST, numpy_llama.NO_RESIDUAL])
def test_another_order_is_another_model(tiny, scored, order):
    """With the norms last the same weights predict no better than chance over the vocabulary."""
    tokens, _ = scored
    assert nats(tiny, order, tokens).mean() > np.log(tiny.n_vocab) - 1


@pytest.mark.engine
def test_a_cache_changes_the_work_and_not_the_answer(tiny, scored):
    """Token by token over kept keys and values gives the logits of the whole text at once."""
    tokens, _ = scored
    model = numpy_llama.Llama(tiny)
    caches = model.caches(len(tokens))
    one_by_one = [model.logits([token], caches, first) for first, token in enumerate(tokens)]
    assert np.allclose(np.concatenate(one_by_one), model.logits(tokens), atol=1e-3)


def test_rows_in_place_are_all_rows_so_far():
    """After each row attention sees it and those before it; room for more than were allocated there is not."""
    rows = np.arange(24, dtype=np.float32).reshape(6, 2, 2)
    cache = numpy_llama.InPlace(6)
    for one in range(6):
        keys, values = cache.add(rows[one : one + 1], -rows[one : one + 1])
        assert np.array_equal(keys, rows[: one + 1])
        assert np.array_equal(values, -rows[: one + 1])
    with pytest.raises(IndexError, match="do not fit"):
        cache.add(rows[:1], rows[:1])


def test_rows_in_place_are_never_moved():
    """What was written stays where it is: later rows join it in the same memory."""
    cache, rows = numpy_llama.InPlace(4), np.ones((1, 1, 2), np.float32)
    first, _ = cache.add(rows, rows)
    second, _ = cache.add(2 * rows, rows)
    assert np.shares_memory(first, second)


def test_quantized_weights_are_refused(tiny):
    """The miniature says what it cannot read instead of reading it wrong."""
    from dataclasses import replace

    quantized = replace(tiny, tensors=(replace(tiny.tensors[0], type="Q4_K"), *tiny.tensors[1:]))
    with pytest.raises(UnsupportedArchitecture, match="Q4_K"):
        numpy_llama.Llama(quantized)
