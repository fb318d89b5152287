"""Broken AMX code is left alone: found by its compiler's name, avoided by a refusal that llama.cpp respects."""

import subprocess
import sys

import pytest

from inferlab.engine import amx, libraries

ASKS_FOR_TILES = """
import ctypes
from inferlab.engine import amx
ask = ctypes.CDLL(None, use_errno=True).syscall
if {refused}: amx.refuse()
print(ask(158, 0x1023, 18), ctypes.get_errno())  # arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)
"""


@pytest.mark.parametrize(
    ("name", "spoiled"),
    [
        (b"GCC: (Debian 12.2.0-14+deb12u1) 12.2.0", True),
        (b"GCC: (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0", True),
        (b"GCC: (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0", False),
        (b"GCC: (GNU) 12.4.0", False),
        (b"GCC: (GNU) 15.1.0", False),
        (b"Debian clang version 14.0.6", False),
    ],
)
def test_the_compiler_is_read_from_the_library(tmp_path, name, spoiled):
    """A library that a GCC with the bug compiled says so; every other one is trusted."""
    library = tmp_path / "libggml-cpu.so.0"
    library.write_bytes(b"\x7fELF...\x00" + name + b"\x00...")
    assert amx.miscompiled(library) is spoiled


@pytest.mark.engine
def test_a_library_that_denies_amx_has_no_code_for_it():
    """Its own answer may stand for reading it: no symbol of the kernels is in a library that says no."""
    library = libraries.shared_library("ggml-cpu")
    assert amx.compiled_in(library) or b"ggml_backend_amx_buffer_type" not in library.read_bytes()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="AMX is asked for on Linux only")
def test_linux_refuses_amx_to_a_process_with_a_small_signal_stack():
    """After the refusal the request for tiles fails as on a processor without them."""
    told = {refused: _asked(refused) for refused in (False, True)}
    if not told[False].startswith("0 "):
        pytest.skip("this processor has no AMX")
    assert told[True] == "-1 28\n"


def _asked(refused):
    code = ASKS_FOR_TILES.format(refused=refused)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
