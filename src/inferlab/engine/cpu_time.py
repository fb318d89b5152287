"""Processor time since the system started: of the whole machine, and of this process with those it started."""

from __future__ import annotations

import os
import time
from contextlib import suppress

LEAST_SECONDS = 0.3  # in less, the hundredths of a second that the system counts decide nothing
IDLE = ("idle", "iowait")  # waiting for a disk is idle
WITHIN_OTHERS = ("guest", "guest_nice")  # Linux counts both within user and nice


def machine_busy_seconds() -> float:
    """Seconds, summed over the processors, that any process computed, or another guest of the hypervisor.

    The system counts in hundredths of a second for each processor.
    """
    import psutil

    times = psutil.cpu_times()._asdict()
    return sum(seconds for name, seconds in times.items() if name not in (*IDLE, *WITHIN_OTHERS))


def own_seconds() -> float:
    """Processor seconds of this process, of the processes that descend from it, and of those of them that ended."""
    import psutil

    ended = os.times()
    seconds = sum(ended[:4])
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # one that ended meanwhile; its parent has its time
            seconds += sum(child.cpu_times()[:4])
    return seconds


def other_seconds() -> float:
    """Processor seconds of everything else on this machine; only a difference of two readings means something."""
    return machine_busy_seconds() - own_seconds()


def since(began: float, others: float) -> tuple[float, float]:
    """(seconds since then, processors that everything else kept busy since then, on average).

    `began` is time.perf_counter() and `others` is other_seconds(), both read then; the time is made LEAST_SECONDS long.
    """
    time.sleep(max(0.0, began + LEAST_SECONDS - time.perf_counter()))
    seconds = time.perf_counter() - began
    return seconds, max(0.0, other_seconds() - others) / seconds
