"""Processor time since the system started: of the whole machine, and of this process with those it started."""

from __future__ import annotations

import os
from contextlib import suppress

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
