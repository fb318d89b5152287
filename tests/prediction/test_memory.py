"""Bytes from a shape: equal to the header's sums and to what the engine allocates."""

from dataclasses import replace
from pathlib import Path

import pytest

import inferlab as lab
from inferlab.errors import InvalidSettings, UnsupportedArchitecture
from inferlab.model.ggml_types import row_bytes
from inferlab.model.gguf import LazyArray
from inferlab.prediction import memory
from inferlab.prediction.memory.cache import cells
from inferlab.prediction.memory.compute import compute_bytes
from inferlab.prediction.memory.placement import placed_layers
from inferlab.units import MIB

MISTRAL = lab.known_model("mistral-7b-v0.3")


@pytest.fixture(scope="module")
def tiny():
    return lab.read_gguf(lab.tiny_model())


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


def test_the_shape_alone_gives_the_weights_of_the_embedded_model(tiny):
    """The formula for known models, compared with a real file: same count, same F16 bytes."""
    shape = replace(
        MISTRAL,
        n_layer=tiny.n_layer,
        n_embd=tiny.n_embd,
        n_ff=tiny.n_ff,
        n_vocab=tiny.n_vocab,
        n_head=tiny.n_head,
        n_head_kv=tiny.n_head_kv,
        head_dim_k=tiny.head_dim_k,
        head_dim_v=tiny.head_dim_v,
        tied_embeddings=True,
    )
    assert memory.weights_bytes(shape, "F16") == tiny.tensor_bytes


@pytest.mark.parametrize(
    "name", ["qwen3-30b-a3b", "granite-3.1-1b-a400m", "gemma-3-1b", "starcoder2-3b", "phi-3-mini-4k", "qwen2.5-7b"]
)
@pytest.mark.parametrize("type", ["F16", "Q8_0"])
def test_weights_in_one_type_are_those_of_a_file_in_that_type(name, type):
    """Experts, fused matrices, further norms and biases: the bytes are those of the shape's file."""
    assert memory.weights_bytes(lab.known_model(name), type) == lab.shape(name, type).tensor_bytes


def test_mistral_keeps_128_kib_a_token():
    """Keys and values of one token in 16 bits, over all layers."""
    assert memory.kv_cache_bytes_per_token(MISTRAL) == 128 * 1024


def test_all_heads_instead_of_kv_heads_is_four_times_too_much():
    """The formula that readers meet elsewhere, as a counter-example."""
    every_head = replace(MISTRAL, n_head_kv=MISTRAL.n_head)
    assert memory.kv_cache_bytes_per_token(every_head) == 4 * memory.kv_cache_bytes_per_token(MISTRAL)


def like(tiny, architecture, **keys):
    """The embedded model's header under another architecture's name, with more keys."""
    renamed = {key.replace("llama.", f"{architecture}.", 1): value for key, value in tiny.metadata.items()}
    more = {f"{architecture}.{key.replace('__', '.')}": value for key, value in keys.items()}
    return replace(tiny, metadata={**renamed, **more, "general.architecture": architecture})


@pytest.mark.parametrize(
    ("architecture", "keys", "what"),
    [
        ("mamba", {}, "an architecture that is not among"),
        ("llama", {"attention__head_count_kv": LazyArray(4, 6, 0)}, r"attention\.head_count_kv for each layer"),
        ("gemma3", {"attention__sliding_window": 512, "attention__sliding_window_pattern": 5}, "a pattern of sliding"),
        ("qwen3", {"nextn_predict_layers": 1}, "layers that predict several tokens"),
        ("deepseek2", {}, "keys and values that its file leaves unsplit"),
    ],
)
def test_a_cache_of_another_kind_is_refused(tiny, architecture, keys, what):
    """What has no formula here is answered with an error that names it, not with a number."""
    with pytest.raises(UnsupportedArchitecture, match=what):
        memory.kv_cache_bytes(like(tiny, architecture, **keys), lab.Settings(n_ctx=1024))


def test_a_key_that_llama_cpp_does_not_read_changes_nothing(tiny):
    """Mistral's header names a window, but llama.cpp runs it as `llama`, which has none."""
    named = like(tiny, "llama", attention__sliding_window=4096)
    assert memory.kv_cache_bytes(named, lab.Settings(n_ctx=8192)) == memory.kv_cache_bytes(
        tiny, lab.Settings(n_ctx=8192)
    )


def test_sliding_layers_keep_their_window_and_a_batch(tiny):
    """Five of six Gemma layers keep 512 + n_ubatch cells, rounded up to 256; with swa_full they keep them all."""
    gemma = like(tiny, "gemma3", attention__sliding_window=512)
    full, sliding = (lab.Settings(n_ctx=8192, swa_full=swa_full) for swa_full in (True, False))
    a_cell = memory.kv_cache_bytes_per_token(gemma) // 6
    assert memory.kv_cache_bytes(gemma, full) == 6 * 8192 * a_cell
    assert memory.kv_cache_bytes(gemma, sliding) == (8192 + 5 * 1024) * a_cell


def test_a_latent_cache_has_keys_only(tiny):
    """Multi-head latent attention stores one vector for keys and values together."""
    latent = like(tiny, "deepseek2", attention__key_length_mla=192, attention__key_length=576)
    assert memory.kv_cache_bytes_per_token(latent) == 6 * 2 * 576 * 2


@pytest.mark.parametrize(
    ("asked", "streams", "each"),
    [
        ({"n_ctx": 300}, 1, 512),
        ({"n_ctx": 769, "n_seq_max": 3}, 3, 512),
        ({"n_ctx": 4096, "n_seq_max": 4}, 4, 1024),
        ({"n_ctx": 4096, "n_seq_max": 4, "kv_unified": True}, 1, 4096),
    ],
)
def test_cells_are_rounded_up_twice(asked, streams, each):
    """n_ctx to 256, then the share of each sequence again; a unified cache is one share."""
    assert cells(lab.Settings(**asked)) == (streams, each)


def test_layers_are_placed_from_the_end():
    """The output layer is the first to move; several devices take contiguous slices in proportion."""
    assert placed_layers(4, lab.Settings(n_gpu_layers=1), [1]) == ("host",) * 4 + ("gpu0",)
    assert placed_layers(4, lab.Settings(n_gpu_layers=3), [1]) == ("host", "host", "gpu0", "gpu0", "gpu0")
    assert placed_layers(4, lab.Settings(), [3, 1]) == ("gpu0",) * 4 + ("gpu1",)
    assert placed_layers(4, lab.Settings(), []) == ("host",) * 5


def test_the_closed_form_keeps_to_where_it_was_proven(tiny):
    """A quantized cache, an expert model and another order of operations are left to the simulation."""
    settings = lab.Settings(n_ctx=2048)
    assert compute_bytes(like(tiny, "llama"), settings, 1, on_device=False)
    assert compute_bytes(like(tiny, "llama"), settings.but(type_k="q8_0"), 1, on_device=False) is None
    assert compute_bytes(like(tiny, "llama", expert_count=8), settings, 1, on_device=False) is None
    assert compute_bytes(like(tiny, "olmo2"), settings, 1, on_device=False) is None


def test_an_open_context_has_no_size():
    """Without n_ctx there is nothing to compute."""
    with pytest.raises(InvalidSettings, match="n_ctx=None"):
        memory.kv_cache_bytes(MISTRAL, lab.Settings())
    with pytest.raises(InvalidSettings, match="no type 'q9_9'"):
        memory.weights_bytes(MISTRAL, "q9_9")
    with pytest.raises(InvalidSettings, match="do not fill blocks"):
        row_bytes("q8_0", 33)


@pytest.mark.engine
def test_a_share_for_the_only_card_can_be_planned():
    """The bound's part for the host alone has no device to share."""
    settings = lab.Settings(n_ctx=512, n_gpu_layers=10, tensor_split=(1,))
    found = lab.fit("mistral-7b-v0.3", settings, vram="8GiB")
    assert found.plan.devices == lab.fit("mistral-7b-v0.3", settings.but(tensor_split=None), vram="8GiB").plan.devices
