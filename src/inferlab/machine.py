"""Describes a host: processor, memory, system, and the devices that llama.cpp can use on it."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from inferlab.units import bytes_text

HOST_DEVICE = "host"  # the processor and its memory, among the devices of a plan or a measurement
HOST_BUFFER = "CPU"  # ggml's name for host memory
HOST_BUFFERS = re.compile(r"CPU|AMX|BLAS|(.+_)?Host$")
"""Names of ggml's buffers in RAM: CPU, CPU_Mapped, CPU_REPACK, AMX, and a GPU's pinned memory such as CUDA_Host."""
LOOPBACK_ADDRESS = "127.0.0.1"
SOFTWARE = re.compile(r"llvmpipe|lavapipe|softpipe|SwiftShader|Microsoft Basic Render", re.IGNORECASE)
"""Drivers that compute on the processor, by the name that they give their device."""


def on_host(buffer: str) -> bool:
    """Whether a buffer or a device of that name lies in RAM."""
    return bool(HOST_BUFFERS.match(buffer))


@dataclass(frozen=True)
class Device:
    """A device in ggml's registry; `kind` is cpu, gpu, igpu or accel; memory in bytes, None if unknown.

    id                    its PCI id, "0000:c1:00.0", by which both the driver and ggml name it
    limited_to_bytes      limit of its memory set by `lab.limit_vram`; None without a limit
    largest_tensor_bytes  a matrix of more is not multiplied there; None where any size is, or nobody asked
    """

    name: str
    description: str
    kind: str
    memory_bytes: int | None = None
    free_bytes: int | None = None
    backend: str | None = None
    id: str | None = None
    limited_to_bytes: int | None = None
    largest_tensor_bytes: int | None = None

    @property
    def is_software(self) -> bool:
        """Whether its driver computes on the processor, so that its rates say nothing about a GPU."""
        return bool(SOFTWARE.search(self.description))

    @property
    def title(self) -> str:
        """Its description, and that a driver computes on the processor where it does."""
        return f"{self.description}{', software on the processor' * self.is_software}"

    @property
    def memory_text(self) -> str:
        """`24.00 GiB`, or `24.00 GiB, limited to 8.00 GiB`."""
        limit = f", limited to {bytes_text(self.limited_to_bytes)}" if self.limited_to_bytes else ""
        return f"{bytes_text(self.memory_bytes)}{limit}"

    def limited(self, n_bytes: int) -> Device:
        """This device with no more than `n_bytes` of its memory to use."""
        known = [n for n in (self.free_bytes, n_bytes) if n is not None]
        return replace(self, free_bytes=min(known), limited_to_bytes=n_bytes)


@dataclass(frozen=True)
class Link:
    """The link between the host and a loopback device: requested limits, and rates measured when it started.

    endpoint                       address of the device, e.g. "127.0.0.1:50052"
    gigabytes_per_second           requested rate in each direction, 1 GB = 1e9 bytes; None: not limited
    latency_seconds                requested delay in each direction; None: no delay
    achieved_gigabytes_per_second  measured rate of a large block, slower direction
    round_trip_seconds             measured time of one byte in each direction
    """

    endpoint: str
    gigabytes_per_second: float | None
    latency_seconds: float | None
    achieved_gigabytes_per_second: float
    round_trip_seconds: float

    @property
    def text(self) -> str:
        """`link 0.98 GB/s (asked: 1 GB/s)`, and the latency where one was requested."""
        requested = f" (asked: {self.gigabytes_per_second:g} GB/s)" if self.gigabytes_per_second else ""
        latency = f", {1e3 * self.latency_seconds:g} ms each way" if self.latency_seconds else ""
        return f"link {self.achieved_gigabytes_per_second:.3g} GB/s{requested}{latency}"


@dataclass(frozen=True)
class Ceiling:
    """The highest rates of one device, as `measurement.ceilings` measures them.

    device                      "host", a name in ggml's registry, or an RPC endpoint
    bandwidth_bytes_per_second  reading memory
    matrix_flops_per_second     2 x weights x columns / seconds, for each type of weights
    buffers                     the buffer type that held the weights of each type, which decides the kernel
    """

    device: str
    n_threads: int | None
    bandwidth_bytes_per_second: float
    matrix_flops_per_second: dict[str, float] = field(default_factory=dict)
    buffers: dict[str, str] = field(default_factory=dict)

    def ridge(self, type: str) -> float:
        """FLOP per byte at the ridge: below it bandwidth limits the speed, above it arithmetic."""
        return self.matrix_flops_per_second[type] / self.bandwidth_bytes_per_second


@dataclass(frozen=True)
class Machine:
    """The host of a measurement, without anything that names its owner.

    instruction_sets  those that llama.cpp's CPU code uses here, by ggml's names; None where unknown
    """

    cpu: str
    n_cores: int | None
    ram_bytes: int | None
    system: str
    python: str
    llama_cpp_python: str | None = None
    llama_cpp: str | None = None
    llama_cpp_commit: str | None = None
    devices: tuple[Device, ...] = ()
    last_level_cache_bytes: int | None = None
    instruction_sets: tuple[str, ...] | None = None

    @property
    def gpus(self) -> tuple[Device, ...]:
        return tuple(d for d in self.devices if d.kind in ("gpu", "igpu"))

    @property
    def llama_cpp_text(self) -> str:
        """`llama.cpp 0.5.0 0c1e570 (llama-cpp-python 0.3.36)`, as far as known.

        Sources from a package are no git checkout, so the "-dirty" that the build adds to the commit means nothing.
        """
        binding = f" (llama-cpp-python {self.llama_cpp_python})" if self.llama_cpp_python else ""
        commit = self.llama_cpp_commit and self.llama_cpp_commit.removesuffix("-dirty")
        build = " ".join(filter(None, (self.llama_cpp, commit))) or "unknown"
        return f"llama.cpp {build}{binding}"

    def gpus_with(self, buffers: Iterable[str]) -> tuple[Device, ...]:
        """The GPUs that have one of these buffers, named as ggml names them: `Vulkan0`, `MTL0_Mapped`."""
        owners = {buffer.removesuffix("_Mapped").removesuffix("_Private") for buffer in buffers}
        return tuple(gpu for gpu in self.gpus if gpu.name in owners)

    def badge(
        self, date: str, synthetic: bool = False, made_with: str | None = None, devices: str | None = None
    ) -> str:
        """The machine, date and engine of a measurement in one line, printed under every figure.

        devices  what computed beside the processor, in words
        """
        weights = "synthetic weights, " if synthetic else ""
        tool = f" with {made_with}" if made_with else ""
        limits = (f"{d.name} limited to {bytes_text(d.limited_to_bytes)}" for d in self.gpus if d.limited_to_bytes)
        place = ", ".join(filter(None, (self.cpu, devices, *limits)))
        return f"measured{tool}: {place}, {date}, {weights}{self.llama_cpp_text}"


def pci_id(text: str | bytes | None) -> str | None:
    """A PCI id as ggml writes it, "0000:c1:00.0", from any program's form; None for other text.

    NVML writes `00000000:C1:00.0`; ggml adds `-v1` to the second of several virtual devices on one card.
    Source: ggml_backend_dev_props.device_id, ggml-backend.h:176; ggml-cuda.cu:5838-5848.
    """
    parts = PCI_ID.fullmatch(text.decode(errors="replace") if isinstance(text, bytes) else text or "")
    return f"{int(parts[1], 16):04x}:{parts[2].lower()}" if parts else None


PCI_ID = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F])(?:-v\d+)?")
RPC_DEVICE = re.compile(r"RPC\d+\[(.+)\]")  # ggml_backend_rpc_buffer_type, ggml-rpc.cpp


def server_name(endpoint: str) -> str:
    """A name for the server at an RPC endpoint: this machine's loopback device, or another machine."""
    host = endpoint.rpartition(":")[0]
    return "loopback device" if host in (LOOPBACK_ADDRESS, "localhost") else f"RPC device at {host}"


def device_names(devices: Iterable[str]) -> dict[str, str]:
    """ggml's names of devices -> names for people: `RPC0[127.0.0.1:50052]` becomes the loopback device, others stay.

    Several with the same name are numbered.
    """
    matches = {device: RPC_DEVICE.fullmatch(device) for device in devices}
    names = {device: server_name(match[1]) if match else device for device, match in matches.items()}
    same = {name: [d for d, other in names.items() if other == name] for name in names.values()}
    return {d: f"{name} {same[name].index(d) + 1}" if len(same[name]) > 1 else name for d, name in names.items()}


def far_devices(devices: Iterable[str], links: Iterable[Link] = ()) -> str | None:
    """The RPC devices among ggml's names, each with its link if it has one here; None without RPC devices."""
    names = {match[1]: name for d, name in device_names(devices).items() if (match := RPC_DEVICE.fullmatch(d))}
    link_texts = {link.endpoint: link.text for link in links}
    return (
        ", ".join(", ".join(filter(None, (name, link_texts.get(endpoint)))) for endpoint, name in names.items()) or None
    )


def read_host() -> Machine:
    """The host as the operating system describes it; the engine adds the devices."""
    return Machine(
        cpu=cpu_name(),
        n_cores=physical_cores(),
        ram_bytes=ram_bytes(),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        llama_cpp_python=installed_version("llama-cpp-python"),
        last_level_cache_bytes=last_level_cache_bytes(),
    )


def installed_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def cpu_name() -> str:
    """The processor's marketing name, or the architecture where it is unknown."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith(("model name", "Model")))
    return next(named, platform.machine())


def usable_cpus() -> int:
    """Logical processors this process may use (a container or `taskset` can allow fewer than there are)."""
    return len(usable_cpu_numbers())


def physical_cores() -> int:
    """Physical cores among the usable processors: hyper-threads share one set of arithmetic units."""
    siblings = set()
    for cpu in range(os.cpu_count() or 1):
        try:
            path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
            siblings.add(path.read_text(encoding="utf-8").strip())
        except OSError:
            return usable_cpus()
    return max(1, min(len(siblings), usable_cpus()))


@dataclass(frozen=True)
class CpuState:
    """What the operating system shows of the processors besides their number.

    smt_active        whether cores run several hardware threads at once; None where the system does not say
    threads_per_core  most logical processors of one core; None where unknown
    governors         the frequency governors in use; () where the system does not control the frequency
    autogroup         whether Linux schedules sessions as groups, between which `nice` does not count; None if unknown
    """

    smt_active: bool | None = None
    threads_per_core: int | None = None
    governors: tuple[str, ...] = ()
    autogroup: bool | None = None

    @property
    def text(self) -> str:
        """`1 hardware thread for each core and no frequency governor`, as far as known."""
        n = self.threads_per_core
        threads = f"{n} hardware thread{'s' * (n > 1)} for each core" if n else "no list of the threads of a core"
        governors = "the frequency governor " + " and ".join(self.governors) if self.governors else None
        return f"{threads} and {governors or 'no frequency governor'}"


def read_cpu_state(folder: Path = Path("/sys/devices/system/cpu"), kernel: Path = Path("/proc/sys/kernel")) -> CpuState:
    """The state of the processors that Linux shows in these folders; elsewhere nothing is known."""
    switch = {"0": False, "1": True}
    active, autogroup = (
        switch.get(next(iter(_texts(*place)), ""))
        for place in ((folder, "smt/active"), (kernel, "sched_autogroup_enabled"))
    )
    siblings = [_numbers_in(text) for text in _texts(folder, "cpu[0-9]*/topology/thread_siblings_list")]
    governors = _texts(folder, "cpu[0-9]*/cpufreq/scaling_governor")
    return CpuState(active, max(siblings, default=None), tuple(sorted(set(governors))), autogroup)


def _texts(folder: Path, pattern: str) -> list[str]:
    return [_read_line(path) for path in sorted(folder.glob(pattern))]


def _numbers_in(cpu_list: str) -> int:
    """How many processors a list of Linux names: `0-1,4` has three."""
    ends = [part.split("-") for part in cpu_list.split(",")]
    return sum(int(pair[-1]) - int(pair[0]) + 1 for pair in ends)


def ram_bytes() -> int | None:
    """Physical memory in bytes, None where the system does not report it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def last_level_cache_bytes() -> int | None:
    """Bytes of the last-level caches of the usable processors, each counted once; None where unknown.

    A virtual machine may report a cache that it shares with others.
    """
    caches = [cache for cpu in usable_cpu_numbers() for cache in _caches(cpu)]
    last = max((level for level, _, _ in caches), default=0)
    return sum({shared: n_bytes for level, shared, n_bytes in caches if level == last}.values()) or _macos_cache_bytes()


def data_cache_bytes() -> dict[int, int]:
    """Level -> bytes of each data cache of the first usable processor; {} where unknown.

    A cache may be shared with other processors, and a virtual machine may report another one than it has.
    """
    cpu = usable_cpu_numbers()[0]
    caches = {level: n_bytes for level, _, n_bytes in reversed(_caches(cpu))}
    return dict(sorted(caches.items()))


def usable_cpu_numbers() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _caches(cpu: int) -> list[tuple[int, str, int]]:
    """Level, the processors that share it, and bytes of each cache of one processor, as Linux reports them."""
    caches = []
    for index in range(8):
        folder = Path(f"/sys/devices/system/cpu/cpu{cpu}/cache/index{index}")
        try:
            level, shared, size = (_read_line(folder / name) for name in ("level", "shared_cpu_list", "size"))
            caches.append((int(level), shared, int(size.removesuffix("K")) * 1024))
        except (OSError, ValueError):
            break
    return caches


def _read_line(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip()


def _macos_cache_bytes() -> int | None:
    """Bytes of the fast cores' L2 cache: the last level that Apple's systems report."""
    if platform.system() != "Darwin":
        return None
    import subprocess

    command = ["sysctl", "-n", "hw.perflevel0.l2cachesize"]
    output = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    return int(output) if output.isdigit() else None
