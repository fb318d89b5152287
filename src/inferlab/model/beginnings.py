"""Beginnings of GGUF files, which grow slice by slice until their headers are whole: from a page, or over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from inferlab.errors import HeaderIncomplete, ModelError, ModelNotFound
from inferlab.model.gguf import MAX_HEADER_BYTES, Model, read_gguf, read_part, require_model

LARGEST_SLICE = 2**22  # a message to a kernel has at most 10 MiB
MOST_NAME_BYTES = 200  # a file system takes 255
BEHIND = 2**16
"""Bytes to bring besides those that are known to be missing: more follows them."""


@dataclass
class Beginnings:
    """Files by their names, in a folder of this process; `sizes` has the whole size of each, in bytes."""

    folder: Path
    sizes: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, size: int, start: int, data: bytes) -> tuple[int, int] | None:
        """Keep a slice of a file from byte `start` on; the next slice to bring, or None when the header is complete.

        A file that starts anew at 0 replaces an older one of its name.
        Raises NotGGUF, UnsupportedGGUF, DamagedGGUF or ModelNotFound for what is no model's header.
        """
        path, have = self._written(name, size, start, data)
        try:
            with self._in_words_of_the_owner():
                require_model(read_part(path, self.sizes))
        except HeaderIncomplete as short:
            return have, min(size, max(2 * have, short.needed_bytes + BEHIND), have + LARGEST_SLICE, MAX_HEADER_BYTES)
        return None

    def model(self, name: str) -> Model:
        """The model of a file and of the other parts that belong to it. Raises ModelNotFound until all are here."""
        with self._in_words_of_the_owner():
            return read_gguf(self.path(name), self.sizes)

    def n_parts(self, name: str) -> int:
        """How many parts a file says that its model has; 1 where it says nothing of parts."""
        count = read_part(self.path(name), self.sizes).metadata.get("split.count", 0)
        return count if isinstance(count, int) and count > 1 else 1

    def path(self, name: str) -> Path:
        """Where a file lies: its last name only, whatever stands before it; of a very long one the end."""
        last = name.replace("\\", "/").rpartition("/")[2].lstrip(".")
        written = "".join(filter(str.isprintable, last)).encode()[-MOST_NAME_BYTES:].decode(errors="ignore")
        return self.folder / (written or "model.gguf")

    def shown(self, text: str) -> str:
        """An error's text with the names that the owner of the files gave them."""
        return text.replace(f"{self.folder}/", "").replace(f"{self.folder}\\", "")

    def _written(self, name: str, size: int, start: int, data: bytes) -> tuple[Path, int]:
        """Where a slice was kept, and how many bytes of the file are there now. Raises ModelNotFound after a gap."""
        path = self.path(name)
        have = path.stat().st_size if start and path.exists() else 0
        if start != have:
            raise ModelNotFound(f"{name}: the bytes from {start:,} on came, and {have:,} are here. Choose it again.")
        if start:
            with path.open("ab") as file:
                file.write(data)
        else:
            path.write_bytes(data)
        self.sizes[path.name] = size
        return path, path.stat().st_size

    @contextmanager
    def _in_words_of_the_owner(self) -> Iterator[None]:
        try:
            yield
        except HeaderIncomplete:
            raise
        except ModelError as error:
            raise type(error)(self.shown(str(error))) from error
