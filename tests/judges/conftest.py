"""The programs of `make tools`; a test that asks for one is skipped where it was not compiled."""

import pytest

from inferlab.engine.programs import built_program


@pytest.fixture
def program():
    """The path of one of llama.cpp's programs by its name."""

    def named(name):
        path = built_program(name)
        if path is None:
            pytest.skip(f"{name} is not compiled: make tools")
        return path

    return named
