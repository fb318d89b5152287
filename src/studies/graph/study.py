"""The graph of a pass as ggml's scheduler divides it: which backend computes which operation, and what is copied."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from inferlab.engine.client import LlamaEngine
from inferlab.engine.linked import linked_libraries
from inferlab.engine.loopback import loopback_device
from inferlab.errors import InvalidSettings
from inferlab.measurement.base import Measurement, common_fields, with_context
from inferlab.measurement.queued import queued
from inferlab.measurement.run import Run
from inferlab.measurement.sweep import Sweep
from inferlab.model.find import find_model, tiny_model
from inferlab.model.gguf import read_gguf
from inferlab.records import load
from inferlab.settings import Settings
from inferlab.units import KIB, MIB
from studies.graph.graph_log import GRAPH_ENVIRONMENT, Node, Split, splits_in

Table = tuple[Sequence[str], Sequence[Sequence[str | int]]]
Placement = tuple[int, bool, str]
"""n_gpu_layers, offload_kqv and flash_attn."""

LAYER = re.compile(r"(?:-|_l)(\d+)\b")  # attn_norm-3, cache_k_l3
EMBEDDING, OUTPUT = "embedding", "logits"
PARTS = ("norm", "Q, K, V", "RoPE", "cache write", "attention", "output", "FFN norm", "FFN", "sums")
"""The parts of a layer in the order of a figure; `EMBEDDING` and `OUTPUT` are outside of the layers."""
BY_OP = {"ROPE": "RoPE", "SET_ROWS": "cache write", "GET_ROWS": "output"} | dict.fromkeys(
    ("FLASH_ATTN", "SOFT_MAX"), "attention"
)
BY_NAME = (
    *(("attn_norm", "norm"), ("ffn_norm", "FFN norm"), ("ffn_inp", "sums"), ("l_out", "sums"), ("ffn_", "FFN")),
    *(("Qcur", "Q, K, V"), ("Kcur", "Q, K, V"), ("Vcur", "Q, K, V"), ("attn_out", "output"), ("kq", "attention")),
)
SAID = {
    EMBEDDING: "copies the row of the token id out of the table",
    "norm": "scales the hidden state",
    "Q, K, V": "three products with matrices",
    "RoPE": "turns query and key by the position",
    "cache write": "writes key and value into one cell",
    "attention": "compares the query with the cells in use, mixes values",
    "output": "a product; in the last layer also the choice of rows",
    "FFN norm": "scales again",
    "FFN": "three products and a gate",
    "sums": "the two residual sums",
    OUTPUT: "last norm, and a product with one row per entry of the vocabulary",
}
"""What each part does, in the order of a token."""
SOME = 3
"""Layers on the device in the page's middle case."""


@dataclass(frozen=True)
class Step:
    """An operation with its place: the layer (None outside of the layers), the part, and the split that has it."""

    node: Node
    layer: int | None
    part: str
    split: int
    on_host: bool


@dataclass(frozen=True)
class GraphPass:
    """The graph of one pass: n_tokens computed together, in splits that run one after the other."""

    n_tokens: int
    splits: tuple[Split, ...]

    @property
    def n_nodes(self) -> int:
        """Operations that compute something: views are not counted."""
        return sum(len(split.nodes) for split in self.splits)

    @property
    def copied_bytes(self) -> int:
        """Bytes that the scheduler copies between backends for this pass, in both directions.

        The result is not among them: llama.cpp fetches the logits after the last split.
        """
        return sum(split.copied_bytes for split in self.splits)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The operations in their order, each with its layer and its part."""
        return tuple(self._steps())

    def _steps(self) -> Iterator[Step]:
        layer, nodes = None, [(i, split, node) for i, split in enumerate(self.splits) for node in split.nodes]
        for place, (index, split, node) in enumerate(nodes):
            layer = _layer(node, layer)
            part = _part(node, nodes[place + 1][2] if place + 1 < len(nodes) else None, layer)
            yield Step(node, None if part == OUTPUT else layer, part, index, split.on_host)


@dataclass(frozen=True, kw_only=True)
class GraphTrace(Measurement):
    """The graphs of a prompt and of one token after it, as the scheduler divided them."""

    prefill: GraphPass
    decode: GraphPass

    @property
    def n_layer(self) -> int:
        """Layers of which the decode step has operations."""
        return 1 + max((step.layer for step in self.decode.steps if step.layer is not None), default=-1)


@queued
def trace_graph(
    model: str | Path | None = None,
    settings: Settings | None = None,
    n_prompt: int = 64,
    engine: LlamaEngine | None = None,
) -> GraphTrace:
    """Compute a prompt in one batch and one token after it, and read how the scheduler divided both graphs.

    engine  one that was started with graph_log.GRAPH_ENVIRONMENT; None starts one and stops it afterwards
    Raises InvalidSettings if the prompt does not fit one batch, ModelError, EngineRefused or EngineCrashed.
    """
    settings = settings or Settings()
    if not 0 < n_prompt <= min(settings.n_batch, settings.n_ubatch):
        raise InvalidSettings(
            f"n_prompt={n_prompt} must be at least 1 and fit one batch: n_batch={settings.n_batch}, "
            f"n_ubatch={settings.n_ubatch}. A longer prompt is several graphs."
        )
    if engine is None:
        with closing(LlamaEngine(environment=GRAPH_ENVIRONMENT)) as engine:
            return trace_graph(model, settings, n_prompt, engine)
    path = find_model(model)
    with engine.exclusive():
        opening = engine.open(path, with_context(settings, n_prompt, 1))
        graphs = engine.trace(engine.random_prompt(n_prompt))
        prefill, decode = (splits_in(graph["lines"], graph["copy_bytes"]) for graph in graphs)
        common = common_fields(engine, opening, read_gguf(path))
    return GraphTrace(**common, prefill=GraphPass(n_prompt, prefill), decode=GraphPass(1, decode))


def _layer(node: Node, before: int | None) -> int | None:
    """The layer in the node's name; a node without one belongs where the node before it does, but for the output."""
    if node.name.startswith("result") or node.name == "embd":
        return None
    numbered = LAYER.search(node.name)
    return int(numbered[1]) if numbered else before


def _part(node: Node, following: Node | None, layer: int | None) -> str:
    """The part of a layer that a node belongs to; a norm belongs to the product that follows it."""
    if layer is None:
        return EMBEDDING if node.op == "GET_ROWS" else OUTPUT
    if node.op in BY_OP:  # the rows whose logits are wanted are chosen by GET_ROWS in the last layer
        return BY_OP[node.op]
    name = following.name if node.op == "RMS_NORM" and following else node.name
    if name.startswith("result"):
        return OUTPUT
    otherwise = "sums" if node.op == "ADD" else "attention"
    return next((part for start, part in BY_NAME if name.startswith(start)), otherwise)


# --- the page's runs --------------------------------------------------------------------------


def placements() -> dict[str, tuple[Any, ...]]:
    """The values of each setting that the page combines; the embedded model's layers and its output matrix are last."""
    n_layer = read_gguf(tiny_model()).n_layer
    return {
        "n_gpu_layers": (0, SOME, n_layer, n_layer + 1),
        "offload_kqv": (True, False),
        "flash_attn": ("on", "off"),
    }


def traced_placements() -> dict[Placement, GraphTrace]:
    """The embedded model's graphs on a loopback device, for every placement; takes seconds.

    Raises DeviceUnavailable where no loopback device starts.
    """
    with loopback_device() as device, closing(LlamaEngine(environment=GRAPH_ENVIRONMENT)) as engine:
        traces = {}
        for values in product(*placements().values()):
            asked = Settings(n_ctx=512, **dict(zip(placements(), values, strict=True)))
            traces[values] = trace_graph(settings=device.settings(asked), engine=engine)
        return traces


def numbers(traces: Mapping[Placement, GraphTrace]) -> dict[str, float | int]:
    """Splits of a decode step and KiB that are copied for a token and for the prompt, of five placements."""
    every = placements()["n_gpu_layers"][-1]
    named = {
        "device": traces[every, True, "on"],
        "ram": traces[every, False, "on"],
        "plain": traces[every, False, "off"],
        "host": traces[0, True, "on"],
        "partly": traces[SOME, True, "on"],
    }
    return {
        **{f"{name}_splits": len(trace.decode.splits) for name, trace in named.items()},
        **{f"{name}_kib": trace.decode.copied_bytes / KIB for name, trace in named.items()},
        **{f"{name}_prefill_kib": trace.prefill.copied_bytes / KIB for name, trace in named.items()},
        "n_prompt": named["device"].prefill.n_tokens,
        "n_nodes": named["device"].decode.n_nodes,
    }


def operations_table(trace: GraphTrace) -> Table:
    """Heads and rows: the operations of each part of a decode step, for the last layer, and what they do."""
    last = [step for step in trace.decode.steps if step.layer in (None, trace.n_layer - 1)]
    rows = []
    for part, said in SAID.items():
        ops = Counter(step.node.op for step in last if step.part == part)
        times = (f"{n} \N{MULTIPLICATION SIGN} `{op}`" if n > 1 else f"`{op}`" for op, n in ops.items())
        rows.append((part, ", ".join(times), said))
    return ("part", "operations in ggml", "what it does"), rows


def division_table() -> Table:
    """Heads and rows: MiB on the CPU and on a device by the number of layers requested, from a recorded sweep."""
    heads = "layers on the device", "weights on the CPU", "weights on the device", "KV cache on the CPU"
    columns = ("weights", "CPU"), ("weights", "RPC"), ("kv_cache", "CPU")
    return heads, [
        (run.settings.n_gpu_layers, *(f"{_bytes_on(run, *column) / MIB:.0f}" for column in columns))
        for run in load("epyc-2c/split-layers", Sweep).runs[::3]
    ]


def _bytes_on(run: Run, kind: str, place: str) -> int:
    return sum(b.n_bytes for b in run.buffers if b.kind == kind and b.device.startswith(place))


def libraries_table() -> Table:
    """Heads and rows: llama.cpp's shared libraries here, and what each is linked to."""
    return ("library", "linked to, on the machine that built this page"), [
        (f"`{name}`", ", ".join(f"`{needs}`" for needs in needed)) for name, needed in linked_libraries().items()
    ]
