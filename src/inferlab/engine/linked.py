"""Which shared libraries llama.cpp's own libraries are linked to, read from the files; nothing is loaded."""

from __future__ import annotations

import struct
from pathlib import Path

from inferlab.engine import libraries

ELF_64_LITTLE = b"\x7fELF\x02\x01"
SECTION = struct.Struct("<IIQQQQIIQQ")  # Elf64_Shdr of elf.h
ENTRY = struct.Struct("<qQ")  # Elf64_Dyn
DYNAMIC, NEEDED = 6, 1  # SHT_DYNAMIC, DT_NEEDED


def needed(path: Path) -> tuple[str, ...] | None:
    """The libraries that an ELF file names as needed (DT_NEEDED), in their order; None for another kind of file."""
    data = path.read_bytes()
    if not data.startswith(ELF_64_LITTLE):
        return None
    sections = _sections(data)
    dynamic = next((section for section in sections if section[1] == DYNAMIC), None)
    if dynamic is None:
        return ()
    offset, size, strings = dynamic[4], dynamic[5], sections[dynamic[6]][4]
    entries = (ENTRY.unpack_from(data, at) for at in range(offset, offset + size, ENTRY.size))
    return tuple(_text(data, strings + value) for tag, value in entries if tag == NEEDED)


def linked_libraries(folder: Path | None = None) -> dict[str, tuple[str, ...]]:
    """Each of llama.cpp's shared libraries, by its plain name, and what it needs; {} where they are no ELF files.

    Raises EngineUnavailable when llama-cpp-python is not installed.
    """
    linked = {}
    for path in sorted((folder or libraries.folder()).glob("*.so*")):
        if (names := needed(path)) is not None:
            linked[path.name.split(".so")[0]] = tuple(name.split(".so")[0] for name in names)
    return linked


def _sections(data: bytes) -> list[tuple[int, ...]]:
    start, width, count = (struct.unpack_from(form, data, at)[0] for form, at in (("<Q", 40), ("<H", 58), ("<H", 60)))
    return [SECTION.unpack_from(data, start + width * index) for index in range(count)]


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()
