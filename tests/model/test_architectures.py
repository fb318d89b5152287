"""Published architectures: their tensors add up to the published models, and llama.cpp finds what it asks for."""

import re
from dataclasses import replace

import architecture_files
import pytest

import inferlab as lab
from inferlab.engine.dry_run import simulate
from inferlab.errors import InvalidSettings, UnsupportedArchitecture
from inferlab.facts import parsed, table_text
from inferlab.model.architectures import metadata, n_params, own_keys, tensor_bytes, tensors
from inferlab.model.catalog import known_models
from inferlab.model.gguf import LazyArray, Model
from inferlab.model.layouts import architectures_with_layout, layout, short_names
from inferlab.model.quant_mixes import MIXES, with_mix_types
from inferlab.units import GIB

PUBLISHED = {
    "dots.llm1-142b-a14b": 142_774_381_696,
    "falcon-h1-0.5b": 521_411_104,
    "gemma-2-27b": 27_227_128_320,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
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


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_dimensions_add_up_to_the_published_number_of_weights(name):
    """Exactly; Llama 3's file also holds RoPE factors, one for two values of a head, which are no weights."""
    known = lab.known_model(name)
    factors = known.head_dim_k // 2 if known.rope_factors else 0
    assert n_params(known) - factors == PUBLISHED[name]


@pytest.mark.parametrize("name", known_models())
def test_a_models_name_says_its_weights(name):
    """To a third, of small ones to two thirds; effective weights (E4B) and active ones (A3B) are other numbers."""
    said = re.search(
        r"(?<![ae\d.])(\d+(?:\.\d+)?)([bm])\b(?!-a\d+e)", name.replace("8x7b", "47b").replace("8x22b", "141b")
    )
    if said is None or "ling-mini" in name:
        return
    weights = float(said[1]) * {"b": 1e9, "m": 1e6}[said[2]]
    assert n_params(lab.known_model(name)) == pytest.approx(weights, rel=0.35 if weights > 1e9 else 0.65)


@pytest.mark.parametrize("name", known_models())
def test_sizes_are_those_of_published_files_and_of_public_logs(name):
    """A file has the tensors' bytes and a header of at most 14 MB; a log the bytes, or GiB as it prints them.

    A size under a name that llama-quantize does not know is that of its maker's own mix, and cannot be computed.
    """
    known, entry = lab.known_model(name), parsed(table_text("models"))[name]
    for kind, told in {**entry.get("files", {}), **entry.get("logged", {})}.items():
        if kind in MIXES:
            both = {lab.shape(name, kind).tensor_bytes, with_imatrix(known, kind)}
            assert any(agrees(told, n_bytes) for n_bytes in both), (kind, told, both)


def agrees(told, n_bytes: int) -> bool:
    if "bytes" in told:
        return 0 < told["bytes"] - n_bytes < 14e6
    return told.get("tensor_bytes") == n_bytes or abs(told.get("gib", 0) - n_bytes / GIB) <= 0.0051


def with_imatrix(known, mix: str) -> int:
    return sum(tensor.n_bytes for tensor in with_mix_types(tensors(known), mix, known, imatrix=True))


def test_most_models_are_held_against_a_published_size():
    """A shape of nothing but cited dimensions is the rarer case."""
    held = [name for name, entry in parsed(table_text("models")).items() if name in PUBLISHED or is_held(entry)]
    assert len(held) > len(known_models()) // 2


def is_held(entry) -> bool:
    return isinstance(entry, dict) and any(
        kind in MIXES for part in ("files", "logged") for kind in entry.get(part, ())
    )


def test_every_family_stands_together_with_the_newest_first():
    """As the page lists them: a family is not met again after another one."""
    families = [re.match("[a-z]+", name)[0] for name in known_models()]
    seen = [family for i, family in enumerate(families) if i == 0 or families[i - 1] != family]
    assert len(set(seen)) > 15
    dates = [(known.architecture, parsed(table_text("models"))[name]["date"]) for name, known in known_models().items()]
    qwen = [date for (architecture, date), name in zip(dates, known_models(), strict=True) if name.startswith("qwen")]
    assert qwen == sorted(qwen, reverse=True)
    assert re.fullmatch(r"20\d\d-\d\d", known_models().last_look)


# llama.cpp takes the number of its first layer for all
ADJUSTED = {name: {"attention.head_count": 1} for name in ("kimi-linear", "kimi-k3")}
OPTIONAL = ("qkv_bias", "qk_norms", "router_bias", "nextn_embed_tokens", "nextn_head", "nextn_norm", "ssm_norms")
NOT_WRITTEN = ("gemma3n", "gemma4", "step35", "apertus")
"""Architectures of which llama.cpp's test program writes no file; the simulation and published sizes hold them."""
MAY_BE_LEFT = (
    "attn_q.",
    "attn_k.",
    "attn_v.",
    "attn_sinks.",
    "ffn_",
    "rope_",
    "ssm_in.",
    "cls.output.",
    "exp_probs_b_vl.",
)
"""Tensors that llama.cpp takes in some files: another form of a fused one, a gate without experts, another head."""


@pytest.fixture(scope="module")
def small_files(tmp_path_factory) -> dict[str, list[Model]]:
    """The headers that llama.cpp's test program writes, with every tensor that may be there, by their architecture."""
    found: dict[str, list[Model]] = {}
    for model in architecture_files.unpack(tmp_path_factory.mktemp("architectures")).values():
        found.setdefault(model.architecture, []).append(model)
    return found


@pytest.mark.parametrize("name", [one for one in architectures_with_layout() if one not in NOT_WRITTEN])
def test_tensors_are_those_of_llama_cpps_own_small_models(name, small_files):
    """In the dimensions of the program's file, each tensor is there in its shape, and only optional ones are left."""
    for model in small_files[name]:
        theirs = {tensor.name: trimmed(tensor.shape) for tensor in model.tensors}
        shapes = layout(name).shapes(own_keys_of(model) | ADJUSTED.get(name, {}), flags(theirs))
        ours = {tensor: trimmed(shape) for tensor, shape in shapes}
        if name == "phi3":  # its published files have one matrix for q, k and v, and these have three
            ours = {tensor: shape for tensor, shape in ours.items() if "attn_qkv" not in tensor}
        assert {tensor: theirs.get(tensor) for tensor in ours} == ours
        left = {
            tensor.split(".", 2)[2] if tensor.startswith("blk.") else tensor for tensor in theirs.keys() - ours.keys()
        }
        assert all(one.endswith(("bias", "scale")) or one.startswith(MAY_BE_LEFT) for one in left), left


def test_every_layout_is_of_a_known_model_or_compared_with_a_file(small_files):
    """None stands in the table unproven."""
    assert {model.architecture for model in known_models().values()} <= set(architectures_with_layout())
    assert set(architectures_with_layout()) <= small_files.keys() | {k.architecture for k in known_models().values()}


@pytest.mark.parametrize("name", architectures_with_layout())
def test_every_name_in_a_layout_means_something(name, small_files):
    """A dimension is a key that llama.cpp writes or a known model has; a misspelt one would count as 0."""
    headers = [own_keys_of(model) for models in small_files.values() for model in models]
    headers += [own_keys(known) for known in known_models().values()]
    keys = {key.replace(".", "_") for header in headers for key in header}
    conditions = {*OPTIONAL, "tied", "rope_factors", "long_rope", "fused_experts"}
    conditions |= {flag for known in known_models().values() for flag in known.optional}
    known_names = keys | {f"has_{key}" for key in keys} | conditions | {"i", *layout(name).where, *short_names()}
    assert layout(name).names <= known_names


def flags(theirs: dict[str, tuple[int, ...]]) -> tuple[str, ...]:
    """The conditions that a file with these tensors fulfils."""
    found = {
        "tied": "output.weight" not in theirs,
        "rope_factors": "rope_freqs.weight" in theirs,
        "long_rope": "rope_factors_long.weight" in theirs,
        "fused_experts": any("ffn_gate_up_exps" in name for name in theirs),
    }
    return (*OPTIONAL, *(name for name, is_so in found.items() if is_so))


def own_keys_of(model) -> dict:
    """The header's keys under the architecture's prefix."""
    prefix = f"{model.architecture}."
    values = {key.removeprefix(prefix): value for key, value in model.metadata.items() if key.startswith(prefix)}
    arrays = {key: tuple(model.array(prefix + key)) for key, value in values.items() if isinstance(value, LazyArray)}
    return values | arrays


def trimmed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Without the ones at the end, which ggml does not count."""
    return trimmed(shape[:-1]) if len(shape) > 1 and shape[-1] == 1 else shape


@pytest.mark.engine
@pytest.mark.parametrize("name", known_models())
def test_llama_cpp_loads_the_header_of_every_model(name, engine):
    """Its simulation finds each key and each tensor in the shape that it wants."""
    settings = lab.Settings(n_ctx=256, n_batch=32, n_ubatch=32, devices=())
    assert simulate(lab.shape(name), settings).layers


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
    with pytest.raises(
        UnsupportedArchitecture,
        match=r"Mistral 7B v0\.2: No tensors are known for the architecture 'mamba'; they are for llama, ",
    ):
        tensors(replace(lab.known_model("mistral-7b"), architecture="mamba"))


def test_rows_that_do_not_fill_their_blocks_are_refused():
    """A tensor whose type does not fit its rows is an error, not a rounded size."""
    with pytest.raises(InvalidSettings, match="100 weights, which do not fill blocks of 256"):
        tensor_bytes("x", (100, 2), "Q4_K")
