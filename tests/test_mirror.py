"""Installing without a network: what `make mirror` gathers, and what `make … MIRROR=` checks before it is used."""

from __future__ import annotations

import importlib.util
import io
import os
import subprocess
import sys
import tarfile
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest
from servers import serving

ROOT = Path(__file__).parent.parent
TOOLS = ROOT / "tools"
NUMPY = "numpy-2.2.6-cp310-cp310-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
PURE = "rich-14.0-py3-none-any.whl"
FOR_MAC = "scipy-1.15-cp311-cp311-macosx_14_0_arm64.whl"
LLAMA = "llama_cpp_python-0.3.36-py3-none-linux_x86_64.whl"
FOR_LINUX = ("linux", "x86_64")


def script(name):
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


mirror, fill = script("mirror"), script("fill_mirror")


@pytest.fixture
def stick(tmp_path, monkeypatch):
    """A small mirror in a folder, and an empty folder to install in."""
    folder = tmp_path / "my stick"
    for name in (f"wheels/{PURE}", f"wheels/{FOR_MAC}", f"llama/x86-64/{LLAMA}", "sources/llama.tar.gz"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name, encoding="utf-8")
    (folder / "llama/x86-64/glibc-2.17").touch()
    with tarfile.open(folder / mirror.NODE, "w:gz") as archive:
        archive.add(TOOLS / "mirror.html", "node_modules/axe/axe.js")
    write_sums(folder)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(mirror, "cpu_flags", lambda: {"sse2"})
    monkeypatch.setattr(mirror, "_loads", lambda library: True)
    monkeypatch.setattr(mirror.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(mirror.platform, "libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr(mirror.sys, "platform", "linux")
    return folder


def write_sums(folder):
    names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file() and p.name != mirror.SUMS)
    text = "".join(f"{mirror.digest(folder / name)}  {name}\n" for name in names)
    (folder / mirror.SUMS).write_text(text, encoding="utf-8")


def told():
    """What was noted for pip."""
    return Path(".mirror/environment.sh").read_text(encoding="utf-8")


# --- using a mirror -----------------------------------------------------------------------------


def test_pip_looks_into_the_mirror_alone(stick, capsys):
    """No index, no settings of the reader, and folders whose names may have spaces."""
    assert mirror.main(["use", str(stick), "none"]) == 0
    assert "export PIP_NO_INDEX=1" in told()
    assert f"export PIP_CONFIG_FILE={os.devnull}" in told()
    assert "my%20stick/wheels" in told()
    assert "my%20stick/llama/x86-64" in told()
    assert "sources" not in told()
    assert "llama.cpp: built for x86-64." in capsys.readouterr().out


@pytest.mark.parametrize("name", [f"wheels/{PURE}", f"llama/x86-64/{LLAMA}", "node_modules.tar.gz"])
@pytest.mark.parametrize("damage", ["flipped", "gone"])
def test_a_damaged_file_is_named_before_anything_is_installed(stick, capsys, name, damage):
    """The answer has the file, and pip is told nothing."""
    path = stick / name
    path.write_bytes(
        bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:]
    ) if damage == "flipped" else path.unlink()
    assert mirror.main(["use", str(stick), "none"]) == 1
    said = capsys.readouterr().err
    assert f"{name} in the mirror {stick} is damaged" in said
    assert "Nothing was installed" in said
    assert not Path(".mirror/environment.sh").exists()


def test_a_file_for_another_machine_is_not_looked_at(stick):
    """What this machine does not install may be damaged."""
    (stick / "wheels" / FOR_MAC).write_text("damaged", encoding="utf-8")
    assert mirror.main(["use", str(stick), "none"]) == 0


def test_a_wrong_folder_is_told(tmp_path, capsys):
    """The answer says what MIRROR takes."""
    assert mirror.main(["use", str(tmp_path), "none"]) == 1
    assert "MIRROR= takes the folder that `make mirror` filled" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["../outside", "/etc/passwd", "no checksum"])
def test_a_list_that_leads_out_of_the_mirror_is_refused(stick, capsys, line):
    """A stick cannot name a file of the machine that it is put into."""
    (stick / mirror.SUMS).write_text(f"{'0' * 64}  {line}\n" if "/" in line else line, encoding="utf-8")
    assert mirror.main(["use", str(stick), "none"]) == 1
    assert "damaged" in capsys.readouterr().err


def test_a_gpu_is_compiled_for_from_source(stick, capsys):
    """The built llama.cpp has no GPU backend."""
    assert mirror.main(["use", str(stick), "cuda"]) == 0
    assert "my%20stick/sources" in told()
    assert "my%20stick/llama" not in told()
    assert "compiled here" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changed", "value"),
    [
        ("platform.libc_ver", lambda: ("glibc", "2.9")),
        ("platform.machine", lambda: "aarch64"),
        ("sys.platform", "darwin"),
        ("_loads", lambda library: library != "libgomp.so.1"),
    ],
    ids=["an older glibc", "another processor", "another system", "no OpenMP library"],
)
def test_where_the_built_llama_cpp_does_not_run_it_is_compiled(stick, monkeypatch, changed, value):
    """glibc, processor, system and libraries decide."""
    owner, _, name = changed.rpartition(".")
    monkeypatch.setattr(getattr(mirror, owner) if owner else mirror, name, value)
    assert mirror.built_llama(mirror.Mirror(str(stick))) is None


@pytest.mark.parametrize(
    ("flags", "level"),
    [("sse2", "x86-64"), ("sse2 avx avx2 fma f16c", "x86-64"), ("sse2 avx2 fma f16c bmi2 avx512f", "x86-64-v3")],
)
def test_the_processor_decides_which_built_llama_cpp(flags, level):
    """A processor that lacks one instruction set of a level gets the level below."""
    assert mirror.level_of(set(flags.split())) == level


@pytest.mark.parametrize(
    ("wheel", "python", "place", "may"),
    [
        (PURE, (3, 13), FOR_LINUX, True),
        (NUMPY, (3, 10), FOR_LINUX, True),
        (NUMPY, (3, 11), FOR_LINUX, False),
        (NUMPY, (3, 10), ("darwin", "arm64"), False),
        ("x-1-cp38-abi3-manylinux_2_28_x86_64.whl", (3, 12), FOR_LINUX, True),
        ("x-1-cp312-abi3-manylinux_2_28_x86_64.whl", (3, 11), FOR_LINUX, False),
        ("x-1-py2.py3-none-macosx_11_0_universal2.whl", (3, 12), ("darwin", "arm64"), True),
        ("x-1-cp310-cp310-win_amd64.whl", (3, 10), ("win32", "AMD64"), True),
        (LLAMA, (3, 13), FOR_LINUX, True),
    ],
)
def test_a_wheel_says_where_it_may_be_installed(wheel, python, place, may):
    """By the tags of its name: Python, ABI, system and processor."""
    assert mirror.fits(wheel, python, *place) is may


class Noting(SimpleHTTPRequestHandler):
    """Serves a folder and notes what was asked."""

    asked: list[str] = []  # noqa: RUF012

    def do_GET(self):
        self.asked.append(self.path)
        super().do_GET()

    def log_message(self, *args):
        pass


def test_from_an_address_a_machine_takes_what_it_needs_and_takes_it_once(stick, monkeypatch):
    """Copies are kept and compared with their checksums; a copy that was cut off is fetched again."""
    Noting.asked.clear()
    with serving(stick, Noting) as address:
        assert mirror.main(["use", address, "none"]) == 0
        first = list(Noting.asked)
        assert f"/wheels/{PURE}" in first
        assert not any("macosx" in path or "sources" in path for path in first)
        Path(".mirror/files/wheels", PURE).write_text("cut o", encoding="utf-8")
        assert mirror.main(["use", address, "none"]) == 0
        assert Noting.asked[len(first) :] == ["/SHA256SUMS", f"/wheels/{PURE}"]


def test_an_address_that_does_not_answer_is_told(stick, capsys):
    """The answer has the address and where it comes from."""
    assert mirror.main(["use", "http://127.0.0.1:9/", "none"]) == 1
    assert "http://127.0.0.1:9/SHA256SUMS cannot be had" in capsys.readouterr().err


def test_the_front_end_packages_are_unpacked(stick):
    """In place of those that were there."""
    Path("node_modules").mkdir()
    Path("node_modules/old.js").touch()
    mirror.main(["use", str(stick), "none"])
    assert mirror.main(["node"]) == 0
    assert [path.name for path in Path("node_modules").rglob("*.js")] == ["axe.js"]


def test_an_archive_that_leads_out_of_its_folder_is_refused(stick, capsys):
    """A link or a path upward stops the installation."""
    with tarfile.open(stick / mirror.NODE, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("node_modules/../../outside"), io.BytesIO())
    write_sums(stick)
    mirror.main(["use", str(stick), "none"])
    assert mirror.main(["node"]) == 1
    assert "no plain file" in capsys.readouterr().err


# --- filling a mirror ---------------------------------------------------------------------------

PINS = list(fill.requirements((ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()))


@pytest.mark.parametrize(
    ("package", "platform", "python", "there"),
    [
        ("exceptiongroup", "linux-x86_64", (3, 10), True),
        ("exceptiongroup", "linux-x86_64", (3, 11), False),
        ("appnope", "macos-arm64", (3, 12), True),
        ("appnope", "linux-x86_64", (3, 12), False),
        ("colorama", "windows-x86_64", (3, 12), True),
        ("llama-cpp-python", "linux-x86_64", (3, 12), False),
    ],
)
def test_each_computer_gets_the_packages_that_its_markers_ask_for(package, platform, python, there):
    """Markers are evaluated for the computer of the participant, not for the teacher's."""
    names = [pin.partition("==")[0] for pin in fill.wanted(PINS, fill.PLATFORMS[platform], python)]
    assert (package in names) is there
    assert len(names) == len(set(names)) > 100


def test_what_is_there_is_not_downloaded_again(tmp_path, monkeypatch):
    """An interrupted run goes on with what is missing."""
    monkeypatch.setattr(fill, "PYTHONS", ((3, 12),))
    monkeypatch.setattr(fill, "wanted", lambda pins, platform, python: ["rich==14.0", "numpy==2"])
    monkeypatch.setattr(fill, "download", lambda wheels, pins, *rest: [asked.append(pin) or make(pin) for pin in pins])
    asked, filling = [], fill.Filling(tmp_path, ["linux-x86_64"], [])
    (tmp_path / "wheels").mkdir()

    def make(pin):
        (tmp_path / "wheels" / f"{pin.replace('==', '-')}-py3-none-any.whl").touch()

    make("rich==14.0")
    make("rich==13.0")
    filling.wheels()
    filling.wheels()
    assert asked == ["numpy==2"]
    filling.remove_others()
    assert sorted(path.name[:8] for path in (tmp_path / "wheels").iterdir()) == ["numpy-2-", "rich-14."]


def test_a_package_without_a_wheel_ends_the_run(tmp_path, monkeypatch):
    """A mirror that lacks something would fail in the room."""
    monkeypatch.setattr(fill, "download", lambda *rest: None)
    with pytest.raises(SystemExit, match=r"No wheel for Linux, Python 3\.10: "):
        fill.Filling(tmp_path, ["linux-x86_64"], []).wheels()


def test_the_start_page_asks_no_other_host(tmp_path):
    """It links the files of the mirror alone, and says for whom packages are there."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").touch()
    fill.Filling(tmp_path, ["linux-x86_64"], []).start_page()
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert 'href="site/index.html"' in page
    assert "linux-x86_64, with Python 3.10 to 3.13" in page
    assert "<script" not in page
    assert "{" not in page.partition("</style>")[2]


def test_the_checksums_are_those_of_sha256sum(tmp_path):
    """Who has no Python checks a stick with `sha256sum -c`."""
    filling = fill.Filling(tmp_path, ["linux-x86_64"], [])
    filling.start_page()
    filling.checksums()
    done = subprocess.run(["sha256sum", "-c", mirror.SUMS], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "index.html: OK\n"
    assert set(mirror.Mirror(str(tmp_path)).sums) == {"index.html"}


def test_the_makefile_names_the_pip_of_the_mirror():
    """Both install the same pip."""
    assert fill.pinned_pip().startswith("pip==")
