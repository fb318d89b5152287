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

PLAIN, TILED, REPACKED, AMX = "plain", "tiled", "repacked", "AMX"
KERNELS = (PLAIN, TILED, REPACKED, AMX)
TILED_FROM = 8
"""Tokens from which a batch is computed in tiles (ggml_tiled_min_batch, tiled/tiled.cpp:1203)."""
TILED_TYPES = frozenset(
    ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S",
     "IQ4_XS")
)  # fmt: skip
"""Types that the tiled kernels read (ggml_tiled_supported, tiled/tiled.cpp:617)."""
KERNEL_OF_BUFFER = {"CPU_REPACK": REPACKED, "AMX": AMX}


def kernel(type: str, buffer: str, n_tokens: int, tiles: bool = True) -> str:
    """The kernel that multiplies a tensor of `type` in a CPU buffer, such as "CPU_Mapped", with n_tokens at once.

    tiles  whether the processor has tiled kernels: x86 with AVX has
    """
    if buffer in KERNEL_OF_BUFFER:
        return KERNEL_OF_BUFFER[buffer]
    return TILED if tiles and type in TILED_TYPES and n_tokens >= TILED_FROM else PLAIN
