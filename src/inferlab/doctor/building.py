"""How llama.cpp is built for this very machine: the backend, the CUDA toolkit that fits driver and card, the command.

Every build has the RPC backend: requirements.txt and the commands for pip ask for it.

A toolkit fits when its major version is not newer than the driver's CUDA (within a major version any toolkit runs on
any of its drivers) and it compiles for every card's compute capability; sources: NVIDIA's CUDA Compatibility guide,
the release notes of the toolkits 11.8, 12.8, 12.9 and 13.0, and ggml/src/ggml-cuda/CMakeLists.txt.
"""

from __future__ import annotations

from inferlab.doctor.host import Nvcc, Seen
from inferlab.doctor.remedies import install, install_toolkit, rebuild

Version = tuple[int, int]

FIRST_TOOLKIT: dict[Version, Version] = {
    (8, 0): (11, 0),
    (8, 6): (11, 1),
    (8, 7): (11, 4),
    (8, 9): (11, 8),
    (9, 0): (11, 8),
    (10, 0): (12, 8),
    (10, 3): (12, 9),
    (11, 0): (13, 0),
    (12, 0): (12, 8),
    (12, 1): (12, 9),
}
"""Compute capability -> the first toolkit that compiles for it; those in between need what the one before needs."""
OLDEST_TOOLKIT = (11, 0)
OLDEST_CARD_OF_13 = (7, 5)
DEDICATED_BYTES = 4 * 2**30  # an AMD GPU with less is a small part of a processor


def wanted_backend(seen: Seen) -> str | None:
    """The backend for the graphics in this machine, under the name that `make book GPU=` takes; None without any."""
    if seen.is_apple_silicon:
        return "metal"
    if seen.cards:
        return "cuda"
    return "vulkan" if seen.amd_bytes >= DEDICATED_BYTES else None


def least_toolkit(seen: Seen) -> Version:
    """The oldest toolkit that compiles for every card."""
    known = [max((at for at in FIRST_TOOLKIT if at <= card), default=None) for card in seen.capabilities]
    return max((FIRST_TOOLKIT[at] for at in known if at), default=OLDEST_TOOLKIT)


def newest_major(seen: Seen) -> int | None:
    """The newest toolkit's major version that runs on this driver and compiles for every card; None: not known."""
    majors = [seen.driver_cuda[0]] if seen.driver_cuda else []
    if any(card < OLDEST_CARD_OF_13 for card in seen.capabilities):
        majors.append(12)
    return min(majors, default=None)


def fits(seen: Seen, version: Version) -> bool:
    """Whether a toolkit fits; one of unknown version may."""
    newest = newest_major(seen)
    return version == (0, 0) or (version >= least_toolkit(seen) and (newest is None or version[0] <= newest))


def chosen_nvcc(seen: Seen) -> Nvcc | None:
    """The compiler that `make` finds by itself if it fits, else the newest other one that does."""
    found = [nvcc for nvcc in seen.nvccs if fits(seen, nvcc.version)]
    return next((nvcc for nvcc in found if nvcc.usual), max(found, key=lambda nvcc: nvcc.version, default=None))


def toolkits_text(seen: Seen) -> str:
    """Which toolkits fit, in words: `CUDA 12.8 or a later 12.x`."""
    least, newest = least_toolkit(seen), newest_major(seen)
    if newest is None:
        return "CUDA {}.{} or later".format(*least)
    if newest > least[0]:
        return "CUDA {}.{} to {}.x".format(*least, newest)
    return "CUDA {}.{} or a later {}.x".format(*least, newest)


def why_not(seen: Seen, version: Version) -> str:
    """Why a toolkit does not fit, in words."""
    said = "nvcc {}.{}".format(*version)
    if version < least_toolkit(seen):
        return f"{said} does not know compute capability {capabilities_text(seen)}, which takes {toolkits_text(seen)}"
    if seen.driver_cuda and version[0] > seen.driver_cuda[0]:
        return "{}, but the driver supports CUDA up to {}.{}".format(said, *seen.driver_cuda)
    return f"{said} no longer compiles for compute capability {capabilities_text(seen)}; CUDA 12 does"


def toolkit_remedy(seen: Seen) -> str:
    """The command that brings a toolkit that fits, or a driver for the one that is here."""
    too_new = [nvcc for nvcc in seen.nvccs if seen.driver_cuda and nvcc.version[0] > seen.driver_cuda[0]]
    if too_new and not any(card < OLDEST_CARD_OF_13 for card in seen.capabilities):
        return install(seen.host, "driver")
    if least_toolkit(seen) <= (11, 8) and not seen.nvccs:
        return install(seen.host, "toolkit")
    return install_toolkit(seen.host, "13-0" if (newest_major(seen) or 12) > 12 else "12-9")


def build_command(seen: Seen, backend: str | None) -> str:
    """The exact command that builds llama.cpp here with a backend, RPC beside it; None keeps the one it has."""
    return rebuild(seen.host, backend, _environment(seen) if backend == "cuda" else {})


def _environment(seen: Seen) -> dict[str, str]:
    """What the build is told: the cards' architectures, and the compiler where it would not find that by itself."""
    nvcc, found = chosen_nvcc(seen), {}
    if nvcc and nvcc.folder and not (nvcc.usual and seen.host.is_ours):
        found = {"CUDA_PATH": nvcc.folder, "CUDACXX": f"{nvcc.folder}/bin/nvcc"}
    cards = sorted({f"{major}{minor}-real" for major, minor in seen.capabilities}, key=lambda a: int(a.split("-")[0]))
    return found | ({"CMAKE_ARGS": f"-DCMAKE_CUDA_ARCHITECTURES={';'.join(cards)}"} if cards else {})


def described(seen: Seen) -> str:
    """What the command builds for, in words."""
    backend = wanted_backend(seen)
    if backend == "cuda":
        nvcc = chosen_nvcc(seen)
        toolkit = "CUDA {}.{}".format(*nvcc.version) if nvcc and nvcc.version[0] else toolkits_text(seen)
        return f"{toolkit} for compute capability {capabilities_text(seen)}" if seen.capabilities else toolkit
    return {"metal": "Metal", "vulkan": "Vulkan"}.get(backend, "the processor alone")


def capabilities_text(seen: Seen) -> str:
    return ", ".join("{}.{}".format(*card) for card in sorted(set(seen.capabilities)))


def lacking_for_vulkan(seen: Seen) -> str | None:
    """The command that installs what a Vulkan build is compiled with, where its compiler is missing."""
    return None if seen.host.which("glslc") else install(seen.host, "vulkan-build")
