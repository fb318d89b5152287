"""Where llama.cpp's libraries are, without loading them."""

import subprocess
import sys

import pytest

from inferlab.engine import libraries
from inferlab.errors import EngineUnavailable


@pytest.mark.engine
def test_the_libraries_are_found_without_loading_them():
    """Asking for a path loads nothing: llama_cpp stays out of the process that asks."""
    code = (
        "import sys; from inferlab.engine import libraries; "
        "print(all(libraries.shared_library(n).is_file() for n in ('llama', 'ggml-base')), 'llama_cpp' in sys.modules)"
    )
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert asked.stdout.split() == ["True", "False"]


@pytest.mark.engine
@pytest.mark.skipif(sys.platform != "linux", reason="names of Linux")
def test_the_name_that_libllama_links_to_is_preferred():
    """Another name would open a second copy of ggml with a registry of its own."""
    assert libraries.shared_library("ggml").name == "libggml.so.0"


@pytest.mark.engine
def test_this_build_has_the_cpu_and_the_rpc_backend():
    """requirements.txt builds llama.cpp with RPC, which the loopback device needs."""
    assert {"cpu", "rpc"} <= set(libraries.backends())


def test_a_missing_package_is_answered_with_the_command_that_installs_it(monkeypatch):
    """EngineUnavailable says how to get llama-cpp-python."""
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(EngineUnavailable, match="make book"):
        libraries.shared_library("llama")


@pytest.mark.engine
def test_a_missing_library_is_named():
    """EngineUnavailable says which file is not there."""
    with pytest.raises(EngineUnavailable, match=r"no-such-part.* is not in"):
        libraries.shared_library("no-such-part")


def test_the_folder_that_llama_cpp_python_is_told_to_use_is_the_one(monkeypatch, tmp_path):
    """Else the worker would open a second copy of ggml beside the one that libllama links to."""
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(tmp_path))
    assert libraries.folder() == tmp_path
