"""What an instrument has of files that a reader dropped: of a model as much as its header needs, of results all.

The front end sends slices in their order until the header, or a small file, is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from inferlab.errors import ModelNotFound, RecordError
from inferlab.model.beginnings import LARGEST_SLICE, Beginnings
from inferlab.model.gguf import Model
from inferlab.units import MIB, bytes_text

LARGEST_WHOLE = 4 * MIB
"""Bytes of a file that is kept whole."""


@dataclass
class DroppedFiles(Beginnings):
    """Files of the reader, or at an address that the reader typed.

    sources  the address of a file that was not dropped, by its name
    beside   what belongs to the model of an address, in sentences
    """

    sources: dict[str, str] = field(default_factory=dict)
    beside: dict[str, tuple[str, ...]] = field(default_factory=dict)

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

    def model(self, name: str) -> Model:
        """The model of a file and of the other parts that belong to it. Raises ModelNotFound until all are here."""
        path = self.path(name)
        if path.name not in self.sizes:
            kept = f"{name!r} is not here, because a page keeps no file. Choose it again, or read its address again"
            again = kept if name else "Choose a .gguf file"
            raise ModelNotFound(f"{again}: only its beginning is read, and nothing is uploaded.")
        source = self.source(name)
        return replace(super().model(name), source=source, beside=self.beside.get(source, ()))

    def source(self, name: str) -> str:
        """The address that a file was read from; "" for one that was dropped."""
        return self.sources.get(self.path(name).name, "")

    def came_from(self, name: str, source: str) -> None:
        """Note the address of a file, or that it was dropped: then it is the empty text."""
        self.sources[self.path(name).name] = source

    def shown(self, text: str) -> str:
        """An error's text for who chose a file: nobody chose the folder that it lies in here."""
        text = re.sub(r"\bb(?='|\")", "", super().shown(text))  # bytes as a text
        text = re.sub(r"Give the path of a (?:GGUF|\.gguf) file", "Choose a .gguf file", text)
        return text.replace("Download it too.", "Choose or drop all parts together.")
