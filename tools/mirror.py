"""Installs the book from a mirror: a folder that `make mirror` filled, or its address in the room's network.

    mirror.py use SOURCE BACKEND    check the files that this machine needs, and note where pip finds them
    mirror.py wheel SOURCE          print the folder of the built llama.cpp that this machine can use, or nothing
    mirror.py node                  unpack the front-end packages

The standard library alone, for any Python from 3.8: it runs before anything is installed. From an address, the files
are kept in `.mirror/files` and not sent again. Every file is compared with SHA256SUMS before it is used.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import shlex
import shutil
import sys
import tarfile
from pathlib import Path
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

SUMS = "SHA256SUMS"
WHEELS, BUILD, SOURCES, NODE, LLAMA = "wheels", "build", "sources", "node_modules.tar.gz", "llama"
BUILT_WITH = "glibc"
LOCAL = Path(".mirror")
LEVELS = {"x86-64-v3": {"avx2", "fma", "f16c", "bmi2"}, "x86-64": set()}
"""Folder of a built llama.cpp -> what /proc/cpuinfo must list for it; the fastest first."""
LOADED = ("libstdc++.so.6", "libgomp.so.1")
"""What a built llama.cpp loads of the system."""
SYSTEMS = {"linux": "linux", "darwin": "macosx", "win32": "win"}
PATIENCE_SECONDS = 60
BLOCK = 1 << 20


class MirrorError(Exception):
    """What happened, what was found, and what to do."""


class Mirror:
    """A mirror in a folder or at an address, with the checksums of its files by their names."""

    def __init__(self, source: str, local: Path = LOCAL) -> None:
        self.source = source.rstrip("/") if "://" in source else str(Path(source).expanduser().resolve())
        self.local = local
        self.sums = dict(self._listed(self._read(SUMS)))

    @property
    def is_remote(self) -> bool:
        return "://" in self.source

    def names(self, folder: str) -> list[str]:
        """The files of one of the mirror's folders."""
        return [name for name in self.sums if name.startswith(f"{folder}/")]

    def fetched(self, name: str) -> Path:
        """The file, checked; from an address a copy of it. Raises MirrorError for a damaged one."""
        if name not in self.sums:
            raise MirrorError(f"The mirror {self.source} has no {name}. Fill it again with `make mirror`.")
        if not self.is_remote:
            path = Path(self.source, name)
            self._check(path, name)
            return path
        path = self.local / "files" / name
        if not (path.is_file() and digest(path) == self.sums[name]):
            self._download(name, path)
        return path

    def _download(self, name: str, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.part")
        with self._open(name) as answer, part.open("wb") as file:
            shutil.copyfileobj(answer, file, BLOCK)
        self._check(part, name)
        part.replace(path)

    def _check(self, path: Path, name: str) -> None:
        found = digest(path) if path.is_file() else "no file"
        if found != self.sums[name]:
            raise MirrorError(
                f"{name} in the mirror {self.source} is damaged: its checksum should be {self.sums[name][:12]}…, "
                f"found {found[:12]}. Nothing was installed. Copy the mirror again, or ask for another stick."
            )

    def _read(self, name: str) -> str:
        if self.is_remote:
            with self._open(name) as answer:
                return answer.read().decode()
        try:
            return Path(self.source, name).read_text(encoding="utf-8")
        except OSError as missing:
            raise MirrorError(
                f"There is no mirror in {self.source}: {missing.strerror}, {name}. "
                "MIRROR= takes the folder that `make mirror` filled, or its address."
            ) from None

    def _open(self, name: str):
        address = f"{self.source}/{quote(name)}"
        try:
            return urlopen(address, timeout=PATIENCE_SECONDS)
        except (URLError, OSError, ValueError) as failed:
            raise MirrorError(
                f"{address} cannot be had: {failed}. Is the address the one that `make serve MIRROR=…` printed?"
            ) from None

    def _listed(self, text: str):
        for line in text.splitlines():
            found = re.fullmatch(r"([0-9a-f]{64}) [ *](.+)", line)
            if not found or ".." in Path(found[2]).parts or found[2].startswith("/"):
                raise MirrorError(f"{SUMS} of the mirror {self.source} is damaged: {line[:60]!r} is no checksum.")
            yield found[2], found[1]


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(BLOCK), b""):
            found.update(block)
    return found.hexdigest()


# --- which files ----------------------------------------------------------------------------------------------------


def fits(wheel: str, python: tuple[int, int], system: str, machine: str) -> bool:
    """Whether a wheel may be installed by such a Python; pip decides among those that may.

    wheel   its file name
    system  as `sys.platform` says
    """
    pythons, abi, platforms = Path(wheel).stem.split("-")[-3:]
    wanted = {"py3", f"py3{python[1]}", f"cp3{python[1]}"}
    stable = abi == "abi3" and any(int(one[3:] or 0) <= python[1] for one in re.findall(r"cp3\d+", pythons))
    return bool(wanted & set(pythons.split(".")) or stable) and any(
        one == "any" or (SYSTEMS.get(system, "?") in one and _same_machine(one, machine))
        for one in platforms.split(".")
    )


def _same_machine(tag: str, machine: str) -> bool:
    names = {"x86_64": ("x86_64", "amd64", "universal2"), "amd64": ("amd64",), "arm64": ("arm64", "universal2")}
    return any(name in tag for name in names.get(machine.lower(), (machine.lower(),)))


def level_of(flags: set[str]) -> str:
    """The fastest of LEVELS for a processor with these flags."""
    return next(level for level, needed in LEVELS.items() if needed <= flags)


def built_llama(mirror: Mirror) -> str | None:
    """The folder in the mirror of the llama.cpp that runs here; None where it has to be compiled."""
    if sys.platform != "linux" or platform.machine() != "x86_64" or not all(map(_loads, LOADED)):
        return None
    folder = f"{LLAMA}/{level_of(cpu_flags())}"
    names = mirror.names(folder)
    built = next((Path(name).name for name in names if f"/{BUILT_WITH}-" in name), "")
    wanted = _version(built.partition("-")[2])
    here = _version(platform.libc_ver()[1])
    return folder if wanted and here >= wanted else None


def cpu_flags() -> set[str]:
    """What the processor can do, by the words of /proc/cpuinfo; Linux on x86."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    found = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return set(found[1].split()) if found else set()


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


# --- the commands ---------------------------------------------------------------------------------------------------


def use(source: str, backend: str) -> None:
    """Check what this machine needs, and write what makes pip look there alone."""
    mirror = Mirror(source)
    llama = built_llama(mirror) if backend == "none" else None
    python, system, machine = sys.version_info[:2], sys.platform, platform.machine()
    all_wheels = [*mirror.names(WHEELS), *mirror.names(BUILD)]
    wheels = [name for name in all_wheels if fits(name, python, system, machine)]
    own = mirror.names(llama) if llama else mirror.names(SOURCES)
    packages = [mirror.fetched(name) for name in (*wheels, *own)]
    node = mirror.fetched(NODE)
    folders = dict.fromkeys(path.resolve().parent.as_uri() for path in packages)
    told = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": " ".join(folders)}
    LOCAL.mkdir(exist_ok=True)
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in told.items()]
    (LOCAL / "environment.sh").write_text("".join(lines), encoding="utf-8")
    (LOCAL / "node").write_text(str(node.resolve()), encoding="utf-8")
    choice = f"built for {llama.partition('/')[2]}" if llama else "compiled here, from the mirror's source"
    print(f"Mirror {mirror.source}: {len(packages) + 1} files checked. llama.cpp: {choice}.")


def unpack_node() -> None:
    """Unpack the front-end packages of the mirror in use."""
    archive = Path((LOCAL / "node").read_text(encoding="utf-8"))
    shutil.rmtree("node_modules", ignore_errors=True)
    with tarfile.open(archive) as packed:
        for member in packed:
            if not (member.isfile() or member.isdir()) or ".." in Path(member.name).parts:
                raise MirrorError(f"{archive} holds {member.name}, which is no plain file. Fill the mirror again.")
        packed.extractall(".")


def main(arguments: list[str]) -> int:
    """Command line of this module."""
    try:
        if arguments[:1] == ["use"] and len(arguments) == 3:
            use(*arguments[1:])
        elif arguments[:1] == ["wheel"] and len(arguments) == 2:
            print(built_llama(Mirror(arguments[1])) or "", end="")
        elif arguments == ["node"]:
            unpack_node()
        else:
            print(__doc__, file=sys.stderr)
            return 2
    except MirrorError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
