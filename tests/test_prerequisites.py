"""What `make` says about a machine before installing anything: tools/prerequisites.sh, made-up machines."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "tools" / "prerequisites.sh"
SHELL = shutil.which("sh")

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the Makefile and its check are for Unix shells")

PYTHON_3_11 = 'case "$2" in *ensurepip*) exit 0 ;; esac; echo 3.11'
PYTHON_3_11_WITHOUT_VENV = 'case "$2" in *ensurepip*) exit 1 ;; esac; echo 3.11'
PYTHON_3_9 = "echo 3.9; exit 1"
TEN_GIB_FREE = "printf 'Filesystem\\n/dev/x 1 1 10485760 1%% /\\n'"
ONE_GIB_FREE = "printf 'Filesystem\\n/dev/x 1 1 1048576 1%% /\\n'"


COMPLETE = {
    "apt-get": "exit 0",
    "c++": "exit 0",
    "df": TEN_GIB_FREE,
    "id": "echo 1000",
    "ldconfig": "exit 0",
    "nvidia-smi": "exit 9",
    "python3": PYTHON_3_11,
    "uname": "echo Linux",
}


class MadeUpMachine:
    """A folder of commands that is the whole PATH; None stands for a command that is not there."""

    def __init__(self, folder):
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        for tool in ("awk", "grep"):
            (self.bin / tool).symlink_to(shutil.which(tool))

    def run(self, *arguments, but=None, python="python3", **more):
        """Run the script on a complete machine, but for these commands."""
        for name, line in (COMPLETE | (but or {})).items():
            if line is not None:
                self._install(name, line)
        env = {"PATH": str(self.bin), "CUDA_PATH": "/none", "PYTHON": python}
        env |= {"TMPDIR": str(self.folder / "tmp"), **more}
        return subprocess.run(
            [SHELL, str(SCRIPT), *arguments], cwd=self.folder, env=env, capture_output=True, text=True
        )

    def _install(self, name, line):
        (self.bin / name).write_text(f"#!{SHELL}\n{line}\n")
        (self.bin / name).chmod(0o755)


@pytest.fixture
def machine(tmp_path):
    return MadeUpMachine(tmp_path)


def test_a_complete_machine_passes_in_silence(machine):
    """Nothing is printed where nothing is missing."""
    result = machine.run("check", "none")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("lacking", "said", "command"),
    [
        ({"c++": None}, "C++ compiler", "sudo apt-get install g++"),
        ({"c++": "exit 1"}, "C++ compiler", "sudo apt-get install g++"),
        ({"c++": None, "apt-get": None, "dnf": "exit 0"}, "C++ compiler", "sudo dnf install gcc-c++"),
        ({"c++": None, "id": "echo 0"}, "C++ compiler", "\n    apt-get install g++"),
        ({"c++": "exit 1", "uname": "echo Darwin"}, "C++ compiler", "xcode-select --install"),
        ({"python3": PYTHON_3_11_WITHOUT_VENV}, "venv module", "sudo apt-get install python3.11-venv"),
        ({"python3": None}, "python3 is not here", "sudo apt-get install python3.13 python3.13-venv"),
        ({"python3": PYTHON_3_9}, "python3 is 3.9", "sudo apt-get install python3.13 python3.13-venv"),
        (
            {"python3": PYTHON_3_9, "apt-get": None, "brew": "exit 0", "uname": "echo Darwin"},
            "python3 is 3.9",
            "brew install python@3.13",
        ),
        (
            {"python3": PYTHON_3_9, "python3.12": PYTHON_3_11},
            "python3.12 is",
            "make book PYTHON=python3.12",
        ),
        ({"df": ONE_GIB_FREE}, "1024 MiB are free", "df -h"),
    ],
)
def test_each_missing_thing_stops_with_the_command_that_installs_it(machine, lacking, said, command):
    """The exit status is 1 and the sentence is followed by a line to paste."""
    result = machine.run("check", "none", but=lacking)
    assert result.returncode == 1
    assert said in result.stderr
    assert command in result.stderr


def test_everything_missing_is_said_at_once(machine):
    """One run names the Python, the compiler and the disk; nobody discovers them one by one."""
    result = machine.run("check", "none", but={"python3": None, "c++": None, "df": ONE_GIB_FREE})
    assert all(thing in result.stderr for thing in ("Python 3.10", "C++ compiler", "disk space"))


def test_a_small_temporary_folder_is_noticed_before_the_compiler_fills_it(machine):
    """Where /tmp is a small RAM disk the message says how to build elsewhere."""
    small_tmp = f'case "$2" in */tmp) {ONE_GIB_FREE} ;; *) {TEN_GIB_FREE} ;; esac'
    result = machine.run("check", "cuda", but={"df": small_tmp, "nvcc": "exit 0"})
    assert "TMPDIR=~/tmp make book" in result.stderr


@pytest.mark.parametrize(
    ("here", "expected"),
    [
        ({"nvcc": "exit 0", "nvidia-smi": "exit 0"}, "cuda"),
        ({"nvcc": "exit 0", "ldconfig": "echo '\tlibcuda.so.1 (libc6,x86-64) => /lib/libcuda.so.1'"}, "cuda"),
        ({"nvcc": "exit 0"}, "none"),
        ({"nvidia-smi": "exit 0"}, "none"),
        ({"uname": "echo Darwin"}, "metal"),
        ({}, "none"),
    ],
)
def test_cuda_is_the_default_only_with_both_toolkit_and_driver(machine, here, expected):
    """A CUDA build without a driver does not load, and a driver without a toolkit cannot be compiled for."""
    assert machine.run("backend", but=here).stdout.strip() == expected


def test_the_installed_backend_stays_the_default(machine):
    """`make test` after `make book GPU=vulkan` does not compile llama.cpp again."""
    (machine.folder / ".venv").mkdir()
    (machine.folder / ".venv" / ".installed-vulkan").touch()
    assert machine.run("backend").stdout.strip() == "vulkan"


def test_a_toolkit_without_a_driver_is_mentioned(machine):
    """The reader learns why an installed toolkit is not used."""
    result = machine.run("check", "none", but={"nvcc": "exit 0"})
    assert result.returncode == 0
    assert "no NVIDIA driver answers" in result.stdout


def with_vulkan_headers(version):
    """A complete machine for Vulkan, whose compiler reads this version from the headers."""
    return {"glslc": "exit 0", "c++": f'case "$*" in *-E*) echo {version} ;; esac'}


@pytest.mark.parametrize("version", [204, 238])
def test_vulkan_headers_that_llama_cpp_cannot_use_are_refused(machine, version):
    """Before minutes of compiling: the version that is needed, the one that is here, and what to do."""
    result = machine.run("check", "vulkan", but=with_vulkan_headers(version))
    assert result.returncode == 1
    assert f"1.3.239 or newer; VK_HEADER_VERSION is {version} here" in result.stderr
    assert "install the Vulkan SDK" in result.stderr


@pytest.mark.parametrize(("version", "is_old"), [(239, True), (271, True), (272, False), (313, False)])
def test_old_vulkan_headers_are_completed_and_new_ones_left_alone(machine, version, is_old):
    """Both pass; only before the old ones stands the header of this book, as an option of CMake."""
    but = with_vulkan_headers(version)
    assert machine.run("check", "vulkan", but=but).returncode == 0
    option = f"-DCMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES='{machine.folder}/tools/vulkan_headers'\n"
    assert machine.run("vulkan", but=but).stdout == (option if is_old else "")


def test_without_vulkan_headers_nothing_is_completed(machine):
    """A machine without them is told what to install, and a build for another backend asks nothing of them."""
    assert machine.run("vulkan", but={"c++": "exit 1"}).stdout == ""


LAYER_SETTINGS = """
#include <vulkan/vulkan.hpp>
uint32_t on = 1;
std::vector<vk::LayerSettingEXT> settings = {{"layer", "setting", vk::LayerSettingTypeEXT::eBool32, 1, &on}};
vk::LayerSettingsCreateInfoEXT info(settings);
const void * next = &info;
"""
OWN_TYPES = """
enum class LayerSettingTypeEXT { eBool32 };
struct LayerSettingEXT { const char *a, *b; LayerSettingTypeEXT c; uint32_t d; const void *e; };
struct LayerSettingsCreateInfoEXT { LayerSettingsCreateInfoEXT(const std::vector<LayerSettingEXT> &) {} };
"""


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler is installed")
@pytest.mark.parametrize(("version", "types"), [(239, ""), (271, ""), (272, OWN_TYPES)])
def test_the_header_adds_what_llama_cpp_uses_where_it_is_missing(tmp_path, version, types):
    """llama.cpp's own lines compile with headers that lack the three types, and with headers that have them."""
    (tmp_path / "vulkan").mkdir()
    system = f"#include <cstdint>\n#include <vector>\n#define VK_HEADER_VERSION {version}\n"
    inside = f"enum class StructureType {{}}; {types}"
    (tmp_path / "vulkan" / "vulkan.hpp").write_text(f"{system}namespace vk {{ {inside} }}")
    (tmp_path / "use.cpp").write_text(LAYER_SETTINGS)
    folders = "-isystem", ROOT / "tools" / "vulkan_headers", "-isystem", tmp_path
    command = ["c++", "-std=c++17", "-fsyntax-only", *folders, tmp_path / "use.cpp"]
    assert subprocess.run(command, capture_output=True, text=True).stderr == ""


@pytest.mark.parametrize(
    ("backend", "said"),
    [
        ("cuda", "nvcc"),
        ("cuda", "NVIDIA driver"),
        ("metal", "macOS"),
        ("vulkan", "shader compiler"),
        ("rocm", "not a backend"),
    ],
)
def test_a_backend_that_cannot_be_built_here_stops(machine, backend, said):
    """GPU= asks for what this machine lacks, or for something that does not exist."""
    result = machine.run("check", backend)
    assert result.returncode == 1
    assert said in result.stderr


def test_this_python_is_one_the_check_accepts(machine):
    """The range in the script and the interpreter that runs the tests agree."""
    result = machine.run("check", "none", python=sys.executable)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("mirror", "answer", "status", "compiler"),
    [
        ("/media/my stick", 0, 0, False),
        ("/media/my stick", 1, 1, True),
        ("/media/my stick", 2, 1, False),
        ("", 0, 1, True),
    ],
    ids=["built in the mirror", "not built there", "unusable mirror", "no mirror"],
)
def test_a_built_llama_cpp_of_a_mirror_needs_no_compiler(machine, mirror, answer, status, compiler):
    """A missing compiler stops nobody who needs none; a mirror that cannot be used stops, and has said why."""
    python = f'case "$1" in tools/mirror.py) exit {answer} ;; esac; {PYTHON_3_11}'
    result = machine.run("check", "none", but={"c++": None, "python3": python}, MIRROR=mirror)
    assert result.returncode == status
    assert ("C++ compiler" in result.stderr) is compiler
