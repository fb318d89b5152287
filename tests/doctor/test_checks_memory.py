"""Checks of free disk space and memory."""

import pytest
from fakes_host import check, ok

from inferlab.units import GB, GIB

FREE_WORKING_FOLDER = "df -h .    # free some, or clone to a larger disk"
FREE_CACHE = "df -h ~/.cache    # free some, or set HF_HOME to a folder on a larger disk"
MOVE_TEMPORARY_FOLDER = "mkdir -p ~/tmp && export TMPDIR=~/tmp"


@pytest.mark.parametrize(
    ("scarce", "n_bytes", "state", "fix"),
    [
        (".cache", 2 * GB, "warning", FREE_CACHE),
        ("handbook", GB // 2, "warning", FREE_WORKING_FOLDER),
        ("handbook", GB // 100, "problem", FREE_WORKING_FOLDER),
        ("tmp", GB // 100, "problem", MOVE_TEMPORARY_FOLDER),
    ],
)
def test_each_full_disk_has_its_fix(scarce, n_bytes, state, fix):
    """The working folder, the models' cache and the temporary folder may lie on different disks."""
    free = {"handbook": 80 * GB, "tmp": 80 * GB, ".cache": 80 * GB} | {scarce: n_bytes}
    assert check("disk", free=free)[::2] == (state, fix)


def test_one_disk_is_mentioned_once():
    """Three folders on one disk are one number."""
    assert check("disk") == ok("100.0 GB free for the working folder, cache, temporary folder")


@pytest.mark.parametrize(
    ("files", "state", "found"),
    [
        ({"/proc/meminfo": f"MemAvailable: {2**20} kB"}, "warning", "8.00 GiB in all, 1.00 GiB available"),
        ({"/proc/meminfo": f"MemAvailable: {2**18} kB"}, "problem", "8.00 GiB in all, 256.00 MiB available"),
        ({"/sys/fs/cgroup/memory.max": str(GIB)}, "warning", "1.00 GiB in all, 1.00 GiB available"),
        ({"/sys/fs/cgroup/memory.max": "max"}, "ok", "8.00 GiB in all, 6.00 GiB available"),
        ({"/proc/meminfo": None}, "ok", "8.00 GiB in all, unknown available"),
    ],
    ids=["little", "too little", "container with a limit", "container without a limit", "unknown"],
)
def test_memory_is_what_this_process_may_have(files, state, found):
    """A container's limit counts as the machine's memory, and unknown stays unknown."""
    fix = None if state == "ok" else "ps -eo rss,comm --sort=-rss | head    # close what is large"
    assert check("memory", files=files) == (state, found, fix)
