"""Checks of the GPUs in the machine, of their driver, and of llama.cpp's use of them."""

from dataclasses import replace

import pytest
from fakes import WITH_GPU, ScriptedEngine
from fakes_host import (
    A100,
    CUDA_BUILD,
    NVIDIA_ON_THE_BUS,
    RTX_4090,
    STAMP,
    UnloadableEngine,
    amd_card,
    check,
    checked,
    fix,
    nvidia_driver,
    ok,
    problem,
    subjects,
    warning,
)

from inferlab.machine import Device
from inferlab.units import GIB

LOADS_NO_CUDA = "OSError: libcuda.so.1: cannot open shared object file: No such file or directory"
APPLE_SILICON = {"system": "Darwin", "architecture": "arm64"}

# --- GPU and driver -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        (RTX_4090, "NVIDIA GeForce RTX 4090 (23.99 GiB), NVIDIA driver 570.86"),
        ("NVIDIA GB10, [N/A], 580.95", "NVIDIA GB10 (unknown), NVIDIA driver 580.95"),
    ],
)
def test_a_gpu_is_named_with_its_memory_and_driver(listed, found):
    """What nvidia-smi lists is what the reader sees; a GPU that shares the host's memory reports none of its own."""
    assert check("GPU and driver", commands=nvidia_driver(listed)) == ok(found)


INSTALL_DRIVER = "sudo apt-get install nvidia-driver"
KERNEL_DRIVER = {"/proc/driver/nvidia/version": "NVRM version"}
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"
LOST = "Unable to determine the device handle for GPU0: GPU is lost."
NO_ANSWER = "NVIDIA-SMI has failed because it couldn't communicate with the driver"


def smi_fails(status, printed):
    """The commands of a machine whose nvidia-smi ends with an error."""
    return {"commands": {"nvidia-smi": (status, printed)}}


@pytest.mark.parametrize(
    ("host", "found", "fix"),
    [
        ({"files": NVIDIA_ON_THE_BUS}, "an NVIDIA GPU, but no driver for it", INSTALL_DRIVER),
        (
            {"files": NVIDIA_ON_THE_BUS, "commands": {"ubuntu-drivers": (0, "")}},
            "an NVIDIA GPU, but no driver for it",
            "sudo ubuntu-drivers install",
        ),
        (smi_fails(18, f"{MISMATCH}\nNVML 570"), f"nvidia-smi answers: {MISMATCH}", "sudo reboot"),
        (smi_fails(15, LOST), f"nvidia-smi answers: {LOST}", "sudo reboot"),
        (smi_fails(9, NO_ANSWER), f"nvidia-smi answers: {NO_ANSWER}", INSTALL_DRIVER),
        (
            {"files": KERNEL_DRIVER | {"/.dockerenv": ""}},
            "the kernel has an NVIDIA driver, but this container was started without its GPU",
            "docker run --gpus all IMAGE",
        ),
        (
            {"files": KERNEL_DRIVER},
            "the kernel has an NVIDIA driver, but its user-space part is missing",
            INSTALL_DRIVER,
        ),
    ],
    ids=["no driver", "no driver on Ubuntu", "mismatch", "lost", "no answer", "container", "no user space"],
)
def test_a_gpu_without_a_working_driver_is_a_warning_while_the_cpu_does_the_work(host, found, fix):
    """Each way a driver fails has its own fix; the labs run on the CPU meanwhile."""
    assert check("GPU and driver", **host) == warning(found, fix)


def test_a_cuda_build_without_a_driver_is_a_problem():
    """Such a build does not even load, and a build for the CPU does."""
    installed = {f"{STAMP}-none": None, f"{STAMP}-cuda": ""}
    broken, host = UnloadableEngine(LOADS_NO_CUDA), {"built_for": CUDA_BUILD, "files": installed}
    expected = problem("llama.cpp is built for CUDA, but there is no NVIDIA driver", "make book GPU=none")
    assert check("GPU and driver", broken, **host) == expected
    fixes = checked(broken, **host).remedies
    assert fixes == {"make book GPU=none": "llama-cpp-python, engine, GPU and driver"}


def test_a_cuda_build_on_a_machine_whose_gpu_has_no_driver_wants_the_driver():
    """With the hardware there, the build is right and the driver is missing."""
    checkup = checked(UnloadableEngine(LOADS_NO_CUDA), built_for=("cpu", "cuda"), files=NVIDIA_ON_THE_BUS)
    assert checkup.about("llama-cpp-python").remedy == INSTALL_DRIVER
    assert checkup.about("GPU and driver").state == "problem"


# --- GPU and llama.cpp --------------------------------------------------------------------------


def test_a_gpu_with_a_cpu_only_build_stays_idle():
    """The commonest mismatch: everything works, on the wrong processor."""
    found = "there is a GPU, but llama.cpp is built for the CPU only: the GPU stays idle"
    assert check("GPU and llama.cpp", commands=nvidia_driver(RTX_4090)) == warning(found, "make book GPU=cuda")


def test_one_compilation_fixes_all_that_a_compilation_can_fix():
    """A CPU-only build that also lacks RPC is built once, for the GPU, when the toolkit is there."""
    driver, nvcc = nvidia_driver(RTX_4090), {"nvcc": (0, "release 12.4, V12.4.99")}
    fixes = checked(commands=driver | nvcc, built_for=("cpu",)).remedies
    assert fixes == {"make book GPU=cuda": "llama.cpp build, GPU and llama.cpp"}
    assert fix("llama.cpp build", commands=driver, built_for=("cpu",)).endswith("make book GPU=none")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (
            {"CUDA_VISIBLE_DEVICES": ""},
            warning("CUDA_VISIBLE_DEVICES='' hides the GPU from llama.cpp", "unset CUDA_VISIBLE_DEVICES"),
        ),
        ({}, warning("llama.cpp is built for cuda, but sees no GPU", INSTALL_DRIVER)),
    ],
    ids=["hidden", "driver too old"],
)
def test_a_cuda_build_that_sees_no_gpu_says_what_hides_it(environment, expected):
    """An environment variable, or a driver too old for the build."""
    host = {"built_for": CUDA_BUILD, "commands": nvidia_driver(RTX_4090), "environment": environment}
    assert check("GPU and llama.cpp", **host) == expected


def test_a_gpu_that_llama_cpp_uses_is_named_as_llama_cpp_names_it():
    """The name is the one that Settings(devices=…) takes."""
    host = {"built_for": CUDA_BUILD, "commands": nvidia_driver(RTX_4090)}
    expected = ok("llama.cpp uses CUDA0 (Example GPU)")
    assert check("GPU and llama.cpp", ScriptedEngine(machine=WITH_GPU), **host) == expected


def test_a_driver_in_software_is_no_gpu():
    """llama.cpp uses it, and the reader is told that the processor computes."""
    software = Device("Vulkan0", "llvmpipe (LLVM 15.0.6, 256 bits)", "gpu", 2 * GIB, 2 * GIB, "Vulkan")
    engine = ScriptedEngine(machine=replace(WITH_GPU, devices=(software,)))
    expected = ok("llama.cpp uses Vulkan0 (llvmpipe (LLVM 15.0.6, 256 bits), software on the processor)")
    assert check("GPU and llama.cpp", engine, built_for=("cpu", "vulkan")) == expected
    assert "llvmpipe" not in str(check("GPU and driver", engine))


def test_apple_silicon_without_metal_is_built_with_metal():
    """Every such Mac has a GPU, so a CPU-only build is a mismatch."""
    assert fix("GPU and llama.cpp", **APPLE_SILICON) == "make book GPU=metal"
    assert check("GPU and driver", **APPLE_SILICON)[0] == "ok"


def test_an_amd_card_with_a_cpu_only_build_can_use_vulkan():
    """The size of its memory distinguishes a card from a processor's small graphics."""
    assert fix("GPU and llama.cpp", files=amd_card()) == "make book GPU=vulkan"
    assert check("GPU and driver", files=amd_card()) == ok("AMD GPU (16.00 GiB)")
    assert "GPU and llama.cpp" not in subjects(files=amd_card(GIB // 2))


def test_a_vulkan_build_without_a_vulkan_driver_wants_mesa():
    """The build is right, the loader finds nothing."""
    host = {"built_for": ("cpu", "vulkan", "rpc"), "files": amd_card()}
    assert fix("GPU and llama.cpp", **host) == "sudo apt-get install mesa-vulkan-drivers"


# --- several GPUs -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (RTX_4090, ok("2 alike; llama.cpp spreads the layers over them")),
        (
            A100,
            warning(
                "2 that differ; llama.cpp spreads the layers over them, so a rate belongs to none",
                "export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=1",
            ),
        ),
    ],
    ids=["alike", "different"],
)
def test_different_gpus_are_worth_a_warning(second, expected):
    """The fix names the larger GPU by its number in the driver's own order."""
    devices = (*WITH_GPU.devices, Device("CUDA1", "Example GPU", "gpu", backend="CUDA"))
    engine = ScriptedEngine(machine=replace(WITH_GPU, devices=devices))
    host = {"built_for": CUDA_BUILD, "commands": nvidia_driver(RTX_4090, second)}
    assert check("several GPUs", engine, **host) == expected


def test_the_order_of_equal_gpus_does_not_matter():
    """Whichever of two equal cards a number means, the measurement is the same."""
    host = {"built_for": CUDA_BUILD, "commands": nvidia_driver(RTX_4090, RTX_4090)}
    assert "several GPUs" not in subjects(**host, environment={"CUDA_VISIBLE_DEVICES": "1"})


def test_numbers_of_gpus_in_the_environment_count_in_the_order_of_cuda():
    """CUDA puts the fastest first, nvidia-smi goes along the bus; the card's bus address says which is meant."""
    engine = ScriptedEngine(machine=replace(WITH_GPU, devices=(replace(WITH_GPU.devices[-1], id="0000:41:00.0"),)))
    host = {"built_for": CUDA_BUILD, "commands": nvidia_driver(RTX_4090, "NVIDIA T4, 15360, 570.86")}
    one_visible = {"CUDA_VISIBLE_DEVICES": "1"}
    assert check("several GPUs", engine, **host, environment=one_visible) == warning(
        "CUDA_VISIBLE_DEVICES=1 counts the fastest first, nvidia-smi along the bus; "
        "CUDA0 is Example GPU at 0000:41:00.0",
        "export CUDA_DEVICE_ORDER=PCI_BUS_ID",
    )
    in_bus_order = one_visible | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert "several GPUs" not in subjects(engine, **host, environment=in_bus_order)
