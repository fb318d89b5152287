"""Shape models: files with a published model's exact shape, synthetic weights, and nothing left when interrupted."""

import os
import shutil
import stat
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from fakes import CARD, CPU_ONLY, write_gguf
from gguf import GGMLQuantizationType, GGUFReader
from gguf.quants import dequantize
from known import few, smallest

import inferlab as lab
from inferlab.engine.libraries import shared_library
from inferlab.errors import InvalidSettings, NotEnoughDisk
from inferlab.model import synthetic_data, synthetic_model
from inferlab.model.ggml_types import TYPE_IDS, TYPES
from inferlab.model.gguf import Shape
from inferlab.model.named import model_named
from inferlab.model.quant_mixes import MIXES
from inferlab.units import GIB

SMALL = {"n_layer": 2, "n_embd": 256, "n_ff": 512, "n_vocab": 512, "n_head": 4, "n_head_kv": 2, "head_dim": 64}
IN_GGUF_PY = [type for type in synthetic_data.BLOCKS if type not in ("Q1_0", "Q2_0")]
IN_C = """
import ctypes, sys
path, type, symbol, size, count = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
library, data = ctypes.CDLL(path), sys.stdin.buffer.read(size)
library.ggml_validate_row_data.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
library.ggml_validate_row_data.restype = ctypes.c_bool
assert library.ggml_validate_row_data(type, data, size)
row = getattr(library, symbol)
row.argtypes, row.restype = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64], None
out = (ctypes.c_float * count)()
row(data, out, count)
sys.stdout.buffer.write(bytes(out))
"""
FEW_EXPERTS = {"n_expert": 16, "n_expert_used": 4, "n_ff_expert": 256}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder."""
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("name", smallest())
def test_a_file_and_the_shape_in_memory_say_the_same(name, tmp_path):
    """Header-only, full size: same tensors at the same offsets, same bytes, same vocabulary, hardly any disk."""
    model = lab.shape(name)
    path = lab.make_shape(name, path=tmp_path / "shape.gguf", header_only=True)
    read = lab.read_gguf(path)
    assert (read.tensors, read.file_bytes, read.n_vocab) == (model.tensors, model.file_bytes, model.n_vocab)
    arrays = {key: value for key, value in model.metadata.items() if isinstance(value, tuple)}
    told = {key: read.metadata[key] for key in model.metadata if key not in arrays}
    single = {key: value for key, value in model.metadata.items() if key not in arrays}
    assert told == pytest.approx(single | {"inferlab.header_only": True})
    assert {key: tuple(read.array(key)) for key in arrays} == arrays
    assert os.stat(path).st_blocks * 512 < read.file_bytes / 20


def test_a_written_file_is_read_by_ggmls_own_reader(tmp_path):
    """gguf-py finds the same tensors at the same places."""
    path = lab.make_shape("qwen2.5-0.5b", "Q4_K_M", tmp_path / "shape.gguf", **SMALL)
    theirs = {t.name: (t.data_offset, t.n_bytes, t.tensor_type.name) for t in GGUFReader(path).tensors}
    assert theirs == {t.name: (t.offset, t.n_bytes, t.type) for t in lab.read_gguf(path).tensors}


@pytest.mark.parametrize("name", smallest())
def test_every_architecture_loads_and_decodes(name, tmp_path, engine):
    """llama.cpp finds each tensor and key it asks for, and what it computes is finite."""
    path = lab.make_shape(name, "Q4_K_M", tmp_path / "shape.gguf", **few(name))
    engine.open(path, lab.Settings(n_ctx=256, n_threads=1))
    assert len(engine.generate(engine.random_prompt(8), 2).tokens) == 2
    assert np.isfinite(engine.score(engine.random_prompt(16))).all()
    path.unlink()


def test_experts_in_mxfp4_load_and_decode(tmp_path, engine):
    """The type is made for them: a mixture of experts computes finite numbers with it."""
    path = lab.make_shape("qwen3-30b-a3b", "MXFP4_MOE", tmp_path / "shape.gguf", **SMALL, **FEW_EXPERTS)
    assert "MXFP4" in {tensor.type for tensor in lab.read_gguf(path).tensors}
    engine.open(path, lab.Settings(n_ctx=256, n_threads=1))
    assert np.isfinite(engine.score(engine.random_prompt(16))).all()


@pytest.mark.parametrize("mix", MIXES)
def test_every_mix_loads_and_decodes(mix, tmp_path, engine):
    """The random blocks of each type are valid ones: the surprise at each token of a text is a finite number."""
    path = lab.make_shape("llama-2-7b", mix, tmp_path / "shape.gguf", **SMALL)
    engine.open(path, lab.Settings(n_ctx=256, n_threads=1))
    surprise = engine.score(engine.random_prompt(16))
    assert len(surprise) == 15
    assert np.isfinite(surprise).all()
    assert max(surprise) < 50


def test_a_whole_model_decodes(tmp_path, engine):
    """Qwen2.5 0.5B in Q4_K_M as published: 391 859 712 bytes of tensors that llama.cpp runs."""
    path = lab.make_shape("qwen2.5-0.5b", "Q4_K_M", tmp_path / "whole.gguf")
    engine.open(path, lab.Settings(n_ctx=256))
    assert len(engine.generate(engine.random_prompt(4), 3).tokens) == 3
    assert lab.read_gguf(path).tensor_bytes == 391_859_712


@pytest.mark.parametrize("type", [*IN_GGUF_PY, "F32", "F16", "BF16"])
def test_weights_are_plain_numbers(type):
    """Finite, around 0, of the deviation of a freshly initialized model; no scale is subnormal in 16 bits."""
    width = TYPES[type].block_bytes
    assert len(synthetic_data._pool(type)) % width == 0
    raw = some_blocks(type)
    plain = {"F32": "<f4", "F16": "<f2"}.get(type)
    assert_plain(raw.view(plain) if plain else dequantize(raw, GGMLQuantizationType[type]))
    for offset in synthetic_data.BLOCKS[type].scales if type in synthetic_data.BLOCKS else ():
        scales = np.abs(raw.reshape(-1, width)[:, offset : offset + 2].copy().view("<f2"))
        assert scales.min() >= 2**-14
        assert scales.max() < 1


@pytest.mark.engine
@pytest.mark.parametrize("type", synthetic_data.BLOCKS)
def test_ggml_takes_the_blocks_for_valid_ones(type):
    """It finds no scale that is infinite or no number, and opens them as plain numbers, those of every new type too."""
    raw, kind = some_blocks(type), TYPES[type]
    name = type if type.endswith("_K") else type.lower()
    n_weights = len(raw) // kind.block_bytes * kind.block
    asked = TYPE_IDS[type], f"dequantize_row_{name.replace('Q', 'q')}", len(raw), n_weights
    command = [sys.executable, "-c", IN_C, str(shared_library("ggml-base")), *map(str, asked)]
    done = subprocess.run(command, input=raw.tobytes(), capture_output=True, check=True, timeout=60)
    assert_plain(np.frombuffer(done.stdout, np.float32))


def some_blocks(type: str) -> np.ndarray:
    """The first 4000 blocks of a type's pool, as bytes."""
    return np.frombuffer(synthetic_data._pool(type), np.uint8)[: 4000 * TYPES[type].block_bytes]


def assert_plain(weights: np.ndarray) -> None:
    assert np.isfinite(weights).all()
    assert abs(weights.mean(dtype=float)) < 0.15 * synthetic_data.SIGMA
    assert 0.8 * synthetic_data.SIGMA < weights.std(dtype=float) < 1.25 * synthetic_data.SIGMA


def test_a_tensor_is_filled_to_its_last_byte():
    """Matrices larger and smaller than the pool, norms of ones, biases of zeros: always exactly their bytes."""
    model = lab.shape("qwen2.5-0.5b", "Q4_K_M")
    by_name = {tensor.name: tensor for tensor in model.tensors}
    for name in ("token_embd.weight", "blk.3.ffn_down.weight", "output_norm.weight", "blk.0.attn_q.bias"):
        assert sum(map(len, synthetic_data.weights(by_name[name], seed=3))) == by_name[name].n_bytes
    norm = b"".join(synthetic_data.weights(by_name["output_norm.weight"], seed=0))
    bias = b"".join(synthetic_data.weights(by_name["blk.0.attn_q.bias"], seed=0))
    assert set(np.frombuffer(norm, "<f4")) == {1.0}
    assert set(np.frombuffer(bias, "<f4")) == {0.0}


def test_a_shape_says_that_it_is_synthetic(tmp_path):
    """The file's metadata, the model, its card and the badge under a figure."""
    path = lab.make_shape("mistral-7b", path=tmp_path / "shape.gguf", **SMALL)
    model = lab.read_gguf(path)
    assert model.metadata["inferlab.synthetic"] is True
    assert model.synthetic
    assert model.card().synthetic
    assert "synthetic weights" in CPU_ONLY.badge("2026-01-31", synthetic=model.card().synthetic)
    assert lab.shape("mistral-7b").card().synthetic
    assert not lab.read_gguf(lab.tiny_model()).synthetic


def test_any_text_goes_through_the_vocabulary(tmp_path, engine):
    """Made-up words and all bytes: what is tokenized comes back."""
    path = lab.make_shape("qwen2.5-0.5b", path=tmp_path / "shape.gguf", **SMALL)
    engine.open(path, lab.Settings(n_ctx=256, n_threads=1))
    assert engine.detokenize(engine.tokenize("Grüße, 42")).strip() == "Grüße, 42"
    assert lab.read_gguf(path).array("tokenizer.ggml.tokens")[-1] == "▁000511"


def test_a_vocabulary_needs_room_for_all_bytes():
    """Fewer tokens than the 256 bytes and three special ones cannot spell every text."""
    with pytest.raises(InvalidSettings, match=r"n_vocab=100 must be from 260 to 1,000,000"):
        lab.shape("mistral-7b", n_vocab=100)


def test_dimensions_can_be_changed():
    """Multi-query attention, every head its own, or a tied table, from any known model."""
    one = lab.shape("mistral-7b", n_head_kv=1, n_layer=2)
    own = lab.shape("mistral-7b", n_head_kv=32, n_layer=2, n_vocab=None)
    tied = lab.shape("mistral-7b", tied_embeddings=True)
    assert (one.n_head_kv, own.n_head_kv, own.n_layer, own.n_vocab) == (1, 32, 2, 32000)
    assert "output.weight" not in {tensor.name for tensor in tied.tensors}
    changed = replace(lab.known_model("mistral-7b"), n_layer=2, n_head_kv=1)
    assert lab.shape(changed).tensors == one.tensors


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"n_layers": 2}, "no dimension 'n_layers'. Did you mean 'n_layer'"),
        ({"xyzzy": 2}, "no dimension 'xyzzy'. There are: n_layer"),
        ({"n_layer": 0}, "n_layer=0 must be a whole number of at least 1"),
        ({"n_layer": 2.5}, "n_layer=2.5 must be a whole number"),
        ({"n_head_kv": 5}, "n_head=32 is not a multiple of n_head_kv=5"),
        ({"head_dim_k": 64}, "llama wants head_k = head_v, but these are 64 and 128"),
    ],
)
def test_dimensions_that_cannot_be_are_refused(changes, told):
    """Before anything is written, with what was found."""
    with pytest.raises(InvalidSettings, match=told):
        lab.shape("mistral-7b", **changes)


def test_an_architecture_that_wants_square_attention_is_told():
    """llama.cpp's qwen2 has as many query values as n_embd; another number would not load."""
    with pytest.raises(InvalidSettings, match=r"qwen2 wants n_head \* head_k = n_embd, but these are 1792 and 896"):
        lab.shape("qwen2.5-0.5b", head_dim=128)


def test_layers_that_share_keys_want_others_to_share_with():
    """Twenty of Gemma 4's layers use the keys of those before them; llama.cpp would stop at fewer than two of these."""
    with pytest.raises(
        InvalidSettings, match=r"gemma4 wants n_layer >= attention_shared_kv_layers \+ 2, but .* 21 and 22"
    ):
        lab.shape("gemma-4-e2b", n_layer=21)


def test_a_model_that_is_published_in_one_type_has_it_by_default():
    """gpt-oss in MXFP4, to the header of the published file; others in Q4_K_M."""
    published = lab.known_model("gpt-oss-20b").files["MXFP4_MOE"].value
    assert 0 < published - model_named("gpt-oss-20b").tensor_bytes < 14e6
    assert model_named("GPT-OSS 20B").tensors == lab.shape("gpt-oss-20b", "MXFP4_MOE").tensors
    assert model_named("qwen3.6-27b").tensors == lab.shape("qwen3.6-27b", "Q4_K_M").tensors


def test_a_width_that_experts_do_not_have_is_told():
    """Granite's experts take theirs from n_ff; llama.cpp would not load a file with another."""
    with pytest.raises(InvalidSettings, match=r"n_ff_expert=256: the experts of granitemoe are n_ff wide"):
        lab.shape("granite-3.1-1b-a400m", n_ff_expert=256)
    assert lab.shape("granite-3.1-1b-a400m", n_ff=256).tensor_bytes < lab.shape("granite-3.1-1b-a400m").tensor_bytes


def test_a_full_disk_is_told_before_writing(tmp_path, monkeypatch):
    """The error says how much is needed and how much is free, and nothing is written."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10 * GIB, 9 * GIB, GIB))
    with pytest.raises(NotEnoughDisk, match=r"needs 4\.07 GiB; 1\.00 GiB are free in .*Make room"):
        lab.make_shape("mistral-7b", path=tmp_path / "shape.gguf")
    assert list(tmp_path.iterdir()) == []


def test_a_header_needs_no_room(tmp_path, monkeypatch):
    """A sparse file is written on a nearly full disk too."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10 * GIB, 9 * GIB, GIB))
    path = lab.make_shape("mistral-7b", path=tmp_path / "shape.gguf", header_only=True)
    assert lab.read_gguf(path).metadata["inferlab.header_only"] is True


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, OSError])
def test_an_interruption_leaves_nothing(tmp_path, monkeypatch, interruption):
    """Ctrl-C or a full disk in the middle of the data: no file under either name, and an older one stays whole."""
    target = tmp_path / "shape.gguf"
    before = lab.make_shape("mistral-7b", path=target, header_only=True, **SMALL).read_bytes()
    plain = synthetic_data.weights

    def interrupted(tensor, seed):
        if tensor.name == "blk.1.ffn_up.weight":
            assert len(list(tmp_path.iterdir())) == 2
            raise interruption
        return plain(tensor, seed)

    monkeypatch.setattr(synthetic_model, "weights", interrupted)
    with pytest.raises(interruption):
        lab.make_shape("mistral-7b", path=target, **SMALL)
    assert [file.name for file in tmp_path.iterdir()] == ["shape.gguf"]
    assert target.read_bytes() == before


def test_what_is_no_shape_is_never_overwritten(tmp_path):
    """A real model, or any other file, under the name stays as it was; a shape is written anew."""
    for real in (write_gguf(tmp_path / "real.gguf"), tmp_path / "notes.txt"):
        real.touch()
        before = real.read_bytes()
        with pytest.raises(InvalidSettings, match="is not a shape, so it is not overwritten"):
            lab.make_shape("mistral-7b", path=real, **SMALL)
        assert real.read_bytes() == before
    twice = [lab.make_shape("mistral-7b", path=tmp_path / "shape.gguf", **SMALL).stat().st_ino for _ in range(2)]
    assert twice[0] != twice[1]


def test_the_cache_is_written_once(cache):
    """Without a path a shape lies in the cache folder, named for what it is, and is used again while it is whole."""
    path = lab.make_shape("mistral-7b", "Q4_0", **SMALL)
    assert path.parent == cache
    assert path.name.startswith("mistral-7b-")
    assert path.name.endswith("-n_vocab-512-Q4_0.gguf")
    written = path.stat().st_mtime_ns
    assert lab.make_shape("mistral-7b", "Q4_0", **SMALL).stat().st_mtime_ns == written
    os.truncate(path, path.stat().st_size - 1)
    assert lab.make_shape("mistral-7b", "Q4_0", **SMALL).stat().st_mtime_ns != written
    header = lab.make_shape("mistral-7b", "Q4_0", header_only=True, **SMALL)
    assert header.name.endswith("-Q4_0-header-only.gguf")
    assert stat.S_ISREG(header.stat().st_mode)


@pytest.mark.parametrize("path", [None, "mine.gguf"])
@pytest.mark.parametrize("header_only", [True, False])
def test_a_shape_knows_what_it_was_made_of(cache, tmp_path, path, header_only):
    """By its metadata, whatever its file is called; a known model with changes is that model and the changes."""
    made = lab.make_shape("mistral-7b", "Q4_0", path and tmp_path / path, header_only=header_only, **SMALL)
    expected = Shape("mistral-7b", "Q4_0", SMALL)
    changed = replace(lab.known_model("mistral-7b"), n_layer=2)
    assert lab.read_gguf(made).shape == lab.shape("mistral-7b", "Q4_0", **SMALL).shape == expected
    assert lab.shape(changed, "Q4_0").shape == Shape("mistral-7b", "Q4_0", {"n_layer": 2})


NO_SHAPES = (
    "{",
    "[" * 100_000,
    '{"name": "mistral-7b"}',
    '{"name": "unheard-of", "mix": "Q4_0"}',
    '{"name": ["mistral-7b"], "mix": "Q4_0"}',
    '{"name": "mistral-7b", "mix": "Q4_0", "dimensions": 5}',
    '{"name": "mistral-7b", "mix": "Q4_0", "dimensions": {"mix": 5}}',
    7,
)


@pytest.mark.parametrize("said", NO_SHAPES)
def test_metadata_that_name_no_shape_are_none(said):
    """A file of somebody's own, or of a library with more models, is no known shape."""
    model = lab.shape("mistral-7b")
    assert replace(model, metadata={**model.metadata, "inferlab.shape": said}).shape is None
    assert lab.read_gguf(lab.tiny_model()).shape is None


@pytest.mark.parametrize("mix", MIXES)
def test_the_name_of_a_file_says_its_mix(mix):
    """Mixes of which one's name begins with another's are told apart, with changed dimensions or without."""
    for dimensions in ({}, {"n_layer": 2, "head_dim": 64}):
        made = Shape("qwen2.5-0.5b", mix, dimensions)
        assert replace(CARD, file=made.file_name, synthetic=True).shape == made


def test_a_figure_says_when_the_cache_may_hold_the_weights():
    """A model of 2000 bytes on a machine with a cache of 1000: twice, where eight times are enough to say nothing."""
    machine = replace(CPU_ONLY, last_level_cache_bytes=1000)
    assert synthetic_model.cache_note(CARD, machine).startswith(
        "The weights take 1.95 KiB, and the processor's last-level cache has 1000 B."
    )
    assert "is not known" in synthetic_model.cache_note(CARD, CPU_ONLY)
    assert synthetic_model.cache_note(CARD, replace(CPU_ONLY, last_level_cache_bytes=250)) is None
