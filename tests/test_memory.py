"""Bytes from a shape: equal to the header's sums and to what the engine allocates."""

from dataclasses import replace
from pathlib import Path

import pytest

import inferlab as lab
from inferlab import memory
from inferlab.engine import LlamaEngine
from inferlab.errors import InvalidSettings, UnsupportedArchitecture
from inferlab.units import MIB

MISTRAL = lab.known_model("mistral-7b-v0.3")


@pytest.fixture(scope="module")
def tiny():
    return lab.read_gguf(lab.tiny_model())


@pytest.fixture(scope="module")
def engine():
    engine = LlamaEngine()
    yield engine
    engine.close()


@pytest.mark.parametrize("n_ctx", [256, 300, 1024, 8192])
@pytest.mark.parametrize(
    "types", [("f16", "f16"), ("q8_0", "q8_0"), ("q4_0", "q4_0"), ("q8_0", "q4_0"), ("f32", "f16")]
)
def test_the_cache_is_as_large_as_the_engine_makes_it(tiny, engine, n_ctx, types):
    """Closed form against llama.cpp's own log line, at the 0.01 MiB at which it prints."""
    settings = lab.Settings(n_ctx=n_ctx, type_k=types[0], type_v=types[1])
    opening = engine.open(Path(tiny.path), settings)
    logged = sum(b.n_bytes for b in opening.buffers if b.kind == "kv_cache")
    assert abs(memory.kv_cache_bytes(tiny, settings) - logged) <= 0.0051 * MIB


@pytest.mark.parametrize("n_ctx", [4096, 769])
@pytest.mark.parametrize("together", [{"n_seq_max": 4}, {"n_seq_max": 4, "kv_unified": True}, {"n_seq_max": 3}])
def test_sequences_share_the_cache(tiny, engine, together, n_ctx):
    """With or without a unified pool, the closed form follows the engine, also where both roundings bite."""
    settings = lab.Settings(n_ctx=n_ctx, **together)
    opening = engine.open(Path(tiny.path), settings)
    logged = sum(b.n_bytes for b in opening.buffers if b.kind == "kv_cache")
    assert abs(memory.kv_cache_bytes(tiny, settings) - logged) <= 0.0051 * MIB


def test_the_weights_of_a_file_are_the_sum_of_its_tensors(tiny):
    """Nothing is estimated where the header says it."""
    assert memory.weights_bytes(tiny) == sum(tensor.n_bytes for tensor in tiny.tensors)


def test_the_shape_alone_gives_the_weights_of_the_embedded_model(tiny):
    """The formula for known models, held against a real file: same count, same F16 bytes."""
    shape = replace(
        MISTRAL, n_layer=tiny.n_layer, n_embd=tiny.n_embd, n_ff=tiny.n_ff, n_vocab=tiny.n_vocab, n_head=tiny.n_head,
        n_head_kv=tiny.n_head_kv, head_dim_k=tiny.head_dim_k, head_dim_v=tiny.head_dim_v, tied_embeddings=True,
    )  # fmt: skip
    assert memory.n_params(shape) == tiny.n_params
    assert memory.weights_bytes(shape, "F16") == tiny.tensor_bytes


def test_mistral_has_the_published_number_of_weights():
    """7 248 023 552, as its model card says; 128 KiB of 16-bit cache a token."""
    assert memory.n_params(MISTRAL) == 7_248_023_552
    assert memory.kv_cache_bytes_per_token(MISTRAL) == 128 * 1024


def test_all_heads_instead_of_kv_heads_is_four_times_too_much():
    """The formula that readers meet elsewhere, as a counter-example."""
    every_head = replace(MISTRAL, n_head_kv=MISTRAL.n_head)
    assert memory.kv_cache_bytes_per_token(every_head) == 4 * memory.kv_cache_bytes_per_token(MISTRAL)


def test_what_the_formula_does_not_cover_is_refused(tiny):
    """A sliding window in the header means another cache; the answer is an error, not a number."""
    sliding = replace(tiny, metadata={**tiny.metadata, "llama.attention.sliding_window": 4096})
    with pytest.raises(UnsupportedArchitecture, match=r"attention\.sliding_window"):
        memory.kv_cache_bytes(sliding, lab.Settings(n_ctx=1024))


def test_an_open_context_has_no_size():
    """Without n_ctx there is nothing to compute."""
    with pytest.raises(InvalidSettings, match="n_ctx=None"):
        memory.kv_cache_bytes(MISTRAL, lab.Settings())
    with pytest.raises(InvalidSettings, match="no type 'q9_9'"):
        memory.weights_bytes(MISTRAL, "q9_9")
    with pytest.raises(InvalidSettings, match="do not fill blocks"):
        memory.row_bytes("q8_0", 33)
