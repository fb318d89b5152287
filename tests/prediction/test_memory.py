"""Bytes from a shape: equal to the header's sums and to what the engine allocates."""

from dataclasses import replace
from pathlib import Path

import pytest

import inferlab as lab
from inferlab.errors import InvalidSettings, UnsupportedArchitecture
from inferlab.model.ggml_types import row_bytes
from inferlab.prediction import memory
from inferlab.prediction.memory.cache import cache_layers, cells
from inferlab.prediction.memory.compute import compute_bytes, compute_range
from inferlab.prediction.memory.placement import placed_layers, weights_of_layers
from inferlab.units import MIB

MISTRAL = lab.known_model("mistral-7b-v0.3")


MAMBA = {f"ssm__{name}": 2 for name in ("conv_kernel", "inner_size", "state_size", "group_count")}


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
        ("gemma4-assistant", {}, "has no closed form here"),
        ("of-tomorrow", {}, "newer than this library"),
        ("mamba", {}, r"no ssm\.conv_kernel and no ssm\.inner_size and no ssm\.state_size"),
        ("cohere2", {}, r"no attention\.sliding_window"),
        ("gemma4", {"attention__sliding_window": 512}, r"no list attention\.sliding_window_pattern"),
        ("deepseek32", {}, r"no attention\.indexer\.key_length"),
        ("llama", {"block_count": 100_000}, "gives 100000 layers"),
    ],
)
def test_a_cache_of_unknown_size_is_refused(tiny, architecture, keys, what):
    """What has no formula, or lacks a key, is answered with an error that names it, not with a number."""
    with pytest.raises(UnsupportedArchitecture, match=what):
        memory.kv_cache_bytes(like(tiny, architecture, **keys), lab.Settings(n_ctx=1024))


def test_a_missing_width_is_named(tiny):
    """Without the width of heads the model's own width is needed; an error says which key the header lacks."""
    bare = replace(tiny, metadata={k: v for k, v in tiny.metadata.items() if not k.endswith(("_length", "head_count"))})
    with pytest.raises(UnsupportedArchitecture, match=r"no attention\.head_count, without which"):
        memory.kv_cache_bytes(bare, lab.Settings(n_ctx=1024))
    with pytest.raises(UnsupportedArchitecture, match=r"no embedding_length, without which"):
        memory.kv_cache_bytes(like(bare, "llama", attention__head_count=8), lab.Settings(n_ctx=1024))


def test_layers_differ_where_the_header_says_so(tiny):
    """KV heads of each layer, a pattern of windows of its own, layers that predict further tokens."""
    settings, whole = lab.Settings(n_ctx=1024), memory.kv_cache_bytes(tiny, lab.Settings(n_ctx=1024))
    heads = (*(tiny.n_head_kv,) * 3, 0, 0, 0)
    assert memory.kv_cache_bytes(like(tiny, "llama", attention__head_count_kv=heads), settings) == whole // 2
    assert memory.kv_cache_bytes(like(tiny, "llama", nextn_predict_layers=2), settings) == whole * 4 // 6
    windows = {"attention__sliding_window": 256, "attention__sliding_window_pattern": 3}
    assert [bool(layer.window) for layer in cache_layers(like(tiny, "gemma3", **windows))] == [True, True, False] * 2
    unsplit = like(tiny, "deepseek2")
    assert memory.kv_cache_bytes(unsplit, settings) == whole


@pytest.mark.parametrize(
    ("architecture", "keys", "kept"),
    [
        ("gemma3n", {"block_count": 24, "attention__sliding_window": 256}, range(20)),
        (
            "gemma4",
            {
                "attention__sliding_window": 256,
                "attention__sliding_window_pattern": (1, 1, 0) * 2,
                "attention__shared_kv_layers": 2,
            },
            range(4),
        ),
        ("nanbeige", {"num_loops": 2}, range(12)),
        ("lfm2", {"shortconv__l_cache": 3, "attention__head_count_kv": (0, 2, 0, 2, 0, 0)}, (1, 3)),
        (
            "nemotron_h",
            {"attention__head_count_kv": (0, 2, 0, 2, 0, 0), "feed_forward_length": (0, 0, 9, 0, 9, 0)} | MAMBA,
            (1, 3),
        ),
        ("qwen3next", {"full_attention_interval": 3, "nextn_predict_layers": 1} | MAMBA, (2,)),
        (
            "bailingmoe3",
            {
                "nextn_predict_layers": 1,
                "attention__head_count_kv": (0, 1, 0, 1, 0, 1),
                "kda__head_dim": 8,
                "ssm__conv_kernel": 4,
            },
            (1, 3, 5),
        ),
    ],
)
def test_layers_that_keep_keys(tiny, architecture, keys, kept):
    """Shared layers, layers with a state, layers of feed-forward alone, looped blocks: the filters of llama.cpp."""
    layers = cache_layers(like(tiny, architecture, **keys))
    assert [i for i, layer in enumerate(layers) if layer.key_width] == list(kept)


def test_states_have_the_size_of_their_kind(tiny):
    """RWKV: two shifts and a matrix for each head; linear attention: a matrix of keys; Kimi: three convolutions."""
    n_embd, heads, width = tiny.n_embd, tiny.n_head, tiny.head_dim_k
    rwkv = cache_layers(like(tiny, "rwkv7", wkv__head_size=32))
    assert {layer.state_values for layer in rwkv} == {(2 + 32) * n_embd}
    linear = cache_layers(like(tiny, "minimax-01", full_attention_interval=6))
    assert [layer.state_values for layer in linear] == [heads * width**2] * 5 + [0]
    kimi = cache_layers(like(tiny, "kimi-k3", kda__head_dim=8, ssm__conv_kernel=4, attention__head_count_kv=(0,) * 6))
    assert {layer.state_values for layer in kimi} == {heads * (3 * 3 * 8 + 8 * 8)}


def test_an_indexer_keeps_keys_beside_the_cache(tiny):
    """One key in each layer that has one; in a layer with a window the indexer keeps the whole context."""
    keys = {"attention__key_length_mla": 64, "attention__indexer__key_length": 32, "nextn_predict_layers": 1}
    plain = cache_layers(like(tiny, "deepseek32", **keys))
    assert [layer.index_key for layer in plain] == [32] * 5 + [0]
    listed = cache_layers(like(tiny, "glm-dsa", attention__indexer__types=(1, 0, 0) * 2, **keys))
    assert [layer.index_key for layer in listed] == [32, 0, 0, 32, 0, 0]
    dense = cache_layers(like(tiny, "minimax-m3", attention__indexer__key_length=32, leading_dense_block_count=4))
    assert [(layer.index_key, layer.index_value) for layer in dense] == [(0, 0)] * 4 + [(32, tiny.head_dim_v)] * 2


def test_a_latent_cache_takes_one_type(tiny):
    """llama.cpp refuses two types where keys and values are one; grok's values need flash attention, which it lacks."""
    latent = like(tiny, "deepseek2", attention__key_length_mla=192, attention__key_length=576)
    with pytest.raises(InvalidSettings, match="takes one type for both"):
        lab.Settings(type_k="q8_0").require_model(latent)
    with pytest.raises(InvalidSettings, match=r"which llama\.cpp does not use"):
        lab.Settings(type_v="q8_0").require_model(like(tiny, "grok"))


def test_without_flash_attention_every_layer_has_room_for_the_widest_value(tiny):
    """Values lie transposed then, and a layer without KV heads keeps as many as the others."""
    heads = (*(tiny.n_head_kv,) * 3, 0, 0, 0)
    uneven = like(tiny, "llama", attention__head_count_kv=heads)
    with_it, without = (memory.kv_cache_bytes(uneven, lab.Settings(n_ctx=1024, flash_attn=on)) for on in ("on", "off"))
    assert without == with_it * 3 // 2


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


def test_layers_that_predict_further_tokens_are_not_loaded(tiny):
    """They count where layers are placed, but llama.cpp leaves their weights in the file."""
    whole, ahead = (weights_of_layers(like(tiny, "llama", nextn_predict_layers=n))[1] for n in (0, 2))
    assert ahead == (*whole[:4], 0, 0, whole[-1])


def test_blocks_that_run_twice_are_layers_without_weights(tiny):
    """Each round has a cache of its own, and is placed as a layer (nanbeige.cpp:19-31)."""
    looped = like(tiny, "nanbeige", num_loops=2)
    assert weights_of_layers(looped)[1] == (*weights_of_layers(tiny)[1][:6], *(0,) * 6, weights_of_layers(tiny)[1][-1])


def test_layers_are_placed_from_the_end():
    """The output layer is the first to move; several devices take contiguous slices in proportion."""
    assert placed_layers(4, lab.Settings(n_gpu_layers=1), [1]) == ("host",) * 4 + ("gpu0",)
    assert placed_layers(4, lab.Settings(n_gpu_layers=3), [1]) == ("host", "host", "gpu0", "gpu0", "gpu0")
    assert placed_layers(4, lab.Settings(), [3, 1]) == ("gpu0",) * 4 + ("gpu1",)
    assert placed_layers(4, lab.Settings(), []) == ("host",) * 5


def test_the_closed_form_keeps_to_where_it_was_proven(tiny):
    """A graph that nobody followed and a cache of 32-bit floats are left to the simulation; a range is known."""
    settings, followed = lab.Settings(n_ctx=2048), like(tiny, "llama")
    assert compute_bytes(followed, settings, 1, on_device=False)
    assert compute_bytes(followed, settings.but(type_k="q8_0"), 1, on_device=False)
    assert compute_bytes(followed, settings.but(type_k="f32"), 1, on_device=False) is None
    assert compute_bytes(like(tiny, "baichuan"), settings, 1, on_device=False) is None
    least, most = compute_range(like(tiny, "baichuan"), settings, 1, on_device=False)["host"]
    assert least < compute_bytes(followed, settings, 1, on_device=False)["host"] < most


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
