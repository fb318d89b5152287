"""Makes shapes: the exact tensors, types and metadata of a published model, with synthetic weights.

Memory and speed are those of the real model. Generated text is random, and the file's metadata marks it as synthetic.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, BinaryIO

from inferlab.errors import InvalidSettings, ModelError, NotEnoughDisk
from inferlab.machine import Machine
from inferlab.model import architectures, quant_mixes
from inferlab.model.catalog import CHANGEABLE, KnownModel, known_model, known_models, known_name
from inferlab.model.find import cache_folder
from inferlab.model.ggml_types import FILE_TYPES
from inferlab.model.gguf import (
    DEFAULT_ALIGNMENT,
    SHAPE_KEY,
    VERSIONS,
    Model,
    ModelCard,
    PackedArray,
    Shape,
    Tensor,
    header_bytes,
    header_length,
    read_gguf,
)
from inferlab.model.synthetic_data import POOL_BYTES, vocabulary, weights
from inferlab.progress import track
from inferlab.units import bytes_text

MIN_CACHE_MULTIPLE = 8
ALWAYS = ("n_layer", "n_embd", "n_vocab", "n_ctx_train")
WHERE_USED = ("n_head", "n_head_kv", "n_ff")  # a layout without attention has no heads


def shape(name: str | KnownModel, mix: str = "Q4_K_M", **dimensions: Any) -> Model:
    """A published model as its file would be, in memory: tensors with types and bytes, metadata; no file is made.

    `dimensions` change it, e.g. `shape("mistral-7b", n_layer=2)`; head_dim stands for both head_dim_k and head_dim_v.
    Raises ModelNotFound for an unknown name, InvalidSettings for a mix or dimensions that do not go together.
    """
    made, known = _made_of(name, mix, dimensions), changed(name, **dimensions)
    tensors = quant_mixes.with_mix_types(architectures.tensors(known), mix, known)
    metadata = _metadata(known, made, header_only=False)
    start = header_length(metadata, tensors)
    placed = tuple(Tensor(t.name, t.shape, t.type, t.n_bytes, start + t.offset) for t in tensors)
    plain = {key: value for key, value in metadata.items() if not isinstance(value, PackedArray)}
    return Model(Path(made.file_name), placed[-1].offset + placed[-1].n_bytes, VERSIONS[-1], plain, placed)


def make_shape(
    name: str | KnownModel,
    type: str = "Q4_K_M",
    path: str | Path | None = None,
    *,
    header_only: bool = False,
    progress: bool | None = None,
    **dimensions: Any,
) -> Path:
    """Write a shape as a GGUF file that llama.cpp loads, with synthetic weights; returns its path.

    `path` None means the cache folder, where a shape that is already there is used again.
    `header_only` leaves the data out: the file claims its full size but takes almost no disk, which is enough for
    llama.cpp's memory simulation and for nothing else. `progress` None shows a bar in a terminal or a notebook.
    The file gets its name when it is complete; an interrupted write leaves no file.
    Raises NotEnoughDisk before writing, and InvalidSettings instead of replacing a file that is not a shape.
    """
    made, known = _made_of(name, type, dimensions), changed(name, **dimensions)
    tensors = quant_mixes.with_mix_types(architectures.tensors(known), type, known)
    metadata = _metadata(known, made, header_only)
    header = header_bytes(metadata, tensors)
    target = Path(path).expanduser() if path else cache_folder() / made.file_name
    if path is None and header_only:
        target = target.with_name(f"{target.stem}-header-only.gguf")
    if path is None and _is_complete_shape(target, header, _file_bytes(header, tensors)):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    if path is not None:
        _require_replaceable(target)
    if not header_only:
        _require_disk_space(target, _file_bytes(header, tensors))
    with _complete_file(target) as file:
        file.write(header)
        for piece in () if header_only else _weight_bytes(tensors, f"writing {target.name}", progress):
            file.write(piece)
        file.truncate(_file_bytes(header, tensors))
    return target


def _file_bytes(header: bytes, tensors: tuple[Tensor, ...]) -> int:
    return len(header) + tensors[-1].offset + tensors[-1].n_bytes


def _weight_bytes(tensors: tuple[Tensor, ...], label: str, progress: bool | None) -> Iterator[memoryview]:
    """All weights in file order, padded to their offsets; the bar counts pieces."""
    total = sum(-(-tensor.n_bytes // POOL_BYTES) for tensor in tensors)
    return track(_pieces(tensors), total, label, progress)


def _pieces(tensors: tuple[Tensor, ...]) -> Iterator[memoryview]:
    for index, tensor in enumerate(tensors):
        yield from weights(tensor, seed=index)
        if padding := -tensor.n_bytes % DEFAULT_ALIGNMENT:
            yield memoryview(bytes(padding))


def _is_complete_shape(target: Path, header: bytes, n_bytes: int) -> bool:
    """Whether the file has this header and is complete."""
    if not target.is_file() or target.stat().st_size != n_bytes:
        return False
    with target.open("rb") as file:
        return file.read(len(header)) == header


def _require_replaceable(target: Path) -> None:
    """Refuse to replace a file that is not a shape."""
    if not target.exists():
        return
    try:
        synthetic = read_gguf(target).synthetic
    except ModelError:
        synthetic = False
    if not synthetic:
        raise InvalidSettings(f"{target} exists and is not a shape, so it is not overwritten. Give another path.")


def _require_disk_space(target: Path, n_bytes: int) -> None:
    free = shutil.disk_usage(target.parent).free
    if free < n_bytes:
        raise NotEnoughDisk(
            f"{target.name} needs {bytes_text(n_bytes)}; {bytes_text(free)} are free in {target.parent}. "
            "Make room, choose a smaller mix, or give a path on another disk."
        )


def cache_note(model: Model | ModelCard, machine: Machine) -> str | None:
    """A note for figures about bandwidth when part of the model may stay in the caches; None when it cannot."""
    cache = machine.last_level_cache_bytes
    if cache is None:
        return "The size of this machine's last-level cache is not known; part of the weights may stay in it."
    if model.tensor_bytes >= MIN_CACHE_MULTIPLE * cache:
        return None
    return (
        f"The weights take {bytes_text(model.tensor_bytes)}, and the processor's last-level cache has "
        f"{bytes_text(cache)}. So part of the weights may stay in the cache, and reading them may be faster than "
        "reading main memory."
    )


def changed(name: str | KnownModel, **dimensions: Any) -> KnownModel:
    """The known model with some dimensions changed; `None` keeps one as it is."""
    known = known_model(name)
    given = {key: value for key, value in dimensions.items() if value is not None}
    if (head_dim := given.pop("head_dim", None)) is not None:
        given |= {"head_dim_k": head_dim, "head_dim_v": head_dim}
    for key in given:
        if key not in CHANGEABLE:
            near = get_close_matches(key, CHANGEABLE, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(CHANGEABLE)}."
            raise InvalidSettings(f"There is no dimension {key!r}. {hint}")
    return _checked(replace(known, **given))


def _checked(known: KnownModel) -> KnownModel:
    """The model, if llama.cpp can load it. Raises InvalidSettings for dimensions on which llama.cpp would abort."""
    layout = architectures.layout_of(known)
    for key in (f.name for f in fields(KnownModel) if f.type == "int"):
        value, least = getattr(known, key), int(key in ALWAYS or (key in WHERE_USED and layout.uses(key)))
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InvalidSettings(f"{key}={value!r} must be a whole number of at least {least}.")
    if known.n_head_kv and known.n_head % known.n_head_kv:
        raise InvalidSettings(f"n_head={known.n_head} is not a multiple of n_head_kv={known.n_head_kv}.")
    if known.n_ff_expert not in (0, known.n_ff) and not layout.uses("n_ff_exp"):
        raise InvalidSettings(
            f"n_ff_expert={known.n_ff_expert}: the experts of {known.architecture} are n_ff wide. Give n_ff instead."
        )
    layout.require(architectures.own_keys(known), known.architecture)
    return known


def _made_of(name: str | KnownModel, mix: str, dimensions: Mapping[str, Any]) -> Shape:
    """What a shape is made of; of a model that is not in the catalog the name is made of its title."""
    changes = {key: value for key, value in dimensions.items() if value is not None}
    if isinstance(name, KnownModel):
        given, title = name, name.name.lower().replace(" ", "-")
        name = next((short for short, known in known_models().items() if known.name == given.name), title)
        published = known_models().get(name, given)
        differing = (key for key in CHANGEABLE if getattr(given, key) != getattr(published, key))
        changes = {key: getattr(given, key) for key in differing} | changes
    name = known_name(name) or name
    return Shape(name, mix, dict(sorted(changes.items())))


def _metadata(known: KnownModel, made: Shape, header_only: bool) -> dict[str, Any]:
    general = {
        "general.architecture": known.architecture,
        "general.name": f"{known.name} shape",
        "general.description": "The shape of a published model with synthetic weights: real speed, no meaning.",
        "general.file_type": FILE_TYPES[made.mix],
        "general.quantization_version": 2,
        "inferlab.synthetic": True,
        "inferlab.header_only": header_only,
        SHAPE_KEY: json.dumps(asdict(made)),
    }
    return {**general, **architectures.metadata(known), **vocabulary(known.n_vocab)}


@contextmanager
def _complete_file(target: Path) -> Iterator[BinaryIO]:
    """A file under a temporary name beside the target, renamed to it at the end and removed on any failure."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb", buffering=0) as file:
            yield file
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
