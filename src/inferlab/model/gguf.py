"""Reads and writes the header of a GGUF file in plain Python; every length is checked before it is used.

Nothing here loads weights or calls C code.
The format is llama.cpp's docs/gguf.md: magic, version, counts, metadata, tensor infos, then aligned data.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import chain, repeat
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from inferlab.errors import (
    DamagedGGUF,
    HeaderIncomplete,
    ModelNotFound,
    NotGGUF,
    UnsupportedArchitecture,
    UnsupportedGGUF,
)
from inferlab.model.catalog import CHANGEABLE, known_models
from inferlab.model.ggml_types import TENSOR_TYPES, TYPE_IDS, TensorType
from inferlab.model.gguf_kinds import ENCODER, other_kind, other_type, other_version, piece_hint
from inferlab.shown import one_line
from inferlab.units import bytes_text

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMENSIONS = 4
MAX_NAME_BYTES = 65_535
MAX_ENTRIES = 65_536
MAX_STRINGS = 2**24
MAX_HEADER_BYTES = 2**27  # real headers, with vocabularies of 262k tokens, stay below 2**24
# gguf_type -> struct format; 8 is a string, 9 an array.
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY, INT32, FLOAT32 = 8, 9, 5, 6
SPLIT_NAME = re.compile(r"(.+)-00001-of-\d{5}\.gguf")
PART_NAME = re.compile(r"(.+)-\d{5}-of-\d{5}\.gguf")
MAX_PARTS = 1000
MOST_PADDING = 1024
"""Bytes after the last tensor that may be padding."""
KEPT_HEADERS = 8
FileIdentity = tuple[str, int, int, int]
SHAPE_KEY = "inferlab.shape"  # the metadata key of a `Shape`, as JSON
OTHER_FORMATS = {
    b"PK\x03\x04": "a zip archive; unpack it first",
    b"\x1f\x8b": "a gzip archive; unpack it first",
    b"<!DO": "an HTML page, as a failed download leaves; download the file again",
    b"<htm": "an HTML page, as a failed download leaves; download the file again",
    b"vers": "a Git LFS pointer; fetch the real file with `git lfs pull`",
    b"lmgg": "a GGML file from before August 2023; look for a GGUF of the same model",
    b"fmgg": "a GGMF file from before August 2023; look for a GGUF of the same model",
    b"tjgg": "a GGJT file from before August 2023; look for a GGUF of the same model",
    b"MZqF": "a llamafile, a program with its model inside; unzip the .gguf from it",
    b"{": "a text in JSON, such as one of Ollama's small blobs; `ollama show --modelfile NAME` names the model's file",
}


@dataclass(frozen=True)
class Tensor:
    """One tensor: shape in ggml's order (row width first), and the offset of its bytes in the file.

    part  the number of that file, from 0, in a model split over several
    """

    name: str
    shape: tuple[int, ...]
    type: str
    n_bytes: int
    offset: int
    part: int = 0

    @property
    def n_elements(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class LazyArray:
    """An array of the metadata, not decoded: type of the elements, length, and offset in the file."""

    kind: int
    length: int
    offset: int


@dataclass(frozen=True)
class Shape:
    """What a synthetic model was made of: a published model by its short name, a mix, the dimensions changed."""

    name: str
    mix: str
    dimensions: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def is_known(self) -> bool:
        """Whether there can be such a shape: metadata of a file may hold anything."""
        if not (isinstance(self.name, str) and isinstance(self.mix, str) and isinstance(self.dimensions, dict)):
            return False
        numbers = all(isinstance(value, int) for value in self.dimensions.values())
        return numbers and self.dimensions.keys() <= {*CHANGEABLE, "head_dim"} and self.name in known_models()

    @property
    def file_name(self) -> str:
        """`mistral-7b-Q4_K_M.gguf`; changed dimensions stand between name and mix."""
        changes = [f"{key}-{value}" for key, value in self.dimensions.items()]
        return "-".join([self.name, *changes, self.mix]) + ".gguf"


@dataclass(frozen=True)
class ModelCard:
    """The facts about a model in every record of a run; without paths of the reader's machine.

    description is llama.cpp's own: architecture, size, type of the weights.
    """

    name: str
    file: str
    architecture: str
    n_params: int
    tensor_bytes: int
    synthetic: bool = False
    description: str = ""

    @property
    def shape(self) -> Shape | None:
        """The shape that was recorded, read from the name of its file, which is all that a record keeps of it."""
        names = "|".join(map(re.escape, sorted(known_models(), key=len, reverse=True)))
        parts = re.fullmatch(rf"({names})((?:-n_\w+-\d+|-head_dim(?:_[kv])?-\d+)*)-([A-Z\d_]+)\.gguf", self.file)
        if not self.synthetic or not parts:
            return None
        return Shape(parts[1], parts[3], {key: int(n) for key, n in re.findall(r"-([a-z_]+)-(\d+)", parts[2])})


@dataclass(frozen=True)
class Model:
    """The header of a GGUF file, under llama.cpp's names; sizes in bytes.

    source  where the header was read from, if not from a file that is here: an address
    beside  what belongs to the model in files of their own, in sentences
    """

    path: Path
    file_bytes: int
    version: int
    metadata: dict[str, Any]
    tensors: tuple[Tensor, ...]
    source: str = ""
    beside: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return one_line(self, f"{self.name}: {bytes_text(self.file_bytes)} in {self.path.name}")

    @property
    def name(self) -> str:
        """The model's name in its metadata, else the file's; control characters are replaced."""
        name = self.metadata.get("general.name")
        text = name if isinstance(name, str) and name else self.path.stem
        return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)

    @property
    def file(self) -> Path | None:
        """The absolute path of the model's file; None where there is none here, but its header or its shape."""
        return self.path.absolute() if self.path.is_file() and not self.source else None

    @property
    def architecture(self) -> str:
        return self.metadata["general.architecture"]

    @property
    def synthetic(self) -> bool:
        """Whether the weights are synthetic (a shape): its speed is real, its text is random."""
        return bool(self.metadata.get("inferlab.synthetic", False))

    @property
    def shape(self) -> Shape | None:
        """The shape that this file has, by its metadata; None for a file of somebody's own."""
        try:
            shape = Shape(**json.loads(self.metadata[SHAPE_KEY]))
        except (KeyError, TypeError, ValueError, RecursionError):
            return None
        return shape if self.synthetic and shape.is_known else None

    def metadata_lines(self) -> list[str]:
        """Every entry of the metadata as `key = value`; an array only by its length."""
        return [f"{key} = {_value_text(value)}" for key, value in self.metadata.items()]

    def number(self, key: str, default: int | None = None) -> int | None:
        """An integer under the architecture's prefix, e.g. `number("block_count")`.

        None when the value is not one integer, such as one number for each layer.
        """
        value = self.metadata.get(f"{self.architecture}.{key}", default)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def per_layer(self, key: str, default: int | None = None) -> tuple[int, ...] | None:
        """An integer for each layer under the architecture's prefix, also where the header has one for all of them.

        None where there is no such number. Raises DamagedGGUF for an array that does not decode.
        """
        name = f"{self.architecture}.{key}"
        value = self.metadata.get(name, default)
        if isinstance(value, LazyArray):
            value = tuple(self.array(name))
        if isinstance(value, tuple):
            return value
        return (value,) * (self.number("block_count") or 0) if isinstance(value, int) else None

    @property
    def n_layer(self) -> int:
        """Raises UnsupportedArchitecture for a header without a number of layers."""
        n_layer = self.number("block_count")
        if n_layer is None:
            raise without_layers(self, "no number of")
        return n_layer

    @property
    def n_embd(self) -> int:
        """Raises UnsupportedArchitecture for a header without the width of a token's vector."""
        n_embd = self.number("embedding_length")
        if n_embd is None:
            raise UnsupportedArchitecture(
                f"The header of {self.name}, of the architecture {self.architecture!r}, has no embedding_length. "
                "It is no language model, or newer than this library."
            )
        return n_embd

    @property
    def n_ff(self) -> int | None:
        return self.number("feed_forward_length")

    @property
    def n_head(self) -> int | None:
        return self.number("attention.head_count")

    @property
    def n_head_kv(self) -> int | None:
        """KV heads per layer; as many as query heads where the header has no number."""
        return self.number("attention.head_count_kv", self.n_head)

    @property
    def head_dim_k(self) -> int | None:
        return self.number("attention.key_length", self._default_head_dim)

    @property
    def head_dim_v(self) -> int | None:
        return self.number("attention.value_length", self._default_head_dim)

    @property
    def _default_head_dim(self) -> int | None:
        n_embd = self.number("embedding_length")
        return n_embd // self.n_head if n_embd and self.n_head else None

    @property
    def n_ctx_train(self) -> int | None:
        return self.number("context_length")

    @cached_property
    def n_vocab(self) -> int | None:
        tokens = self.metadata.get("tokenizer.ggml.tokens")
        return tokens.length if isinstance(tokens, LazyArray) else self.number("vocab_size")

    @cached_property
    def n_params(self) -> int:
        """Weights in all tensors; llama.cpp's `model params`."""
        return sum(tensor.n_elements for tensor in self.tensors)

    @cached_property
    def tensor_bytes(self) -> int:
        """Bytes of all tensors; llama.cpp's `file size` line counts the same."""
        return sum(tensor.n_bytes for tensor in self.tensors)

    @property
    def encoder_bytes(self) -> int:
        """Bytes of an encoder of pictures or sound in the same file, as Ollama's own files have it; 0 without one."""
        return sum(tensor.n_bytes for tensor in self.tensors if ENCODER.match(tensor.name))

    def card(self) -> ModelCard:
        """The facts about this model that a record keeps."""
        return ModelCard(self.name, self.path.name, self.architecture, self.n_params, self.tensor_bytes, self.synthetic)

    def array(self, key: str) -> list[Any]:
        """Decode one metadata array, e.g. `array("tokenizer.ggml.tokens")`.

        Raises KeyError when the key is absent or not an array, DamagedGGUF when it does not decode.
        """
        lazy = self.metadata[key]
        if not isinstance(lazy, LazyArray):
            raise KeyError(f"{key} is a {type(lazy).__name__}, not an array")
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            return _HeaderReader(self.path, view, lazy.offset).elements(lazy.kind, lazy.length)

    def numbers(self, key: str) -> PackedArray:
        """An array of numbers as it lies in the file, for another header. Raises KeyError without one."""
        lazy = self.metadata[key]
        if not isinstance(lazy, LazyArray) or lazy.kind not in SCALARS:
            raise KeyError(f"{key} is no array of numbers")
        with self.path.open("rb") as file:
            file.seek(lazy.offset)
            data = file.read(lazy.length * struct.calcsize("<" + SCALARS[lazy.kind]))
        return PackedArray(lazy.kind, lazy.length, len(data), data)


def without_layers(model: Model, n_layer: object) -> UnsupportedArchitecture:
    """The error for a header whose number of layers is missing or wrong."""
    return UnsupportedArchitecture(
        f"The header of {model.name}, of the architecture {model.architecture!r}, gives {n_layer} layers for "
        f"{len(model.tensors):,} tensors. So no plan can be made. It is no language model, or newer than this library."
    )


def _value_text(value: Any) -> str:
    if isinstance(value, LazyArray):
        return f"array of {value.length}"
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class PackedArray:
    """An array for the metadata of a new file: type and number of its elements, how many bytes, and these or a call."""

    kind: int
    length: int
    n_bytes: int
    packed: bytes | Callable[[], bytes] = field(repr=False)


def header_bytes(metadata: dict[str, Any], tensors: tuple[Tensor, ...]) -> bytes:
    """The header of a new file, up to the start of its data; a tensor's `offset` counts from there.

    Whole numbers become uint32 (the type of most keys) if they fit, fractions float32, a tuple an array of int32 or
    float32; other arrays must be PackedArray.
    """
    parts = [*_header_parts(metadata, tensors)]
    n_bytes = sum(map(len, parts))
    return b"".join([*parts, bytes(-n_bytes % DEFAULT_ALIGNMENT)])


def header_length(metadata: dict[str, Any], tensors: tuple[Tensor, ...]) -> int:
    """The length of `header_bytes`, for which no array is encoded."""
    arrays = {key: value for key, value in metadata.items() if isinstance(value, PackedArray)}
    without = {key: replace(value, packed=bytes) for key, value in arrays.items()}
    n_bytes = sum(map(len, _header_parts(metadata | without, tensors))) + sum(one.n_bytes for one in arrays.values())
    return n_bytes + -n_bytes % DEFAULT_ALIGNMENT


def _header_parts(metadata: dict[str, Any], tensors: tuple[Tensor, ...]) -> Iterator[bytes]:
    yield MAGIC + struct.pack("<IQQ", VERSIONS[-1], len(tensors), len(metadata))
    for key, value in metadata.items():
        yield _packed_string(key)
        yield from _packed_value(value)
    for tensor in tensors:
        yield _packed_string(tensor.name)
        yield struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape)
        yield struct.pack("<IQ", TYPE_IDS[tensor.type], tensor.offset)


def _packed_value(value: Any) -> tuple[bytes, ...]:
    if isinstance(value, PackedArray):
        content = value.packed if isinstance(value.packed, bytes) else value.packed()
        return struct.pack("<IIQ", ARRAY, value.kind, value.length), content
    if isinstance(value, tuple):
        kind = FLOAT32 if any(isinstance(one, float) for one in value) else INT32
        return struct.pack("<IIQ", ARRAY, kind, len(value)), struct.pack(f"<{len(value)}{SCALARS[kind]}", *value)
    if isinstance(value, str):
        return struct.pack("<I", STRING), _packed_string(value)
    kind = 7 if isinstance(value, bool) else _kind_of(value) if isinstance(value, int) else FLOAT32
    return struct.pack("<I", kind), struct.pack("<" + SCALARS[kind], value)


def _kind_of(number: int) -> int:
    """The first type of uint32, int32, uint64 and int64 that holds a number."""
    if number < 0:
        return INT32 if number >= -(2**31) else 11
    return 4 if number < 2**32 else 10


def _packed_string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def read_gguf(path: str | Path, sizes: Mapping[str, int] | None = None) -> Model:
    """Read the header of a GGUF file; the weights are not read.

    For a model split over several files give the first; the result has the tensors of all parts.
    `sizes` has the bytes of whole files by their names: of those the path and its neighbours may hold only a beginning.
    Raises ModelNotFound, NotGGUF, UnsupportedGGUF or DamagedGGUF, each saying what was found and what to do;
    HeaderIncomplete where a beginning is too short.
    """
    sizes = sizes or {}
    first = read_part(Path(path), sizes)
    count = first.metadata.get("split.count", 0)
    if not isinstance(count, int) or count < 2:
        return require_model(first)
    others = [read_part(part, sizes) for part in _other_parts(require_model(first), count)]
    numbered = ((replace(t, part=n) for t in part.tensors) for n, part in enumerate(others, 1))
    tensors = (*first.tensors, *chain.from_iterable(numbered))
    return replace(first, file_bytes=first.file_bytes + sum(p.file_bytes for p in others), tensors=tensors)


def header_of(path: str | Path) -> Model:
    """`read_gguf`, but a file that is still the same is not read again; of a model in several parts all are.

    Raises as `read_gguf`.
    """
    path = Path(path)
    identity = None if SPLIT_NAME.fullmatch(path.name) else file_identity(path)
    return read_gguf(path) if identity is None else _kept_header(path, identity)


@lru_cache(maxsize=KEPT_HEADERS)
def _kept_header(path: Path, _: FileIdentity) -> Model:
    return read_gguf(path)


def file_identity(path: Path) -> FileIdentity | None:
    """Path, inode, size and modification time: equal while a path means the same file; None without a file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return os.path.abspath(path), found.st_ino, found.st_size, found.st_mtime_ns


def require_model(found: Model) -> Model:
    """The header itself, if it is a language model's, or that of a later part, which has no architecture.

    Raises UnsupportedGGUF for another sound file.
    """
    count, is_bare = found.metadata.get("split.count"), "general.architecture" not in found.metadata
    is_later = is_bare and bool(found.metadata.get("split.no")) and isinstance(count, int) and count > 1
    told = None if is_later else other_kind(found.metadata)
    if told:
        raise UnsupportedGGUF(f"{found.path} {told}")
    return found


def _other_parts(first: Model, count: int) -> list[Path]:
    """Paths of the parts after the first. Raises ModelNotFound if one is missing."""
    number, named = first.metadata.get("split.no"), SPLIT_NAME.fullmatch(first.path.name)
    if number != 0 or not named or count > MAX_PARTS:
        raise ModelNotFound(f"{first.path} {_part_text(first, count)}")
    paths = [first.path.with_name(f"{named[1]}-{n:05}-of-{count:05}.gguf") for n in range(2, count + 1)]
    missing = [part.name for part in paths if not part.is_file()]
    if missing:
        raise ModelNotFound(f"{first.path} needs {count} files; {missing[0]} is not beside it. Download it too.")
    return paths


def _part_text(part: Model, count: int) -> str:
    """Which part of a model a file is, counted from 1, and what to do with one that is not the first, or not so named.

    llama.cpp finds the others by the name of the first (llama_split_prefix, llama.cpp).
    """
    number, named = part.metadata.get("split.no"), PART_NAME.fullmatch(part.path.name)
    first = f"{named[1] if named else 'NAME'}-00001-of-{count:05}.gguf"
    if not isinstance(number, int):
        return f"says that it is one of {count} parts, but not which: split.no is no number. Download it again."
    if not 0 <= number < count:
        return f"is a part of {count} with the number {number}, which no part has. Download it again."
    if count > MAX_PARTS:
        return (
            f"is part {number + 1} of {count:,}, and this library reads models of up to {MAX_PARTS:,} parts. "
            "Join them with llama-gguf-split --merge."
        )
    if number:
        return f"is part {number + 1} of {count}. Give the first part, {first}."
    data_end = max((tensor.offset + tensor.n_bytes for tensor in part.tensors), default=MAX_HEADER_BYTES)
    if part.file_bytes > data_end + MOST_PADDING:
        return (
            f"begins with part 1 of {count} and goes on after its end, as parts that were joined with cat do. "
            f"llama.cpp cannot read that. Keep the parts as separate files and give the first, {first}, or join them "
            "with llama-gguf-split --merge."
        )
    return (
        f"is part 1 of {count}, but is not named so, and the other parts are found by their names. Name it {first}, "
        "beside the others, as they were downloaded."
    )


def read_part(path: Path, sizes: Mapping[str, int]) -> Model:
    """The header of one file alone: any part of a split model, or a file of another kind, such as an importance matrix.

    `sizes` and errors as in `read_gguf`.
    """
    _require_file(path)
    with _opened(path) as file:
        start, file_bytes = file.read(16), sizes.get(path.name, os.fstat(file.fileno()).st_size)
        if len(start) < min(len(MAGIC), file_bytes) and MAGIC.startswith(start):
            raise _incomplete(path, len(start), len(MAGIC), file_bytes)
        _require_magic(path, start)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            return _HeaderReader(path, view, len(MAGIC), file_bytes).model()


def _incomplete(path: Path, n_bytes: int, needed_bytes: int, file_bytes: int) -> HeaderIncomplete:
    message = (
        f"{path}: the first {n_bytes:,} of {file_bytes:,} bytes end inside the header. "
        f"Read at least {needed_bytes:,} from the file's beginning."
    )
    return HeaderIncomplete(message, path.name, n_bytes, needed_bytes)


def _require_file(path: Path) -> None:
    if not os.path.exists(path):
        raise ModelNotFound(f"{path} does not exist. Give the path of a .gguf file.")
    if path.is_dir():
        inside = sorted(p.name for p in path.glob("*.gguf"))[:5]
        hint = f"it holds {', '.join(inside)}" if inside else "it holds no .gguf file"
        raise ModelNotFound(f"{path} is a folder; {hint}. Give the path of one file.")
    if not path.is_file():
        raise ModelNotFound(f"{path} is a device or a pipe, not a file. Give the path of a .gguf file.")


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise ModelNotFound(f"{path} cannot be read: {error.strerror}. Check its permissions.") from error


def _require_magic(path: Path, start: bytes) -> None:
    if not start:
        raise NotGGUF(f"{path} is empty (0 bytes). Download it again.")
    if start[:4] == MAGIC:
        return
    kind = next((text for magic, text in OTHER_FORMATS.items() if start.startswith(magic)), None)
    if kind is None and start[8:10] == b'{"':
        kind = "a safetensors file; convert it with llama.cpp's convert_hf_to_gguf.py"
    guess = f"It looks like {kind}." if kind else "Give the path of a GGUF file."
    raise NotGGUF(f"{path} starts with {start[:4]!r}, not {MAGIC!r}. {guess}{piece_hint(path.name)}")


class _HeaderReader:
    """Reads the header from a position, and checks every length before use.

    view        the file, or its beginning
    file_bytes  of the whole file; None: the view is all of it
    """

    def __init__(self, path: Path, view: mmap.mmap, position: int, file_bytes: int | None = None) -> None:
        self.path, self.view, self.position = path, view, position
        self.file_bytes = len(view) if file_bytes is None else file_bytes
        self.end = min(self.file_bytes, MAX_HEADER_BYTES)

    def damaged(self, what: str) -> DamagedGGUF:
        return DamagedGGUF(
            f"{self.path}: {what} at byte {self.position:,} of {self.file_bytes:,}. "
            "The file is truncated or corrupt; download it again and compare its checksum."
            f"{piece_hint(self.path.name)}"
        )

    def skip(self, n_bytes: int, what: str) -> int:
        """Move past `n_bytes` and return their start.

        Raises DamagedGGUF where the file is shorter, HeaderIncomplete where only its beginning is.
        """
        start = self.position
        if n_bytes > self.end - start:
            raise self.damaged(f"{what} needs {n_bytes:,} bytes that are not there,")
        if start + n_bytes > len(self.view):
            raise _incomplete(self.path, len(self.view), start + n_bytes, self.file_bytes)
        self.position = start + n_bytes
        return start

    def scalar(self, code: str, what: str) -> Any:
        width = struct.calcsize("<" + code)
        return struct.unpack_from("<" + code, self.view, self.skip(width, what))[0]

    def string(self, what: str, limit: int | None = None) -> str:
        length = self.scalar("Q", f"the length of {what}")
        if limit is not None and length > limit:
            raise self.damaged(f"{what} claims {length:,} bytes, more than {limit:,},")
        start = self.skip(length, what)
        return self.view[start : start + length].decode("utf-8", errors="replace")

    def name(self, what: str) -> str:
        """A key or tensor name: short, and without control characters."""
        name = self.string(what, MAX_NAME_BYTES)
        if not name.isprintable():
            raise self.damaged(f"{what} {name[:80]!r} holds control characters")
        return name

    def model(self) -> Model:
        version = self.scalar("I", "the version")
        if version not in VERSIONS:
            if told := other_version(version):
                raise UnsupportedGGUF(f"{self.path} is {told}")
            raise self.damaged(f"version {version} is not one of {VERSIONS},")
        n_tensors, n_metadata = self.scalar("Q", "the tensor count"), self.scalar("Q", "the metadata count")
        smallest = 12 * n_metadata + 24 * n_tensors
        if max(n_tensors, n_metadata) > MAX_ENTRIES or smallest > self.end:
            raise self.damaged(f"{n_tensors:,} tensors and {n_metadata:,} metadata entries cannot fit,")
        metadata = self.metadata(n_metadata)
        tensors = self.tensors(n_tensors, self.alignment(metadata), metadata.get("general.architecture"))
        return Model(self.path, self.file_bytes, version, metadata, tensors)

    def metadata(self, count: int) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        for _ in range(count):
            key = self.name("a metadata key")
            if key in entries:
                raise self.damaged(f"metadata key {key!r} appears twice")
            entries[key] = self.value(self.scalar("I", f"the type of {key!r}"), repr(key))
        return entries

    def value(self, kind: int, what: str) -> Any:
        if kind == STRING:
            return self.string(what)
        if kind == ARRAY:
            return self.array(what)
        if kind not in SCALARS:
            raise self.damaged(f"{what} has unknown type {kind}")
        return self.scalar(SCALARS[kind], what)

    def array(self, what: str) -> LazyArray:
        kind, length = self.scalar("I", f"the element type of {what}"), self.scalar("Q", f"the length of {what}")
        lazy = LazyArray(kind, length, self.position)
        if kind == STRING:
            self.skip_strings(length, what)
        elif kind in SCALARS:
            self.skip(length * struct.calcsize("<" + SCALARS[kind]), what)
        else:
            raise self.damaged(f"{what} is an array of unknown type {kind}")
        return lazy

    def skip_strings(self, count: int, what: str) -> None:
        if count > MAX_STRINGS or 8 * count > self.end - self.position:
            raise self.damaged(f"{what} claims {count:,} strings that are not there,")
        position, unpack, view = self.position, struct.Struct("<Q").unpack_from, self.view
        try:
            for _ in repeat(None, count):  # half a million rounds in a large vocabulary: nothing else belongs in here
                position += 8 + unpack(view, position)[0]
        except (struct.error, OverflowError):
            if position + 8 <= self.end:
                raise _incomplete(self.path, len(self.view), position + 8, self.file_bytes) from None
            raise self.damaged(f"{what} claims {count:,} strings and ends early,") from None
        self.skip(position - self.position, what)

    def elements(self, kind: int, length: int) -> list[Any]:
        if kind == STRING:
            return [self.string("a string") for _ in range(length)]
        layout = f"<{length}{SCALARS[kind]}"
        return list(struct.unpack_from(layout, self.view, self.skip(struct.calcsize(layout), "an array")))

    def alignment(self, metadata: dict[str, Any]) -> int:
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
            raise self.damaged(f"general.alignment is {alignment!r}, not a power of two,")
        return alignment

    def tensors(self, count: int, alignment: int, architecture: Any) -> tuple[Tensor, ...]:
        infos = [self.tensor_info(architecture) for _ in range(count)]
        if len({info[0] for info in infos}) != count:
            raise self.damaged("two tensors share a name")
        data = -(-self.position // alignment) * alignment
        return tuple(self.tensor(data, alignment, *info) for info in infos)

    def tensor_info(self, architecture: Any) -> tuple[str, tuple[int, ...], TensorType, int]:
        name = self.name("a tensor name")
        n_dimensions = self.scalar("I", f"the dimensions of {name!r}")
        if not 1 <= n_dimensions <= MAX_DIMENSIONS:
            raise self.damaged(f"tensor {name!r} has {n_dimensions} dimensions")
        shape = tuple(self.scalar("Q", f"the shape of {name!r}") for _ in range(n_dimensions))
        type_id, offset = self.scalar("I", f"the type of {name!r}"), self.scalar("Q", f"the offset of {name!r}")
        if type_id not in TENSOR_TYPES:
            if told := other_type(type_id, architecture):
                raise UnsupportedGGUF(f"{self.path}: the type {type_id} of tensor {name!r} is {told}")
            raise self.damaged(f"tensor {name!r} has unknown type {type_id}")
        return name, shape, TENSOR_TYPES[type_id], offset

    def tensor(self, data: int, alignment: int, name: str, shape, kind: TensorType, offset: int) -> Tensor:
        if 0 in shape:
            raise self.damaged(f"{name!r} of shape {shape} holds no weights,")
        if shape[0] % kind.block:
            raise self.damaged(f"rows of {name!r} hold {shape[0]} weights, not a multiple of {kind.block},")
        if offset % alignment:
            raise self.damaged(f"the data of {name!r} is not aligned to {alignment} bytes")
        n_bytes = kind.bytes_of(prod(shape))
        if data + offset + n_bytes > self.file_bytes:
            raise self.damaged(
                f"the data of {name!r} would end at byte {data + offset + n_bytes:,}, past the end, says the header"
            )
        return Tensor(name, shape, kind.name, n_bytes, data + offset)
