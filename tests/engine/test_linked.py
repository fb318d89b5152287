"""What llama.cpp's libraries are linked to."""

import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

from inferlab.engine.linked import linked_libraries, needed

ON_LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have no ELF files")


def test_another_kind_of_file_is_unknown(tmp_path):
    """Text has no list of libraries; that is unknown, not empty."""
    (tmp_path / "libone.so").write_text("INPUT(-lone)")
    assert needed(tmp_path / "libone.so") is None
    assert linked_libraries(tmp_path) == {}


@ON_LINUX
@pytest.mark.skipif(not which("readelf"), reason="binutils are not installed")
def test_the_names_are_those_of_readelf():
    """Python itself is linked to what the system's own tool says."""
    path = Path(sys.executable).resolve()
    text = subprocess.run(["readelf", "-d", str(path)], capture_output=True, text=True, check=True).stdout
    assert list(needed(path)) == [line.split("[")[1][:-1] for line in text.splitlines() if "(NEEDED)" in line]


@ON_LINUX
@pytest.mark.engine
def test_no_library_of_llama_cpp_is_linked_to_cudnn():
    """Claim D31, on the installed build: libggml leads to its backends; with CUDA, that one needs cuBLAS, no cuDNN."""
    linked = linked_libraries()
    assert "libggml-base" in linked["libggml-cpu"]
    assert not [name for names in linked.values() for name in names if "cudnn" in name]
    assert "libggml-cuda" not in linked or "libcublas" in linked["libggml-cuda"]
