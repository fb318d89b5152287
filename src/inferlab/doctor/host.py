"""Questions to the operating system and to the engine, each asked once; a test gives made-up answers instead."""

from __future__ import annotations

import getpass
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from functools import cached_property
from glob import glob
from importlib.util import find_spec
from pathlib import Path

from inferlab.engine import libraries
from inferlab.engine.protocol import Engine
from inferlab.errors import EngineUnavailable, InferlabError
from inferlab.machine import Machine, installed_version, read_host
from inferlab.model.find import tiny_model

CHROMIUM_NAMES = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "msedge",
)
"""The one without a window first: it shows the same pages for two thirds of the processor time."""

GPU_BACKENDS = ("cuda", "metal", "vulkan", "hip", "sycl")


def _checkout() -> Path | None:
    """The handbook's folder where the library runs from a clone of it, else None."""
    root = Path(__file__).parents[3]
    return root if (root / "_toc.yml").exists() else None


@dataclass(frozen=True)
class Host:
    """The operating system, as the checks see it.

    prefix, base_prefix  of this Python: they differ inside a virtual environment
    root                 the clone of the handbook that the library runs from; None without one
    user, name           of the person and of the host, to be left out of findings
    """

    system: str = field(default_factory=platform.system)
    architecture: str = field(default_factory=platform.machine)
    python: tuple[int, ...] = tuple(sys.version_info[:3])
    prefix: Path = Path(sys.prefix)
    base_prefix: Path = Path(sys.base_prefix)
    root: Path | None = field(default_factory=_checkout)
    home: Path = field(default_factory=Path.home)
    user: str = field(default_factory=getpass.getuser)
    name: str = field(default_factory=platform.node)
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    working_folder: Path = field(default_factory=Path.cwd)
    temporary_folder: Path = field(default_factory=lambda: Path(tempfile.gettempdir()))
    embedded_model: Path = field(default_factory=tiny_model)
    is_root: bool = field(default_factory=lambda: hasattr(os, "geteuid") and os.geteuid() == 0)

    def which(self, command: str) -> str | None:
        """Where a command is, None when it is not on the path."""
        return shutil.which(command)

    def run(self, *command: str, text: str = "") -> tuple[int, str] | None:
        """Exit status and output of a command; None when it does not exist or takes longer than 30 s."""
        try:
            done = subprocess.run(
                command, input=text, capture_output=True, text=True, errors="replace", timeout=30, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.returncode, (done.stdout + done.stderr).strip()

    def read(self, path: str) -> str | None:
        """The text of a small file, None when it cannot be read."""
        try:
            return Path(path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    def glob(self, pattern: str) -> list[str]:
        """The paths that a pattern matches."""
        return sorted(glob(pattern))

    def free_bytes(self, folder: Path) -> int | None:
        """Free bytes of the disk where `folder` is or would be made; None when unknown."""
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        try:
            return shutil.disk_usage(folder).free
        except OSError:
            return None

    def has_package(self, name: str) -> bool:
        """Whether this Python can import a package."""
        return find_spec(name) is not None

    def version_of(self, package: str) -> str | None:
        """The installed version of a package, None when it is not installed."""
        return installed_version(package)

    def backends(self) -> tuple[str, ...] | None:
        """The backends of the installed llama.cpp; None when it is not installed."""
        try:
            return libraries.backends()
        except (EngineUnavailable, OSError):
            return None

    @property
    def is_book_environment(self) -> bool:
        """Whether this Python is the one that `make` installed for the book."""
        return self.root is not None and self.prefix == self.root / ".venv" and self.system != "Windows"

    def without_names(self, text: str) -> str:
        """`text` with the home folder as ~, and without the user's and the host's name in its paths."""
        if len(str(self.home)) > 1:
            text = re.sub(re.escape(str(self.home)) + r"(?![\w.-])", "~", text)
        for name, shown in ((self.user, "<user>"), (self.name, "<host>")):
            if name:
                text = re.sub(rf"(?<=[/\\@]){re.escape(name)}(?![\w-])", shown, text)
        return text


@dataclass(frozen=True)
class Card:
    """A GPU as its driver lists it."""

    name: str
    memory_bytes: int | None = None


@dataclass(frozen=True)
class Nvcc:
    """A CUDA compiler.

    folder         of its toolkit; None for the compiler on the path
    version        (0, 0) when unknown
    found_by_make  whether `make` finds this compiler by itself
    """

    folder: str | None
    version: tuple[int, int]
    found_by_make: bool


@dataclass(frozen=True)
class Seen:
    """What the checks share: the host, llama.cpp's build, its worker's answer, the GPUs in the machine."""

    host: Host
    engine: Engine

    @cached_property
    def backends(self) -> tuple[str, ...]:
        """The backends of the installed llama.cpp, none where it is not installed."""
        return self.host.backends() or ()

    @property
    def gpu_backends(self) -> tuple[str, ...]:
        """Those backends of llama.cpp that compute on a GPU."""
        return tuple(b for b in self.backends if b in GPU_BACKENDS)

    @cached_property
    def _answer(self) -> Machine | InferlabError:
        try:
            return self.engine.machine()
        except InferlabError as error:
            return error

    @property
    def failure(self) -> InferlabError | None:
        """Why llama.cpp did not load in the worker, None when it did."""
        return self._answer if isinstance(self._answer, InferlabError) else None

    @property
    def machine(self) -> Machine:
        """The host with llama.cpp's devices, or without devices when llama.cpp did not load."""
        return read_host() if isinstance(self._answer, InferlabError) else self._answer

    @cached_property
    def _listed(self) -> tuple[int, str] | None:
        columns = "--query-gpu=name,memory.total,driver_version"
        return self.host.run("nvidia-smi", columns, "--format=csv,noheader,nounits")

    @cached_property
    def cards(self) -> tuple[Card, ...]:
        """The NVIDIA GPUs that their driver lists."""
        status, text = self._listed or (1, "")
        fields = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if not status]
        return tuple(Card(f[0], int(f[1]) * 2**20 if f[1].isdigit() else None) for f in fields if len(f) == 3)

    @property
    def driver_version(self) -> str:
        """The version of the NVIDIA driver, where it lists a GPU."""
        _, text = self._listed or (1, "")
        return text.splitlines()[0].rsplit(",", 1)[1].strip()

    @property
    def driver_error(self) -> str | None:
        """The first line that nvidia-smi prints instead of a list of GPUs; None when it is absent or lists GPUs."""
        if self._listed is None or self.cards:
            return None
        return next(iter(self._listed[1].splitlines()), f"exit status {self._listed[0]}")

    @cached_property
    def driver_cuda(self) -> tuple[int, int] | None:
        """The newest CUDA that the driver supports."""
        return _version(r"CUDA (?:UMD )?Version\s*:\s*(\d+)\.(\d+)", self.host.run("nvidia-smi"))

    @cached_property
    def capabilities(self) -> tuple[tuple[int, int], ...]:
        """The compute capability of each NVIDIA GPU; none where the driver is too old to know."""
        status, text = self.host.run("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader") or (1, "")
        return tuple((int(a), int(b)) for a, b in re.findall(r"(?m)^(\d+)\.(\d)$", text)) if not status else ()

    @cached_property
    def nvccs(self) -> tuple[Nvcc, ...]:
        """The CUDA compilers on this machine, in the order of `make`: on the path, in CUDA_PATH, anywhere else."""
        default = self.host.environment.get("CUDA_PATH", "/usr/local/cuda")
        others = [path.rsplit("/bin/", 1)[0] for path in self.host.glob("/usr/local/cuda-*/bin/nvcc")]
        folders = [None, *dict.fromkeys([default, *others])]
        answers = {at: self.host.run(f"{at}/bin/nvcc" if at else "nvcc", "--version") for at in folders}
        versions = {at: _version(r"release (\d+)\.(\d+)", a) or (0, 0) for at, a in answers.items() if a is not None}
        first = next(iter(versions), None)
        return tuple(Nvcc(at, version, at == first) for at, version in versions.items())

    @cached_property
    def has_nvidia_hardware(self) -> bool:
        """Whether the PCI bus lists an NVIDIA display controller, driver or not (Linux; elsewhere False)."""
        return any(vendor == "0x10de" for vendor, _ in self._display_controllers)

    @cached_property
    def amd_bytes(self) -> int:
        """The memory of the largest AMD GPU, 0 without one (Linux)."""
        return max((n_bytes for vendor, n_bytes in self._display_controllers if vendor == "0x1002"), default=0)

    @cached_property
    def _display_controllers(self) -> list[tuple[str | None, int]]:
        read, controllers = self.host.read, []
        for path in self.host.glob("/sys/bus/pci/devices/*"):
            if (read(f"{path}/class") or "").startswith("0x03"):
                controllers.append((read(f"{path}/vendor"), int(read(f"{path}/mem_info_vram_total") or 0)))
        return controllers

    @property
    def is_apple_silicon(self) -> bool:
        """Whether this is a Mac whose processor contains the GPU."""
        return (self.host.system, self.host.architecture) == ("Darwin", "arm64")


def _version(pattern: str, answer: tuple[int, str] | None) -> tuple[int, int] | None:
    match = re.search(pattern, answer[1]) if answer else None
    return (int(match[1]), int(match[2])) if match else None
