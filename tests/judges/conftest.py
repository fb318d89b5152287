"""The programs of `make tools`; a test that asks for one is skipped where it was not compiled."""

from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[2] / ".tools" / "bin"


@pytest.fixture
def program():
    """The path of one of llama.cpp's programs by its name."""

    def named(name):
        path = PROGRAMS / name
        if not path.is_file():
            pytest.skip(f"{name} is not compiled: make tools")
        return path

    return named
