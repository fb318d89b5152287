"""Keeping llama.cpp off AMX where its compiler spoiled that code; computes nothing.

GCC before 11.5, 12.4 and 13.3 (bug 114098) drops most of the tile configuration that ggml-cpu/amx/mmq.cpp
loads, so that the first prefill of a quantized model on an Intel processor with AMX is a general protection fault.
llama.cpp takes its other kernels when the kernel does not let it have AMX, so that is what happens here.
"""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path

COMPILED_BY = re.compile(rb"GCC: \([^)]*\) (\d+)\.(\d+)")
MENDED_IN = {11: 5, 12: 4, 13: 3}  # the first minor version of each major one without the bug
TOO_SMALL_FOR_TILES = 8192  # bytes: enough for AVX-512's registers on a signal stack, too few for AMX's


class _Stack(ctypes.Structure):
    """stack_t of sigaltstack(2)."""

    _fields_ = (("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("n_bytes", ctypes.c_size_t))


def compiled_in(library: Path) -> bool:
    """Whether `library` has code for AMX at all, whatever this processor can do; to ask is cheaper than to read it.

    ggml_cpu_has_amx_int8 (ggml-cpu.c:3691) says what its compiler was told, and amx/*.cpp asks for the same.
    """
    return bool(ctypes.CDLL(str(library)).ggml_cpu_has_amx_int8())


def miscompiled(library: Path) -> bool:
    """Whether a GCC with the bug left its name in `library`; False when no GCC did."""
    return any(int(minor) < MENDED_IN.get(int(major), 0) for major, minor in COMPILED_BY.findall(library.read_bytes()))


def refuse() -> None:
    """Have Linux answer this process's request for AMX with a refusal, by a signal stack too small for its state.

    arch_prctl(ARCH_REQ_XCOMP_PERM) fails with ENOSPC then (arch/x86/kernel/fpu/xstate.c), which ggml takes as no AMX.
    """
    if sys.platform != "linux":
        return
    _KEPT.append(ctypes.create_string_buffer(TOO_SMALL_FOR_TILES))
    stack = _Stack(ctypes.addressof(_KEPT[-1]), 0, TOO_SMALL_FOR_TILES)
    ctypes.CDLL(None).sigaltstack(ctypes.byref(stack), None)


_KEPT: list[ctypes.Array] = []
