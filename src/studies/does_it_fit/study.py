"""Plans for a card of 8 GB, from headers, and plans beside the logs of a small model on a loopback device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from inferlab.engine.loopback import LoopbackDevice
from inferlab.engine.session import this_machine
from inferlab.facts import cited_facts
from inferlab.measurement.run import Run, measure
from inferlab.model.find import tiny_model
from inferlab.model.gguf import Model, read_gguf
from inferlab.model.synthetic_model import make_shape, shape
from inferlab.prediction.compare import compare, measured_bytes
from inferlab.prediction.fit import DEFAULT_N_CTX, RESERVE_BYTES, Fit, fit
from inferlab.prediction.free_memory import machine_for
from inferlab.prediction.memory import MemoryPlan
from inferlab.prediction.predict import predict_memory
from inferlab.settings import Settings
from inferlab.units import GIB, MIB

MISTRAL, LLAMA = "mistral-7b-v0.3", "llama-3.1-8b"
ON, OFF = (Settings(flash_attn=flash, swa_full=False) for flash in ("on", "off"))
CARD = "gpu0"
load_once = partial(measure, n_prompt=16, n_gen=1, repeats=1)
PLACES = {1: "output layer", 3: "and blocks 2, 3", 5: "and blocks 0 to 3"}
"""What `n_gpu_layers` of the small model puts on the device."""
Table = tuple[Sequence[str], Sequence[Sequence[str | int]]]


def numbers() -> dict[str, float | str]:
    """The numbers of the page that are computed from headers, or cited.

    The longest context without flash attention, and the compute buffers at that of Mistral 7B; its weights on the card
    and its longest context by type; layers in F16 that fit with 8192 tokens; errors of other estimators.
    """
    whole, mistral, machine = shape(MISTRAL, "F16"), shape(MISTRAL, "Q4_K_M"), machine_for(vram="8GiB")
    models = MISTRAL, LLAMA, "gemma-3-4b"
    longest_off = {name: _longest(name, "Q4_K_M", OFF).largest_n_ctx.value for name in models}
    values: dict[str, float | str] = {f"{name}_off": n_ctx for name, n_ctx in longest_off.items()}
    for mix in ("F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M"):
        fitting = _longest(MISTRAL, mix, ON)
        weights, longest = fitting.plan.devices[CARD].weights_bytes, fitting.largest_n_ctx.value
        lacks = (weights - fitting.usable_bytes[CARD]) / GIB
        values[f"{mix}_gib"] = weights / GIB
        values[f"{mix}_longest"] = f"{longest:,} tokens" if longest else f"none: {lacks:.2f} GiB too large"
    for name, way in (("on", ON), ("off", OFF)):
        plan = predict_memory(mistral, way.but(n_ctx=longest_off[MISTRAL]), machine, simulate=False)
        values[f"compute_{name}_mib"] = plan.devices[CARD].compute_bytes / MIB
    partly = fit(whole, Settings(n_ctx=8192, flash_attn="on"), vram="8GiB", simulate=False).most_layers
    return {
        **values,
        "reserve_gib": RESERVE_BYTES / GIB,
        "least_context": DEFAULT_N_CTX,
        "partial_layers": partly.value,
        "all_layers": whole.n_layer + 1,
        **{name: abs(fact.value) for name, fact in cited_facts("estimates").items()},
    }


def weights_numbers() -> dict[str, float]:
    """GiB of weights on the card, of Mistral 7B and of Llama 3.1 8B: the front page's."""
    models = {"mistral": MISTRAL, "llama": LLAMA}
    return {key: _longest(name, "Q4_K_M", ON).plan.devices[CARD].weights_bytes / GIB for key, name in models.items()}


def context_lines() -> dict[str, list[MemoryPlan]]:
    """Plans of Mistral 7B for contexts of different length, by cache and flash attention."""
    mistral, machine = shape(MISTRAL, "Q4_K_M"), machine_for(vram="8GiB")
    on = Settings(flash_attn="on")
    ways = {
        "f16, flash attention": on,
        "f16, without": on.but(flash_attn="off"),
        "q8_0, flash attention": on.but(type_k="q8_0", type_v="q8_0"),
    }
    contexts = (1024, 4096, *range(8192, 57345, 8192))
    return {
        name: [predict_memory(mistral, way.but(n_ctx=n_ctx), machine, simulate=False) for n_ctx in contexts]
        for name, way in ways.items()
    }


def changes_table() -> Table:
    """Heads and rows: whether Mistral 7B with 20,000 tokens fits after one change."""
    off = Settings(n_ctx=20_000, flash_attn="off")
    changes = {"none": off, "B, flash attention on": off.but(flash_attn="on"), "C, n_batch 512": off.but(n_batch=512)}
    mistral = shape(MISTRAL, "Q4_K_M")
    return ("change", "does it fit?"), [
        (name, fit(mistral, settings, vram="8GiB", simulate=False).fits) for name, settings in changes.items()
    ]


def _longest(name: str, mix: str, settings: Settings) -> Fit:
    return fit(shape(name, mix), settings, vram="8GiB", simulate=False, within_trained=True)


# --- plan and log, on this machine ------------------------------------------------------------


@dataclass(frozen=True)
class Grid:
    """A small model, the settings that put it on a device, and plan and log of each variation by its name."""

    path: Path
    model: Model
    settings: Settings
    pairs: Mapping[str, tuple[MemoryPlan, Run]]

    def logged(self, n_gpu_layers: int) -> float:
        """MiB of weights on the device in the log, with a cache in F16."""
        return _on_device(self.pairs[f"{n_gpu_layers}, f16"][1], "weights")


def measured_grid(device: LoopbackDevice) -> Grid:
    """Plan and load a small model with some layers, types of cache and places of it, on a loopback device."""
    path = make_shape(MISTRAL, "Q4_K_M", n_layer=4, n_embd=1024, n_ff=3584, n_head=8, n_head_kv=2, n_vocab=8192)
    model = read_gguf(path)
    settings = device.settings(Settings(n_ctx=2048, flash_attn="on", devices=("RPC0",)))
    pairs = {}
    for n in (0, *PLACES):
        for cache_type in ("f16", "q8_0"):
            for there in (True, False):
                asked = settings.but(n_gpu_layers=n, type_k=cache_type, type_v=cache_type, offload_kqv=there)
                name = f"{n}, {cache_type}{'' if there else ', on host'}"
                pairs[name] = predict_memory(model, asked, this_machine()), load_once(path, asked)
    return Grid(path, model, settings, pairs)


def grid_numbers(grid: Grid) -> dict[str, float]:
    """The largest difference of plan and log in MiB, and the loads."""
    gaps = [gap.difference_bytes for pair in grid.pairs.values() for gap in compare(*pair)]
    return {"worst_gap": max(abs(gap) for gap in gaps if gap is not None) / MIB, "n_loads": len(grid.pairs)}


def weights_table(grid: Grid) -> Table:
    """Heads and rows: what is on the device with some layers, computed from the header and in the log."""
    model = grid.model
    size = {tensor.name: tensor.n_bytes for tensor in model.tensors}
    blocks = [sum(size[name] for name in size if name.startswith(f"blk.{index}.")) for index in range(model.n_layer)]
    output = sum(size[name] for name in size if name.startswith("output"))
    heads = "`n_gpu_layers`", "on the device", "computed, MiB", "in the log, MiB"
    return heads, [
        (n, place, f"{(output + sum(blocks[model.n_layer + 1 - n :])) / MIB:.3f}", f"{grid.logged(n):.2f}")
        for n, place in PLACES.items()
    ]


def moments_table(grid: Grid) -> Table:
    """Heads and rows: the three moments of a pass by the page's equation, and the compute buffer in the log."""
    cases = {
        "this model, with": (grid.path, grid.settings),
        "this model, without": (grid.path, grid.settings.but(flash_attn="off")),
        "embedded model, with": (tiny_model(), grid.settings),
    }
    rows = []
    for name, (path, settings) in cases.items():
        logged = _on_device(load_once(path, settings), "compute")
        sizes = moments(read_gguf(path), settings.flash_attn == "on")
        rows.append((name, *(f"{n_bytes / MIB:.2f}" for n_bytes in sizes), f"{logged:.2f}"))
    return ("flash attention, MiB", "feed-forward", "attention", "head", "log"), rows


def moments(model: Model, flash: bool, n: int = 2048) -> tuple[int, int, int]:
    """Bytes of feed-forward network, attention and head of a ubatch of 512 beside n cells: the page's equation."""
    u, d, q = 512, model.n_embd, model.n_head * model.head_dim_k
    mask = (2 if flash else 4) * n * u
    without = 4 * model.n_head * n * u + 8 * u * (d + q + model.n_head_kv * model.head_dim_k)
    scores = 4 * u * 4 * d if flash else without
    return mask + 4 * u * (3 * model.n_ff + 2 * d + q), mask + scores, 4 * u * (model.n_vocab + d)


def _on_device(run: Run, kind: str) -> float:
    """MiB of one kind on the first device, in a run's log."""
    return measured_bytes(run.buffers, run.settings.rpc_servers)[CARD, kind] / MIB
