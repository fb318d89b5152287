"""Which of ggml's CPU kernels multiplies a tensor: by its type, the buffer that holds it, and the tokens in the batch.

plain     the file's own layout: a dot product for each row and token (ggml-cpu.c), or, for some types and more than
          one token, llamafile's small tiles of them (llamafile/sgemm.cpp)
tiled     the file's own layout: blocks of rows are unpacked once for many tokens (tiled/tiled.cpp, on x86)
repacked  rows interleaved when the model is loaded, so that eight are computed together (repack.cpp)
AMX       rows rearranged when the model is loaded for the processor's matrix unit (amx/mmq.cpp)

llama.cpp chooses the buffer of each tensor when it loads the model; `use_extra_bufts=False` (`--no-repack`) leaves all
of them in the file's own layout.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

from inferlab.machine import HOST_BUFFER
from inferlab.model.gguf import Tensor

PLAIN, TILED, REPACKED, AMX = "plain", "tiled", "repacked", "AMX"
TILED_FROM = 8
"""Tokens from which a batch is computed in tiles, for an expert those routed to it (tiled/tiled.cpp:1202, 1241)."""
TILED_TYPES = frozenset(
    (
        "Q2_K",
        "Q3_K",
        "Q4_K",
        "Q5_K",
        "Q6_K",
        "IQ1_S",
        "IQ1_M",
        "IQ2_XXS",
        "IQ2_XS",
        "IQ2_S",
        "IQ3_XXS",
        "IQ3_S",
        "IQ4_XS",
    )
)
"""Types that the tiled kernels read (ggml_tiled_supported, tiled/tiled.cpp:617)."""
KERNEL_OF_BUFFER = {"CPU_REPACK": REPACKED, "AMX": AMX}
OF_PROCESSOR = re.compile(r"CPU|AMX|RPC|.*_Host$")
"""Buffers whose tensors a processor multiplies: the host's, and those of loopback devices, which repack nothing."""
LOG_PRECISION_BYTES = 2**20 // 50  # two sizes that llama.cpp logs to 0.01 MiB each
LAYER = re.compile(r"blk\.(\d+)\.")


@dataclass(frozen=True)
class Matrices:
    """The matrices of one type in one buffer, as far as a token's pass multiplies them.

    buffer   "CPU", "CPU_REPACK" or "AMX"; a device's name for those on a device
    n_bytes  their bytes in the file
    """

    type: str
    buffer: str
    n_bytes: int


def kernel(type: str, buffer: str, n_tokens: int, tiles: bool = True) -> str:
    """The kernel that multiplies a tensor of `type` in a CPU buffer, such as "CPU_Mapped", with n_tokens at once.

    tiles  whether the processor has tiled kernels: x86 with AVX has
    """
    if buffer in KERNEL_OF_BUFFER:
        return KERNEL_OF_BUFFER[buffer]
    return TILED if tiles and type in TILED_TYPES and n_tokens >= TILED_FROM else PLAIN


def multiplied(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """The matrices that a pass multiplies: weights of two or more dimensions, an embedding only if it is the output."""
    matrices = [t for t in tensors if len(t.shape) > 1 and t.name.endswith(".weight")]
    tied = all(t.name != "output.weight" for t in matrices)
    looked_up = ("position_embd.weight", "token_types.weight", *(() if tied else ("token_embd.weight",)))
    return tuple(t for t in matrices if t.name not in looked_up)


def placed(tensors: Iterable[Tensor], rearranged: Mapping[str, str], layers: Mapping[int, str]) -> tuple[Matrices, ...]:
    """The multiplied matrices by type and buffer, those with most bytes first; () where no layer's device is known.

    rearranged  tensor -> "CPU_REPACK" or "AMX"
    layers      layer -> device, the output layer last
    """
    if not layers:
        return ()
    sizes: dict[tuple[str, str], int] = {}
    for tensor in multiplied(tensors):
        found = LAYER.match(tensor.name)
        device = layers.get(int(found[1]) if found else max(layers), HOST_BUFFER)
        key = tensor.type, rearranged.get(tensor.name, device)
        sizes[key] = sizes.get(key, 0) + tensor.n_bytes
    return _sorted(sizes)


def placed_by_bytes(tensors: Iterable[Tensor], weights: Mapping[str, int]) -> tuple[Matrices, ...]:
    """As `placed`, from the bytes of each buffer of weights alone; () where these leave more than one possibility.

    llama.cpp rearranges the matrices of some types and of no other: the types whose bytes are those of the buffer.
    """
    kinds: dict[str, int] = {}
    for tensor in multiplied(tensors):
        kinds[tensor.type] = kinds.get(tensor.type, 0) + tensor.n_bytes
    extra = [buffer for buffer in weights if buffer in KERNEL_OF_BUFFER]
    if not weights or len(extra) > 1 or not all(OF_PROCESSOR.match(buffer) for buffer in weights):
        return ()
    wanted = weights[extra[0]] if extra else 0
    groups = [group for n in range(len(kinds) + 1) for group in combinations(kinds, n)]
    fitting = [group for group in groups if abs(sum(kinds[k] for k in group) - wanted) <= LOG_PRECISION_BYTES]
    if len(fitting) != 1:
        return ()
    return _sorted({(kind, extra[0] if kind in fitting[0] else HOST_BUFFER): size for kind, size in kinds.items()})


def _sorted(sizes: Mapping[tuple[str, str], int]) -> tuple[Matrices, ...]:
    return tuple(Matrices(*key, size) for key, size in sorted(sizes.items(), key=lambda item: -item[1]))


def kernel_bytes(matrices: Iterable[Matrices], n_tokens: int, tiles: bool = True) -> dict[tuple[str, str], int]:
    """(type, kernel) -> bytes of the matrices that a processor multiplies with n_tokens at once, most bytes first."""
    found: dict[tuple[str, str], int] = {}
    for one in matrices:
        if OF_PROCESSOR.match(one.buffer):
            key = one.type, kernel(one.type, one.buffer, n_tokens, tiles)
            found[key] = found.get(key, 0) + one.n_bytes
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def kernels_text(matrices: Iterable[Matrices], tiles: bool = True) -> str:
    """`Q4_K repacked, Q6_K tiled from 8 tokens`: the kernel of each type on a processor, "" where none is known."""
    matrices = tuple(matrices)
    groups: dict[str, list[str]] = {}
    for many, one in zip(*(kernel_bytes(matrices, n, tiles) for n in (TILED_FROM, 1)), strict=True):
        name = f"{TILED} from {TILED_FROM} tokens" if many[1] == TILED else one[1]
        groups.setdefault(name, []).append(many[0])
    return ", ".join(f"{'/'.join(types)} {name}" for name, types in groups.items())
