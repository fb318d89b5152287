"""The commands that fix something, for other environments, systems and package managers."""

import re

import pytest
from fakes_host import OTHER_ENVIRONMENT, PINNED, MadeUpHost, fix

from inferlab.doctor import remedies

PIP = (
    "python -m pip install --no-cache-dir --force-reinstall --no-deps "
    f"llama-cpp-python=={PINNED} -C cmake.define.GGML_RPC=on"
)


@pytest.mark.parametrize(
    ("host", "command"),
    [
        ({"prefix": OTHER_ENVIRONMENT}, f"CMAKE_ARGS=-DGGML_METAL=off {PIP}"),
        ({"system": "Windows"}, f'$env:CMAKE_ARGS = "-DGGML_METAL=off"; {PIP}'),
    ],
    ids=["another environment", "Windows"],
)
def test_where_make_did_not_install_llama_cpp_pip_builds_it(host, command):
    """Another environment, or Windows, gets a line of its own instead of `make book`."""
    assert fix("llama.cpp build", built_for=("cpu",), **host) == command


def test_an_unknown_package_manager_gets_a_name_to_look_for():
    """No command can be given, so the line says what the package is called."""
    host = MadeUpHost(system="FreeBSD", commands={"c++": None})
    assert remedies.install(host, "toolkit").startswith("# no package manager known here; Debian calls it")


def test_the_library_knows_the_version_of_llama_cpp_python_that_it_is_made_for():
    """The version in pyproject.toml is the one that every build command installs."""
    assert re.fullmatch(r"[\d.]+", PINNED)
