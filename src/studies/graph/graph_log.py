"""Parses the debug lines of ggml's scheduler: the splits of a graph, what is copied for each, and their nodes.

With GGML_SCHED_DEBUG=2 the scheduler logs every graph that it divides (ggml_backend_sched_print_assignments,
ggml-backend.cpp:997). Views are left out there: they compute nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from inferlab.errors import EngineRefused
from inferlab.units import KIB, MIB

GRAPH_ENVIRONMENT = {"GGML_SCHED_DEBUG": "2"}
"""What an engine must be started with, so that it can trace a graph."""
SPLIT_LINE = re.compile(r"## SPLIT #\d+: (.+?) # \d+ inputs(?:: (.*))?")
INPUT = re.compile(r"\[(.*?) \( *(\d+)([KM])\)\] ")
NODE_LINE = re.compile(r"node # *(\d+) \( *(.+?)\): *(.*?) \( *\d+[KM]\) \[.{5} .{8}\] use=\d+,c=\d:")
UNITS = {"K": KIB, "M": MIB}


@dataclass(frozen=True)
class Copied:
    """A tensor that is copied to the split's backend before the split is computed, and its bytes."""

    name: str
    n_bytes: int


@dataclass(frozen=True)
class Node:
    """One operation of a graph.

    index  its place in the graph, views included
    op     ggml's name of the operation, at most 10 characters
    name   the name of its result, at most 20 characters
    """

    index: int
    op: str
    name: str


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
        return sum(tensor.n_bytes for tensor in self.inputs)


def splits_in(lines: str, copy_bytes: Mapping[str, int]) -> tuple[Split, ...]:
    """The splits of the last graph in the scheduler's lines.

    copy_bytes  exact bytes by the name of the copy, `backend#tensor#number`; where they lack, the log's, rounded down
    Raises EngineRefused where the lines have no split: the engine was not started with GRAPH_ENVIRONMENT.
    """
    splits: list[Split] = []
    for line in lines.splitlines():
        if split := SPLIT_LINE.match(line):
            splits = [] if line.startswith("## SPLIT #0:") else splits
            splits.append(Split(split[1], _inputs(split[1], split[2] or "", copy_bytes), ()))
        elif splits and (node := NODE_LINE.match(line)):
            splits[-1] = replace(splits[-1], nodes=(*splits[-1].nodes, Node(int(node[1]), node[2], node[3])))
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
