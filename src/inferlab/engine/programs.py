"""llama.cpp's own programs, which `make tools` compiles in a clone of this repository."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parents[3] / ".tools" / "bin"


def built_program(name: str, folder: Path = FOLDER) -> Path | None:
    """The path of a program such as llama-bench or llama-server; None where it was not compiled."""
    program = folder / name
    return program if program.is_file() else None
