"""Where llama.cpp's shared libraries are, found without loading them."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from inferlab.errors import EngineUnavailable

INSTALL = "make book (or: pip install --no-cache-dir -r requirements.txt)"
WITH_RPC = "pip install --no-cache-dir --force-reinstall -r requirements.txt"
BACKENDS = ("cpu", "cuda", "metal", "vulkan", "hip", "sycl", "rpc", "blas")


def folder() -> Path:
    """The folder of llama-cpp-python's shared libraries, or the one that LLAMA_CPP_LIB_PATH names instead.

    llama-cpp-python loads libllama from there too (llama_cpp.py:36): a library from elsewhere would be a second copy.
    Raises EngineUnavailable when the package is not installed.
    """
    if named := os.environ.get("LLAMA_CPP_LIB_PATH"):
        return Path(named)
    spec = find_spec("llama_cpp")
    if spec is None or not spec.submodule_search_locations:
        raise EngineUnavailable(f"llama-cpp-python is not installed in {sys.prefix}. Install it with: {INSTALL}")
    return Path(next(iter(spec.submodule_search_locations))) / "lib"


def shared_library(name: str) -> Path:
    """The file of one library, e.g. `shared_library("ggml")`, under the name that libllama itself links to.

    The wheel holds each library under several names as separate files; opening another one
    would load a second copy with a registry of its own.
    """
    there = folder()
    names = {
        "linux": (f"lib{name}.so.0", f"lib{name}.so"),
        "darwin": (f"lib{name}.0.dylib", f"lib{name}.dylib"),
        "win32": (f"{name}.dll", f"lib{name}.dll"),
    }
    candidates = [there / n for n in names.get(sys.platform, names["linux"])]
    for path in candidates:
        if path.exists():
            return path
    raise EngineUnavailable(f"{candidates[0].name} is not in {there}. Reinstall with: {INSTALL}")


def backends() -> tuple[str, ...]:
    """The ggml backends that this build carries, e.g. ("cpu", "rpc")."""
    names = {path.name.split(".")[0] for path in folder().iterdir()}
    return tuple(b for b in BACKENDS if {f"libggml-{b}", f"ggml-{b}"} & names)
