"""Reading GGUF headers: what a good file says, and what every bad one is answered with."""

import os
import random
import resource
import struct
import subprocess
import sys
import time
from math import prod

import pytest
from fakes import write_gguf
from gguf import GGUFReader

from inferlab.errors import (
    DamagedGGUF,
    HeaderIncomplete,
    ModelError,
    ModelNotFound,
    NotGGUF,
    UnsupportedArchitecture,
    UnsupportedGGUF,
)
from inferlab.model import gguf as gguf_module
from inferlab.model.find import tiny_model
from inferlab.model.ggml_types import TENSOR_TYPES
from inferlab.model.gguf import LazyArray, Tensor, header_bytes, header_length, header_of, read_gguf
from inferlab.model.synthetic_data import vocabulary

U32, U64, STRING, ARRAY = 4, 10, 8, 9


def string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key, kind, value):
    return string(key) + struct.pack("<I", kind) + value


def tensor(name="one", shape=(32,), kind=0, offset=0, n_dimensions=None):
    count = len(shape) if n_dimensions is None else n_dimensions
    return string(name) + struct.pack(f"<I{len(shape)}QIQ", count, *shape, kind, offset)


ARCHITECTURE = entry("general.architecture", STRING, string("llama"))


def gguf(entries=(ARCHITECTURE,), tensors=(), data=b"", version=3, n_tensors=None, n_entries=None):
    """The bytes of a GGUF, right or wrong, with its data aligned to 32 bytes."""
    counts = (len(tensors) if n_tensors is None else n_tensors, len(entries) if n_entries is None else n_entries)
    header = b"GGUF" + struct.pack("<IQQ", version, *counts) + b"".join(entries) + b"".join(tensors)
    return header + bytes(-len(header) % 32) + data


def write_anew(path, data):
    """Write a fresh file: some file systems flush a file that is overwritten, which takes milliseconds."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


PARSER = f"""
import ctypes, sys
from inferlab.engine import libraries
ggml = ctypes.CDLL(str(libraries.shared_library("ggml-base")))
types = {list(TENSOR_TYPES)}
ggml.ggml_type_size.restype = ggml.gguf_get_tensor_size.restype = ctypes.c_size_t
ggml.gguf_get_tensor_offset.restype = ctypes.c_size_t
ggml.ggml_type_name.restype = ggml.gguf_get_tensor_name.restype = ctypes.c_char_p
ggml.gguf_init_from_file.restype = ctypes.c_void_p

class Params(ctypes.Structure):
    _fields_ = [("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p)]

def tell(path):
    file = ctypes.c_void_p(ggml.gguf_init_from_file(path.encode(), Params(True, None)))
    for i in range(ggml.gguf_get_n_tensors(file) if file else 0):
        kind = ggml.ggml_type_name(ggml.gguf_get_tensor_type(file, i)).decode().upper()
        name = ggml.gguf_get_tensor_name(file, i).decode(errors="replace")
        print(name, kind, ggml.gguf_get_tensor_size(file, i), ggml.gguf_get_tensor_offset(file, i))
"""


def in_another_process(code, *arguments):
    """What `code` prints beside ggml's own parser, in a process that may crash."""
    command = [sys.executable, "-c", PARSER + code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture
def refusal(tmp_path):
    """What reading these bytes is answered with."""

    def answer(data):
        path = tmp_path / "model.gguf"
        write_anew(path, data)
        with pytest.raises(ModelError) as error:
            read_gguf(path)
        return error.value

    return answer


# --- what a good file says --------------------------------------------------------------------


def test_the_embedded_model_reads_as_with_ggufs_own_reader():
    """Names, types, shapes, sizes and offsets of all tensors equal those of gguf-py."""
    ours, theirs = read_gguf(tiny_model()), GGUFReader(tiny_model())
    told = [(t.name, t.type, t.shape, t.n_bytes, t.offset) for t in ours.tensors]
    assert told == [
        (t.name, t.tensor_type.name, tuple(map(int, t.shape)), t.n_bytes, t.data_offset) for t in theirs.tensors
    ]
    assert ours.n_params == sum(int(t.n_elements) for t in theirs.tensors)


def test_the_embedded_models_metadata_reads_as_with_ggufs_own_reader():
    """Every key and value equals gguf-py's, arrays decoded on demand."""
    ours, theirs = read_gguf(tiny_model()), GGUFReader(tiny_model())
    fields = {key: field for key, field in theirs.fields.items() if not key.startswith("GGUF.")}
    assert list(ours.metadata) == list(fields)
    for key, value in ours.metadata.items():
        assert (ours.array(key) if isinstance(value, LazyArray) else value) == fields[key].contents()


def test_a_model_tells_its_shape_in_llama_cpps_words():
    """The properties name what llama.cpp prints when it loads the same file."""
    model = read_gguf(tiny_model())
    assert (model.architecture, model.n_layer, model.n_embd, model.n_ff) == ("llama", 6, 256, 768)
    assert (model.n_head, model.n_head_kv, model.head_dim_k, model.head_dim_v) == (4, 2, 64, 64)
    assert (model.n_vocab, model.n_ctx_train, model.synthetic) == (4096, 1024, False)
    assert model.tensor_bytes < model.file_bytes == tiny_model().stat().st_size


def test_a_models_card_holds_no_path():
    """A record of a run names the file, never the folders of the reader's machine."""
    card = read_gguf(tiny_model()).card()
    assert (card.file, card.architecture, card.synthetic) == ("tiny.gguf", "llama", False)
    assert str(tiny_model().parent) not in repr(card)


def test_what_a_file_does_not_say_is_unknown(tmp_path):
    """A number that is absent, or given for each layer, is None and never 0."""
    model = read_gguf(write_gguf(tmp_path / "m.gguf", {"llama.attention.head_count": [4, 8]}))
    assert (model.n_head, model.n_head_kv, model.head_dim_k, model.n_ctx_train) == (None,) * 4
    assert model.n_layer == 2
    with pytest.raises(UnsupportedArchitecture, match="has no embedding_length"):
        _ = model.n_embd


def test_without_grouped_queries_there_are_as_many_kv_heads_as_heads(tmp_path):
    """llama.cpp's default for a missing head_count_kv."""
    model = read_gguf(write_gguf(tmp_path / "m.gguf", {"llama.attention.head_count": 8}))
    assert model.n_head_kv == 8


@pytest.mark.parametrize("value", [float("nan"), float("inf"), True, "six"])
def test_a_number_of_the_wrong_kind_is_unknown(tmp_path, value):
    """A layer count that is no whole number breaks nothing."""
    assert read_gguf(write_gguf(tmp_path / "m.gguf", {"llama.feed_forward_length": value})).n_ff is None


def test_arrays_are_decoded_on_demand(tmp_path):
    """Strings and numbers come out as written; a scalar is no array."""
    model = read_gguf(write_gguf(tmp_path / "m.gguf"))
    assert model.array("tokenizer.ggml.tokens") == ["a", "b", "ä"]
    assert model.array("example.numbers") == [1, 2, 3]
    with pytest.raises(KeyError, match="not an array"):
        model.array("example.float")


def test_a_name_cannot_steer_a_terminal(tmp_path):
    """Control characters in a model's name are replaced where it is shown; a missing name is the file's."""
    assert read_gguf(write_gguf(tmp_path / "m.gguf", {"general.name ": "x"})).name == "example"
    data = gguf([ARCHITECTURE, entry("general.name", STRING, string("\x1b[31mred\n"))])
    (tmp_path / "n.gguf").write_bytes(data)
    assert read_gguf(tmp_path / "n.gguf").name == "\ufffd[31mred\ufffd"
    (tmp_path / "o.gguf").write_bytes(gguf())
    assert read_gguf(tmp_path / "o.gguf").name == "o"


@pytest.mark.engine
def test_sizes_of_types_are_those_of_ggml():
    """Block and byte sizes equal what the installed ggml says of each of its types."""
    told = in_another_process("for i in types: print(i, ggml.ggml_blck_size(i), ggml.ggml_type_size(i))")
    sizes = {i: (block, n_bytes) for i, block, n_bytes in (map(int, line.split()) for line in told.splitlines())}
    assert {kind: (t.block, t.block_bytes) for kind, t in TENSOR_TYPES.items()} == sizes
    assert TENSOR_TYPES[12].bits_per_weight == 4.5


@pytest.mark.engine
def test_the_embedded_model_reads_as_with_ggmls_own_parser():
    """Names, types, sizes and offsets of all tensors equal those of the parser inside llama.cpp."""
    told = in_another_process("tell(sys.argv[1])", tiny_model()).splitlines()
    data = min(t.offset for t in read_gguf(tiny_model()).tensors)
    assert told == [f"{t.name} {t.type} {t.n_bytes} {t.offset - data}" for t in read_gguf(tiny_model()).tensors]


def test_version_two_is_read_too(tmp_path):
    """GGUF 2 differs from 3 only in what a reader of the header does not see."""
    (tmp_path / "m.gguf").write_bytes(gguf(version=2, tensors=[tensor()], data=bytes(128)))
    model = read_gguf(tmp_path / "m.gguf")
    assert (model.version, model.tensors[0].n_elements) == (2, 32)


# --- what is not a file, or not a GGUF --------------------------------------------------------


def test_a_missing_file_is_named(tmp_path):
    """ModelNotFound repeats the path."""
    with pytest.raises(ModelNotFound, match=r"none\.gguf does not exist"):
        read_gguf(tmp_path / "none.gguf")


def test_a_folder_is_answered_with_what_lies_in_it(tmp_path):
    """The file that was probably meant is named."""
    with pytest.raises(ModelNotFound, match=r"holds no \.gguf file"):
        read_gguf(tmp_path)
    (tmp_path / "inside.gguf").touch()
    with pytest.raises(ModelNotFound, match=r"it holds inside\.gguf"):
        read_gguf(tmp_path)


def test_a_pipe_does_not_block(tmp_path):
    """Something that is neither file nor folder is refused without opening it."""
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ModelNotFound, match="a device or a pipe"):
        read_gguf(tmp_path / "pipe.gguf")


def test_a_file_that_may_not_be_read_says_so(tmp_path, monkeypatch):
    """A missing permission is ModelNotFound with the system's reason."""

    def forbidden(*_):
        raise PermissionError(13, "Permission denied")

    path = write_gguf(tmp_path / "m.gguf")
    monkeypatch.setattr(type(path), "open", forbidden)
    with pytest.raises(ModelNotFound, match="Permission denied"):
        read_gguf(path)


@pytest.mark.parametrize(
    ("data", "looks_like"),
    [
        (b"", "is empty"),
        (b"G", "starts with b'G'"),
        (b"PK\x03\x04" + bytes(60), "zip archive"),
        (b"\x1f\x8b\x08" + bytes(60), "gzip archive"),
        (b"<!DOCTYPE html><html>", "failed download"),
        (b"<html><body>404", "failed download"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (struct.pack("<Q", 9) + b'{"a":1}  ', "safetensors"),
        (struct.pack("<I", 0x67676D6C) + bytes(60), "a GGML file from before August 2023"),
        (struct.pack("<I", 0x67676A74) + bytes(60), "a GGJT file from before August 2023"),
        (b"MZqFpD='" + bytes(60), "a llamafile"),
        (b'{"schemaVersion":2}', "a text in JSON"),
        (bytes(64), "Give the path of a GGUF file"),
    ],
)
def test_another_kind_of_file_is_recognized(refusal, data, looks_like):
    """NotGGUF says what the file looks like, so that the reader knows what went wrong."""
    error = refusal(data)
    assert type(error) is NotGGUF
    assert looks_like in str(error)


# --- a GGUF that cannot be trusted ------------------------------------------------------------

HUGE = struct.pack("<Q", 2**63)
TWO = [tensor("one"), tensor("two", offset=128)]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"GGUF", "the version needs 4 bytes"),
        (gguf(version=0), "version 0 is not one of"),
        (gguf(version=10), "version 10 is not one of"),
        (gguf(n_tensors=2**63), "cannot fit"),
        (gguf(n_tensors=2_000_000, data=bytes(1000)), "cannot fit"),
        (gguf(n_entries=2**64 - 1), "cannot fit"),
        (gguf(n_entries=2).rstrip(b"\0"), "metadata key needs"),
        (gguf([string(b"k" * 70_000)]), "claims 70,000 bytes"),
        (gguf([HUGE, bytes(64)]), "a metadata key claims"),
        (gguf([entry("k", STRING, HUGE)]), "bytes that are not there"),
        (gguf([entry("k", 13, bytes(8))]), "'k' has unknown type 13"),
        (gguf([entry("k", ARRAY, struct.pack("<IQ", 99, 1))]), "array of unknown type 99"),
        (gguf([entry("k", ARRAY, struct.pack("<IQ", ARRAY, 1))]), "array of unknown type 9"),
        (gguf([entry("k", ARRAY, struct.pack("<I", U64) + HUGE)]), "bytes that are not there"),
        (gguf([entry("k", ARRAY, struct.pack("<I", STRING) + HUGE)]), "strings that are not there"),
        (gguf([entry("k", ARRAY, struct.pack("<IQ", STRING, 2) + string("a") + HUGE)]), "that are not there"),
        (gguf([ARCHITECTURE, ARCHITECTURE]), "'general.architecture' appears twice"),
        (gguf([entry("k\n", U32, bytes(4)), ARCHITECTURE]), "control characters"),
        (gguf([ARCHITECTURE, entry("general.alignment", U32, struct.pack("<I", 24))]), "not a power of two"),
        (gguf([ARCHITECTURE, entry("general.alignment", U32, bytes(4))]), "not a power of two"),
        (gguf([ARCHITECTURE, entry("general.alignment", STRING, string("32"))]), "not a power of two"),
        (gguf(tensors=[tensor(shape=())]), "has 0 dimensions"),
        (gguf(tensors=[tensor(shape=(1,) * 5)]), "has 5 dimensions"),
        (gguf(tensors=[tensor(n_dimensions=2**32 - 1)]), "has 4294967295 dimensions"),
        (gguf(tensors=[tensor(kind=400)]), "unknown type 400"),
        (gguf(tensors=[tensor(kind=2**32 - 1)]), "unknown type 4294967295"),
        (gguf(tensors=[tensor("a\x1b[31m")], data=bytes(128)), "control characters"),
        (gguf(tensors=[tensor(), tensor()], data=bytes(256)), "share a name"),
        (gguf(tensors=[tensor(shape=(0, 2**63))]), "holds no weights"),
        (gguf(tensors=[tensor(shape=(33,), kind=8)], data=bytes(128)), "not a multiple of 32"),
        (gguf(tensors=[tensor(offset=4)], data=bytes(256)), "not aligned"),
        (gguf(tensors=[tensor()], data=bytes(127)), "past the end"),
        (gguf(tensors=[tensor(offset=2**63)], data=bytes(128)), "past the end"),
        (gguf(tensors=[tensor(shape=(2**63, 2**63, 2**63, 2**63))], data=bytes(128)), "past the end"),
        (gguf(tensors=TWO, data=bytes(255)), "the data of 'two'"),
    ],
    ids=range(35),
)
def test_a_header_that_breaks_the_rules_is_refused(refusal, data, found):
    """DamagedGGUF says what is wrong and where; nothing is read past the end of the file."""
    error = refusal(data)
    assert type(error) is DamagedGGUF
    assert found in str(error)
    assert "at byte" in str(error)


def test_the_same_bytes_unbroken_are_accepted(tmp_path):
    """The refusals above come from what each case breaks, not from how the bytes are made."""
    (tmp_path / "m.gguf").write_bytes(gguf(tensors=TWO, data=bytes(256)))
    assert [t.offset % 32 for t in read_gguf(tmp_path / "m.gguf").tensors] == [0, 0]


def test_a_file_cut_anywhere_is_refused(tmp_path, refusal):
    """However early a download stopped, the answer is one of ours."""
    whole = write_gguf(tmp_path / "whole.gguf").read_bytes()
    for length in range(len(whole)):
        refusal(whole[:length])


def test_the_embedded_model_cut_short_is_refused(refusal):
    """One byte less than the last tensor needs is one too few."""
    whole = tiny_model().read_bytes()
    last = max(t.offset + t.n_bytes for t in read_gguf(tiny_model()).tensors)
    for length in (100, 5_000, 60_000, 200_000, last // 2, last - 1):
        assert isinstance(refusal(whole[:length]), DamagedGGUF)


def test_a_sparse_file_cannot_keep_the_reader_busy(tmp_path):
    """A terabyte of nothing that claims strings without end is refused within 20 seconds of processor time."""
    path, began = tmp_path / "sparse.gguf", time.process_time()
    with path.open("wb") as file:
        file.write(gguf([], n_entries=1000)[:24])
        for key in ("a", "b", "c"):
            file.write(entry(key, ARRAY, struct.pack("<IQ", STRING, 2**23)))
            file.seek(8 * 2**23, 1)
        file.truncate(2**40)
    with pytest.raises(DamagedGGUF):
        read_gguf(path)
    assert time.process_time() - began < 20


# --- twenty thousand wrong headers ------------------------------------------------------------

EDGES = [0, 1, 2, 7, 8, 9, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1]


def mutated(data, generator):
    """One to three wounds: flipped bytes, numbers at the edges, pieces cut out, doubled or moved."""
    data = bytearray(data)
    for _ in range(generator.randint(1, 3)):
        at, kind = generator.randrange(4, len(data)), generator.randrange(6)
        length = generator.randint(1, 40)
        if kind == 0:
            data[at] ^= 1 << generator.randrange(8)
        elif kind == 1:
            data[at : at + 8] = struct.pack("<Q", generator.choice(EDGES))
        elif kind == 2:
            data[at : at + 4] = struct.pack("<I", generator.choice(EDGES) % 2**32)
        elif kind == 3:
            del data[at : at + length]
        elif kind == 4:
            data[at:at] = data[at : at + length]
        else:
            data[at : at + length] = generator.randbytes(length)
        data = data if len(data) > 5 else bytearray(b"GGUF\x03\0")
    return bytes(data)


def look_at_everything(path):
    """Read the header and every property a figure or a plan would ask for."""
    model = read_gguf(path)
    for name in ("name", "n_layer", "n_head_kv", "head_dim_k", "head_dim_v", "n_ctx_train", "n_vocab", "n_params"):
        getattr(model, name)
    for key, value in model.metadata.items():
        if isinstance(value, LazyArray):
            model.array(key)
    assert all(t.offset + t.n_bytes <= model.file_bytes for t in model.tensors)
    assert all(t.n_elements == prod(t.shape) > 0 for t in model.tensors)


@pytest.mark.parametrize("metadata", [[], [entry("general.architecture", U32, bytes(4))]])
def test_a_sound_file_without_an_architecture_is_no_model(refusal, metadata):
    """Such as another program's; it says what to do, and calls nothing damaged."""
    error = refusal(gguf(metadata))
    assert type(error) is UnsupportedGGUF
    assert "has no general.architecture, so it is no model that llama.cpp loads" in str(error)


@pytest.mark.parametrize("seed", range(20))
def test_a_mutated_header_is_read_or_refused(tmp_path, seed):
    """Of a thousand wounded headers each is either read within its bounds or answered with a ModelError."""
    whole = write_gguf(tmp_path / "whole.gguf", shape=(1, 16)).read_bytes()
    generator, path = random.Random(seed), tmp_path / "mutated.gguf"
    before, began, refused = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time(), 0
    for _ in range(1000):
        write_anew(path, mutated(whole, generator))
        try:
            look_at_everything(path)
        except (ModelError, UnsupportedArchitecture):
            refused += 1
    assert 500 < refused < 1000
    assert time.process_time() - began < 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


@pytest.mark.engine
def test_what_is_accepted_does_no_harm_in_llama_cpp(tmp_path):
    """ggml's own parser survives every wounded header that passed ours."""
    whole, generator = write_gguf(tmp_path / "whole.gguf", shape=(1, 16)).read_bytes(), random.Random(1)
    for number in range(2000):
        path = tmp_path / f"{number}.gguf"
        path.write_bytes(mutated(whole, generator))
        try:
            read_gguf(path)
        except ModelError:
            path.unlink()
    accepted = sorted(tmp_path.glob("[0-9]*.gguf"))
    assert len(accepted) > 100
    in_another_process("for path in sys.argv[1:]: tell(path)", *accepted)


# --- models in several files --------------------------------------------------------------------


def parts_of(folder, count=3, numbered=None):
    """A model split over `count` files as llama-gguf-split names them."""
    return [
        write_gguf(
            folder / f"m-{n + 1:05}-of-{count:05}.gguf",
            {"split.no": n if numbered is None else numbered, "split.count": count},
        )
        for n in range(count)
    ]


def test_a_split_model_is_read_whole_from_its_first_part(tmp_path):
    """Tensors and bytes of all parts; the path stays that of the first."""
    first, *others = parts_of(tmp_path)
    model = read_gguf(first)
    assert len(model.tensors) == 3 * 3
    assert model.file_bytes == sum(part.stat().st_size for part in (first, *others))
    assert model.path == first


def test_only_the_first_part_needs_the_models_metadata(tmp_path):
    """llama-gguf-split gives the later parts nothing but their number (gguf-split.cpp:240)."""
    first, *others = parts_of(tmp_path, count=2)
    tensors = (Tensor("blk.9.attn_norm.weight", (32,), "F32", 128, 0),)
    others[0].write_bytes(header_bytes({"split.no": 1, "split.count": 2}, tensors) + bytes(128))
    assert [t.part for t in read_gguf(first).tensors] == [0, 0, 0, 1]
    with pytest.raises(ModelNotFound, match=r"part 2 of 2.*-00001-of-00002\.gguf"):
        read_gguf(others[0])


def test_a_missing_part_is_named(tmp_path):
    """The reader learns which file to download."""
    first, second, _ = parts_of(tmp_path)
    second.unlink()
    with pytest.raises(ModelNotFound, match=r"m-00002-of-00003\.gguf is not beside it"):
        read_gguf(first)


def test_another_part_than_the_first_is_sent_to_the_first(tmp_path):
    """Opening part two says which one to open."""
    _, second, _ = parts_of(tmp_path)
    with pytest.raises(ModelNotFound, match=r"part 2 of 3.* m-00001-of-00003\.gguf"):
        read_gguf(second)


def test_a_part_that_is_no_gguf_is_named(tmp_path):
    """A damaged part is an error about that part."""
    first, _, third = parts_of(tmp_path)
    third.write_bytes(b"<!DOCTYPE html>")
    with pytest.raises(NotGGUF, match="m-00003-of-00003"):
        read_gguf(first)


def test_metadata_is_listed_with_arrays_by_their_length():
    """Every key once; numbers short, texts as they are, and no array decoded."""
    model = read_gguf(tiny_model())
    lines = model.metadata_lines()
    assert [line.split(" = ")[0] for line in lines] == list(model.metadata)
    assert "general.architecture = llama" in lines
    assert f"tokenizer.ggml.tokens = array of {model.n_vocab}" in lines


# --- beginnings of files ------------------------------------------------------------------------


def read_beginning(path, whole, length):
    """What the first `length` bytes of a file are answered with when its whole size is known."""
    write_anew(path, whole[:length])
    try:
        return read_gguf(path, sizes={path.name: len(whole)})
    except HeaderIncomplete as error:
        return error


WITH_ARRAYS = gguf(
    [
        ARCHITECTURE,
        entry("k", ARRAY, struct.pack("<IQ", STRING, 3) + string("a") + string("bcd") + string("")),
        entry("n", ARRAY, struct.pack("<IQ", U64, 2) + bytes(16)),
        entry("general.alignment", U32, struct.pack("<I", 64)),
    ],
    tensors=TWO,
    data=bytes(512),
)


@pytest.mark.parametrize("whole", [gguf(), gguf(tensors=TWO, data=bytes(256)), WITH_ARRAYS], ids=range(3))
def test_every_beginning_is_read_as_the_whole_or_is_too_short(tmp_path, whole):
    """A header's beginning says how many bytes it had and needs more; from its end on it is the same model."""
    path = tmp_path / "m.gguf"
    path.write_bytes(whole)
    model, answers = read_gguf(path), [read_beginning(path, whole, n) for n in range(len(whole) + 1)]
    end = next(n for n, answer in enumerate(answers) if not isinstance(answer, HeaderIncomplete))
    assert 24 < end <= len(whole)
    assert all(answer == model for answer in answers[end:])
    for n, short in enumerate(answers[:end]):
        assert (short.file, short.n_bytes) == ("m.gguf", n)
        assert n < short.needed_bytes <= end
        assert f"the first {n:,} of {len(whole):,} bytes end inside the header" in str(short)


def test_beginnings_of_the_embedded_model_are_read_or_too_short(tmp_path):
    """With its vocabulary of 4,096 tokens; following the least that is needed ends at the whole header."""
    path, whole = tmp_path / "tiny.gguf", tiny_model().read_bytes()
    path.write_bytes(whole)
    model, n_bytes, tried = read_gguf(path), 0, 0
    while isinstance(answer := read_beginning(path, whole, n_bytes), HeaderIncomplete):
        assert n_bytes < answer.needed_bytes < model.tensors[0].offset
        n_bytes, tried = max(answer.needed_bytes, n_bytes + 997), tried + 1
    assert answer == model
    assert tried > 50
    assert read_gguf(path, sizes={"tiny.gguf": len(whole)}).array("tokenizer.ggml.tokens")[5]


@pytest.mark.parametrize(
    "whole", [gguf(tensors=[tensor(offset=4)], data=bytes(256)), gguf(version=10), gguf(n_tensors=2**63)]
)
def test_a_damaged_beginning_is_damaged_at_once(tmp_path, whole):
    """More bytes cannot heal it: it is refused as soon as the fault is in sight, and never read."""
    answers = []
    for length in range(len(whole) + 1):
        try:
            answers.append(read_beginning(tmp_path / "m.gguf", whole, length))
        except DamagedGGUF as error:
            answers.append(error)
    first = next(n for n, answer in enumerate(answers) if type(answer) is DamagedGGUF)
    assert all(type(answer) is DamagedGGUF for answer in answers[first:])
    assert all(isinstance(answer, HeaderIncomplete) for answer in answers[:first])


def test_the_whole_size_decides_whether_the_data_is_there(tmp_path):
    """A beginning of a complete download is complete, one of a truncated download is not."""
    path, whole = tmp_path / "m.gguf", gguf(tensors=TWO, data=bytes(256))
    write_anew(path, whole[:-256])
    assert read_gguf(path, sizes={path.name: len(whole)}).file_bytes == len(whole)
    with pytest.raises(DamagedGGUF, match="the data of 'two'"):
        read_gguf(path, sizes={path.name: len(whole) - 1})


def test_parts_of_a_split_model_may_be_beginnings(tmp_path):
    """The part that is too short is named; with all headers there it is the model of the whole files."""
    parts = parts_of(tmp_path)
    model, sizes = read_gguf(parts[0]), {part.name: part.stat().st_size for part in parts}
    whole = parts[1].read_bytes()
    write_anew(parts[1], whole[:100])
    with pytest.raises(HeaderIncomplete) as short:
        read_gguf(parts[0], sizes)
    assert short.value.file == parts[1].name
    for part in parts:
        write_anew(part, (whole if part is parts[1] else part.read_bytes())[: model.tensors[0].offset])
    assert read_gguf(parts[0], sizes) == model


def test_something_else_is_no_beginning(tmp_path):
    """Another kind of file is told from its first bytes, and an empty one only where it is said to be empty."""
    path = tmp_path / "m.gguf"
    path.write_bytes(b"PK\x03")
    with pytest.raises(NotGGUF):
        read_gguf(path, sizes={path.name: 1000})
    write_anew(path, b"")
    with pytest.raises(NotGGUF, match="is empty"):
        read_gguf(path, sizes={path.name: 0})
    with pytest.raises(HeaderIncomplete):
        read_gguf(path, sizes={path.name: 1000})


def test_a_header_is_read_once_while_its_file_is_the_same(tmp_path, monkeypatch):
    """A file that was written again is read again; only some headers are kept."""
    read = []
    monkeypatch.setattr(gguf_module, "read_gguf", lambda path: read.append(path) or read_gguf(path))
    path = tmp_path / "m.gguf"
    write_anew(path, gguf())
    assert header_of(path) is header_of(str(path))
    write_anew(path, gguf(data=bytes(32)))
    assert header_of(path).file_bytes == path.stat().st_size
    assert len(read) == 2
    for n in range(gguf_module.KEPT_HEADERS):
        write_anew(tmp_path / f"{n}.gguf", gguf())
        header_of(tmp_path / f"{n}.gguf")
    header_of(path)
    assert len(read) == 3 + gguf_module.KEPT_HEADERS


def test_a_headers_length_is_known_without_its_arrays():
    """The offsets of a shape's tensors are those of the file that would be written."""
    metadata = {"general.architecture": "llama", **vocabulary(1000)}
    tensors = (Tensor("one", (32,), "F32", 128, 0),)
    assert header_length(metadata, tensors) == len(header_bytes(metadata, tensors))
