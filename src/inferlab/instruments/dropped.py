"""What an instrument has of files that a reader dropped: of a model as much as its header needs, of results all.

The front end sends slices in their order until the header, or a small file, is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from inferlab.errors import HeaderIncomplete, ModelError, ModelNotFound, RecordError
from inferlab.model.gguf import MAX_HEADER_BYTES, Model, read_gguf, read_part, require_model
from inferlab.units import MIB, bytes_text

LARGEST_SLICE = 2**22  # a message to a kernel has at most 10 MiB
LARGEST_WHOLE = 4 * MIB
"""Bytes of a file that is kept whole."""


@dataclass
class DroppedFiles:
    """Files by their names, in a folder of this process; `sizes` has the whole size of each, in bytes."""

    folder: Path
    sizes: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, size: int, start: int, data: bytes) -> tuple[int, int] | None:
        """Keep a slice of a file from byte `start` on; the next slice to send, or None when the header is complete.

        A file that starts anew at 0 replaces an older one of its name.
        Raises NotGGUF, UnsupportedGGUF, DamagedGGUF or ModelNotFound for what is no model's header.
        """
        path, have = self._written(name, size, start, data)
        try:
            with self._without_paths():
                require_model(read_part(path, self.sizes))
        except HeaderIncomplete:
            return have, min(size, 2 * have, have + LARGEST_SLICE, MAX_HEADER_BYTES)
        return None

    def keep(self, name: str, size: int, start: int, data: bytes) -> tuple[int, int] | None:
        """Keep a slice of a small file; the next slice to send, or None when it is here whole.

        Raises RecordError for a file above LARGEST_WHOLE.
        """
        if size > LARGEST_WHOLE:
            raise RecordError(
                f"{name} was not read: it has {bytes_text(size)}, and files of results are read up to "
                f"{bytes_text(LARGEST_WHOLE)}. Split it, or drop the files that llama-bench wrote one by one."
            )
        _, have = self._written(name, size, start, data)
        return None if have >= size else (have, min(size, have + LARGEST_SLICE))

    def content(self, name: str) -> bytes:
        """All of a small file. Raises RecordError until it is here."""
        path = self.path(name)
        if path.name not in self.sizes or path.stat().st_size != self.sizes[path.name]:
            raise RecordError(f"{name!r} is not here, because a page keeps no file. Choose it again.")
        return path.read_bytes()

    def _written(self, name: str, size: int, start: int, data: bytes) -> tuple[Path, int]:
        """Where a slice was kept, and how many bytes of the file are there now."""
        path = self.path(name)
        if start:
            with path.open("ab") as file:
                file.write(data)
        else:
            path.write_bytes(data)
        self.sizes[path.name] = size
        return path, path.stat().st_size

    def model(self, name: str) -> Model:
        """The model of a file and of the other parts that belong to it. Raises ModelNotFound until all are here."""
        path = self.path(name)
        if path.name not in self.sizes:
            kept = f"{name!r} is not here, because a page keeps no file. Choose it again"
            again = kept if name else "Choose a .gguf file"
            raise ModelNotFound(f"{again}: only its beginning is read, and nothing is uploaded.")
        with self._without_paths():
            return read_gguf(path, self.sizes)

    @contextmanager
    def _without_paths(self) -> Iterator[None]:
        """Errors about a model name the file as its owner does: nobody chose the folder that it lies in here."""
        try:
            yield
        except HeaderIncomplete:
            raise
        except ModelError as error:
            text = re.sub(re.escape(f"{self.folder}") + r"[/\\]", "", str(error))
            text = re.sub(r"\bb(?='|\")", "", text)  # bytes as a text
            text = re.sub(r"Give the path of a (?:GGUF|\.gguf) file", "Choose a .gguf file", text)
            text = text.replace("Download it too.", "Choose or drop all parts together.")
            raise type(error)(text) from error

    def path(self, name: str) -> Path:
        """Where a file lies: its last name only, whatever stands before it."""
        return self.folder / (name.replace("\\", "/").rpartition("/")[2].lstrip(".") or "model.gguf")
