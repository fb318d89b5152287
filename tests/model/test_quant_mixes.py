"""Named mixes: each tensor's type, compared with llama.cpp's own quantizer and against published files."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from known import smallest
from quant_snapshots import KEPT, KNOWN, model_of, summary
from quantizer import quantizer_types

import inferlab as lab
from inferlab.errors import InvalidSettings
from inferlab.model import architectures, quant_mixes
from inferlab.model.catalog import known_models
from inferlab.model.ggml_types import FILE_TYPES
from inferlab.model.quant_mixes import MIXES, NEEDS_IMATRIX, more_bits, needs_imatrix, with_mix_types
from inferlab.model.synthetic_model import changed
from inferlab.units import GIB, MIB

MODELS = ("mistral-7b-v0.3", "llama-3.1-8b", "qwen2.5-7b", "llama-3.2-1b", "qwen2.5-0.5b")
# GiB and bits per weight for MODELS; calculated for the book's claims before this library had the rules.
TABLE = """
F16    13.501 16.001  14.958 16.001  14.186 16.001  2.302 16.001  0.920 16.002
Q8_0   7.173 8.501    7.947 8.501    7.537 8.501    1.223 8.501   0.489 8.503
Q6_K   5.538 6.563    6.136 6.563    5.819 6.564    0.944 6.564   0.465 8.093
Q5_K_M 4.783 5.668    5.332 5.704    5.065 5.713    0.842 5.850   0.386 6.706
Q5_K_S 4.658 5.521    5.207 5.570    4.945 5.577    0.824 5.727   0.379 6.587
Q4_K_M 4.072 4.826    4.575 4.894    4.356 4.913    0.745 5.178   0.365 6.345
Q4_K_S 3.859 4.574    4.363 4.667    4.146 4.677    0.715 4.970   0.353 6.146
Q4_0   3.830 4.539    4.334 4.636    4.122 4.649    0.711 4.940   0.322 5.606
IQ4_XS 3.677 4.357    4.169 4.460    3.953 4.459    0.690 4.794   0.322 5.595
Q3_K_L 3.563 4.222    4.018 4.298    3.802 4.289    0.675 4.691   0.338 5.885
Q3_K_M 3.280 3.888    3.736 3.996    3.541 3.994    0.636 4.421   0.326 5.660
Q3_K_S 2.950 3.496    3.406 3.643    3.247 3.662    0.590 4.103   0.309 5.381
Q2_K   2.535 3.005    2.953 3.159    2.803 3.162    0.534 3.710   0.310 5.387
"""
ROWS = [line.split() for line in TABLE.split("\n") if line]

SPECIAL = {
    "70B of deci": ("llama-3.3-nemotron-super-49b", {}),
    "eight experts": ("qwen3-30b-a3b", {"n_expert": 8, "n_expert_used": 2}),
    "one expert": ("qwen3-30b-a3b", {"n_expert": 1, "n_expert_used": 1}),
    "70B of llama": ("llama-3.1-8b", {"n_layer": 80, "n_head": 64, "n_embd": 8192}),
    "80 layers, every head its own": ("llama-2-7b", {"n_layer": 80}),
    "70B of qwen2": ("qwen2.5-7b", {"n_layer": 80}),
    "one layer": ("mistral-7b", {"n_layer": 1}),
    "rows of 96": ("mistral-7b", {"n_layer": 9, "n_embd": 96, "n_ff": 160}),
    "rows of 100": ("mistral-7b", {"n_layer": 2, "n_embd": 100, "n_ff": 200}),
}


@pytest.mark.parametrize(("name", "n_bytes"), [("mistral-7b", 4_367_704_064), ("qwen2.5-7b", 4_677_120_000)])
def test_a_published_file_has_exactly_these_tensor_bytes(name, n_bytes):
    """Q4_K_M of Mistral 7B v0.2, as its loader logs it, and of Qwen2.5 7B."""
    assert lab.shape(name, "Q4_K_M").tensor_bytes == n_bytes


def test_a_published_mixture_of_experts_has_exactly_these_types():
    """Q4_K_M of Granite's 1B A400M: 242 tensors, nine tenths of the bytes in experts; its file adds a header."""
    model = lab.shape("granite-3.1-1b-a400m", "Q4_K_M")
    assert Counter(t.type for t in model.tensors) == {"F32": 73, "Q4_K": 144, "Q6_K": 25}
    assert round(sum(t.n_bytes for t in model.tensors if "_exps" in t.name) / 1e6, 1) == 731.4
    assert round(model.tensor_bytes / 1e6, 1) == 820.1
    assert 0 < lab.known_model("granite-3.1-1b-a400m").files["Q4_K_M"].value - model.tensor_bytes < 2 * MIB


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_sizes_are_those_of_the_table(row):
    """Thirteen mixes of five models, to the last digit of GiB and of bits per weight."""
    mix, *numbers = row
    shapes = [lab.shape(name, mix) for name in MODELS]
    computed = [(f"{s.tensor_bytes / GIB:.3f}", f"{8 * s.tensor_bytes / s.n_params:.3f}") for s in shapes]
    assert computed == list(zip(numbers[::2], numbers[1::2], strict=True))


@pytest.fixture(scope="module")
def headers(tmp_path_factory) -> dict[str, tuple[str, dict, Path]]:
    """Header-only F16 shapes of one model of each architecture and of the special cases, with a small vocabulary."""
    folder = tmp_path_factory.mktemp("headers")
    cases = {name: (name, {"n_layer": min(known_models()[name].n_layer, 24)}) for name in smallest()} | SPECIAL
    made = {
        case: (name, {"n_vocab": 512, **changes}, folder / f"{case}.gguf") for case, (name, changes) in cases.items()
    }
    for name, dimensions, path in made.values():
        lab.make_shape(name, "F16", path, header_only=True, **dimensions)
    return made


@pytest.mark.engine
@pytest.mark.parametrize("imatrix", [False, True])
def test_types_are_those_of_llama_cpps_quantizer(imatrix, headers):
    """Every tensor of one model of each architecture and of special shapes, under every mix; and each refusal.

    Without an importance matrix, those that llama.cpp only makes with one are exactly those that the library foresees.
    """
    numbers = {mix: FILE_TYPES[mix] for mix in MIXES}
    told = quantizer_types([path for _, _, path in headers.values()], numbers, imatrix)
    for (case, (name, dimensions, _)), by_mix in zip(headers.items(), told, strict=True):
        known = changed(name, **dimensions)
        for mix, types in by_mix.items():
            assert types_by_the_rules(known, mix, imatrix) == types, (case, mix)


@pytest.mark.parametrize("snapshot", KNOWN)
def test_types_are_those_of_llama_cpps_snapshots(snapshot):
    """Of every matrix of twelve real models in each mix, without an importance matrix: 164,934 in all."""
    known, kept = model_of(snapshot), json.loads(KEPT.read_text(encoding="utf-8"))[snapshot]
    assert len(kept) == 33
    for mix, expected in kept.items():
        assert summary(with_types(architectures.tensors(known), mix, known)) == expected, mix


def with_types(tensors, mix, known) -> list:
    """The tensors of a mix that was made without an importance matrix, also where llama.cpp refuses that."""
    quantizer = quant_mixes.Quantizer(tensors, known)
    types = dict(zip((t.name for t in quantizer.quantized), quantizer.types_with(mix, imatrix=False), strict=True))
    return [replace(tensor, type=types.get(tensor.name, tensor.type)) for tensor in tensors]


def types_by_the_rules(known, mix, imatrix) -> dict[str, str] | None:
    """As `quantizer_types` tells them: {} for a refusal, None for a mix that needs an importance matrix."""
    try:
        made = with_mix_types(architectures.tensors(known), mix, known, imatrix=imatrix)
    except InvalidSettings:
        return {}
    return None if needs_imatrix(made, mix) and not imatrix else {tensor.name: tensor.type for tensor in made}


@pytest.mark.parametrize("mix", MIXES)
def test_the_mixes_that_need_an_importance_matrix_are_known_by_name(mix):
    """For models with attention whose rows are whole blocks; Qwen2.5 0.5B escapes in IQ3_XXS."""
    for name in smallest():
        known = known_models()[name]
        whole = known.n_embd % 256 == known.n_ff % 256 == known.n_ff_expert % 256 == 0
        if whole and known.n_head and "attention.kv_lora_rank" not in known.metadata:
            assert needs_imatrix(lab.shape(name, mix).tensors, mix) == (mix in NEEDS_IMATRIX), name
    narrow = {t.type for t in lab.shape("qwen2.5-0.5b", "IQ3_XXS").tensors if t.name.endswith("ffn_down.weight")}
    assert narrow == {"Q4_K", "Q3_K"}


def test_an_importance_matrix_changes_the_types_of_few_mixes():
    """The first eighth of ffn_down: Q4_0 and Q5_0 get more bits with a matrix, IQ4_NL and IQ4_XS without."""
    known = lab.known_model("mistral-7b")
    plain = architectures.tensors(known)
    found = {}
    for mix in MIXES:
        without, made = (with_mix_types(plain, mix, known, imatrix=imatrix) for imatrix in (False, True))
        pairs = {(a.type, b.type) for a, b in zip(without, made, strict=True) if a.type != b.type}
        found |= {mix: pairs} if pairs else {}
    assert found == {
        "Q5_0": {("Q5_0", "Q5_1")},
        "Q4_0": {("Q4_0", "Q4_1")},
        "IQ4_NL": {("Q5_K", "IQ4_NL")},
        "IQ4_XS": {("Q5_K", "IQ4_XS")},
    }


def test_mixes_stand_in_the_order_of_their_bytes():
    """Of Mistral 7B; MXFP4_MOE, which is made for experts, by those of Qwen3 30B A3B."""
    dense = [lab.shape("mistral-7b", mix).tensor_bytes for mix in MIXES if mix != "MXFP4_MOE"]
    assert dense == sorted(dense, reverse=True)
    at = [*MIXES].index("MXFP4_MOE")
    larger, experts, smaller = (lab.shape("qwen3-30b-a3b", mix).tensor_bytes for mix in [*MIXES][at - 1 : at + 2])
    assert larger > experts > smaller


def test_mxfp4_is_for_experts():
    """A dense model in MXFP4_MOE is one in Q8_0, to the byte; a mixture has MXFP4 in its experts and nowhere else."""
    types = [[t.type for t in lab.shape("mistral-7b", mix).tensors] for mix in ("MXFP4_MOE", "Q8_0")]
    assert types[0] == types[1]
    mixture = lab.shape("granite-3.1-1b-a400m", "MXFP4_MOE")
    assert {t.type for t in mixture.tensors if "_exps" in t.name} == {"MXFP4"}
    assert {t.type for t in mixture.tensors if "_exps" not in t.name} == {"Q8_0", "F32"}


@pytest.mark.parametrize("n_layer", [16, 24, 28, 32])
def test_half_of_the_layers_get_more_bits(n_layer):
    """An M mix spends more on the first and last eighth and every third layer between: half of them."""
    assert sum(more_bits(i, n_layer) for i in range(n_layer)) == n_layer // 2


def test_a_mix_that_is_not_there_is_refused():
    """The error lists those that there are: all that llama-quantize takes."""
    with pytest.raises(InvalidSettings, match=r"no mix 'IQ2_L' here\. There are: F32, F16"):
        lab.shape("mistral-7b", "IQ2_L")
    assert set(MIXES) == set(FILE_TYPES)


def test_rows_that_one_bit_cannot_fill_are_refused():
    """Every other type has one to fall back to; llama.cpp stops at Q1_0 in rows that are no multiple of 128."""
    with pytest.raises(InvalidSettings, match="refuses Q1_0 for rows of 96 weights, which do not fill blocks of 128"):
        lab.shape("mistral-7b", "Q1_0", n_embd=96, n_ff=160)
