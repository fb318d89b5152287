"""Parses the debug lines of ggml's scheduler: the splits of a graph, what is copied for each, and their nodes.

With GGML_SCHED_DEBUG=2 the scheduler logs every graph that it divides (ggml_backend_sched_print_assignments,
ggml-backend.cpp:997). Views are left out there: they compute nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inferlab.errors import EngineRefused
from inferlab.units import KIB, MIB

GRAPH_ENVIRONMENT = {"GGML_SCHED_DEBUG": "2"}
"""What an engine must be started with, so that it can trace a graph."""
SPLIT_LINE = re.compile(r"## SPLIT #\d+: (.+?) # \d+ inputs(?:: (.*))?")
INPUT = re.compile(r"\[(.*?) \( *(\d+)([KM])\)\] ")
NODE_LINE = re.compile(r"node # *(\d+) \( *(.+?)\): *(.*?) \( *\d+[KM]\) \[.{5} .{8}\] use=\d+,c=\d:(.*)")
SOURCE = re.compile(r" +(.{1,20}?) \( *\d+[KM]\) \[.{5} .{8}\]")
UNITS = {"K": KIB, "M": MIB}
COPY = "(copy)"


@dataclass(frozen=True)
class Copied:
    """A tensor that is copied to the split's backend before the split is computed, and its bytes."""

    name: str
    n_bytes: int


@dataclass(frozen=True)
class Node:
    """One operation of a graph.

    index    its place in the graph, views included
    op       ggml's name of the operation, at most 10 characters
    name     the name of its result, at most 20 characters
    n_bytes  bytes of its result
    sources  names of what it reads, at most 20 characters each; "(copy)" is a tensor copied for its split
    """

    index: int
    op: str
    name: str
    n_bytes: int
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Split:
    """Consecutive nodes that one backend computes, and what is copied to it for them."""

    backend: str
    inputs: tuple[Copied, ...]
    nodes: tuple[Node, ...]

    @property
    def on_host(self) -> bool:
        """Whether the CPU computes it."""
        return self.backend.startswith("CPU")

    @property
    def copied_bytes(self) -> int:
        return sum(one.n_bytes for one in self.inputs)


def splits_in(
    lines: str, node_bytes: Sequence[int] = (), copy_bytes: Mapping[str, int] | None = None
) -> tuple[Split, ...]:
    """The splits of the last graph in the scheduler's lines.

    node_bytes  exact bytes of each node by its index; without them, and for a node beyond them, 0
    copy_bytes  exact bytes by the name of the copy, `backend#tensor#number`; without them the log's, rounded down
    Raises EngineRefused where the lines have no split: the engine was not started with GRAPH_ENVIRONMENT.
    """
    splits: list[Split] = []
    for line in lines.splitlines():
        if found := SPLIT_LINE.match(line):
            splits = [] if line.startswith("## SPLIT #0:") else splits
            splits.append(Split(found[1], _inputs(found[1], found[2] or "", copy_bytes or {}), ()))
        elif splits and (found := NODE_LINE.match(line)):
            splits[-1] = Split(splits[-1].backend, splits[-1].inputs, (*splits[-1].nodes, _node(found, node_bytes)))
    if not splits:
        raise EngineRefused(
            "llama.cpp's log has no line of a split. Start the engine with environment=GRAPH_ENVIRONMENT.", lines[-500:]
        )
    return tuple(splits)


def _inputs(backend: str, text: str, copy_bytes: Mapping[str, int]) -> tuple[Copied, ...]:
    exact = {name.rpartition("#")[0]: n_bytes for name, n_bytes in copy_bytes.items()}
    return tuple(
        Copied(name, exact.get(f"{backend}#{name}", int(size) * UNITS[unit]))
        for name, size, unit in INPUT.findall(text)
    )


def _node(found: re.Match[str], node_bytes: Sequence[int]) -> Node:
    index, sources = int(found[1]), SOURCE.findall(found[4])
    names = tuple(COPY if "[" in name else name for name in sources)
    return Node(index, found[2], found[3], node_bytes[index] if index < len(node_bytes) else 0, names)
