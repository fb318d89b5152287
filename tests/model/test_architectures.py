"""Published architectures: their tensors add up to the published models, and llama.cpp finds what it asks for."""

from dataclasses import replace

import pytest

import inferlab as lab
from inferlab.errors import InvalidSettings, UnsupportedArchitecture
from inferlab.model.architecture_table import architectures
from inferlab.model.architectures import metadata, n_params, tensor_bytes, tensors
from inferlab.model.catalog import known_models

PUBLISHED = {
    "falcon-h1-0.5b": 521_411_104,
    "gemma-2-2b": 2_614_341_888,
    "gemma-3-1b": 999_885_952,
    "gemma-3-4b": 3_880_099_328,
    "granite-3.1-1b-a400m": 1_334_628_352,
    "granite-3.1-2b": 2_533_531_648,
    "granite-4.0-h-350m": 340_332_224,
    "lfm2-350m": 354_483_968,
    "llama-2-7b": 6_738_415_616,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "mamba2-130m": 128_989_632,
    "mistral-7b": 7_241_732_096,
    "mistral-7b-v0.3": 7_248_023_552,
    "olmo-2-7b": 7_298_617_344,
    "phi-3-mini-4k": 3_821_079_552,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-0.6b": 596_049_920,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-32b": 32_762_123_264,
    "starcoder2-3b": 3_030_371_328,
}


@pytest.mark.parametrize("name", known_models())
def test_the_dimensions_add_up_to_the_published_number_of_weights(name):
    """Exactly; Llama 3's file also holds RoPE factors, one for two values of a head, which are no weights."""
    known = lab.known_model(name)
    factors = known.head_dim_k // 2 if known.rope_factors else 0
    assert n_params(known) - factors == PUBLISHED[name]


def test_every_layout_belongs_to_a_known_model():
    """An architecture is described because a published model of it can be named."""
    assert {model.architecture for model in known_models().values()} == {
        name for name, one in architectures().items() if one.layout is not None
    }


@pytest.mark.parametrize("name", ["mistral-7b", "qwen3-30b-a3b"])
def test_tensors_lie_one_after_another(name):
    """Offsets are aligned to 32 bytes, without holes or overlaps, in the order of the names within each layer."""
    listed, end = tensors(lab.known_model(name)), 0
    for tensor in listed:
        assert tensor.offset == end
        end = -(-(end + tensor.n_bytes) // 32) * 32
    layers = [int(t.name.split(".")[1]) for t in listed if t.name.startswith("blk.")]
    assert layers == sorted(layers)


def test_matrices_are_f16_and_the_rest_f32():
    """A fresh conversion keeps norms, biases and the router of experts in 32 bits."""
    listed = tensors(lab.known_model("qwen3-30b-a3b"))
    kinds = {t.name.removeprefix("blk.0."): t.type for t in listed if t.name.startswith(("blk.0.", "o", "t"))}
    assert {name for name, kind in kinds.items() if kind == "F32"} == {
        "output_norm.weight",
        "attn_norm.weight",
        "attn_q_norm.weight",
        "attn_k_norm.weight",
        "ffn_norm.weight",
        "ffn_gate_inp.weight",
    }


def test_tied_embeddings_have_no_output_matrix():
    """One table serves both ends of a tied model."""
    names = {name: {t.name for t in tensors(lab.known_model(name))} for name in ("qwen2.5-0.5b", "qwen2.5-7b")}
    assert "output.weight" not in names["qwen2.5-0.5b"]
    assert "output.weight" in names["qwen2.5-7b"]


def test_the_header_says_what_is_special_about_a_model():
    """Experts, windows and soft caps stand under the architecture's prefix."""
    moe, gemma = metadata(lab.known_model("qwen3-30b-a3b")), metadata(lab.known_model("gemma-2-2b"))
    assert (moe["qwen3moe.expert_count"], moe["qwen3moe.expert_used_count"]) == (128, 8)
    assert (moe["qwen3moe.feed_forward_length"], moe["qwen3moe.expert_feed_forward_length"]) == (6144, 768)
    assert (gemma["gemma2.attention.sliding_window"], gemma["gemma2.final_logit_softcapping"]) == (4096, 30.0)
    assert "llama.attention.sliding_window" not in metadata(lab.known_model("mistral-7b"))


def test_experts_may_be_as_wide_as_the_header_says_of_all():
    """Granite's files have one feed-forward width, that of each expert, and the scales that its graph multiplies by."""
    header, listed = metadata(known := lab.known_model("granite-3.1-1b-a400m")), tensors(known)
    assert header["granitemoe.feed_forward_length"] == 512
    assert "granitemoe.expert_feed_forward_length" not in header
    assert {t.shape for t in listed if t.name.endswith("ffn_up_exps.weight")} == {(1024, 512, 32)}
    scales = [header[f"granitemoe.{key}"] for key in ("embedding_scale", "residual_scale", "logit_scale")]
    assert [*scales, header["granitemoe.attention.scale"]] == [12.0, 0.22, 6.0, 1 / known.head_dim_k]


def test_an_architecture_without_a_layout_is_refused():
    """The error names those that there are."""
    with pytest.raises(UnsupportedArchitecture, match="'mamba'; shapes are known for llama, qwen2"):
        tensors(replace(lab.known_model("mistral-7b"), architecture="mamba"))


def test_rows_that_do_not_fill_their_blocks_are_refused():
    """A tensor whose type does not fit its rows is an error, not a rounded size."""
    with pytest.raises(InvalidSettings, match="100 weights, which do not fill blocks of 256"):
        tensor_bytes("x", (100, 2), "Q4_K")
