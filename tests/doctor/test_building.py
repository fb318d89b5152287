"""Which CUDA toolkit fits driver and cards, and the command that builds llama.cpp for this machine."""

import pytest
from fakes_host import (
    CUDA_BUILD,
    OTHER_ENVIRONMENT,
    REBUILD_FOR_CPU,
    RTX_4090,
    amd_card,
    check,
    checked,
    nvidia_driver,
    nvidia_machine,
    ok,
    warning,
)

NVCC = "nvcc"
NVCC_OF_MAKE = "/usr/local/cuda/bin/nvcc"
NVCC_12_6 = "/usr/local/cuda-12.6/bin/nvcc"
NVCC_12_8 = "/usr/local/cuda-12.8/bin/nvcc"
NVCC_13 = "/usr/local/cuda-13.0/bin/nvcc"
OLD_DRIVER = {"commands": {**nvidia_driver(RTX_4090), "nvidia-smi": (0, "")}}

# --- the CUDA toolkit ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nvcc", "expected"),
    [
        (
            None,
            warning(
                "no nvcc, which a CUDA build of llama.cpp is compiled with; CUDA 11.0 to 12.x fits this machine",
                "sudo apt-get install nvidia-cuda-toolkit",
            ),
        ),
        ((0, "Cuda compilation tools, release 12.4, V12.4.99"), ok("nvcc 12.4")),
        ((0, "something else"), ok("nvcc of unknown version")),
        (
            (0, "Cuda compilation tools, release 13.0, V13.0.88"),
            warning("nvcc 13.0, but the driver supports CUDA up to 12.8", "sudo apt-get install nvidia-driver"),
        ),
    ],
    ids=["none", "12.4", "unknown", "13.0"],
)
def test_the_toolkit_is_checked_when_a_gpu_waits_for_a_build(nvcc, expected):
    """A CUDA build needs a compiler, and one that is not newer than the driver."""
    assert check("CUDA toolkit", commands=nvidia_driver(RTX_4090) | {"nvcc": nvcc}) == expected


def test_a_toolkit_off_the_path_is_found():
    """/usr/local/cuda/bin is where NVIDIA installs it, and make looks there too."""
    nvcc = {NVCC_OF_MAKE: (0, "release 12.4, V12.4.99")}
    assert check("CUDA toolkit", commands=nvidia_driver(RTX_4090) | nvcc) == ok("nvcc 12.4")


@pytest.mark.parametrize(
    ("host", "found", "package"),
    [
        (nvidia_machine("12.0", cuda="13.0"), "CUDA 12.8 to 13.x fits this machine", "cuda-toolkit-13-0"),
        (nvidia_machine("12.0", cuda="12.9"), "CUDA 12.8 or a later 12.x fits this machine", "cuda-toolkit-12-9"),
        (
            nvidia_machine("12.0", cuda="12.9", nvccs={NVCC: "12.4"}),
            "nvcc 12.4 does not know compute capability 12.0, which takes CUDA 12.8 or a later 12.x",
            "cuda-toolkit-12-9",
        ),
        (nvidia_machine("8.9", cuda="12.4", nvccs={NVCC: "11.5"}), "takes CUDA 11.8 to 12.x", "cuda-toolkit-12-9"),
        (
            nvidia_machine("6.1", cuda="13.0", nvccs={NVCC: "13.0"}),
            "nvcc 13.0 no longer compiles for compute capability 6.1; CUDA 12 does",
            "cuda-toolkit-12-9",
        ),
        (
            nvidia_machine("8.9", cuda="12.4", nvccs={NVCC: "13.0"}),
            "the driver supports CUDA up to 12.4",
            "nvidia-driver",
        ),
        (OLD_DRIVER, "CUDA 11.0 or later fits", "nvidia-cuda-toolkit"),
    ],
    ids=[
        "none, 13.x runs",
        "none, 12.x runs",
        "12.4 too old",
        "11.5 too old",
        "13.0 too new for the card",
        "13.0 too new for the driver",
        "driver of unknown CUDA",
    ],
)
def test_a_toolkit_that_does_not_fit_is_named_with_one_that_does(host, found, package):
    """Too old for the card, too new for the driver or for the card, or not there: each has its own command."""
    state, text, fix = check("CUDA toolkit", **host)
    assert state == "warning"
    assert found in text
    assert fix.split("    #")[0] == f"sudo apt-get install {package}"


# --- the build command --------------------------------------------------------------------------

WITH_12_8 = "CUDA_PATH=/usr/local/cuda-12.8 CUDACXX=/usr/local/cuda-12.8/bin/nvcc "


@pytest.mark.parametrize(
    ("host", "command"),
    [
        (
            nvidia_machine("8.9", cuda="12.8", nvccs={NVCC: "12.4"}),
            "CMAKE_ARGS=-DCMAKE_CUDA_ARCHITECTURES=89-real make book GPU=cuda",
        ),
        (
            nvidia_machine("9.0", cuda="13.0", nvccs={NVCC: "13.0"}),
            "CMAKE_ARGS=-DCMAKE_CUDA_ARCHITECTURES=90-real make book GPU=cuda",
        ),
        (
            nvidia_machine("12.0\n8.6", cuda="13.0", nvccs={NVCC: "12.8"}),
            "CMAKE_ARGS='-DCMAKE_CUDA_ARCHITECTURES=86-real;120-real' make book GPU=cuda",
        ),
        (
            nvidia_machine("8.6", cuda="12.8", nvccs={NVCC: "13.0", NVCC_12_8: "12.8", NVCC_13: "13.0"}),
            f"{WITH_12_8}CMAKE_ARGS=-DCMAKE_CUDA_ARCHITECTURES=86-real make book GPU=cuda",
        ),
        (
            nvidia_machine("8.6", cuda="12.8", nvccs={NVCC: "13.0", NVCC_12_6: "12.6", NVCC_12_8: "12.8"}),
            f"{WITH_12_8}CMAKE_ARGS=-DCMAKE_CUDA_ARCHITECTURES=86-real make book GPU=cuda",
        ),
        (
            nvidia_machine("6.1", cuda="13.0", nvccs={NVCC: "13.0", NVCC_12_8: "12.8"}),
            f"{WITH_12_8}CMAKE_ARGS=-DCMAKE_CUDA_ARCHITECTURES=61-real make book GPU=cuda",
        ),
        ({"commands": nvidia_driver(RTX_4090)}, "make book GPU=cuda"),
        ({"files": amd_card(), "commands": {"glslc": (0, "")}}, "make book GPU=vulkan"),
        (
            {"files": amd_card()},
            "sudo apt-get install libvulkan-dev glslc spirv-headers && make book GPU=vulkan",
        ),
        ({"system": "Darwin", "architecture": "arm64"}, "make book GPU=metal"),
        ({"built_for": CUDA_BUILD}, REBUILD_FOR_CPU),
        ({}, None),
    ],
    ids=[
        "8.9",
        "9.0",
        "8.6 and 12.0",
        "13.0 too new for the driver",
        "the newest that fits",
        "13.0 too new for the card",
        "unknown capability",
        "AMD",
        "AMD without glslc",
        "Apple silicon",
        "no GPU, built for one",
        "no GPU, built for none",
    ],
)
def test_the_command_that_builds_for_this_machine_is_printed_where_it_can_be_needed(host, command):
    """Backend, architectures of the cards, and a toolkit that fits driver and card where the usual one does not."""
    finding = checked(**host).about("build for this machine")
    assert (finding.state, finding.remedy, finding.command) == ("ok", None, command)


CMAKE_OPTIONS = "-DGGML_CUDA=on -DCMAKE_CUDA_ARCHITECTURES=89-real"


@pytest.mark.parametrize(
    ("system", "variables"),
    [("Linux", f"CUDACXX={NVCC_OF_MAKE} CMAKE_ARGS='{CMAKE_OPTIONS}' "), ("Windows", f'"{CMAKE_OPTIONS}"; ')],
)
def test_another_environment_builds_with_pip_for_the_same_cards(system, variables):
    """With RPC as everywhere, and the compiler named, because only `make` looks for it beside the path."""
    machine = nvidia_machine("8.9", cuda="12.8", nvccs={NVCC_OF_MAKE: "12.4"})
    command = checked(prefix=OTHER_ENVIRONMENT, system=system, **machine).about("build for this machine").command
    assert "python -m pip install --no-cache-dir" in command
    assert command.endswith("-C cmake.define.GGML_RPC=on")
    assert variables in command
