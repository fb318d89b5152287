"""Plans of files that llama.cpp or this library takes otherwise than most: without a tokenizer, with an encoder."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from inferlab import cli
from inferlab.errors import UnsupportedGGUF
from inferlab.instruments.dropped import DroppedFiles
from inferlab.model.find import tiny_model
from inferlab.model.gguf import LazyArray, Tensor, header_bytes, read_gguf
from inferlab.prediction.fit import fit

TINY = read_gguf(tiny_model())
METADATA = {
    key: value
    for key, value in TINY.metadata.items()
    if not key.startswith("tokenizer") and not isinstance(value, LazyArray)
}
ENCODER = (Tensor("v.blk.0.attn_q.weight", (320, 320), "F16", 204_800, 0), Tensor("mm.0.bias", (32,), "F32", 128, 0))


def written(path, tensors):
    """The embedded model with other tensors beside its own, and without its tokenizer."""
    placed, end = [], 0
    for tensor in (*TINY.tensors, *tensors):
        placed.append(replace(tensor, offset=end))
        end += -(-tensor.n_bytes // 32) * 32
    path.write_bytes(header_bytes(METADATA, tuple(placed)) + bytes(end))
    return path


def test_a_model_without_a_tokenizer_is_planned_as_with_it(tmp_path):
    """It is legal, and the sizes come from the tensors."""
    bare = fit(read_gguf(written(tmp_path / "m.gguf", ())), vram="1GiB", simulate=False).plan
    assert bare.devices == fit(TINY, vram="1GiB", simulate=False).plan.devices


def test_an_encoder_in_the_file_is_told(tmp_path):
    """Ollama's own files of models that see have one; its bytes count, and llama.cpp is not asked, which refuses it."""
    model = read_gguf(written(tmp_path / "m.gguf", ENCODER))
    plan = fit(model, vram="1GiB").plan
    assert plan.notes[0].startswith("The file holds 200.12 KiB of an encoder for pictures or sound")
    weights = [fit(one, vram="1GiB", simulate=False).plan.devices["gpu0"].weights_bytes for one in (model, TINY)]
    assert weights[0] - weights[1] == sum(tensor.n_bytes for tensor in ENCODER)


def test_what_is_no_model_is_called_so_everywhere(tmp_path, capsys):
    """On the command line, and on a page without the folder that the file lies in there."""
    path = tmp_path / "adapter.gguf"
    path.write_bytes(header_bytes({"general.architecture": "llama", "general.type": "adapter"}, ()))
    assert cli.main(["plan", str(path), "--vram", "8GiB"]) == 1
    told = capsys.readouterr().err
    assert "adapter.gguf is a LoRA adapter for a model of the architecture 'llama'" in re.sub(r"\s+", " ", told)
    files = DroppedFiles(tmp_path / "here")
    files.folder.mkdir()
    data = path.read_bytes()
    with pytest.raises(UnsupportedGGUF, match=r"^adapter\.gguf is a LoRA adapter"):
        files.add(path.name, len(data), 0, data)
