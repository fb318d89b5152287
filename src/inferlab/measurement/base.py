"""Common to all measurements: model, settings, machine, devices and date; and a context of the needed size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache
from typing import TYPE_CHECKING, Any

from inferlab.engine import measurement_queue
from inferlab.engine.log import Buffer
from inferlab.engine.loopback import links_to
from inferlab.engine.measurement_queue import Turn
from inferlab.engine.protocol import Engine, Opening
from inferlab.errors import InvalidSettings
from inferlab.machine import Link, Machine, far_devices
from inferlab.model import kernels
from inferlab.model.ggml_types import padded
from inferlab.model.gguf import Model, ModelCard, Shape, Tensor
from inferlab.model.kernels import Matrices, placed_by_bytes
from inferlab.model.synthetic_model import shape
from inferlab.settings import Settings
from inferlab.shown import Shown

if TYPE_CHECKING:
    from inferlab.engine.llama_server import LlamaServer

MOST_KERNELS = 2  # sets of kernels that a badge has space for


@dataclass(frozen=True, kw_only=True)
class Measurement(Shown):
    """One measurement through the engine; each kind of measurement adds its samples in a subclass.

    settings  as the engine used them, with its own choices filled in
    date      the day, "2026-01-31"; empty where another tool did not record it
    buffers   what llama.cpp allocated, by device; empty where that was not recorded
    weights   the matrices by type and buffer; empty where that was not recorded
    links     slowed links to loopback devices, as measured when the devices started
    turn      its turn in the queue of measurements, and what others computed meanwhile; None without a queue
    waiting   what was set of how long the worker's threads spin, by variable; empty where that was not recorded
    """

    model: ModelCard
    settings: Settings
    machine: Machine
    date: str = ""
    buffers: tuple[Buffer, ...] = ()
    links: tuple[Link, ...] = ()
    weights: tuple[Matrices, ...] = ()
    turn: Turn | None = None
    waiting: dict[str, str] = field(default_factory=dict)

    @property
    def made_with(self) -> str | None:
        """The tool, where it was not this library; a field of `Run` alone."""
        return None

    @property
    def badge(self) -> str:
        """Machine, date, model, tool, and the processor's kernels: printed under every figure."""
        return "; kernels: ".join(filter(None, (self.machine_badge, self.kernels_text)))

    @property
    def machine_badge(self) -> str:
        """The badge without kernels, for a figure that compares several; it names the GPUs that were used."""
        used = {b.device: None for b in self.buffers if b.n_bytes}
        devices = (*(gpu.title for gpu in self.machine.gpus_with(used)), far_devices(used, self.links))
        badge = self.machine.badge(
            self.date, self.model.synthetic, self.made_with, ", ".join(filter(None, devices)) or None
        )
        spin = ", ".join(f"{name}={value}" for name, value in self.waiting.items())
        return "; ".join(filter(None, (badge, spin, self.turn.label if self.turn else "")))

    @property
    def matrices(self) -> tuple[Matrices, ...]:
        """`weights`; where they were not recorded, those of a shape as far as its buffers decide them."""
        sizes = {b.device: b.n_bytes for b in self.buffers if b.kind == "weights"}
        return self.weights or placed_by_bytes(_tensors_of_shape(self.model.shape), sizes)

    def kernel_bytes(self, n_tokens: int) -> dict[tuple[str, str], int]:
        """(type, kernel) -> bytes of the matrices that a processor multiplied with n_tokens at once; {} if unknown."""
        return kernels.kernel_bytes(self.matrices, n_tokens, self._has_tiles)

    def kernel_shares(self, n_tokens: int) -> dict[str, float]:
        """Kernel -> share of the bytes that a processor multiplied with n_tokens at once; {} if unknown."""
        sizes: dict[str, int] = {}
        for (_, kernel), n_bytes in self.kernel_bytes(n_tokens).items():
            sizes[kernel] = sizes.get(kernel, 0) + n_bytes
        return {kernel: n_bytes / sum(sizes.values()) for kernel, n_bytes in sizes.items()}

    @property
    def kernels_text(self) -> str:
        """`Q4_K repacked, Q6_K tiled from 8 tokens`; "not recorded" if unknown; "" without weights on a processor."""
        if self.matrices:
            return kernels.kernels_text(self.matrices, self._has_tiles)
        on_processor = (b for b in self.buffers if b.kind == "weights" and kernels.OF_PROCESSOR.match(b.device))
        return "not recorded" if any(on_processor) else ""

    @property
    def _has_tiles(self) -> bool:
        sets = self.machine.instruction_sets
        return self.machine.system.endswith(("x86_64", "AMD64")) and (sets is None or "AVX" in sets)

    def bytes_on(self, kind: str) -> int:
        """Bytes of one kind over all devices: weights, kv_cache, compute or output."""
        return sum(b.n_bytes for b in self.buffers if b.kind == kind)


def common_badge(measurements: Sequence[Measurement]) -> str:
    """One badge for several measurements on one machine: the first one's, with the kernels of all."""
    texts = dict.fromkeys(filter(None, (measurement.kernels_text for measurement in measurements)))
    known = " or ".join(texts) if len(texts) <= MOST_KERNELS else "different ones"
    return "; kernels: ".join(filter(None, (measurements[0].machine_badge, known)))


def common_fields(engine: Engine, opening: Opening, header: Model) -> dict[str, Any]:
    """The fields of `Measurement` for a model that `engine` has just opened, by name; the date is today's."""
    return {
        "model": replace(header.card(), description=opening.description),
        "settings": opening.settings,
        "machine": engine.machine(),
        "date": date.today().isoformat(),
        "buffers": opening.buffers,
        "links": links_to(opening.settings.rpc_servers),
        "weights": kernels.placed(header.tensors, opening.tensors.rearranged, opening.tensors.layers),
        "turn": measurement_queue.present_turn(),
        "waiting": opening.waiting,
    }


def served_fields(server: LlamaServer, header: Model, machine: Machine) -> dict[str, Any]:
    """The fields of `Measurement` for a model that a llama-server on this machine has loaded; the date is today's."""
    return {
        "model": header.card(),
        "settings": server.settings,
        "machine": machine,
        "date": date.today().isoformat(),
        "buffers": server.buffers,
    }


@cache
def _tensors_of_shape(made: Shape | None) -> tuple[Tensor, ...]:
    """The tensors of a recorded shape; () for other models."""
    return shape(made.name, made.mix, **made.dimensions).tensors if made else ()


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
    _require_cells(settings.n_ctx, n_prompt, n_gen)
    return settings


def _require_cells(n_ctx: int, n_prompt: int, n_gen: int) -> None:
    if n_ctx < n_prompt + n_gen:
        raise InvalidSettings(
            f"n_ctx={n_ctx} cannot hold a prompt of {n_prompt} tokens and an answer of {n_gen}. "
            f"Ask for n_ctx={n_prompt + n_gen} or more, or for fewer tokens."
        )
