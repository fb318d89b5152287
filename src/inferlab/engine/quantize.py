"""Quantize a model file with llama.cpp's own quantizer, in the worker.

model.ggml_types has the types, model.quant_mixes which tensor gets which type.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from pathlib import Path

from inferlab import progress as progress_line
from inferlab.engine.client import LlamaEngine
from inferlab.engine.protocol import ProgressCallback
from inferlab.engine.session import default_engine
from inferlab.errors import DamagedGGUF, InvalidSettings, NotEnoughDisk
from inferlab.model.find import cache_folder, find_model
from inferlab.model.ggml_types import FILE_TYPES, tensor_type
from inferlab.model.gguf import Model, read_gguf
from inferlab.model.imatrix import read_imatrix
from inferlab.units import MIB, bytes_text

ALIASES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}
QUANT_SIZE = re.compile(r"quant size\s*=\s*([\d.]+) MiB")  # llama-quant.cpp, printed at 0.01 MiB
WITHOUT_SEARCH = frozenset(("F32", "F16", "BF16", "Q8_0", "MXFP4_MOE", "Q1_0"))
"""Quantizations whose rounding has nothing to weigh: ggml's functions take a matrix and ignore it (ggml-quants.c)."""
PADDING_BYTES = 64  # per tensor: its alignment, and what the header may grow by


def quantize(
    model: str | Path | None,
    type: str,
    path: str | Path | None = None,
    progress: ProgressCallback | None = None,
    *,
    imatrix: str | Path | None = None,
    tensor_types: Sequence[str] = (),
    requantize: bool = False,
    engine: LlamaEngine | None = None,
) -> Path:
    """Write `model` in another type, e.g. `quantize("tiny", "Q4_K_M")`, with llama.cpp's quantizer; returns the path.

    type          a name that llama-quantize takes, capitals or not
    path          the new file (None: MODEL-TYPE.gguf in the cache folder, MODEL-IMATRIX-TYPE.gguf with a matrix); an
                  older one is replaced at the very end
    progress      called with (tensors done, all tensors); None draws a bar on a terminal or in a notebook
    imatrix       file of an importance matrix of this model, as llama-imatrix writes it
    tensor_types  types of single tensors: "pattern=type", the pattern a regular expression found in the tensor's name
    requantize    quantize a file that is quantized already, which llama.cpp refuses otherwise

    The file appears whole or not at all: refusal, crash, full disk and Ctrl-C leave nothing behind.
    Raises InvalidSettings for an unknown type or a matrix that would not be used, NotEnoughDisk before anything is
    written, EngineRefused with llama.cpp's message, ModelError or EngineCrashed.
    """
    name, source, engine = type_named(type), find_model(model), engine or default_engine()
    header, matrix = read_gguf(source), _usable_matrix(imatrix, name, source)
    target = _target(source, f"{matrix.stem}-{name}" if matrix else name, path)
    write = partial(
        engine.quantize,
        source,
        file_type=FILE_TYPES[name],
        requantize=requantize,
        imatrix=matrix,
        tensor_types=_pairs(tensor_types),
    )
    with engine.exclusive():
        _require_disk(target, _file_bytes(header, write(target=target, dry_run=True)))
        with _whole_or_nothing(target) as unfinished, _progress(header, target, progress) as on_progress:
            write(target=unfinished, on_progress=on_progress)
            _require_whole(unfinished, header)
    return target


def type_named(name: str) -> str:
    """The quantization that `name` means, as llama-quantize reads it: any case, Q4_K for Q4_K_M.

    Raises InvalidSettings with the nearest known name.
    """
    wanted = name.upper()
    wanted = ALIASES.get(wanted, wanted)
    if wanted in FILE_TYPES:
        return wanted
    near = get_close_matches(wanted, FILE_TYPES, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(FILE_TYPES)}."
    raise InvalidSettings(f"llama.cpp has no quantization {name!r}. {hint}")


def _usable_matrix(imatrix: str | Path | None, name: str, source: Path) -> Path | None:
    """The path of the matrix. Refuses one of another model, and one that the quantizer would read and not use."""
    if imatrix is None:
        return None
    if name in WITHOUT_SEARCH:
        raise InvalidSettings(
            f"{name} is rounded without a search, so an importance matrix changes nothing; llama.cpp would take it and "
            "not use it. Leave it out."
        )
    path = Path(imatrix).expanduser()
    read_imatrix(path).require_for(read_gguf(source))
    return path


def _pairs(tensor_types: Sequence[str]) -> list[tuple[str, str]]:
    """(pattern, type) of texts "pattern=type". Raises InvalidSettings for another form, pattern or type."""
    if isinstance(tensor_types, str):
        raise InvalidSettings(f"tensor_types={tensor_types!r} must be a sequence of texts 'pattern=type'.")
    pairs = [text.rpartition("=") for text in tensor_types]
    for (pattern, _, _), text in zip(pairs, tensor_types, strict=True):
        if not pattern:
            raise InvalidSettings(f"tensor_types: {text!r} is not of the form 'pattern=type'.")
        try:
            re.compile(pattern)
        except re.error as error:
            raise InvalidSettings(f"tensor_types: {pattern!r} is no regular expression: {error}.") from error
    return [(pattern, tensor_type(type).name) for pattern, _, type in pairs]


def _target(source: Path, name: str, path: str | Path | None) -> Path:
    """Where the new file goes, with its folder made; never onto the model itself."""
    target = Path(path).expanduser() if path else cache_folder() / f"{source.stem}-{name}.gguf"
    if target.is_dir():
        raise InvalidSettings(f"{target} is a folder. Give the path of the new file.")
    if target.exists() and target.samefile(source):
        raise InvalidSettings(f"{target} is the model itself, which is read while it is written. Give another path.")
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _file_bytes(header: Model, dry_run_log: str) -> int:
    """Upper bound of the file's size in bytes, from the log of a dry run."""
    weights = QUANT_SIZE.search(dry_run_log)
    tensors_bytes = round(float(weights[1]) * MIB) + MIB // 100 if weights else header.tensor_bytes
    return header.file_bytes - header.tensor_bytes + tensors_bytes + PADDING_BYTES * len(header.tensors)


def _require_disk(target: Path, n_bytes: int) -> None:
    free = shutil.disk_usage(target.parent).free
    if n_bytes > free:
        raise NotEnoughDisk(
            f"{target.name} will take {bytes_text(n_bytes)}, but {target.parent} has {bytes_text(free)} free. "
            "Make room there, or give a path on another disk."
        )


@contextmanager
def _whole_or_nothing(target: Path) -> Iterator[Path]:
    """A path beside the target to write to: renamed to the target at the end, removed on any failure."""
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        yield unfinished
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def _progress(header: Model, target: Path, callback: ProgressCallback | None) -> Iterator[ProgressCallback]:
    """The caller's callback, or one that draws a bar."""
    if callback is not None:
        yield callback
        return
    with progress_line.bar(len(header.tensors), f"writing {target.name}") as advance_to:
        yield lambda done, _: advance_to(done)


def _require_whole(path: Path, header: Model) -> None:
    """Verify that the written file has a sound header, and the same tensors in the same shapes."""
    written = {tensor.name: tensor.shape for tensor in read_gguf(path).tensors}
    if written != {tensor.name: tensor.shape for tensor in header.tensors}:
        raise DamagedGGUF(f"llama.cpp's quantizer wrote {len(written)} of {len(header.tensors)} tensors. Try again.")
