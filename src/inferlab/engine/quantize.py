"""Quantizing a model file with llama.cpp's own quantizer, in the worker: whole or not at all.

What the types mean is `blocks`' subject, which tensor gets which one is `mixes`'; here a file is made.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

from inferlab import progress as progress_line
from inferlab.engine.client import LlamaEngine
from inferlab.engine.session import default_engine
from inferlab.errors import DamagedGGUF, InvalidSettings, NotEnoughDisk
from inferlab.model.find import cache_folder, find_model
from inferlab.model.ggml_types import FILE_TYPES
from inferlab.model.gguf import Model, read_gguf
from inferlab.units import MIB, bytes_text

ALIASES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}
WILL_TAKE = re.compile(r"quant size\s*=\s*([\d.]+) MiB")  # llama-quant.cpp, printed at 0.01 MiB
PADDING = 64  # bytes a tensor: its alignment, and what the header may grow by

Progress = Callable[[int, int], None]


def quantize(
    model: str | Path | None,
    type: str,
    path: str | Path | None = None,
    progress: Progress | None = None,
    *,
    requantize: bool = False,
    engine: LlamaEngine | None = None,
) -> Path:
    """Write `model` in another type, e.g. `quantize("tiny", "Q4_K_M")`, with llama.cpp's quantizer; returns the path.

    type        a name that llama-quantize takes, capitals or not; no importance matrix is used
    path        the new file (None: MODEL-TYPE.gguf in the cache folder); an older one is replaced at the very end
    progress    called with (tensors done, all tensors); None draws a bar where somebody watches
    requantize  let llama.cpp quantize what is quantized already, which it refuses otherwise

    The file appears whole or not at all: refusal, crash, full disk and Ctrl-C leave nothing behind.
    Raises InvalidSettings for an unknown type, NotEnoughDisk before anything is written,
    EngineRefused with llama.cpp's own words, ModelError or EngineCrashed.
    """
    name, source = type_named(type), find_model(model)
    header, target, engine = read_gguf(source), _target(source, name, path), engine or default_engine()
    with engine.exclusive():
        planned = engine.quantize(source, target, FILE_TYPES[name], requantize=requantize, dry_run=True)
        _require_room(target, _bytes_of(header, planned))
        with _whole_or_nothing(target) as partial, _told(header, target, progress) as tell:
            engine.quantize(source, partial, FILE_TYPES[name], requantize=requantize, on_progress=tell)
            _require_whole(partial, header)
    return target


def type_named(name: str) -> str:
    """The quantization that `name` means, as llama-quantize reads it: any case, Q4_K for Q4_K_M.

    Raises InvalidSettings with the nearest name there is.
    """
    wanted = name.upper()
    wanted = ALIASES.get(wanted, wanted)
    if wanted in FILE_TYPES:
        return wanted
    near = get_close_matches(wanted, FILE_TYPES, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(FILE_TYPES)}."
    raise InvalidSettings(f"llama.cpp has no quantization {name!r}. {hint}")


def _target(source: Path, name: str, path: str | Path | None) -> Path:
    """Where the new file goes, with its folder made; never onto the model itself."""
    target = Path(path).expanduser() if path else cache_folder() / f"{source.stem}-{name}.gguf"
    if target.is_dir():
        raise InvalidSettings(f"{target} is a folder. Give the path of the new file.")
    if target.exists() and target.samefile(source):
        raise InvalidSettings(f"{target} is the model itself, which is read while it is written. Give another path.")
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _bytes_of(header: Model, planned: str) -> int:
    """Bytes that the file will have at most, from the log of a dry run."""
    weights = WILL_TAKE.search(planned)
    tensors_bytes = round(float(weights[1]) * MIB) + MIB // 100 if weights else header.tensor_bytes
    return header.file_bytes - header.tensor_bytes + tensors_bytes + PADDING * len(header.tensors)


def _require_room(target: Path, n_bytes: int) -> None:
    free = shutil.disk_usage(target.parent).free
    if n_bytes > free:
        raise NotEnoughDisk(
            f"{target.name} will take {bytes_text(n_bytes)}, but {target.parent} has {bytes_text(free)} free. "
            "Make room there, or give a path on another disk."
        )


@contextmanager
def _whole_or_nothing(target: Path) -> Iterator[Path]:
    """A path beside the target to write to: renamed to the target at the end, removed on any failure."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _told(header: Model, target: Path, progress: Progress | None) -> Iterator[Progress]:
    """Who is told how far it is: the caller, or a bar."""
    if progress is not None:
        yield progress
        return
    with progress_line.bar(len(header.tensors), f"writing {target.name}") as advance_to:
        yield lambda done, _: advance_to(done)


def _require_whole(partial: Path, header: Model) -> None:
    """What was written has a sound header, and the same tensors in the same shapes."""
    made = {tensor.name: tensor.shape for tensor in read_gguf(partial).tensors}
    if made != {tensor.name: tensor.shape for tensor in header.tensors}:
        raise DamagedGGUF(f"llama.cpp's quantizer wrote {len(made)} of {len(header.tensors)} tensors. Try again.")
