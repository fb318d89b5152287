"""One batch as tensors and operations, in ggml's order, and the bytes that ggml-alloc needs for them.

A tensor is allocated before its operation and freed after its last use. It takes the smallest free block that holds it,
of equal ones the last; where none does, the open end behind them all. A buffer is as large as the highest end:

    size = max over tensors (offset + bytes)

So the tensors that live at once are not all: holes decide what lies behind what. Some operations take over the block
of a source that nothing else reads, unless that is a view (ggml_gallocr_is_own, ggml-alloc.c:641).
Sources: ggml_visit_parents_graph (ggml.c:7245), ggml_dyn_tallocr_alloc, ggml_gallocr_allocate_node and
ggml_gallocr_alloc_graph_impl (ggml-alloc.c:202, 623, 718), the inputs that a device copies (ggml-backend.cpp:1520).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

ALIGNMENT = 32  # of host memory and of a loopback device (TENSOR_ALIGNMENT, ggml-impl.h:44); CUDA has 128
ENDLESS = 1 << 62


@dataclass(eq=False, slots=True)
class Tensor:
    """The result of an operation on other tensors, or an input of the batch; weights and cache are not among them.

    in_place  whether the operation may write over a source
    base      the tensor that this one is a view of
    on_host   whether the host computes it beside a device, since it has its weights
    reads     the weight or the caches that it reads, by name: "blk.3.attn_q.weight", "blk.3.k"
    writes    the block whose cache it writes to, -1 for none
    """

    n_bytes: int
    sources: tuple[Tensor, ...] = ()
    in_place: bool = False
    base: Tensor | None = None
    on_host: bool = False
    is_input: bool = False
    is_constant: bool = False  # an input that lies where it is used
    reads: tuple[str, ...] = ()
    writes: int = -1


CACHE = Tensor(0)  # what is written to the cache is a view of it


def operation(n_bytes: int, *sources: Tensor) -> Tensor:
    """A tensor of its own."""
    return Tensor(n_bytes, sources)


def in_place(first: Tensor, *sources: Tensor) -> Tensor:
    """As large as the first source, over which it may be written."""
    return Tensor(first.n_bytes, (first, *sources), in_place=True)


def view(source: Tensor, n_bytes: int | None = None) -> Tensor:
    return Tensor(source.n_bytes if n_bytes is None else n_bytes, (source,), base=source.base or source)


def store(*sources: Tensor, block: int = -1) -> Tensor:
    """Values written into the cache of a block."""
    return Tensor(0, sources, base=CACHE, writes=block)


def reading(x: Tensor, *names: str) -> Tensor:
    """The same operation, which reads these weights or caches."""
    x.reads = names
    return x


@dataclass
class Graph:
    """The operations in the order in which they are computed, and the inputs in the order of their first use."""

    nodes: list[Tensor] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    kept: list[Tensor] = field(default_factory=list)  # outputs, which are never freed
    joints: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # see `settled`
    attention: list[tuple[Tensor, int]] = field(default_factory=list)  # flash attention, with the block of each
    fused: dict[int, tuple[tuple[Tensor, ...], tuple[Tensor, ...]]] = field(default_factory=dict)  # see `scheduled`

    def expand(self, *tensors: Tensor) -> None:
        """Append what the tensors need and is not there yet, sources first; their chain may be long."""
        begun: list[Tensor] = []
        waiting = [iter(tensors)]
        while waiting:
            for tensor in waiting[-1]:
                if id(tensor) not in self.seen:
                    self.seen.add(id(tensor))
                    begun.append(tensor)
                    waiting.append(iter(tensor.sources))
                    break
            else:
                waiting.pop()
                if begun:
                    done = begun.pop()
                    (self.inputs if done.is_input else self.nodes).append(done)

    def unlink(self) -> None:
        """Take the tensors apart. A long chain that ends as a whole would end one call inside another."""
        for tensor in (*self.nodes, *self.inputs):
            tensor.sources, tensor.base = (), None
        self.fused.clear()
        self.attention.clear()


class GrowingBuffer:
    """A buffer that grows at its end, with the free blocks that ggml-alloc would have in it."""

    def __init__(self, alignment: int = ALIGNMENT) -> None:
        self.blocks: list[list[int]] = [[0, ENDLESS]]  # offset and bytes of each free block, by offset
        self.size, self.alignment = 0, alignment

    def allocate(self, n_bytes: int) -> int:
        """The offset of a new block."""
        n_bytes = -(-n_bytes // self.alignment) * self.alignment
        best, best_size = -1, ENDLESS
        for i, (_, size) in enumerate(self.blocks[:-1]):
            if n_bytes <= size <= best_size:
                best, best_size = i, size
        block = self.blocks[best]
        offset = block[0]
        block[0] += n_bytes
        block[1] -= n_bytes
        if not block[1]:
            del self.blocks[best]
        self.size = max(self.size, offset + n_bytes)
        return offset

    def free(self, offset: int, n_bytes: int) -> None:
        """Make a block free again, as one with the free blocks beside it (ggml_dyn_tallocr_free_bytes).

        The first block that touches it takes it; an empty one between two others keeps them apart, as in ggml.
        """
        n_bytes = -(-n_bytes // self.alignment) * self.alignment
        blocks = self.blocks
        for i, block in enumerate(blocks):
            if block[0] + block[1] == offset:
                block[1] += n_bytes
                if i + 1 < len(blocks) and block[0] + block[1] == blocks[i + 1][0]:
                    block[1] += blocks.pop(i + 1)[1]
                return
            if offset + n_bytes == block[0]:
                block[0], block[1] = offset, block[1] + n_bytes
                if i and sum(blocks[i - 1]) == offset:
                    blocks[i - 1][1] += blocks.pop(i)[1]
                return
        behind = (i for i, block in enumerate(blocks) if block[0] >= offset)
        blocks.insert(next(behind, len(blocks)), [offset, n_bytes])


class Sum:
    """A buffer without holes: as large as what lives in it at once."""

    def __init__(self) -> None:
        self.alive = self.size = 0

    def allocate(self, n_bytes: int) -> int:
        self.alive += n_bytes
        self.size = max(self.size, self.alive)
        return 0

    def free(self, _: int, n_bytes: int) -> None:
        self.alive -= n_bytes


@dataclass(slots=True)
class Use:
    """What is known of a tensor during the replay."""

    children: int = 0
    views: int = 0
    offset: int = -1
    n_bytes: int = 0
    buffer: GrowingBuffer | Sum | None = None


Step = tuple[Tensor, Sequence[Tensor]]  # an operation, and its sources as its device has them


def replayed_bytes(
    inputs: Iterable[Tensor],
    steps: Sequence[Step],
    kept: Sequence[Tensor] = (),
    joints: Sequence[tuple[Tensor, Tensor]] = (),
) -> int | None:
    """Bytes of the buffer in which the inputs lie first, and then every step's result; None where it is not settled.

    A joint is where rounds of equal layers are left out, and where the last round before began. Only if both find the
    same holes and the same tensors between them, the rounds that are missing would have found them, too.
    """
    buffer, uses = GrowingBuffer(), _counted(inputs, steps)
    found: dict[int, tuple[object, ...]] = {id(tensor): () for joint in joints for tensor in joint}
    for tensor in kept:
        uses[id(tensor)].children += 1
    for tensor in inputs:
        _allocate(buffer, uses[id(tensor)], tensor.n_bytes)
    for tensor, sources in steps:
        _place(buffer, uses, tensor, sources)
        _release(uses, sources)
        if id(tensor) in found:
            found[id(tensor)] = *map(tuple, buffer.blocks), *(use.offset for use in uses.values() if use.offset >= 0)
    settled = all(found[id(first)] == found[id(second)] for first, second in joints)
    return buffer.size if settled else None


def _counted(inputs: Iterable[Tensor], steps: Sequence[Step]) -> dict[int, Use]:
    uses: dict[int, Use] = {id(CACHE): Use()}
    for tensor in inputs:
        uses[id(tensor)] = Use()
    for tensor, _ in steps:
        uses[id(tensor)] = Use()
    for tensor, sources in steps:
        if tensor.base and id(tensor.base) in uses:
            uses[id(tensor.base)].views += 1
        for source in sources:
            uses[id(source)].children += 1
    return uses


def _allocate(buffer: GrowingBuffer | Sum, use: Use, n_bytes: int) -> None:
    use.offset, use.n_bytes, use.buffer = buffer.allocate(n_bytes), n_bytes, buffer


def _place(buffer: GrowingBuffer | Sum, uses: dict[int, Use], tensor: Tensor, sources: Sequence[Tensor]) -> None:
    if tensor.base:
        return
    use = uses[id(tensor)]
    for source in sources if tensor.in_place else ():
        parent = uses[id(source)]
        owned = parent.offset >= 0 and not source.base
        if owned and source.n_bytes == tensor.n_bytes and parent.children == 1 and not parent.views:
            use.offset, use.n_bytes, use.buffer, parent.offset = parent.offset, parent.n_bytes, parent.buffer, -1
            return
    _allocate(buffer, use, tensor.n_bytes)


def _release(uses: dict[int, Use], sources: Sequence[Tensor]) -> None:
    for source in sources:
        use = uses[id(source)]
        use.children -= 1
        if use.children or use.views:
            continue
        if source.base:
            use = uses.get(id(source.base), uses[id(CACHE)])
            use.views -= 1
        if not use.children and not use.views and use.offset >= 0 and use.buffer:
            use.buffer.free(use.offset, use.n_bytes)
            use.offset = -1


def shared_bytes(
    inputs: Iterable[tuple[Tensor, int]],
    steps: Sequence[tuple[Tensor, Sequence[Tensor], int]],
    kept: Sequence[Tensor],
    alignments: Sequence[int],
) -> tuple[int, int]:
    """Bytes of two buffers; each input and each step comes with the number of its own."""
    buffers, placed = [GrowingBuffer(alignment) for alignment in alignments], list(inputs)
    uses = _counted((tensor for tensor, _ in placed), [(tensor, sources) for tensor, sources, _ in steps])
    for tensor in kept:
        uses[id(tensor)].children += 1
    for tensor, number in placed:
        _allocate(buffers[number], uses[id(tensor)], tensor.n_bytes)
    for tensor, sources, number in steps:
        _place(buffers[number], uses, tensor, sources)
        _release(uses, sources)
    return buffers[0].size, buffers[1].size


def alive_bytes(nodes: Sequence[Tensor]) -> int:
    """Bytes of the results of these operations that live at once: a device that computes them needs no less."""
    here = {id(node) for node in nodes}
    steps = [(node, [source for source in node.sources if id(source) in here]) for node in nodes]
    buffer, uses = Sum(), _counted((), steps)
    for tensor, sources in steps:
        _place(buffer, uses, tensor, sources)
        _release(uses, sources)
    return buffer.size


def host_bytes(graph: Graph) -> int | None:
    """Bytes of the compute buffer of the host alone; None where layers are left out that would have changed it."""
    return replayed_bytes(graph.inputs, [(node, node.sources) for node in graph.nodes], graph.kept, graph.joints)


def device_bytes(graph: Graph) -> tuple[int, int] | None:
    """Bytes of the buffers of the host and of a device that has the whole model and its cache; None as above.

    The device begins with copies of what it needs of the host, in the order of their use.
    """
    here = {
        id(node) for node in graph.nodes if node.on_host or (node.base and (node.base.on_host or node.base.is_input))
    }
    constants = [tensor for tensor in graph.inputs if tensor.is_constant]
    of_host = [tensor for tensor in graph.inputs if not tensor.is_constant]
    here |= {id(tensor) for tensor in of_host}
    copies: dict[int, Tensor] = {}
    steps: list[Step] = []
    for node in graph.nodes:
        if id(node) in here:
            continue
        for source in node.sources:
            if id(source) in here and id(source) not in copies:
                copies[id(source)] = Tensor(source.n_bytes)
        steps.append((node, [copies.get(id(source), source) for source in node.sources]))
    device = replayed_bytes([*constants, *copies.values()], steps, graph.kept, graph.joints)
    host_steps = [(node, node.sources) for node in graph.nodes if id(node) in here]
    copied = [(Tensor(0, base=CACHE), (source,)) for source in (*of_host, *graph.nodes) if id(source) in copies]
    host = replayed_bytes(of_host, [*host_steps, *copied])
    return None if host is None or device is None else (host, device)
