"""The terms of a load by the library's own formulas, from header and settings alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from inferlab.errors import InferlabError
from inferlab.model.ggml_types import CELL_STEP
from inferlab.model.gguf import Model
from inferlab.model.repacking import NOT_REPACKED
from inferlab.prediction.memory.cache import (
    CacheLayer,
    batches,
    cache_layers,
    cell_bytes,
    cells,
    cells_bytes,
    n_ctx_of,
    state_bytes,
)
from inferlab.prediction.memory.compute import output_bytes, tokens_reserved
from inferlab.prediction.memory.host_weights import host_weights
from inferlab.prediction.memory.plan import MemoryPlan
from inferlab.prediction.memory.request import MemoryRequest
from inferlab.prediction.predict import plan_of
from inferlab.results.log_memory.asked import Asked
from inferlab.results.log_memory.logged import COMPUTE, HOST, KV_CACHE, OUTPUT, REPACKED, STATES, WEIGHTS
from inferlab.settings import Settings

EVERY_DEVICE = "all devices"
"""The place of a sum, where the log does not tell which device has which layer."""
OTHER_BACKEND = "Compute buffers of this backend were never compared with a plan."
SEVERAL = "With several devices the compute buffers depend on their shares, which the log does not print."
NEEDS_WEIGHTS = "Beside weights in RAM the compute buffer holds a copy of some, and these were not derived."


@dataclass(frozen=True)
class Term:
    """Bytes from `least` to `most`, which are one number where a formula is exact."""

    least: int
    most: int

    @property
    def is_exact(self) -> bool:
        return self.least == self.most


@dataclass(frozen=True)
class LoggedRequest(MemoryRequest):
    """A request whose rows of logits the log tells: beside a draft model one for each token that may be drafted."""

    reserved: int | None = None

    @property
    def n_outputs(self) -> int:
        return super().n_outputs if self.reserved is None else min(self.reserved, tokens_reserved(self.settings))


@dataclass(frozen=True)
class Planned:
    """A load planned again.

    model   the header, with tensors where they are known
    n_kept  states that are kept for each sequence beside the one in use, for speculative decoding (`n_rs_seq`)
    """

    model: Model
    asked: Asked
    n_kept: int = 0

    def but(self, settings: Settings) -> Planned:
        """The plan of other settings on the same devices."""
        return replace(self, asked=replace(self.asked, settings=settings))

    @cached_property
    def request(self) -> LoggedRequest:
        asked = self.asked
        return LoggedRequest(
            self.model,
            asked.settings,
            asked.devices,
            asked.per_sequence,
            asked.processor,
            simulate=False,
            as_cuda=True,
            reserved=asked.n_outputs,
        )

    @cached_property
    def places(self) -> tuple[str, ...] | None:
        """The device of each block and of the output by its name in the log; None where several share them."""
        asked = self.asked
        if asked.layers and len(asked.devices) > 1:
            return asked.layers
        if len(asked.devices) > 1:
            return None
        names = {short: name for name, short in asked.places.items()}
        return tuple(names[short] for short in self.request.layer_devices())

    @cached_property
    def terms(self) -> dict[tuple[str, str], Term]:
        """What a formula knows, by device and kind. Raises InferlabError for settings that the model cannot take."""
        return {**self._caches(), **self._weights(), **self._computes(), (HOST, OUTPUT): self._output()}

    def _output(self) -> Term:
        n_bytes = output_bytes(self.model, self.asked.settings)
        return Term(n_bytes, n_bytes)

    def _caches(self) -> dict[tuple[str, str], Term]:
        """Cells and states on each device."""
        settings, totals = self.asked.settings, dict[tuple[str, str], int]()
        for i, layer in enumerate(cache_layers(self.model)):
            states = state_bytes(layer, settings) * (1 + self.n_kept)
            for kind, n_bytes in ((KV_CACHE, self._cells_bytes(layer)), (STATES, states)):
                if n_bytes:
                    where = self._place_of_cache(i), kind
                    totals[where] = totals.get(where, 0) + n_bytes
        return {where: Term(n_bytes, n_bytes) for where, n_bytes in totals.items()}

    def _cells_bytes(self, layer: CacheLayer) -> int:
        """Bytes of one layer's cells, rounded up as the logged build rounds them."""
        settings, step = self.asked.settings, self.asked.cells_of
        if step == CELL_STEP:
            return cells_bytes(layer, settings)
        streams, _ = cells(settings)
        all_cells = _rounded(n_ctx_of(settings) // streams, step)
        sequences = settings.n_seq_max if settings.kv_unified else 1
        windowed = layer.window and not settings.swa_full
        n_cells = min(
            all_cells, _rounded(layer.window * sequences + batches(settings)[1], step) if windowed else all_cells
        )
        return streams * n_cells * cell_bytes(layer, settings.type_k, settings.type_v)

    def _place_of_cache(self, layer: int) -> str:
        if not self.asked.settings.offload_kqv:
            return HOST
        return self.places[layer] if self.places else EVERY_DEVICE

    @cached_property
    def plan(self) -> MemoryPlan | None:
        """The library's plan of one device at most; None where it has none."""
        try:
            return plan_of(self.request) if len(self.asked.devices) < 2 else None
        except InferlabError:
            return None

    def _weights(self) -> dict[tuple[str, str], Term]:
        if not self.plan or not self.model.tensors:
            return {}
        held = self.plan.host_weights
        found = {}
        if self.request.processor:
            on_host = held.get(self.request.processor) or next(iter(held.values()))
            found[HOST, WEIGHTS] = on_host.in_place_bytes
            found[HOST, REPACKED] = on_host.repacked_bytes
        for name, short in self.asked.places.items():
            if name != HOST:
                found[name, WEIGHTS] = self.plan.devices[short].weights_bytes or 0
        return {where: Term(n_bytes, n_bytes) for where, n_bytes in found.items() if n_bytes}

    @cached_property
    def mapped_range(self) -> Term | None:
        """Bytes of the mapped part of the file for any order of its tensors: those of the host, up to all of them."""
        plan, settings = self.plan, self.asked.settings
        if not plan or not self.model.tensors or settings.load_mode == "none":
            return None
        own = settings.but(load_mode="none")
        request = self.request
        held = host_weights(
            self.model, plan.layer_devices, own, request.gpus, request.processor or NOT_REPACKED, request.moved
        )
        return Term(next(iter(held.values())).in_place_bytes, self.model.tensor_bytes)

    @property
    def no_compute(self) -> str:
        """Why compute buffers were not derived; "" where they were."""
        if len(self.asked.devices) > 1:
            return SEVERAL
        if self.request.is_taken_for_cuda:
            return OTHER_BACKEND
        if not self._knows_copies:
            return NEEDS_WEIGHTS
        return "" if self.plan and self._computes() else "No closed form and no range is known for the compute buffer."

    @property
    def _knows_copies(self) -> bool:
        """Whether it is known which weights a device copies in: none, or those of layers whose tensors are known.

        Experts may be in RAM although all layers are offloaded, which a log does not print.
        """
        on_device = self.request.offloads_all and not self.asked.moves and not self.model.number("expert_count")
        return bool(not self.asked.devices or self.model.tensors or on_device)

    def _computes(self) -> dict[tuple[str, str], Term]:
        one = len(self.asked.devices) < 2 and not self.request.is_taken_for_cuda
        if not (one and self._knows_copies and self.plan):
            return {}
        found = {}
        for name, short in self.asked.places.items():
            exact, ends = self.plan.devices[short].compute_bytes, self.plan.compute_range.get(short)
            if exact is not None:
                found[name, COMPUTE] = Term(exact, exact)
            elif ends:
                found[name, COMPUTE] = Term(*ends)
        return found


def _rounded(n_cells: int, step: int) -> int:
    return -(-n_cells // step) * step
