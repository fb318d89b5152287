"""Telemetry of a process and its machine from the operating system: psutil, and /proc where that is faster."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferlab.measurement.telemetry.samples import NOT_HERE, NOT_PERMITTED, PROCESS_ENDED, PROCESS_FIELDS

if TYPE_CHECKING:
    import psutil

SHORTEST_CPU_SECONDS = 0.05


class HostReader:
    """Readings from the operating system through psutil; `missing` has the reason for each field that is unknown."""

    def __init__(self, pid: int | None, missing: dict[str, str]) -> None:
        import psutil

        self.psutil, self.pid, self.missing = psutil, pid, missing
        self._times_before: tuple[float, list[tuple[float, float]]] | None = None
        self._ended = False
        self.process = self._try(PROCESS_FIELDS, lambda: psutil.Process(pid)) if pid else None
        if pid is None:
            self.missing.update(dict.fromkeys(PROCESS_FIELDS, "no process was named"))

    def read(self, now: float) -> dict[str, Any]:
        """The fields of one `Sample` that the operating system reports."""
        readings: dict[str, Any] = {"cpu_percent": self._try(("cpu_percent",), lambda: self._cpu(now))}
        readings["machine_read_bytes"] = self._try(("machine_read_bytes",), self._disks)
        process = self.process
        if process is not None and not self._ended:
            readings["rss_bytes"] = self._try(("rss_bytes",), lambda: _resident_bytes(process))
            readings["process_read_bytes"] = self._try(
                ("process_read_bytes",), lambda: process.io_counters().read_bytes
            )
            faults = self._try(("minor_faults", "major_faults"), lambda: self._faults(process)) or (None, None)
            readings["minor_faults"], readings["major_faults"] = faults
        return readings

    def _try(self, names: tuple[str, ...], read: Callable[[], Any]) -> Any:
        """The reading, or None and a reason in `missing`; a process that ended is not read again."""
        try:
            return read()
        except Exception as error:  # no error of the system may end a measurement
            reason = self._reason(error)
            self._ended = self._ended or reason == PROCESS_ENDED
            self.missing.update(dict.fromkeys(PROCESS_FIELDS if reason == PROCESS_ENDED else names, reason))
        return None

    def _reason(self, error: Exception) -> str:
        if isinstance(error, (self.psutil.NoSuchProcess, ProcessLookupError)):
            return PROCESS_ENDED
        if isinstance(error, (self.psutil.AccessDenied, PermissionError)):
            return NOT_PERMITTED
        if isinstance(error, (AttributeError, NotImplementedError, FileNotFoundError)):
            return NOT_HERE
        return f"{type(error).__name__}: {error}"

    def _cpu(self, now: float) -> tuple[float, ...] | None:
        """Busy percent of each processor since the last reading; None if that is too recent."""
        if self._times_before and now - self._times_before[0] < SHORTEST_CPU_SECONDS:
            return None
        before, self._times_before = self._times_before, (now, self._processor_times())
        if before is None or len(before[1]) != len(self._times_before[1]):
            return None
        return tuple(busy_percent(*pair) for pair in zip(before[1], self._times_before[1], strict=True))

    def _processor_times(self) -> list[tuple[float, float]]:
        """(idle time, total time) of each processor since the system started."""
        return [(times.idle, sum(times)) for times in self.psutil.cpu_times(percpu=True)]

    def _disks(self) -> int:
        counters = self.psutil.disk_io_counters(nowrap=False)
        if counters is None:
            raise NotImplementedError
        return counters.read_bytes

    def _faults(self, process: psutil.Process) -> tuple[int, int]:
        """Minor and major page faults, which macOS counts; Windows does not separate them."""
        memory = process.memory_info()
        return memory.pfaults - memory.pageins, memory.pageins


class LinuxReader(HostReader):
    """The same from /proc where psutil is slower or reports less, so that a reading hardly disturbs decode."""

    STACKED = ("loop", "ram", "zram", "dm-", "md")  # devices on top of others, or of memory

    def __init__(self, pid: int | None, missing: dict[str, str]) -> None:
        super().__init__(pid, missing)
        disks = Path("/sys/block")
        names = [disk.name for disk in disks.iterdir()] if disks.is_dir() else []
        self._disk_names = {name.encode() for name in names if not name.startswith(self.STACKED)}

    def _processor_times(self) -> list[tuple[float, float]]:
        """From /proc/stat, in hundredths of a second; waiting for a disk is idle, guests are within user and nice."""
        rows = takewhile(lambda row: row.startswith(b"cpu"), read_proc("/proc/stat").splitlines()[1:])
        times = [[int(word) for word in row.split()[1:9]] for row in rows]
        return [(processor[3] + processor[4], sum(processor)) for processor in times]

    def _disks(self) -> int:
        """From /proc/diskstats, whose third column is the disk's name and sixth the sectors of 512 bytes read."""
        rows = (row.split() for row in read_proc("/proc/diskstats").splitlines())
        sectors = [int(row[5]) for row in rows if row[2] in self._disk_names]
        if not sectors:
            raise NotImplementedError
        return 512 * sum(sectors)

    def _faults(self, process: psutil.Process) -> tuple[int, int]:
        """Fields 10 and 12 of /proc/<pid>/stat; the second, a name in brackets, may contain anything."""
        try:
            words = read_proc(f"/proc/{process.pid}/stat").rpartition(b")")[2].split()
        except FileNotFoundError:
            raise ProcessLookupError(self.pid) from None
        return int(words[7]), int(words[9])


def _resident_bytes(process: psutil.Process) -> int:
    resident = process.memory_info().rss
    if not resident:  # a process that has ended but still exists as a zombie
        raise ProcessLookupError(process.pid)
    return resident


def host_reader(pid: int | None, missing: dict[str, str]) -> HostReader:
    """The reader of this operating system."""
    return (LinuxReader if sys.platform == "linux" else HostReader)(pid, missing)


def read_proc(path: str) -> bytes:
    """The whole of a file of /proc, without buffering and decoding, which take longer than the reading."""
    with open(path, "rb", buffering=0) as file:
        return file.readall()


def busy_percent(before: tuple[float, float], after: tuple[float, float]) -> float:
    """Share of a processor's time not spent idle, 0 to 100, between two of its (idle, all) times."""
    idle, total = after[0] - before[0], after[1] - before[1]
    return min(100.0, max(0.0, 100 * (total - idle) / total)) if total > 0 else 0.0


def loopback_interface_bytes() -> int | None:
    """Bytes sent over this machine's loopback interface since the system started; None if not reported."""
    import psutil

    counters = psutil.net_io_counters(pernic=True)
    return next((counters[name].bytes_sent for name in ("lo", "lo0") if name in counters), None)


def network_addresses() -> list[str]:
    """The IPv4 addresses by which other machines reach this one; empty without a network."""
    import psutil

    addresses = [
        address for entries in psutil.net_if_addrs().values() for address in entries if address.family.name == "AF_INET"
    ]
    return sorted(address.address for address in addresses if not address.address.startswith("127."))
