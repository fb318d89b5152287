"""Quantizing: llama.cpp's own quantizer, whole or not at all, on the embedded model."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from dataclasses import fields

import pytest
from fakes import write_gguf
from quantizer import quantizer_types

from inferlab.engine.client import LlamaEngine
from inferlab.engine.quantize import quantize, type_named
from inferlab.errors import EngineCrashed, EngineRefused, InvalidSettings, NotEnoughDisk
from inferlab.model.catalog import KnownModel
from inferlab.model.find import tiny_imatrix, tiny_model
from inferlab.model.ggml_types import FILE_TYPES
from inferlab.model.gguf import read_gguf
from inferlab.model.quant_mixes import MIXES, NEEDS_IMATRIX, UNQUANTIZED, with_mix_types
from inferlab.model.synthetic_model import make_shape
from inferlab.settings import Settings
from studies.block_formats.dequantize import tensor_bytes


@pytest.fixture(scope="module")
def q4_k_m(engine, tmp_path_factory):
    return quantize(tiny_model(), "Q4_K_M", tmp_path_factory.mktemp("quantized") / "q4.gguf", engine=engine)


def types_in(path):
    return {tensor.name: tensor.type for tensor in read_gguf(path).tensors}


# --- what it makes ----------------------------------------------------------------------------


def test_the_result_is_the_same_model_in_fewer_bytes(q4_k_m):
    """Same tensors, shapes and vocabulary; matrices in k-quants, norms untouched."""
    before, after = read_gguf(tiny_model()), read_gguf(q4_k_m)
    assert {t.name: t.shape for t in after.tensors} == {t.name: t.shape for t in before.tensors}
    assert after.array("tokenizer.ggml.tokens") == before.array("tokenizer.ggml.tokens")
    assert {t.type for t in after.tensors if len(t.shape) > 1} == {"Q4_K", "Q6_K"}
    assert {t.type for t in after.tensors if len(t.shape) == 1} == {"F32"}
    assert 0.3 < after.file_bytes / before.file_bytes < 0.4


def test_the_result_computes(q4_k_m, engine):
    """A prefill of many tokens and a decode run on the quantized weights."""
    engine.open(q4_k_m, Settings(n_ctx=512))
    assert len(engine.generate(engine.random_prompt(300), 5).tokens) == 5


@pytest.mark.parametrize("type", ["F32", "BF16", "Q4_0", "IQ3_S", "TQ1_0"])
def test_the_file_says_its_type(type, engine, tmp_path):
    """As llama.cpp numbers them."""
    made = quantize(tiny_model(), type, tmp_path / "made.gguf", engine=engine)
    assert read_gguf(made).metadata["general.file_type"] == FILE_TYPES[type]


@pytest.mark.parametrize("mix", [mix for mix in MIXES if mix not in {*UNQUANTIZED, *NEEDS_IMATRIX}])
def test_every_tensor_gets_the_type_that_the_rules_say(mix, engine, tmp_path):
    """`quant_mixes` knows what the real quantizer writes for the embedded model, tensor by tensor."""
    assert types_in(quantize(tiny_model(), mix, tmp_path / "made.gguf", engine=engine)) == types_by_the_rules(mix)


@pytest.mark.engine
@pytest.mark.parametrize("imatrix", [False, True])
def test_a_dry_run_tells_the_types_that_the_rules_say(imatrix):
    """Of every mix, with an importance matrix and without; those that need one are those that the library names."""
    told = quantizer_types([tiny_model()], {mix: FILE_TYPES[mix] for mix in MIXES}, imatrix)[0]
    refused = set() if imatrix else NEEDS_IMATRIX
    assert told == {mix: None if mix in refused else types_by_the_rules(mix, imatrix) for mix in MIXES}


def types_by_the_rules(mix, imatrix=False):
    """The type of each tensor of the embedded model in a mix, computed."""
    header = read_gguf(tiny_model())
    shape = {f.name: getattr(header, f.name) for f in fields(KnownModel) if hasattr(header, f.name)}
    tiny = KnownModel(**(shape | {"source": "", "tied_embeddings": True, "files": {}, "metadata": {}}))
    return {tensor.name: tensor.type for tensor in with_mix_types(header.tensors, mix, tiny, imatrix=imatrix)}


def test_a_type_is_named_as_llama_quantize_names_it():
    """Any case, and the short names of the medium mixes."""
    assert (type_named("q4_k_m"), type_named("Q4_K"), type_named("iq4_xs")) == ("Q4_K_M", "Q4_K_M", "IQ4_XS")


def test_without_a_path_the_file_goes_to_the_cache_folder(monkeypatch, tmp_path, engine):
    """Named after the model and the type, in a folder that is made for it."""
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path / "new"))
    assert quantize("tiny", "q8_0", engine=engine) == tmp_path / "new" / "tiny-Q8_0.gguf"


def test_an_open_model_stays_open(q4_k_m, engine, tmp_path):
    """Quantizing takes nothing away from what is loaded."""
    engine.open(tiny_model(), Settings(n_ctx=256))
    quantize(tiny_model(), "Q8_0", tmp_path / "made.gguf", engine=engine)
    assert engine.has_open(tiny_model())
    assert engine.generate(engine.random_prompt(8), 2).tokens


def test_an_older_file_is_replaced(engine, tmp_path):
    """By the new one, at the very end."""
    old = tmp_path / "made.gguf"
    old.write_bytes(b"old")
    assert read_gguf(quantize(tiny_model(), "Q8_0", old, engine=engine)).tensors
    assert os.listdir(tmp_path) == ["made.gguf"]


def test_progress_is_told_tensor_by_tensor(engine, tmp_path):
    """Every tensor counts once, up to all of them."""
    told = []
    quantize(tiny_model(), "Q8_0", tmp_path / "made.gguf", lambda *count: told.append(count), engine=engine)
    total = len(read_gguf(tiny_model()).tensors)
    assert told == [(done, total) for done in range(1, total + 1)]


# --- what it refuses --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "hint"), [("Q4_K_X", "Did you mean 'Q4_K_"), ("Q7_K", "Did you mean"), ("best", "There are: F32, F16")]
)
def test_an_unknown_type_is_answered_with_the_nearest(name, hint):
    """A typing error costs one look at the message."""
    with pytest.raises(InvalidSettings, match=f"no quantization '{name}'. {hint}"):
        quantize(tiny_model(), name)


def test_quantizing_twice_is_refused_in_llama_cpps_words(q4_k_m, engine, tmp_path):
    """Unless it is asked for; the file of the refused attempt is gone."""
    with pytest.raises(EngineRefused, match=r"requantizing from type q[46]_K is disabled"):
        quantize(q4_k_m, "Q8_0", tmp_path / "made.gguf", engine=engine)
    assert os.listdir(tmp_path) == []
    again = quantize(q4_k_m, "Q8_0", tmp_path / "made.gguf", requantize=True, engine=engine)
    assert set(types_in(again).values()) == {"Q8_0", "F32"}


def test_a_type_that_needs_an_importance_matrix_is_refused_in_llama_cpps_words(engine, tmp_path):
    """The smallest types are not made without one."""
    with pytest.raises(EngineRefused, match="requires an imatrix"):
        quantize(tiny_model(), "IQ2_XXS", tmp_path / "made.gguf", engine=engine)
    assert os.listdir(tmp_path) == []


def test_with_a_matrix_the_smallest_types_are_made(engine, tmp_path):
    """Every tensor gets the type of the rules with a matrix; the file says which matrix made it, without its folder."""
    made = quantize(tiny_model(), "IQ2_XXS", tmp_path / "made.gguf", imatrix=tiny_imatrix(), engine=engine)
    assert types_in(made) == types_by_the_rules("IQ2_XXS", imatrix=True)
    written = {key: value for key, value in read_gguf(made).metadata.items() if "imatrix" in key}
    assert written == {
        "quantize.imatrix.file": "training.gguf",
        "quantize.imatrix.dataset": "calibration.txt",
        "quantize.imatrix.entries_count": 42,
        "quantize.imatrix.chunks_count": 56,
    }


def test_a_matrix_changes_the_bytes_and_not_their_number(q4_k_m, engine, tmp_path):
    """The same types, other codes, the same bytes at every repetition."""
    with_matrix = [
        quantize(tiny_model(), "Q4_K_M", tmp_path / name, imatrix=tiny_imatrix(), engine=engine) for name in ("a", "b")
    ]
    assert with_matrix[0].read_bytes() == with_matrix[1].read_bytes()
    assert types_in(with_matrix[0]) == types_in(q4_k_m)
    data = [tensor_bytes(read_gguf(path), "blk.3.ffn_up.weight") for path in (q4_k_m, with_matrix[0])]
    assert len(data[0]) == len(data[1])
    assert data[0] != data[1]


def test_a_tensor_gets_the_type_that_its_pattern_says(engine, tmp_path):
    """The first pattern found in its name counts, before the rules of the mix."""
    patterns = [r"blk\.0\..*=q8_0", "ffn_=mxfp4"]
    made = quantize(tiny_model(), "MXFP4_MOE", tmp_path / "made.gguf", tensor_types=patterns, engine=engine)
    types = types_in(made)
    assert {types["blk.0.ffn_up.weight"], types["blk.1.attn_q.weight"]} == {"Q8_0"}
    assert types["blk.1.ffn_up.weight"] == "MXFP4"


@pytest.mark.parametrize(
    ("choices", "told"),
    [
        ({"type": "Q8_0", "imatrix": tiny_imatrix()}, "Q8_0 is rounded without a search, so an importance matrix"),
        ({"type": "Q4_K_M", "tensor_types": ["ffn"]}, "'ffn' is not of the form 'pattern=type'"),
        ({"type": "Q4_K_M", "tensor_types": "ffn=q8_0"}, "must be a sequence of texts"),
        ({"type": "Q4_K_M", "tensor_types": ["(=q8_0"]}, "is no regular expression"),
        ({"type": "Q4_K_M", "tensor_types": ["ffn=q9"]}, "ggml has no type 'q9'"),
    ],
)
def test_choices_that_would_do_nothing_are_refused(choices, told):
    """Before anything is read or written."""
    with pytest.raises(InvalidSettings, match=re.escape(told)):
        quantize(tiny_model(), **choices)


def test_a_matrix_of_another_model_never_reaches_the_quantizer(tmp_path):
    """llama.cpp would leave out the matrix for what it does not name."""
    other = make_shape("qwen2.5-0.5b", "F16", tmp_path / "other.gguf", n_layer=1, n_vocab=512, progress=False)
    with pytest.raises(InvalidSettings, match=r"was not made from other.gguf"):
        quantize(other, "Q4_K_M", tmp_path / "made.gguf", imatrix=tiny_imatrix())


def test_the_model_is_never_written_onto_itself(engine, tmp_path):
    """Not even through a link."""
    copy = shutil.copy(tiny_model(), tmp_path / "copy.gguf")
    (tmp_path / "link.gguf").symlink_to(copy)
    with pytest.raises(InvalidSettings, match="is the model itself"):
        quantize(copy, "Q8_0", tmp_path / "link.gguf", engine=engine)
    with pytest.raises(InvalidSettings, match="is a folder"):
        quantize(copy, "Q8_0", tmp_path, engine=engine)


def test_a_full_disk_is_found_out_before_writing(monkeypatch, engine, tmp_path):
    """What the file will take is known from a dry run, to a hundredth of a MiB and the header."""
    made = quantize(tiny_model(), "Q4_0", tmp_path / "made.gguf", engine=engine)
    usage = namedtuple("usage", "free")
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage(made.stat().st_size - 50_000))
    with pytest.raises(NotEnoughDisk, match=r"second.gguf will take 3\.\d\d MiB, but .* has 3\.\d\d MiB free"):
        quantize(tiny_model(), "Q4_0", tmp_path / "second.gguf", engine=engine)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage(made.stat().st_size + 50_000))
    quantize(tiny_model(), "Q4_0", tmp_path / "second.gguf", engine=engine)


def test_a_model_that_llama_cpp_does_not_know_is_refused(engine, tmp_path):
    """A sound GGUF of an incomplete model gives llama.cpp's reason and no file."""
    with pytest.raises(EngineRefused, match="did not quantize"):
        quantize(write_gguf(tmp_path / "model.gguf"), "Q8_0", tmp_path / "made.gguf", engine=engine)
    assert os.listdir(tmp_path) == ["model.gguf"]


# --- what it survives -------------------------------------------------------------------------


@pytest.mark.engine
def test_a_crash_leaves_nothing_behind(tmp_path):
    """The worker dies in the middle: an error in the caller, no file, and the next call works."""
    engine = LlamaEngine()

    def shoot(done, total):
        if done == 3:
            os.kill(engine.pid, signal.SIGKILL)

    with pytest.raises(EngineCrashed):
        quantize(tiny_model(), "Q2_K", tmp_path / "made.gguf", shoot, engine=engine)
    assert os.listdir(tmp_path) == []
    assert quantize(tiny_model(), "Q8_0", tmp_path / "made.gguf", engine=engine).exists()
    engine.close()


@pytest.mark.engine
def test_an_interrupt_leaves_nothing_behind(tmp_path):
    """Ctrl-C in the middle ends the worker and takes the half file away."""
    engine = LlamaEngine()

    def interrupt(done, total):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize(tiny_model(), "Q2_K", tmp_path / "made.gguf", interrupt, engine=engine)
    assert (os.listdir(tmp_path), engine.pid) == ([], None)


@pytest.mark.engine
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_killed_notebook_leaves_nothing_behind(tmp_path):
    """When the caller dies without a word, its worker takes the half file away."""
    code = (
        "import os, signal, inferlab as lab\n"
        "def die(done, total):\n    if done == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"lab.quantize('tiny', 'Q2_K', {str(tmp_path / 'made.gguf')!r}, die)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    until = time.monotonic() + 60
    while os.listdir(tmp_path) and time.monotonic() < until:
        time.sleep(0.02)
    assert os.listdir(tmp_path) == []
