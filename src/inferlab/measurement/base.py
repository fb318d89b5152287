"""Common to all measurements: model, settings, machine, devices and date; and a context of the needed size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from inferlab.engine.log import Buffer
from inferlab.engine.loopback import links_to
from inferlab.engine.protocol import Engine, Opening
from inferlab.errors import InvalidSettings
from inferlab.machine import Link, Machine, far_devices
from inferlab.model.ggml_types import padded
from inferlab.model.gguf import Model, ModelCard
from inferlab.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One measurement through the engine; each kind of measurement adds its samples in a subclass.

    settings  as the engine used them, with its own choices filled in
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
        """Machine, date, model and tool of the measurement: printed under every figure."""
        far = far_devices((b.device for b in self.buffers), self.links)
        return self.machine.badge(self.date, self.model.synthetic, self.made_with, far)

    def bytes_on(self, kind: str) -> int:
        """Bytes of one kind over all devices: weights, kv_cache, compute or output."""
        return sum(b.n_bytes for b in self.buffers if b.kind == kind)


def common_fields(engine: Engine, opening: Opening, header: Model) -> dict[str, Any]:
    """The fields of `Measurement` for a model that `engine` has just opened, by name; the date is today's."""
    return {
        "model": replace(header.card(), description=opening.description),
        "settings": opening.settings,
        "machine": engine.machine(),
        "date": date.today().isoformat(),
        "buffers": opening.buffers,
        "links": links_to(opening.settings.rpc_servers),
    }


def with_context(settings: Settings, n_prompt: int, n_gen: int, n_sequences: int | None = None) -> Settings:
    """Settings with a context for one sequence of n_prompt + n_gen tokens, or for `n_sequences` of them.

        n_ctx = n_sequences * ceil((n_prompt + n_gen) / 256) * 256 cells

    An n_ctx that is set is kept. Raises InvalidSettings if it is too small for one sequence; with `n_sequences`
    it is not checked, because sequences may share cells (kv_unified).
    """
    cells = padded(n_prompt + n_gen)
    if n_sequences is not None:
        return settings.but(n_seq_max=n_sequences, n_ctx=settings.n_ctx or n_sequences * cells)
    if settings.n_ctx is None:
        return settings.but(n_ctx=cells)
    _require_room(settings.n_ctx, n_prompt, n_gen)
    return settings


def _require_room(n_ctx: int, n_prompt: int, n_gen: int) -> None:
    if n_ctx < n_prompt + n_gen:
        raise InvalidSettings(
            f"n_ctx={n_ctx} cannot hold {n_prompt} prompt tokens and {n_gen} generated ones. "
            f"Ask for n_ctx={n_prompt + n_gen} or more, or for fewer tokens."
        )
