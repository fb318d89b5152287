"""What every measurement carries: which model, with what settings, on which machine and devices, on what day."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from inferlab.engine.log import Buffer
from inferlab.engine.loopback import links_to
from inferlab.engine.protocol import Engine, Opening
from inferlab.machine import Link, Machine, far_devices
from inferlab.model.gguf import Model, ModelCard
from inferlab.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Something measured through the engine; each verb adds its samples in a dataclass of its own.

    settings  as the engine opened them, its own choices filled in
    date      the day, "2026-01-31"; empty where another tool did not record it
    buffers   what llama.cpp allocated, by device; empty where that was not recorded
    links     slowed links to loopback devices, as measured when the devices started
    """

    made_with = None  # the tool, where it was not this library; a field of `Run` alone

    model: ModelCard
    settings: Settings
    machine: Machine
    date: str = ""
    buffers: tuple[Buffer, ...] = ()
    links: tuple[Link, ...] = ()

    @property
    def badge(self) -> str:
        """Who measured this, when, with what: printed under every figure."""
        far = far_devices((b.device for b in self.buffers), self.links)
        return self.machine.badge(self.date, self.model.synthetic, self.made_with, far)

    def bytes_on(self, kind: str) -> int:
        """Bytes of one kind over all devices: weights, kv_cache, compute or output."""
        return sum(b.n_bytes for b in self.buffers if b.kind == kind)


def common_fields(engine: Engine, opening: Opening, header: Model) -> dict[str, Any]:
    """The fields of `Measurement` for what was just opened in `engine`, by name; the date is today's."""
    return {
        "model": replace(header.card(), description=opening.description),
        "settings": opening.settings,
        "machine": engine.machine(),
        "date": date.today().isoformat(),
        "buffers": opening.buffers,
        "links": links_to(opening.settings.rpc_servers),
    }
