"""Files that are whole and cannot be planned: each is called what it is, with what to do, none is called damaged."""

from __future__ import annotations

import re
import struct

import pytest
from gguf import GGMLQuantizationType, GGUFEndian, GGUFWriter

from inferlab.errors import DamagedGGUF, ModelNotFound, NotGGUF, UnsupportedGGUF
from inferlab.model import gguf_kinds
from inferlab.model.ggml_types import TENSOR_TYPES
from inferlab.model.gguf import Tensor, header_bytes, read_gguf

ONE = (Tensor("blk.0.attn_norm.weight", (32,), "F32", 128, 0),)
LLAMA = {"general.architecture": "llama", "llama.block_count": 1}


def written(path, metadata=LLAMA, kind=None):
    """A file with one tensor; `kind` is the number of its type."""
    header = bytearray(header_bytes(metadata, ONE))
    if kind is not None:
        at = header.index(b"attn_norm.weight") + len(b"attn_norm.weight") + 12
        header[at : at + 4] = struct.pack("<I", kind)
    path.write_bytes(bytes(header) + bytes(128))
    return path


def refusal(path):
    with pytest.raises(UnsupportedGGUF) as error:
        read_gguf(path)
    told = str(error.value)
    assert not re.search("corrupt|damaged|truncated|ownload it again", told)
    return told


@pytest.mark.parametrize(
    ("number", "architecture", "told"),
    [
        (137, "llama", "IQ2_K of the fork ik_llama.cpp. Run it there"),
        (212, "llama", "Q4_K_R4 of the fork ik_llama.cpp"),
        (4, "gptoss", "MXFP4 under the number that Ollama gave it at first. Only Ollama reads this file"),
        (4, "llama", "Q4_2, which llama.cpp has removed"),
        (31, "llama", "Q4_0_4_4, which llama.cpp has removed. Take a file of the same model in Q4_0"),
        (36, "bitnet-b1.58", "I2_S of Microsoft's BitNet. Run it with bitnet.cpp"),
        (36, "llama", "IQ4_NL_4_4, which llama.cpp has removed. Microsoft's BitNet uses the number for I2_S"),
        (60, "llama", "not known to this library: it is newer, or of a fork"),
    ],
)
def test_a_type_that_ggml_lacks_is_named(tmp_path, number, architecture, told):
    """By its number, and for some numbers by the architecture."""
    path = written(tmp_path / "m.gguf", {"general.architecture": architecture}, number)
    assert f"the type {number} of tensor 'blk.0.attn_norm.weight' is {told}" in refusal(path)


@pytest.mark.parametrize("number", [200, 400, 2**31])
def test_a_number_that_no_program_gave_is_damage(tmp_path, number):
    """Then the file is to be downloaded again."""
    with pytest.raises(DamagedGGUF, match=rf"unknown type {number} at .*download it again"):
        read_gguf(written(tmp_path / "m.gguf", kind=number))


def test_no_type_of_a_fork_is_one_that_can_be_read():
    """The tables do not overlap, and the installed gguf-py knows none of them."""
    others = gguf_kinds.IK_TYPES.keys() | gguf_kinds.REMOVED_TYPES.keys()
    assert not others & TENSOR_TYPES.keys()
    assert not others & {kind.value for kind in GGMLQuantizationType}


def test_a_big_endian_file_is_named(tmp_path):
    """As gguf-py writes it: the four letters stay, and all numbers are turned round."""
    path = tmp_path / "m.gguf"
    writer = GGUFWriter(path, "llama", endianess=GGUFEndian.BIG)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert f"{path} is a big-endian GGUF of version 3" in refusal(path)
    assert "gguf_convert_endian FILE little" in refusal(path)


@pytest.mark.parametrize(("version", "told"), [(1, "used for a few days of August 2023"), (4, "newer than version 3")])
def test_another_version_is_named(tmp_path, version, told):
    """Whether it is too old or too new."""
    path = written(tmp_path / "m.gguf")
    data = path.read_bytes()
    path.write_bytes(data[:4] + struct.pack("<I", version) + data[8:])
    assert told in refusal(path)


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ({**LLAMA, "general.type": "adapter", "adapter.type": "lora"}, "is a LoRA adapter for a model of the arch"),
        ({"general.architecture": "clip", "general.type": "mmproj"}, "is a projector (mmproj)"),
        ({"general.architecture": "mllama", "general.type": "projector"}, "is a projector (mmproj)"),
        ({"general.architecture": "clip"}, "llama-server takes this one beside it, with --mmproj"),
        ({"general.architecture": "controlvector"}, "is a control vector"),
        ({"general.type": "imatrix"}, "is an importance matrix, not a model"),
        ({"general.architecture": "flux"}, "stable-diffusion.cpp or ComfyUI runs it"),
        ({"general.architecture": "kokoro"}, "is a speech model (kokoro)"),
        ({"general.architecture": "wavtokenizer-dec"}, "is a vocoder"),
        ({"general.name": "some"}, "has no general.architecture"),
    ],
)
def test_a_file_that_is_no_language_model_is_named(tmp_path, metadata, told):
    """With the file to give instead, and what takes this one."""
    assert told in refusal(written(tmp_path / "m.gguf", metadata))


def parts(folder, count=2):
    names = [folder / f"big-{n + 1:05}-of-{count:05}.gguf" for n in range(count)]
    return [written(path, {**LLAMA, "split.no": n, "split.count": count}) for n, path in enumerate(names)]


def test_parts_are_counted_from_one(tmp_path):
    """As their names count them; a renamed first part and joined parts are called so."""
    first, second = parts(tmp_path)
    renamed, joined = tmp_path / "renamed.gguf", tmp_path / "joined.gguf"
    renamed.write_bytes(first.read_bytes())
    joined.write_bytes(first.read_bytes() + bytes(4096) + second.read_bytes())
    for path, told in (
        (second, "is part 2 of 2. Give the first part, big-00001-of-00002.gguf."),
        (renamed, "is part 1 of 2, but is not named so"),
        (joined, "begins with part 1 of 2 and goes on after its end, as parts that were joined with cat do"),
    ):
        with pytest.raises(ModelNotFound) as error:
            read_gguf(path)
        assert told in str(error.value)


@pytest.mark.parametrize(
    ("name", "split", "told"),
    [
        ("big-00001-of-02000.gguf", {"split.no": 0, "split.count": 2000}, "is part 1 of 2,000, and this library reads"),
        ("big.gguf", {"split.count": 2}, "one of 2 parts, but not which"),
        ("big.gguf", {"split.no": "1", "split.count": 2}, "one of 2 parts, but not which"),
        ("big.gguf", {"split.no": 2, "split.count": 2}, "with the number 2, which no part has"),
    ],
)
def test_an_odd_part_is_told_what_is_odd(tmp_path, name, split, told):
    """In words of its metadata, and never to take the name that it has."""
    with pytest.raises(ModelNotFound) as error:
        read_gguf(written(tmp_path / name, {**LLAMA, **split}))
    assert told in str(error.value)
    assert "Name it" not in str(error.value)


def test_a_part_without_a_number_of_parts_is_no_model(tmp_path):
    """Only a later part of several needs no architecture."""
    assert "has no general.architecture" in refusal(written(tmp_path / "m.gguf", {"split.no": 1}))


@pytest.mark.parametrize(
    "name", ["m.gguf.partial", "my.partner-7b.gguf", "a.party.gguf", "x.split.by.gguf", "a.part7b"]
)
def test_a_name_that_only_begins_like_a_piece_is_whole(tmp_path, name):
    """A truncated file of such a name is to be downloaded again."""
    path = tmp_path / name
    path.write_bytes(written(tmp_path / "whole.gguf").read_bytes()[:-64])
    with pytest.raises(DamagedGGUF) as error:
        read_gguf(path)
    assert "pieces" not in str(error.value)


@pytest.mark.parametrize("name", ["big.gguf.part1of2", "big.gguf-split-a", "big.Q4.gguf.part-ab"])
def test_a_piece_of_a_file_is_to_be_joined(tmp_path, name):
    """Its name says that it is not the whole file, so another download would not help."""
    path = written(tmp_path / "whole.gguf")
    (tmp_path / name).write_bytes(path.read_bytes()[:-64])
    with pytest.raises(DamagedGGUF, match="join the pieces in their order"):
        read_gguf(tmp_path / name)
    (tmp_path / name).write_bytes(bytes(64))
    with pytest.raises(NotGGUF, match="join the pieces in their order"):
        read_gguf(tmp_path / name)


def test_an_encoder_in_the_same_file_is_seen(tmp_path):
    """Ollama's own files of models that see pictures have both in one."""
    path, tensors = tmp_path / "m.gguf", (*ONE, Tensor("v.patch_embd.weight", (32,), "F32", 128, 128))
    path.write_bytes(header_bytes(LLAMA, tensors) + bytes(256))
    assert read_gguf(path).encoder_bytes == 128
    assert read_gguf(written(path)).encoder_bytes == 0
