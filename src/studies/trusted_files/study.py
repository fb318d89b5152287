"""Small files that claim too much, carry text like code, or differ in one bit, and what reading them does."""

from __future__ import annotations

import hashlib
import io
import json
import struct
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

from inferlab.errors import ModelError
from inferlab.model.find import tiny_model
from inferlab.model.gguf import Tensor, header_bytes, read_gguf

CALLED = "a function ran"
LINE = f'print("{CALLED} while this was loaded")'
TOO_MUCH = 2**63


def numbers() -> dict[str, int | str]:
    """The numbers of the page *Can I trust this file and this port?*, without the pickle's."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "damaged.gguf"
        files = damaged()
        name, digits = one_bit_changed(path)
        return {
            "n_damaged": len(files),
            "n_refused": sum(refused(path, data) for data in files),
            "changed_name": name,
            "digits": digits,
            "text_calls": text_calls(path),
        }


def damaged() -> Sequence[bytes]:
    """Headers that claim TOO_MUCH: tensors, entries, bytes of a key, bytes of a value, weights of a tensor."""
    intact = header_bytes({"general.architecture": "llama"}, (Tensor("one", (32,), "F32", 128, 0),)) + bytes(128)
    offsets = 8, 16, 24, intact.index(b"llama") - 8, intact.index(b"one") + 7
    claim = struct.pack("<Q", TOO_MUCH)
    return [intact[:offset] + claim + intact[offset + len(claim) :] for offset in offsets]


def refused(path: Path, data: bytes) -> bool:
    """Whether the library's reader refuses a file of these bytes, which is written to `path`."""
    path.write_bytes(data)
    try:
        read_gguf(path)
    except ModelError:
        return True
    return False


def one_bit_changed(path: Path) -> tuple[str, int]:
    """The name that the embedded model has after one bit changed, and how many digits of its SHA-256 differ."""
    data = bytearray(tiny_model().read_bytes())
    before = hashlib.sha256(data).hexdigest()
    data[data.index(b"inferlab tiny")] ^= 1
    path.write_bytes(data)
    after = hashlib.sha256(data).hexdigest()
    return read_gguf(path).name, sum(a != b for a, b in zip(before, after, strict=True))


def text_calls(path: Path) -> int:
    """How often LINE, as text of a safetensors header and of a GGUF's chat template, is executed while it is read."""
    path.write_bytes(header_bytes({"tokenizer.chat_template": LINE, "general.architecture": "llama"}, ()))
    with redirect_stdout(io.StringIO()) as said:
        json.loads(json.dumps({"__metadata__": {"note": LINE}}))
        read_gguf(path)
    return said.getvalue().count(CALLED)
