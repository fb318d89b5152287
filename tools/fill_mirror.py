"""Fills a mirror: one folder with all that the book needs, for rooms without a network. `make mirror` runs it.

    fill_mirror.py FOLDER [--also macos-arm64 windows-x86_64] [-- CMAKE_OPTION …]

    index.html           the start page
    handbook.bundle      the repository, for `git clone`
    site/                the built book, where there is one
    wheels/              every pinned package, for each Python that the book promises
    build/               what builds packages: pip, setuptools, CMake and others
    sources/             llama-cpp-python, to compile where no built one fits
    llama/<level>/       llama-cpp-python built for x86-64 processors of that level, and the glibc that it needs
    node_modules.tar.gz  the front-end packages
    SHA256SUMS           checksums of all other files, for `sha256sum -c` and for tools/mirror.py

What is there already is kept, so an interrupted run goes on; what no longer belongs is removed.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mirror import BUILD, BUILT_WITH, LEVELS, LLAMA, NODE, SOURCES, SUMS, WHEELS, digest, fits
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PYTHONS = ((3, 10), (3, 11), (3, 12), (3, 13))
OURS = "llama-cpp-python"
TO_BUILD = ("setuptools", "scikit-build-core[pyproject]", "cmake", "ninja", "tomli", "exceptiongroup")
"""What pip needs to install the book itself and to compile llama.cpp; the last two for Python 3.10 alone."""
BASELINE = tuple(f"-DGGML_{name}=off" for name in ("SSE42", "AVX", "AVX2", "BMI2", "FMA", "F16C"))
OPTIONS = {"x86-64-v3": (), "x86-64": BASELINE}
GLIBCS = (17, 12, 5, *range(18, 36))
"""Minor versions of glibc 2 that a wheel may name; what runs on most systems comes first."""
BINARY = ("--only-binary", ":all:")
MANYLINUX = ("manylinux2014", "manylinux2010", "manylinux1", *(f"manylinux_2_{minor}" for minor in GLIBCS))


@dataclass(frozen=True)
class Platform:
    """A kind of computer: pip's tags for it, and what markers of requirements ask about it."""

    tags: tuple[str, ...]
    sys_platform: str
    platform_system: str
    machine: str
    os_name: str = "posix"

    def environment(self, python: tuple[int, int]) -> dict[str, str]:
        """The answers to environment markers."""
        version = version_text(python)
        return {
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
            "python_version": version,
            "python_full_version": f"{version}.0",
            "os_name": self.os_name,
            "sys_platform": self.sys_platform,
            "platform_system": self.platform_system,
            "platform_machine": self.machine,
        }


PLATFORMS = {
    "linux-x86_64": Platform(tuple(f"{one}_x86_64" for one in MANYLINUX), "linux", "Linux", "x86_64"),
    "macos-arm64": Platform(
        tuple(f"macosx_{major}_0_{kind}" for major in (14, 13, 12, 11) for kind in ("arm64", "universal2")),
        *("darwin", "Darwin", "arm64"),
    ),
    "windows-x86_64": Platform(("win_amd64",), "win32", "Windows", "AMD64", "nt"),
}


def version_text(python: tuple[int, int]) -> str:
    return f"{python[0]}.{python[1]}"


def requirements(lines: Iterable[str]) -> Iterator[Requirement]:
    """The pinned packages of requirements.txt, without the book itself and without options of pip."""
    for line in lines:
        text = line.split("#")[0].split(" --")[0].strip()
        if text and not text.startswith("-"):
            yield Requirement(text)


def wanted(pins: Iterable[Requirement], platform: Platform, python: tuple[int, int]) -> list[str]:
    """The pins, as `name==version`, that such a computer installs as wheels."""
    answers = platform.environment(python)
    return [
        f"{pin.name}{pin.specifier}"
        for pin in pins
        if pin.name != OURS and (pin.marker is None or pin.marker.evaluate(answers))
    ]


def has_wheel(folder: Path, pin: str, platform: Platform, python: tuple[int, int]) -> Path | None:
    """The wheel of a pin in a folder that such a computer may install; None where it is missing."""
    name, _, version = pin.partition("==")
    for path in folder.glob("*.whl"):
        its_name, its_version = path.name.split("-")[:2]
        same = canonicalize_name(its_name) == canonicalize_name(name) and its_version == version
        if same and fits(path.name, python, platform.sys_platform, platform.machine):
            return path
    return None


class Filling:
    """One run: the folder, the computers it is for, and what belongs into it."""

    def __init__(self, folder: Path, platforms: list[str], cmake: list[str]) -> None:
        self.folder, self.platforms, self.cmake = folder, platforms, cmake
        self.belongs: set[Path] = set()
        lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
        self.pins = list(requirements(lines))
        self.llama_line = next(line for line in lines if line.startswith(f"{OURS}=="))

    def run(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.wheels()
        self.builders()
        self.source()
        if sys.platform == "linux" and platform.machine() == "x86_64":
            self.built_llama()
        self.node()
        self.repository()
        self.site()
        self.start_page()
        self.remove_others()
        self.checksums()

    def wheels(self) -> None:
        """Each pin for each computer and Python, and what builds packages."""
        wheels = self.folder / WHEELS
        for name in self.platforms:
            for python in PYTHONS:
                self.wheels_for(wheels, PLATFORMS[name], python)

    def builders(self) -> None:
        """What builds packages, with what it needs itself, in versions for the oldest Python."""
        build = self.folder / BUILD
        for name in self.platforms:
            if not list(build.glob("cmake-*")) or name != self.platforms[0]:
                pip("download", "--dest", build, *target(PLATFORMS[name], PYTHONS[0]), pinned_pip(), *TO_BUILD)
        self.belongs |= set(build.iterdir())

    def wheels_for(self, wheels: Path, platform: Platform, python: tuple[int, int]) -> None:
        pins = wanted(self.pins, platform, python)
        missing = [pin for pin in pins if not has_wheel(wheels, pin, platform, python)]
        if missing:
            print(f"{platform.platform_system}, Python {version_text(python)}: {len(missing)} of {len(pins)} packages")
            download(wheels, missing, platform, python)
        found = {pin: has_wheel(wheels, pin, platform, python) for pin in pins}
        if without := [pin for pin, wheel in found.items() if wheel is None]:
            raise SystemExit(
                f"No wheel for {platform.platform_system}, Python {version_text(python)}: {', '.join(without)}."
            )
        self.belongs |= set(filter(None, found.values()))

    def source(self) -> None:
        """llama-cpp-python as it is published."""
        sources = self.folder / SOURCES
        if not list(sources.glob("llama_cpp_python-*.tar.gz")):
            pin = self.llama_line.split()[0]
            pip("download", "--no-deps", "--no-binary", OURS, "--dest", sources, pin)
        self.belongs |= set(sources.iterdir())

    def built_llama(self) -> None:
        """llama-cpp-python, compiled for each level of processors, with the options of its line of requirements."""
        for level in LEVELS:
            folder = self.folder / LLAMA / level
            if not list(folder.glob("*.whl")):
                print(f"Compiling llama.cpp for {level} takes some minutes.", flush=True)
                self.compile(folder, level)
            self.belongs |= set(folder.iterdir())

    def compile(self, folder: Path, level: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        line = folder / "line.txt"
        line.write_text(self.llama_line, encoding="utf-8")
        options = [*self.cmake, "-DGGML_METAL=off", "-DGGML_NATIVE=off", *OPTIONS[level]]
        environment = {**os.environ, "CMAKE_ARGS": " ".join(options)}
        pip("wheel", "--no-deps", "--no-cache-dir", "--wheel-dir", folder, "-r", line, env=environment)
        line.unlink()
        (folder / f"{BUILT_WITH}-{platform.libc_ver()[1]}").touch()

    def node(self) -> None:
        """The front-end packages as npm unpacked them here, checked by its lock file."""
        packed = self.folder / NODE
        lock = ROOT / "node_modules" / ".package-lock.json"
        if not packed.exists() or packed.stat().st_mtime < lock.stat().st_mtime:
            with tarfile.open(part_of(packed), "w:gz", compresslevel=6) as archive:
                archive.add(ROOT / "node_modules", "node_modules", filter=plain_file)
            part_of(packed).replace(packed)
        self.belongs.add(packed)

    def repository(self) -> None:
        """The repository with its history, as one file that `git clone` takes."""
        bundle = self.folder / "handbook.bundle"
        refs = ["HEAD", *git("for-each-ref", "--format=%(refname)", "--points-at=HEAD", "refs/heads").split()]
        git("bundle", "create", str(bundle), *refs)
        self.belongs.add(bundle)

    def site(self) -> None:
        """The built book, with its ePub and PDF where they were bound."""
        built, target = ROOT / "_build" / "html", self.folder / "site"
        shutil.rmtree(target, ignore_errors=True)
        if (built / "index.html").exists():
            shutil.copytree(built, target)
        for name in ("handbook.epub", "handbook.pdf"):
            if (ROOT / "_build" / name).exists():
                shutil.copy2(ROOT / "_build" / name, self.folder / name)
                self.belongs.add(self.folder / name)
        self.belongs |= {path for path in target.rglob("*") if path.is_file()}

    def start_page(self) -> None:
        page = self.folder / "index.html"
        text = (ROOT / "tools" / "mirror.html").read_text(encoding="utf-8")
        links = {"site/index.html": "Read the book", "handbook.epub": "ePub", "handbook.pdf": "PDF"}
        there = {name: title for name, title in links.items() if (self.folder / name).exists()}
        items = "".join(f'<li><a href="{name}">{title}</a></li>' for name, title in there.items())
        filled = text.replace("{links}", items).replace("{systems}", ", ".join(self.platforms))
        page.write_text(filled, encoding="utf-8")
        self.belongs.add(page)

    def remove_others(self) -> None:
        """What no longer belongs, such as the wheel of an older pin, in the folders of a mirror alone."""
        for folder in (WHEELS, BUILD, SOURCES, LLAMA):
            for path in (self.folder / folder).rglob("*"):
                if path.is_file() and path not in self.belongs:
                    print(f"Removed: {path.relative_to(self.folder)}")
                    path.unlink()

    def checksums(self) -> None:
        names = sorted(path.relative_to(self.folder).as_posix() for path in self.belongs)
        lines = [f"{digest(self.folder / name)}  {name}\n" for name in names]
        part_of(self.folder / SUMS).write_text("".join(lines), encoding="utf-8")
        part_of(self.folder / SUMS).replace(self.folder / SUMS)
        n_bytes = sum((self.folder / name).stat().st_size for name in names)
        print(f"{self.folder}: {len(names)} files, {n_bytes / 1e9:.2f} GB.")
        if not (self.folder / "site").exists():
            print("The built book is not among them: run `make book`, then `make mirror` again.")


def download(wheels: Path, pins: list[str], platform: Platform, python: tuple[int, int]) -> None:
    """Download wheels of these pins; what is published as source alone is built here, if it is pure Python."""
    words = ("--no-deps", "--dest", wheels, *target(platform, python))
    if pip("download", *words, *pins, check=False) == 0:
        return
    for pin in pins:
        if pip("download", *words, pin, check=False) != 0:
            pip("wheel", "--no-deps", "--wheel-dir", wheels, pin)


def target(platform: Platform, python: tuple[int, int]) -> list[str]:
    """pip's words for wheels of another computer."""
    tags = [word for tag in platform.tags for word in ("--platform", tag)]
    abis = [word for abi in (f"cp{python[0]}{python[1]}", "abi3", "none") for word in ("--abi", abi)]
    return [
        *tags,
        *abis,
        "--python-version",
        f"{python[0]}.{python[1]}",
        "--implementation",
        "cp",
        "--only-binary=:all:",
    ]


def pinned_pip() -> str:
    """The pip that the Makefile installs."""
    return re.search(r"^PIP := (\S+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)[1]


def pip(command: str, *words: object, check: bool = True, env: dict[str, str] | None = None) -> int:
    """Run pip, quietly; ends this program where it fails and `check` is set."""
    call = [sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check", *map(str, words)]
    done = subprocess.run(call, check=False, env=env, stderr=None if check else subprocess.DEVNULL)
    if check and done.returncode:
        raise SystemExit(f"pip {command} failed; what is there is kept, and `make mirror` goes on from there.")
    return done.returncode


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def part_of(path: Path) -> Path:
    """The name under which a file is written until it is whole."""
    return path.with_name(f"{path.name}.part")


def plain_file(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """A file or folder of an archive without its owner; links, which npm makes for commands, stay out."""
    if not (member.isfile() or member.isdir()):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def main() -> None:
    """Command line of this module."""
    parser = argparse.ArgumentParser(description="Fill a mirror of everything that the book needs.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--also", nargs="*", default=[], choices=list(PLATFORMS)[1:], help="wheels for these too")
    parser.add_argument("cmake", nargs="*", help="options of llama.cpp's build, behind --")
    options = parser.parse_args()
    Filling(options.folder.resolve(), ["linux-x86_64", *options.also], options.cmake).run()


if __name__ == "__main__":
    main()
