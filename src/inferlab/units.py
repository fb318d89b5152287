"""Converts bytes, seconds and rates to text and back; the library computes in bytes and seconds.

Decimal units (GB) are used for rates and disks, binary units (GiB) for memory,
as manufacturers give them and as llama.cpp prints its buffers.
"""

from __future__ import annotations

import re
from typing import Any

from inferlab.errors import InvalidSettings

KIB, MIB, GIB = 2**10, 2**20, 2**30
KB, MB, GB = 10**3, 10**6, 10**9
FACTORS = {"B": 1, "KIB": KIB, "MIB": MIB, "GIB": GIB, "KB": KB, "MB": MB, "GB": GB}
SIZES = (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")
WRITTEN = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG]i?B|B)", re.IGNORECASE)


def bytes_text(n_bytes: int | None) -> str:
    """A memory size for people: `12.3 MiB`; `unknown` for None."""
    if n_bytes is None:
        return "unknown"
    factor, unit = size_unit(n_bytes)
    return f"{n_bytes / factor:.2f} {unit}" if factor > 1 else f"{n_bytes} B"


def size_unit(n_bytes: int) -> tuple[int, str]:
    """The unit in which such a memory size is written, as bytes and name: `(2**20, "MiB")`."""
    return next((one for one in SIZES if abs(n_bytes) >= one[0]), (1, "B"))


def file_size(told: Any) -> int:
    """The size of a file, in bytes, as a server tells it. Raises ValueError, TypeError or OverflowError for none."""
    n_bytes = int(told)
    if not 0 <= n_bytes < 2**63:
        raise ValueError("a size that no file has")
    return n_bytes


def bytes_from_text(text: str) -> int:
    """Bytes of a size as people write it: `8GiB`, `750 MiB`, `24 GB`. Raises InvalidSettings for anything else."""
    found = WRITTEN.fullmatch(text.strip())
    if not found:
        raise InvalidSettings(f"{text!r} is no size. Write a number and a unit, such as 8GiB, 750MiB or 24GB.")
    return round(float(found[1]) * FACTORS[found[2].upper()])


def seconds_text(seconds: float | None) -> str:
    """A duration for people: `3.2 ms`, `1.45 s`; `unknown` for None."""
    if seconds is None:
        return "unknown"
    for factor, unit in ((1.0, "s"), (1e-3, "ms")):
        if abs(seconds) >= factor:
            return f"{seconds / factor:.3g} {unit}" if seconds < 100 else f"{seconds:.0f} s"
    return f"{seconds / 1e-6:.3g} µs"


def count_text(n: int, one: str, many: str = "") -> str:
    """A number of things for people: `1 layer`, `2 layers`, and with `many` given `2 passes`."""
    return f"{n:,} {one if n == 1 else many or f'{one}s'}"


def number_text(rate: float) -> str:
    """A rate without its unit: `1,234`, `12.3`."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def rate_text(per_second: float | None) -> str:
    """A token rate for people: `1,234 tokens/s`, `12.3 tokens/s`; `unknown` for None."""
    return "unknown" if per_second is None else f"{number_text(per_second)} tokens/s"


def factor_text(ratio: float) -> str:
    """A factor with three digits, and with more where it would else read as 1."""
    if ratio >= 100:
        return f"{ratio:,.0f}"
    texts = (f"{ratio:.{digits}g}" for digits in range(3, 9))
    return next((text for text in texts if float(text) != 1), "1")
