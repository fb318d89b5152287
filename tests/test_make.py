"""What `make` installs again and what it leaves alone, tried with a Python that only notes its arguments."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAKE = shutil.which("make")
NOTING_PYTHON = '#!/bin/sh\necho "$* CMAKE_ARGS=$CMAKE_ARGS" >> calls.txt\n'

MIRROR_PYTHON = """#!/bin/sh
echo "$* index=${PIP_NO_INDEX:+none}" >> calls.txt
[ "$1 $2" = "tools/mirror.py use" ] || exit 0
[ "$3" = /damaged ] && exit 2
mkdir -p .mirror && echo export PIP_NO_INDEX=1 > .mirror/environment.sh
"""

pytestmark = pytest.mark.skipif(MAKE is None, reason="make is not installed")


class Checkout:
    """A folder with the Makefile, a check that finds everything, and a .venv that notes what it is asked."""

    def __init__(self, folder):
        self.folder = folder
        for name in ("requirements.txt", "pyproject.toml"):
            (folder / name).touch()
        (folder / "Makefile").symlink_to(ROOT / "Makefile")
        self._write("tools/prerequisites.sh", "#!/bin/sh\nexit 0\n")
        self._write(".venv/bin/python", NOTING_PYTHON)

    def install(self, backend, **environment):
        """The calls that `make` gives to .venv's Python to have llama.cpp with this backend."""
        (self.folder / "calls.txt").write_text("")
        environment["PATH"] = os.environ["PATH"]
        command = [MAKE, f".venv/.installed-{backend}", f"GPU={backend}"]
        subprocess.run(command, cwd=self.folder, env=environment, check=True, capture_output=True)
        return (self.folder / "calls.txt").read_text()

    def touch(self, name):
        """Make a file newer than every stamp."""
        later = max(path.stat().st_mtime for path in self.folder.rglob("*")) + 5
        os.utime(self.folder / name, (later, later))

    def _write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


def test_the_second_make_installs_nothing(checkout):
    """Once installed, make does not even start pip."""
    assert "pip install --no-cache-dir -r requirements.txt" in checkout.install("none")
    assert checkout.install("none") == ""


@pytest.mark.parametrize("name", ["requirements.txt", "pyproject.toml"])
def test_a_changed_pin_installs_without_compiling_llama_cpp_again(checkout, name):
    """pip gets the new requirements and finds the llama-cpp-python that is there."""
    checkout.install("none")
    checkout.touch(name)
    calls = checkout.install("none")
    assert "pip install --no-cache-dir -r requirements.txt" in calls
    assert "uninstall" not in calls


def test_another_backend_compiles_llama_cpp_again(checkout):
    """The old build goes first, since pip would take it for the one asked for."""
    checkout.install("none")
    calls = checkout.install("cuda")
    assert calls.index("pip uninstall --quiet --yes llama-cpp-python") < calls.index("-r requirements.txt")
    assert " -DGGML_CUDA=on" in calls
    assert [stamp.name for stamp in (checkout.folder / ".venv").glob(".installed-*")] == [".installed-cuda"]


def test_the_readers_own_build_options_are_kept(checkout):
    """CMAKE_ARGS from the environment comes after the backend's option."""
    calls = checkout.install("vulkan", CMAKE_ARGS="-DGGML_NATIVE=off")
    assert " -DGGML_VULKAN=on -DGGML_NATIVE=off" in calls


def test_what_old_vulkan_headers_lack_is_before_them_on_the_include_path(tmp_path):
    """The option of the check reaches CMake as one word, also in a folder with a space, and only with Vulkan."""
    (tmp_path / "my books").mkdir()
    checkout = Checkout(tmp_path / "my books")
    checkout._write("tools/prerequisites.sh", """[ "$1" != vulkan ] || echo "-DFOLDER='$PWD/tools/vulkan_headers'"\n""")
    word = f"-DFOLDER={tmp_path}/my books/tools/vulkan_headers"
    for backend, is_given in (("vulkan", True), ("none", False)):
        line = next(line for line in checkout.install(backend).splitlines() if "-r requirements.txt" in line)
        assert (word in shlex.split(line)) is is_given


def test_what_nothing_loads_is_not_compiled(tmp_path):
    """llama.cpp's library `common` is left out, also where the checkout lies in a folder with a space."""
    folder = tmp_path / "my books"
    folder.mkdir()
    calls = Checkout(folder).install("none")
    options = shlex.split(next(line for line in calls.splitlines() if "-r requirements.txt" in line))
    included = next(option for option in options if "llama_cpp_INCLUDE" in option).partition("INCLUDE=")[2]
    assert included == str(folder / "tools" / "without_common.cmake")
    assert "set(LLAMA_BUILD_COMMON OFF)" in (ROOT / "tools" / "without_common.cmake").read_text()


def test_make_stops_before_it_creates_anything(tmp_path):
    """`make book` with an unusable Python says so and leaves no .venv behind."""
    for name in ("Makefile", "requirements.txt", "pyproject.toml", "tools"):
        (tmp_path / name).symlink_to(ROOT / name)
    command = [MAKE, "book", "GPU=none", "PYTHON=no-such-python"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 2
    assert "no-such-python is not here" in result.stderr
    assert not (tmp_path / ".venv").exists()


def test_make_test_executes_everything_once():
    """What was kept goes first, nbval keeps the labs, the book executes the rest; `make book` uses what is kept."""
    calls = {
        target: subprocess.run([MAKE, "-n", target], cwd=ROOT, capture_output=True, text=True).stdout
        for target in ("test", "book", "watch")
    }
    steps = [
        "rm -rf _build/.executed",
        "pytest labs --nbval-lax -p handbook.execution.tested_labs",
        "jupyter-book build",
        "handbook.execution.recorded_runs check",
    ]
    places = [calls["test"].index(step) for step in steps]
    assert places == sorted(places)
    assert "rm -rf" not in calls["book"] + calls["watch"]
    assert "handbook.execution.watch" in calls["watch"]


def test_make_alone_lists_the_commands():
    """The bare command changes nothing and names every target of the README."""
    listed = subprocess.run([MAKE], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    targets = "install book watch recorded mirror test lab hub hubload bench reference tools diagrams clean"
    for target in targets.split():
        assert f"make {target} " in listed


@pytest.fixture
def with_mirror(checkout):
    """A checkout whose Python also notes whether pip may ask an index; it finds /damaged to be a damaged mirror."""
    checkout._write(".venv/bin/python", MIRROR_PYTHON)
    return checkout


def test_with_a_mirror_pip_looks_nowhere_else(with_mirror):
    """Its files are checked first; then every call of pip is told to ask no index."""
    calls = with_mirror.install("none", MIRROR="/media/my stick").splitlines()
    use = calls.index("tools/mirror.py use /media/my stick none index=")
    installs = [line for line in calls if " pip install " in line]
    assert calls.index(installs[0]) > use
    assert [line.rpartition(" ")[2] for line in installs] == ["index=none", "index=none"]


def test_after_an_installation_from_a_mirror_it_need_not_be_named_again(with_mirror):
    """The stick is with the next person, and `make lab` alone starts no pip."""
    assert with_mirror.install("none", MIRROR="/media/stick") != ""
    assert with_mirror.install("none") == ""


def test_without_a_mirror_nothing_is_asked_of_one(with_mirror):
    """An older mirror that the folder remembers does not count."""
    with_mirror.install("none", MIRROR="/media/stick")
    calls = with_mirror.install("cuda")
    assert "mirror.py" not in calls
    assert "index=none" not in calls


def test_from_a_damaged_mirror_nothing_is_installed(with_mirror):
    """make ends where the check of the files does."""
    with pytest.raises(subprocess.CalledProcessError):
        with_mirror.install("none", MIRROR="/damaged")
    calls = (with_mirror.folder / "calls.txt").read_text()
    assert "tools/mirror.py use /damaged none" in calls
    assert "pip install" not in calls


NODE = ["-W", "package.json", "node_modules/.package-lock.json", "GPU=none"]


@pytest.mark.parametrize(
    ("words", "told", "never"),
    [
        (["tools", "GPU=cuda", "CMAKE_ARGS=-DMY=on"], r"tools/llama_tools\.py cuda -DGGML_CUDA=on -DMY=on", None),
        (["mirror"], r"tools/fill_mirror\.py  -- 'mirror' .*-DCMAKE_PROJECT_llama_cpp_INCLUDE=", None),
        (
            ["mirror", "TO=/media/stick", "PLATFORMS=linux-x86_64 macos-arm64"],
            r"fill_mirror\.py --platform linux-x86_64 --platform macos-arm64 -- '/media/stick' ",
            None,
        ),
        (["serve", "GPU=none"], r"handbook\.delivery\.serve *$", None),
        (["serve", "GPU=none", "MIRROR=/media/my stick"], r"delivery\.serve --mirror '/media/my stick' *$", None),
        (NODE, r"npm\(\)", "mirror.py node"),
        ([*NODE, "MIRROR=/media/my stick"], r"tools/mirror\.py node '/media/my stick'", "npm()"),
    ],
)
def test_make_hands_on_what_it_is_told(words, told, never):
    """Backend, build options, platforms, folders and mirrors reach the programs; npm is called without a mirror."""
    calls = subprocess.run([MAKE, "-n", *words], cwd=ROOT, capture_output=True, text=True).stdout
    assert re.search(told, calls, re.MULTILINE)
    assert never is None or never not in calls
