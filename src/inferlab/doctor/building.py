"""How llama.cpp is built for this machine: the backend, the CUDA toolkit that fits driver and card, the command.

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
"""Compute capability -> the first toolkit that compiles for it; one in between needs the toolkit of the next lower."""
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


def oldest_toolkit(seen: Seen) -> Version:
    """The oldest toolkit that compiles for every card."""
    known = [max((at for at in FIRST_TOOLKIT if at <= card), default=None) for card in seen.capabilities]
    return max((FIRST_TOOLKIT[at] for at in known if at), default=OLDEST_TOOLKIT)


def newest_major(seen: Seen) -> int | None:
    """Major version of the newest toolkit that runs on this driver and compiles for every card; None when unknown."""
    majors = [seen.driver_cuda[0]] if seen.driver_cuda else []
    if any(card < OLDEST_CARD_OF_13 for card in seen.capabilities):
        majors.append(12)
    return min(majors, default=None)


def fits(seen: Seen, version: Version) -> bool:
    """Whether a toolkit fits driver and cards; an unknown version counts as fitting."""
    newest = newest_major(seen)
    return version == (0, 0) or (version >= oldest_toolkit(seen) and (newest is None or version[0] <= newest))


def chosen_nvcc(seen: Seen) -> Nvcc | None:
    """The compiler that `make` finds by itself if it fits, else the newest other compiler that fits."""
    fitting = [nvcc for nvcc in seen.nvccs if fits(seen, nvcc.version)]
    return next(
        (nvcc for nvcc in fitting if nvcc.found_by_make), max(fitting, key=lambda nvcc: nvcc.version, default=None)
    )


def toolkits_text(seen: Seen) -> str:
    """Which toolkits fit, in words: `CUDA 12.8 or a later 12.x`."""
    least, newest = oldest_toolkit(seen), newest_major(seen)
    if newest is None:
        return "CUDA {}.{} or later".format(*least)
    if newest > least[0]:
        return "CUDA {}.{} to {}.x".format(*least, newest)
    return "CUDA {}.{} or a later {}.x".format(*least, newest)


def misfit_text(seen: Seen, version: Version) -> str:
    """Why a toolkit does not fit, in words."""
    nvcc = "nvcc {}.{}".format(*version)
    if version < oldest_toolkit(seen):
        return f"{nvcc} does not know compute capability {capabilities_text(seen)}, which takes {toolkits_text(seen)}"
    if seen.driver_cuda and version[0] > seen.driver_cuda[0]:
        return "{}, but the driver supports CUDA up to {}.{}".format(nvcc, *seen.driver_cuda)
    return f"{nvcc} no longer compiles for compute capability {capabilities_text(seen)}; CUDA 12 does"


def toolkit_remedy(seen: Seen) -> str:
    """The command that installs a toolkit that fits, or a driver for the installed toolkit."""
    too_new = [nvcc for nvcc in seen.nvccs if seen.driver_cuda and nvcc.version[0] > seen.driver_cuda[0]]
    if too_new and not any(card < OLDEST_CARD_OF_13 for card in seen.capabilities):
        return install(seen.host, "driver")
    if oldest_toolkit(seen) <= (11, 8) and not seen.nvccs:
        return install(seen.host, "toolkit")
    return install_toolkit(seen.host, "13-0" if (newest_major(seen) or 12) > 12 else "12-9")


def build_command(seen: Seen, backend: str | None) -> str:
    """The exact command that builds llama.cpp here with a backend and RPC; None keeps the present backend."""
    return rebuild(seen.host, backend, _environment(seen) if backend == "cuda" else {})


def _environment(seen: Seen) -> dict[str, str]:
    """Variables for the build: the cards' architectures, and the compiler where the build would not find it."""
    nvcc, variables = chosen_nvcc(seen), {}
    if nvcc and nvcc.folder and not (nvcc.found_by_make and seen.host.is_book_environment):
        variables = {"CUDA_PATH": nvcc.folder, "CUDACXX": f"{nvcc.folder}/bin/nvcc"}
    cards = sorted({f"{major}{minor}-real" for major, minor in seen.capabilities}, key=lambda a: int(a.split("-")[0]))
    return variables | ({"CMAKE_ARGS": f"-DCMAKE_CUDA_ARCHITECTURES={';'.join(cards)}"} if cards else {})


def build_target_text(seen: Seen) -> str:
    """What llama.cpp is built for on this machine, in words: `CUDA 12.4 for compute capability 8.9`."""
    backend = wanted_backend(seen)
    if backend == "cuda":
        nvcc = chosen_nvcc(seen)
        toolkit = "CUDA {}.{}".format(*nvcc.version) if nvcc and nvcc.version[0] else toolkits_text(seen)
        return f"{toolkit} for compute capability {capabilities_text(seen)}" if seen.capabilities else toolkit
    return {"metal": "Metal", "vulkan": "Vulkan"}.get(backend or "none", "the processor alone")


def capabilities_text(seen: Seen) -> str:
    """The cards' compute capabilities, in words: `8.6, 12.0`."""
    return ", ".join("{}.{}".format(*card) for card in sorted(set(seen.capabilities)))


def vulkan_build_remedy(seen: Seen) -> str | None:
    """The command that installs the tools of a Vulkan build; None where its shader compiler is there."""
    return None if seen.host.which("glslc") else install(seen.host, "vulkan-build")
