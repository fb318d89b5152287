"""For which computers a mirror is filled: their Pythons, what markers of requirements answer there, and their wheels.

pip evaluates markers for the interpreter that it runs on, whatever `--platform` says; here each computer answers for
itself, and pip is asked for exact pins alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import canonicalize_name, parse_wheel_filename

PYTHONS = ((3, 10), (3, 11), (3, 12), (3, 13))
PATCHES = range(40)
"""Releases of each Python for which markers are evaluated: a pin may depend on them."""
OURS = "llama-cpp-python"
OLD_LINUX = ("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64")
NEWEST_GLIBC, NEWEST_MACOS = 28, (14, 0)
"""Minor version of glibc 2, and macOS, that a wheel may need: what is chosen runs on systems as old as these."""


@dataclass(frozen=True)
class Platform:
    """A kind of computer: the tags of wheels that it takes, the best first, and its answers to markers."""

    name: str
    tags: tuple[str, ...]
    sys_platform: str
    platform_system: str
    machine: str
    os_name: str = "posix"

    def environment(self, python: str) -> dict[str, str]:
        """The answers to environment markers, for a full version like 3.11.7."""
        return {
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
            "python_version": ".".join(python.split(".")[:2]),
            "python_full_version": python,
            "implementation_version": python,
            "os_name": self.os_name,
            "sys_platform": self.sys_platform,
            "platform_system": self.platform_system,
            "platform_machine": self.machine,
        }


MANYLINUX = (*OLD_LINUX, *(f"manylinux_2_{minor}_x86_64" for minor in range(5, NEWEST_GLIBC + 1)))
MACOS = tuple(reversed(list(mac_platforms(NEWEST_MACOS, "arm64"))))
"""The oldest systems first: such a wheel runs on most of them."""
PLATFORMS = {
    "linux-x86_64": Platform("linux-x86_64", MANYLINUX, "linux", "Linux", "x86_64"),
    "macos-arm64": Platform("macos-arm64", MACOS, "darwin", "Darwin", "arm64"),
    "windows-x86_64": Platform("windows-x86_64", ("win_amd64",), "win32", "Windows", "AMD64", "nt"),
}


@dataclass(frozen=True)
class Target:
    """A Python on a platform."""

    platform: Platform
    python: tuple[int, int]

    @property
    def name(self) -> str:
        """As a message says it."""
        return f"{self.platform.name}, Python {self.version}"

    @property
    def version(self) -> str:
        """Like 3.11."""
        return f"{self.python[0]}.{self.python[1]}"

    @property
    def interpreter(self) -> str:
        """Like cp311."""
        return f"cp{self.python[0]}{self.python[1]}"

    @cached_property
    def tags(self) -> frozenset[Tag]:
        """The tags of the wheels that it installs."""
        own = cpython_tags(self.python, [self.interpreter], self.platform.tags)
        return frozenset([*own, *compatible_tags(self.python, self.interpreter, self.platform.tags)])

    def wanted(self, pins: Iterable[Requirement]) -> list[str]:
        """The pins, as `name==version`, that any release of this Python installs as wheels there."""
        answers = [self.platform.environment(f"{self.version}.{patch}") for patch in PATCHES]
        return [
            f"{canonicalize_name(pin.name)}{pin.specifier}"
            for pin in pins
            if pin.name != OURS and (pin.marker is None or any(map(pin.marker.evaluate, answers)))
        ]

    def words(self) -> list[str]:
        """pip's words for wheels of this computer, where markers are pip's own and do not matter."""
        tags = [word for tag in self.platform.tags for word in ("--platform", tag)]
        abis = [word for abi in (self.interpreter, "abi3", "none") for word in ("--abi", abi)]
        python = ["--python-version", f"{self.version}.{PATCHES[-1]}", "--implementation", "cp"]
        return ["--no-deps", "--only-binary", ":all:", *python, *tags, *abis]


def requirements(lines: Iterable[str]) -> Iterator[Requirement]:
    """The pinned packages of requirements.txt, without the book itself and without options of pip."""
    for line in lines:
        text = line.split("#")[0].split(" --")[0].strip()
        if text and not text.startswith("-"):
            yield Requirement(text)


class Wheels:
    """The wheels in a folder, found by name and version."""

    def __init__(self, folder: Path) -> None:
        self.found: dict[str, list[tuple[str, str, frozenset[Tag]]]] = {}
        for path in sorted(folder.glob("*.whl")):
            name, its_version, _, tags = parse_wheel_filename(path.name)
            self.found.setdefault(name, []).append((str(its_version), path.name, tags))

    def find(self, target: Target, pin: str) -> str | None:
        """The file name of a wheel that a target installs for `name==version`, or for `name` in any version."""
        name, _, wanted = pin.partition("==")
        fitting = [
            file
            for its_version, file, tags in self.found.get(name, [])
            if wanted in ("", its_version) and tags & target.tags
        ]
        return fitting[0] if fitting else None


def glibc_of(names: Iterable[str]) -> str:
    """The oldest glibc on which all of these Linux wheels run, like 2.28; empty where none asks for one."""
    asked = [
        min((int(minor) for minor in re.findall(r"manylinux_2_(\d+)", name)), default=17)
        for name in names
        if "manylinux" in name
    ]
    return f"2.{max(asked)}" if asked else ""
