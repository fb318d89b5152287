"""Disable AMX for llama.cpp where a compiler bug makes its AMX code crash.

GCC before 11.5, 12.4 and 13.3 (bug 114098) drops most of the tile configuration that ggml-cpu/amx/mmq.cpp
loads, so that the first prefill of a quantized model on an Intel processor with AMX is a general protection fault.
llama.cpp uses its other kernels when Linux refuses AMX to the process, so `refuse` makes Linux refuse it.
"""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path

COMPILED_BY = re.compile(rb"GCC: \([^)]*\) (\d+)\.(\d+)")
FIXED_IN = {11: 5, 12: 4, 13: 3}  # the first minor version of each major one without the bug
TOO_SMALL_FOR_TILES = 8192  # bytes: enough for AVX-512's registers on a signal stack, too few for AMX's


class _Stack(ctypes.Structure):
    """stack_t of sigaltstack(2)."""

    _fields_ = (("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("n_bytes", ctypes.c_size_t))


def compiled_in(library: Path) -> bool:
    """Whether `library` has code for AMX, on any processor; faster than reading the file.

    ggml_cpu_has_amx_int8 (ggml-cpu.c:3691) depends on the same compiler flags as amx/*.cpp.
    """
    return bool(ctypes.CDLL(str(library)).ggml_cpu_has_amx_int8())


def miscompiled(library: Path) -> bool:
    """Whether the compiler named in `library` is a GCC with the bug."""
    return any(int(minor) < FIXED_IN.get(int(major), 0) for major, minor in COMPILED_BY.findall(library.read_bytes()))


def refuse() -> None:
    """Make Linux refuse AMX to this process, by a signal stack too small for the registers' state.

    arch_prctl(ARCH_REQ_XCOMP_PERM) then fails with ENOSPC (arch/x86/kernel/fpu/xstate.c), which ggml treats as no AMX.
    """
    if sys.platform != "linux":
        return
    _ALLOCATED_STACKS.append(ctypes.create_string_buffer(TOO_SMALL_FOR_TILES))
    stack = _Stack(ctypes.addressof(_ALLOCATED_STACKS[-1]), 0, TOO_SMALL_FOR_TILES)
    ctypes.CDLL(None).sigaltstack(ctypes.byref(stack), None)


_ALLOCATED_STACKS: list[ctypes.Array] = []
