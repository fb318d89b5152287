"""Where the operations of a batch run that host and card share, and the bytes of both compute buffers.

llama.cpp's scheduler (ggml_backend_sched_split_graph, ggml-backend.cpp:1065) places the operations in four passes:

    1  what writes to a cache lies with the cache, what reads a weight with the weight; a card may take the operation of
       a weight on the host, CUDA's from OFFLOADED rows on (ggml_backend_cuda_device_offload_op)
    2  others follow their neighbours: first down and then up from the card's, then down and up from the host's
    3  views lie where their base lies
    4  a part of the graph ends where the side changes, and before a weight that is copied in; it begins with copies of
       what it needs from the other side, each of which is made once

A copy is freed after its last use, so that weights follow each other in the same place. CUDA's backend keeps the
operands of operations that it computes as one, if they are in the same part (ggml_backend_cuda_graph_optimize).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inferlab.prediction.memory.decoder import F32, FREQUENCIES, NORM
from inferlab.prediction.memory.graph import ALIGNMENT, CACHE, Graph, Tensor, shared_bytes

HOST, CARD = 0, 1
OFFLOADED = 32  # rows from which CUDA computes for the host, op_offload_min_batch_size
CUDA_ALIGNMENT = 128
BEHIND = f".{NORM}", f".{FREQUENCIES}"
FUSED = Tensor(0, base=CACHE)  # keeps its sources until it comes
Step = tuple[Tensor, Sequence[Tensor], int]


@dataclass(frozen=True)
class Resident:
    """A weight or a cache, which lies on the host or on the card before the batch.

    n_bytes    what a copy of it takes; 0 for states, of which a copy is as large as what reads them
    width      values in one row of what a weight makes; 0 for what does not decide where an operation runs
    f16_bytes  keys or values as f16, where CUDA's flash attention converts them
    is_part    whether it is a part of other keys, as values are of latent ones
    """

    side: int
    n_bytes: int = 0
    width: int = 0
    f16_bytes: int = 0
    is_part: bool = False
    is_weight: bool = False


@dataclass(frozen=True)
class Places:
    """What lies where: weights and caches by the names that `Tensor.reads` has, the sides of blocks and their caches.

    is_cuda   whether the card is one of CUDA
    offloads  whether it computes for the host
    """

    residents: Mapping[str, Resident]
    blocks: Sequence[int]
    caches: Sequence[int]
    is_cuda: bool
    offloads: bool


def scheduled_bytes(graph: Graph, places: Places) -> list[tuple[int, int]]:
    """Bytes of the compute buffers of host and card; on CUDA's also with fused operations, where there are some."""
    sides = sides_of(graph, places)
    steps = _Parts(graph, places, sides).steps()
    plain = [step for step in steps if step[0] is not FUSED]
    inputs = [(tensor, sides[id(tensor)]) for tensor in graph.inputs]
    alignments = ALIGNMENT, CUDA_ALIGNMENT if places.is_cuda else ALIGNMENT
    variants = [plain] if len(plain) == len(steps) else [plain, steps]
    return [shared_bytes(inputs, variant, graph.kept, alignments) for variant in variants]


def _is_view(node: Tensor) -> bool:
    return node.base is not None and node.base is not CACHE and len(node.sources) == 1


def _told(node: Tensor, places: Places) -> int | None:
    """The side that a cache or a weight decides: the last that the operation reads."""
    if node.base is CACHE:
        return places.caches[node.writes]
    if node.on_host:
        return HOST
    found = places.residents.get(node.reads[-1]) if node.reads else None
    if not found or not found.width:
        return None
    offloaded = places.offloads and node.n_bytes // (F32 * found.width) >= OFFLOADED
    return CARD if offloaded else found.side


def sides_of(graph: Graph, places: Places) -> dict[int, int]:
    """The side of every operation and input, by its identity."""
    nodes = [node for node in graph.nodes if not _is_view(node)]
    found = [_told(node, places) for node in nodes]
    for spreading in ((CARD,), (HOST, CARD)):
        _spread(found, range(len(nodes)), spreading)
        _spread(found, range(len(nodes) - 1, -1, -1), spreading)
    sides = {id(node): side or HOST for node, side in zip(nodes, found, strict=True)}
    sides |= {id(tensor): HOST for tensor in graph.inputs}
    for node in nodes:
        sides |= {id(tensor): sides[id(node)] for tensor in node.sources if tensor.is_constant}
    views = (node for node in graph.nodes if id(node) not in sides)
    return sides | {id(node): sides[id(node.base)] for node in views}


def _spread(found: list[int | None], order: range, spreading: tuple[int, ...]) -> None:
    """Give operations without a side that of the one before them in this order, if it is one of those that spread."""
    side = None
    for i in order:
        if found[i] is None:
            found[i] = side
        else:
            side = found[i] if found[i] in spreading else None


class _Parts:
    """The operations of a graph in parts, each of which begins with the copies that it needs."""

    def __init__(self, graph: Graph, places: Places, sides: Mapping[int, int]) -> None:
        self.graph, self.places, self.sides = graph, places, sides
        self.done: list[Step] = []
        self.begun: list[Step] = []
        self.part: list[Step] = []
        self.here: set[int] = set()
        self.copies: dict[tuple[int | str, int], Tensor] = {}

    def steps(self) -> list[Step]:
        current: int | None = None
        for node in self.graph.nodes:
            side = self.sides[id(node)]
            if _is_view(node):
                self.add(node, node.sources, side)
                continue
            moved = [name for name in node.reads if self.is_elsewhere(name, side)]
            weighs = any(self.places.residents[name].is_weight for name in moved)
            if side != current or (weighs and self.begun):
                self.end()
            current = side
            late = [name for name in moved if name.endswith(BEHIND)]  # operands behind what they are applied to
            copied = [self.resident(name, node, side) for name in moved if name not in late]
            sources = [self.brought(tensor, side) for tensor in node.sources]
            copied += [self.resident(name, node, side) for name in late]
            if side == CARD and self.places.is_cuda and len(node.reads) > 1:
                node.n_bytes += self.converted(node, bool(moved))
            self.add(node, [*sources, *copied], side)
        self.end()
        return self.done

    def add(self, node: Tensor, sources: Sequence[Tensor], side: int) -> None:
        """One more operation, with what CUDA's backend kept until it."""
        self.part.append((node, sources, side))
        self.here.add(id(node))
        kept, needed = self.graph.fused.get(id(node), ((), ()))
        if kept and side == CARD and self.places.is_cuda and all(id(tensor) in self.here for tensor in needed):
            self.part.append((FUSED, kept, side))

    def end(self) -> None:
        self.done += [*self.begun, *self.part]
        self.begun, self.part, self.here = [], [], set()

    def is_elsewhere(self, name: str, side: int) -> bool:
        found = self.places.residents.get(name)
        return found is not None and found.side != side

    def brought(self, tensor: Tensor, side: int) -> Tensor:
        """The tensor, or its copy on this side."""
        there, key = self.sides.get(id(tensor), side), (id(tensor), side)
        if there == side:
            return tensor
        if key not in self.copies:
            self.copies[key] = Tensor(tensor.n_bytes)
            self.begun += [(Tensor(0, base=CACHE), (tensor,), there), (self.copies[key], (), side)]
        return self.copies[key]

    def resident(self, name: str, node: Tensor, side: int) -> Tensor:
        """The copy on this side of a weight or a cache; rotations have one, each norm and each reader of keys its own.

        Every reader of keys or values has a view of its own of them.
        """
        kind = name.rpartition(".")[2]
        own = f"{name} of {id(node)}" if kind in (NORM, "k", "v") else name
        key: tuple[int | str, int] = kind if kind == FREQUENCIES else own, side
        if key not in self.copies:
            self.copies[key] = Tensor(self.places.residents[name].n_bytes or node.n_bytes)
            self.begun.append((self.copies[key], (), side))
        return self.copies[key]

    def converted(self, node: Tensor, moved: bool) -> int:
        """Bytes that CUDA's flash attention takes behind its result for keys and values as f16 (fattn-common.cuh:53).

        Values that are a part of the keys are not converted again, unless both were copied in.
        """
        read = [self.places.residents[name] for name in node.reads if name in self.places.residents]
        sizes = [one.f16_bytes for one in read if moved or not one.is_part]
        return sum(-(-n // CUDA_ALIGNMENT) * CUDA_ALIGNMENT for n in sizes)
