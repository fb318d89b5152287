"""Where a plan meets a run: predicted bytes, measured bytes, and what lies between them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from inferlab.engine import Buffer
from inferlab.memory import MemoryPlan
from inferlab.run import Run

ON_HOST = re.compile(r"CPU|BLAS|.*_Host$")
DECORATION = re.compile(r"\[.*|_Mapped$|_REPACK$|_Private$")


@dataclass(frozen=True)
class Gap:
    """One kind of bytes on one device: as planned, and as llama.cpp's log tells it, exact to 0.01 MiB."""

    device: str
    kind: str
    predicted_bytes: int | None
    measured_bytes: int

    @property
    def difference_bytes(self) -> int | None:
        """Measured minus predicted; None where the plan left it open."""
        return None if self.predicted_bytes is None else self.measured_bytes - self.predicted_bytes


def compare(plan: MemoryPlan, run: Run) -> tuple[Gap, ...]:
    """Every kind of bytes on every device, planned beside measured, in the plan's order; what both call 0 is left out.

    The run needs `buffers`; devices are matched by order: the first device of the log is "gpu0".
    """
    measured = measured_bytes(run.buffers)
    places = [(device, kind) for device, held in plan.devices.items() for kind in held.parts]
    places += [place for place in measured if place not in places]
    gaps = [Gap(*place, _planned(plan, *place), measured.get(place, 0)) for place in places]
    return tuple(gap for gap in gaps if gap.predicted_bytes != 0 or gap.measured_bytes)


def measured_bytes(buffers: Iterable[Buffer]) -> dict[tuple[str, str], int]:
    """Bytes by ("host" or "gpu0" ..., kind), whatever llama.cpp's backends call their buffers."""
    buffers = tuple(buffers)
    devices = sorted({_plain(b.device) for b in buffers if not ON_HOST.match(b.device)}, key=_as_llama_cpp_orders)
    totals: dict[tuple[str, str], int] = {}
    for b in buffers:
        device = "host" if ON_HOST.match(b.device) else f"gpu{devices.index(_plain(b.device))}"
        totals[device, b.kind] = totals.get((device, b.kind), 0) + b.n_bytes
    return totals


def _planned(plan: MemoryPlan, device: str, kind: str) -> int | None:
    held = plan.devices.get(device)
    return held.parts[kind] if held else 0


def _plain(device: str) -> str:
    """`RPC0[127.0.0.1:50052]` is RPC0, `MTL0_Mapped` is MTL0."""
    return DECORATION.sub("", device)


def _as_llama_cpp_orders(device: str) -> tuple[bool, str]:
    """RPC devices come first in llama.cpp's list (src/llama.cpp:276)."""
    return not device.startswith("RPC"), device
