"""What two devices hold and exchange under each split mode: plans, recorded loads, and bytes from a model's shape.

The recorded devices are loopback devices, which share the cores of one machine: no rate of theirs is one of two cards.
Their bytes are those of the RPC protocol (`watched`), to the byte; llama.cpp's log has one number for both devices
where they share each matrix. A plan was made for devices of the same kind before the model was opened.

Bytes that two devices exchange for each token of a batch:

    whole layers   n_embd * 4 bytes at each boundary, where a block's device is not that of the block before
    shared         two sums for each block, of n_embd * 4 bytes each: of two devices each sends its part to the other
Beside that the first device receives the embedded token, n_embd * 4 bytes, and the host reads the logits, n_vocab * 4
bytes: from the last device, or from each device its part of them. Masks, positions and cell numbers are a few bytes.
The sums are those of the attention output and of the feed-forward network, the two products that are divided by their
inputs (ggml-backend-meta.cpp:640-700, 2031-2210); the experts of a token are summed on their device first.
With more than two devices the exchange has ceil(log2(devices)) steps of this size (:2323-2440); NCCL has its own ways.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from inferlab.engine.log import Buffer
from inferlab.facts import cited_facts, read_table
from inferlab.machine import Machine
from inferlab.model.catalog import known_model
from inferlab.model.gguf import Model
from inferlab.model.synthetic_model import shape
from inferlab.prediction.link_rates import cited_rungs
from inferlab.prediction.memory import MemoryPlan
from inferlab.prediction.memory.tensor_split import TensorSplit
from inferlab.prediction.predict import predict_memory
from inferlab.records import load
from inferlab.settings import Settings
from inferlab.shown import Shown
from inferlab.units import GIB, KIB, MIB

KINDS = ("weights", "kv_cache", "compute")
HALF = {"n_embd": 2048, "n_head": 16, "n_head_kv": 4, "n_ff": 7168}  # of Llama 3.1 8B in each dimension
TIED = "tied embedding"
SHAPES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "grouped heads": ("llama-3.1-8b", HALF | {"n_layer": 4, "n_vocab": 4096}),
    TIED: ("qwen3-0.6b", {"n_layer": 6, "n_vocab": 16384}),
    "experts": ("granite-3.1-1b-a400m", {"n_layer": 4, "n_vocab": 4096}),
}
"""What a shape stands for -> a known model and its dimensions; each is small enough to be opened in a second or two."""
MIX = "Q4_K_M"
EVEN, FIRST_ALONE = {"tensor_split": (1.0, 1.0)}, {"tensor_split": (1.0, 0.0)}
VALUE_BYTES = 4  # activations are f32 between operations
SUMS_PER_BLOCK = 2
UBATCH = 512  # given: llama.cpp's default n_ubatch
PRINTED = 0.01 * MIB  # llama.cpp's log has buffers to this
TIMES = "\N{MULTIPLICATION SIGN}"
Table = tuple[Sequence[str], Sequence[Sequence[str]]]


# --- the record ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeviceUse:
    """What one device held and exchanged.

    weights_bytes, kv_cache_bytes, compute_bytes  allocated when the model was opened
    sums_bytes           allocated with the first full batch: space for the other device's partial sums
    received_per_token   bytes of tensors sent to the device for one token of decode
    sent_per_token       bytes of tensors read from it
    """

    weights_bytes: int
    kv_cache_bytes: int
    compute_bytes: int
    sums_bytes: int = 0
    received_per_token: float = 0.0
    sent_per_token: float = 0.0


@dataclass(frozen=True)
class Use:
    """One request on several devices: `devices` in the order of the settings' servers, and what the host's log says.

    tokens  the likeliest tokens of the last pass, to compare answers of two modes
    """

    devices: tuple[DeviceUse, ...]
    host: tuple[Buffer, ...] = ()
    tokens: tuple[int, ...] = ()
    pipelined: bool = False


@dataclass(frozen=True)
class Case:
    """One request: what was planned for each device, and what it held; or why there is no load.

    shape    a key of SHAPES
    changes  the settings that differ from `measure.BASE`
    planned  bytes of weights, KV cache and compute of each device; None where the plan has a range
    compute_range  least and most compute bytes of each device, equal where the plan is exact
    method   of the plan
    sums_bytes  planned for the buffers that the log does not have
    refused  the error, where the request was refused
    """

    shape: str
    changes: dict[str, object]
    planned: tuple[tuple[int | None, ...], ...] = ()
    compute_range: tuple[tuple[int, int], ...] = ()
    method: str = ""
    sums_bytes: int = 0
    use: Use | None = None
    refused: str = ""

    def differences(self, kind: str) -> tuple[int, ...]:
        """Allocated less planned bytes of one kind on each device; () where nothing was loaded or planned."""
        at = KINDS.index(kind)
        if self.use is None:
            return ()
        held = [getattr(device, f"{kind}_bytes") for device in self.use.devices]
        return tuple(n - planned[at] for n, planned in zip(held, self.planned, strict=True) if planned[at] is not None)

    @property
    def ranged(self) -> tuple[bool, ...]:
        """Whether each compute buffer that was planned as a range lies in it."""
        if self.use is None:
            return ()
        ends = zip(self.use.devices, self.compute_range, strict=True)
        return tuple(least <= held.compute_bytes <= most for held, (least, most) in ends if least != most)


@dataclass(frozen=True, kw_only=True)
class SeveralCards(Shown):
    """All cases, on one machine with one llama.cpp."""

    machine: Machine
    date: str
    cases: tuple[Case, ...]

    @property
    def badge(self) -> str:
        return self.machine.badge(self.date, synthetic=True, devices="two loopback devices")

    @property
    def loaded(self) -> tuple[Case, ...]:
        """The cases that llama.cpp loaded."""
        return tuple(case for case in self.cases if case.use)

    def largest_difference(self, kind: str) -> int:
        """The largest absolute difference of allocated and planned bytes of one kind, over all loads and devices."""
        return max((abs(n) for case in self.loaded for n in case.differences(kind)), default=0)

    def at(self, shape: str, **changes: object) -> Case:
        """The case of a shape whose changes are these and no others."""
        return next(case for case in self.cases if case.shape == shape and case.changes == changes)


@cache
def recorded() -> SeveralCards:
    """Every split mode, share, and side of layers, cache and experts, for each shape."""
    return load("epyc-2c/several-cards", SeveralCards)


def model_of(shape_name: str) -> Model:
    """The model that a key of SHAPES stands for."""
    name, dimensions = SHAPES[shape_name]
    return shape(name, MIX, **dimensions)


# --- what crosses -------------------------------------------------------------------------------


def vector_bytes(model: Model) -> int:
    """Bytes of one token's hidden state: what crosses each boundary of whole layers."""
    return model.n_embd * VALUE_BYTES


def sum_bytes(model: Model) -> int:
    """Bytes per token that each of two devices sends to the other where they share every matrix."""
    return SUMS_PER_BLOCK * model.n_layer * vector_bytes(model)


def crossing_table() -> Table:
    """Heads and rows: what crosses with whole layers and with shared matrices, for two models."""
    rows = []
    for name in ("llama-3.1-8b", "llama-3.1-70b"):
        model = shape(name, MIX)
        vector, sums = vector_bytes(model), sum_bytes(model)
        sizes = vector / KIB, SUMS_PER_BLOCK * model.n_layer, sums / KIB, UBATCH * sums / MIB
        cells = *sizes, 1e3 * UBATCH * sums / _bus_bytes_per_second()
        rows.append((known_model(name).name, *(f"{cell:.0f}" for cell in cells)))
    heads = "model", "`layer`: KiB a token", "`tensor`: sums a token", "KiB a token, each way"
    return (*heads, f"MiB for {UBATCH} tokens", f"their ms, PCIe 4.0 {TIMES}8"), rows


def _bus_bytes_per_second() -> float:
    return next(rung.bytes_per_second for rung in cited_rungs() if rung.name == "PCIe 4.0, 8 lanes")


def received_beside(shape_name: str) -> tuple[float, float]:
    """What the second device received for a token beside a vector with whole layers, and beside the sums."""
    model = model_of(shape_name)
    layers, tensors = (
        recorded().at(shape_name, split_mode=mode, **EVEN).use.devices[1].received_per_token
        for mode in ("layer", "tensor")
    )
    return layers - vector_bytes(model), tensors - sum_bytes(model)


# --- the page -----------------------------------------------------------------------------------


def numbers() -> dict[str, float]:
    """The numbers of the page *Several cards*."""
    *_, block, output = _large_plan((1, 1)).layers
    return {
        **_cited_numbers(),
        "out_mib": output.weights_bytes / MIB,
        "block_mib": block.weights_bytes / MIB,
        **_load_numbers(),
        **_divided_numbers(),
        "bus_rate": _bus_bytes_per_second() / 1e9,
        "most_beside": max(n for name in SHAPES for n in received_beside(name)) / KIB,
    }


def _cited_numbers() -> dict[str, float]:
    """How many times as fast others measured two cards."""
    cited = {name.replace("-", "_"): fact.value for name, fact in cited_facts("several_cards").items()}
    of_one = {f"p40_{kind}": cited[f"two_p40_{kind}"] / cited[f"one_p40_{kind}"] for kind in ("prompt", "decode")}
    return of_one | {
        f"{name}_{kind}": cited[f"{name}_tensor_{kind}"] / cited[f"{name}_layer_{kind}"]
        for name in ("dense", "sparse", "glm", "amd")
        for kind in ("prompt", "decode", "decode_deep")
    }


@cache
def _large_plan(shares: tuple[int, int]) -> MemoryPlan:
    """Of Qwen3 32B on two cards, divided by whole layers."""
    servers = ("127.0.0.1:1", "127.0.0.1:2")
    wanted = Settings(n_ctx=16_384, n_gpu_layers=-1, flash_attn="on", rpc_servers=servers, tensor_split=shares)
    return predict_memory(shape("qwen3-32b", MIX), wanted, simulate=False)


def split_table() -> Table:
    """Heads and rows: for two shares, what each of a large and a small card would hold, and whether that fits."""
    rows = []
    for shares in ((1, 1), (3, 1)):
        plan = _large_plan(shares)
        for card, size in (("gpu0", 24), ("gpu1", 8)):
            least, most, held = plan.least_bytes(card) / GIB, plan.most_bytes(card) / GIB, plan.devices[card]
            sizes = f"{held.weights_bytes / GIB:.1f}", f"{held.kv_cache_bytes / GIB:.1f}", f"{least:.1f} to {most:.1f}"
            verdict = "fits" if most <= size - 1 else "too large" if least > size - 1 else "open"
            rows.append((f"`-ts {shares[0]},{shares[1]}`", f"{size} GiB", *sizes, verdict))
    return ("setting", "card", "weights, GiB", "cache, GiB", "total, GiB", "verdict"), rows


def shown_cases() -> tuple[Case, ...]:
    """The cases of the figure: one device, then both modes with even shares and with all on the first."""
    split = (
        recorded().at(TIED, split_mode=mode, **share) for mode in ("layer", "tensor") for share in (EVEN, FIRST_ALONE)
    )
    return recorded().at(TIED, split_mode="none", main_gpu=0), *split


def _load_numbers() -> dict[str, float]:
    """Recorded loads beside their plans, and the devices of the figure."""
    record = recorded()
    buffers = [n for case in record.loaded for n in case.differences("compute")]
    ranged = [inside for case in record.loaded for inside in case.ranged]
    one_card, pipelined, piped_alone, divided, divided_alone = (case.use.devices for case in shown_cases())
    embedding = next(tensor.n_bytes for tensor in model_of(TIED).tensors if tensor.name == "token_embd.weight")
    return {
        "n_loaded": len(record.loaded),
        "n_cases": len(record.cases),
        "n_refused": len(record.cases) - len(record.loaded),
        "n_pipelined": sum(case.use.pipelined for case in record.loaded),
        "weights_off": record.largest_difference("weights"),
        "cache_off": record.largest_difference("kv_cache"),
        "compute_off": record.largest_difference("compute") / KIB,
        "n_buffers": len(buffers),
        "n_buffers_near": sum(abs(n) < PRINTED for n in buffers),
        "n_ranged": len(ranged),
        "n_inside": sum(ranged),
        "compute_one": one_card[0].compute_bytes / MIB,
        "compute_layer": pipelined[0].compute_bytes / MIB,
        "piped_compute": piped_alone[0].compute_bytes / MIB,
        "compute_tensor": divided[0].compute_bytes / MIB,
        "sums": divided[0].sums_bytes / MIB,
        "idle_weights": divided_alone[1].weights_bytes / MIB,
        "table_share": 100 * embedding / divided_alone[1].weights_bytes,
    }


def _divided_numbers() -> dict[str, float]:
    """What of two models cannot be divided evenly."""
    tiny, mixture = shape("qwen2.5-0.5b", MIX), shape("qwen3-30b-a3b", MIX)
    caches = [TensorSplit(tiny, 2).cache(layer, Settings(n_ctx=256)) for layer in range(tiny.n_layer)]
    experts = next(tensor for tensor in mixture.tensors if tensor.name == "blk.0.ffn_down_exps.weight")
    down = TensorSplit(mixture, 2).weights(experts)
    return {
        "undivided": sum(0 in both for both in caches),
        "tiny_layers": tiny.n_layer,
        "tiny_heads": tiny.n_head_kv,
        "expert_rows": mixture.number("expert_feed_forward_length"),
        "expert_small": 100 * min(down) / sum(down),
    }


def rules_table() -> Table:
    """Heads and rows: what each mode needs, excludes or ignores, from data/facts/split_modes.toml."""
    return ("mode", "asked", "llama.cpp", "says", "where"), [
        (
            ", ".join(f"`{mode}`" for mode in rule["modes"]),
            f"**{rule['asked']}**" if rule["refused"] else rule["asked"],
            rule["does"],
            rule["says"],
            f"`{rule['where']}`",
        )
        for rule in read_table("split_modes").values()
    ]
