"""What a token of a mixture reads from RAM by data sheets, and recorded pairs of whole layers and experts there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from inferlab.facts import cited_facts
from inferlab.measurement.paired import Paired
from inferlab.model.catalog import known_model
from inferlab.model.gguf import Model
from inferlab.model.synthetic_model import shape
from inferlab.prediction.decode_bound import token_bytes
from inferlab.prediction.fit import Fit, fit
from inferlab.prediction.link_rates import Rung
from inferlab.records import load
from inferlab.settings import Settings
from inferlab.statistics import UNDECIDED
from inferlab.units import GB, GIB, MIB
from studies.experts.sizing import EXPERTS, LAYERS, Parts, Placing, parts_with, place, placing_of, placings, rung
from studies.experts.two_ways import copied_bytes, freed_bytes, most_prompt_rate

MODEL, MIX = "qwen3-30b-a3b", "Q4_K_M"
MIXTURES = ("granite-3.1-1b-a400m", "qwen3-30b-a3b", "qwen3.6-35b-a3b", "glm-4.5-air", "qwen3-235b-a22b")
SMALL: dict[str, Any] = {"n_layer": 4, "n_vocab": 8192}
"""Dimensions in which the shape of the recorded pairs differs from the model."""
N_CTX = 8192  # given: cells of cache in F16
DEPTHS = {"empty": 0, "full": N_CTX - 1}
CARDS_GIB = (8, 12, 16)  # of the figure
UBATCHES = (512, 1024, 2048, 4096)
PHASES = ("prefill", "decode")
LENGTHS = {"short prompt": "short", "long prompt": "long"}


Table = tuple[Sequence[str], Sequence[Sequence[str | float]]]


@cache
def mixture() -> Model:
    return shape(MODEL, MIX)


@cache
def parts() -> Parts:
    """An RTX 4060, and RAM in two modules."""
    return parts_with("rtx-4060", 24 * GIB)


def bus() -> Rung:
    return rung("PCIe 4.0, 8 lanes")


def expert_counts() -> tuple[int, int]:
    """Experts that a token uses in a layer, and all."""
    return int(mixture().number("expert_used_count")), int(mixture().number("expert_count"))


def numbers() -> dict[str, float]:
    """The numbers of the page that follow from data sheets, plans and reports of users."""
    used, count = expert_counts()
    said = {name: fact.value for name, fact in cited_facts("experts").items()}
    rates = {key: placing.tokens_per_second(parts()) for key, placing in placed().items()}
    copies = {n: -(-N_CTX // n) * (copied_bytes(fits()[n].expert_layers.plan, mixture(), n) / GB) for n in UBATCHES}
    at_512 = {"prompt_512": fits()[512].expert_layers.plan, "prompt_512_layers": fits()[512].most_layers.plan}
    (_, expert_bytes), *others = layer_bytes().values()
    return {
        "n_ctx": N_CTX,
        "n_layer": mixture().n_layer,
        "used": used,
        "count": count,
        "used_share": 100 * used / count,
        "vram": parts().vram_bytes / GIB,
        "vram_rate": parts().vram_rate / GB,
        "ram_rate": parts().ram_rate / GB,
        "bus_rate": bus().bytes_per_second / GB,
        **{f"{way}_{depth}": rate for (way, depth), rate in rates.items()},
        **{f"gain_{depth}": rates[EXPERTS, depth] / rates[LAYERS, depth] for depth in DEPTHS},
        "n_experts": placed()[EXPERTS, "empty"].n_moved,
        "n_experts_2048": fits()[2048].expert_layers.settings.n_cpu_moe,
        "bytes_kept": 100 * copies[2048] / copies[512],
        **{key: most_prompt_rate(plan, mixture(), bus().bytes_per_second) for key, plan in at_512.items()},
        "rest_factor": sum(read for _, read in others) / expert_bytes,
        **{f"said_{name}": value for name, value in said.items()},
        "random_used": 100 * (1 - (1 - used / count) ** said["batch"]),
    }


# --- one token ----------------------------------------------------------------------------------


@cache
def placed() -> dict[tuple[str, str], Placing]:
    """The placing that fits the card with layers and with experts in RAM, at an empty and a full cache."""
    return {
        (way, depth): place(mixture(), parts(), N_CTX, n_used, whole_layers=way == LAYERS)
        for way in (LAYERS, EXPERTS)
        for depth, n_used in DEPTHS.items()
    }


def ram_reads() -> dict[str, list[tuple[float, float]]]:
    """Name of a way -> (GiB on the card, GB that a token reads from RAM), as more and more leaves the card."""
    full, empty = (placings(mixture(), parts(), N_CTX, n_used, LAYERS)[:-1] for n_used in (N_CTX - 1, 0))
    experts = placings(mixture(), parts(), N_CTX)
    ways = {f"layers, {N_CTX:,} tokens in use": full, "layers, empty cache": empty, "experts": experts}
    return {name: [(at.vram_bytes / GIB, at.ram_read / GB) for at in every] for name, every in ways.items()}


def bounds_table() -> Table:
    """Heads and rows: for each way to make the model fit, what lies in RAM, what a token reads, and the bound."""
    n_parts = mixture().n_layer + 1
    return ("in RAM", "RAM, GiB", "cache", "read from RAM, GB", "from the card, GB", "tokens/s, at most"), [
        (
            f"experts of {at.n_moved} layers" if way == EXPERTS else f"{at.n_moved} of {n_parts} layers",
            at.ram_bytes / GIB,
            depth,
            at.ram_read / GB,
            at.vram_read / GB,
            f"{at.tokens_per_second(parts()):.1f}",
        )
        for (way, depth), at in placed().items()
    ]


# --- long prompts -------------------------------------------------------------------------------


@cache
def fits() -> dict[int, Fit]:
    """What fits the card, by the size of the ubatch."""
    asked = {n: Settings(n_ctx=N_CTX, flash_attn="on", n_ubatch=n, n_batch=max(2048, n)) for n in UBATCHES}
    return {n: fit(mixture(), settings, vram=parts().vram_bytes, simulate=False) for n, settings in asked.items()}


def prompts_table() -> Table:
    """Heads and rows: for each ubatch, what it copies, and the bounds of prompt and decode."""
    heads = (
        "ubatch",
        "fewest layers with experts in RAM",
        "GB copied for a ubatch",
        f"for {N_CTX:,} tokens",
        "prompt tokens/s, by the bus",
        "decode tokens/s, at most",
    )
    rows = []
    for n_ubatch, fitting in fits().items():
        n_layers, plan = fitting.expert_layers.settings.n_cpu_moe, fitting.expert_layers.plan
        copied = copied_bytes(plan, mixture(), n_ubatch) / GB
        by_bus = most_prompt_rate(plan, mixture(), bus().bytes_per_second)
        bound = placing_of(plan, mixture(), EXPERTS, n_layers, 0).tokens_per_second(parts())
        rows.append((n_ubatch, n_layers, copied, -(-N_CTX // n_ubatch) * copied, f"{by_bus:,.0f}", f"{bound:.1f}"))
    return heads, rows


# --- total and active bytes ---------------------------------------------------------------------


def bytes_table() -> Table:
    """Heads and rows: all bytes of some known mixtures, and those that a token reads."""
    rows = []
    for name in MIXTURES:
        model = shape(name, MIX)
        read, every = token_bytes(model, depth=-1), model.tensor_bytes
        used = f"{model.number('expert_used_count')} of {model.number('expert_count')}"
        rows.append((known_model(name).name, used, every / GIB, read / GIB, f"{100 * read / every:.0f}"))
    return ("model", "experts used", "weights, GiB", "read for a token, GiB", "share, %"), rows


def layer_bytes() -> dict[str, tuple[float, float]]:
    """Part of all layers -> its bytes, and those that a token reads; the cache is full."""
    used, count = expert_counts()
    experts = sum(tensor.n_bytes for tensor in mixture().tensors if "_exps" in tensor.name)
    others = sum(tensor.n_bytes for tensor in mixture().tensors if tensor.name.startswith("blk.")) - experts
    cache_bytes = token_bytes(mixture(), depth=N_CTX - 1) - token_bytes(mixture(), depth=-1)
    return {
        "experts": (experts, experts * used / count),
        "all other weights": (others, others),
        f"cache, {N_CTX:,} tokens in use": (cache_bytes, cache_bytes),
    }


def layer_table() -> Table:
    """Heads and rows: the parts of a layer on average, held and read."""
    n_bytes = mixture().n_layer * MIB
    rows = [(part, held / n_bytes, read / n_bytes) for part, (held, read) in layer_bytes().items()]
    return ("part of a layer", "MiB", "read for a token, MiB"), rows


# --- recorded pairs -----------------------------------------------------------------------------


def recorded() -> tuple[dict[str, Paired], dict[str, Paired]]:
    """Pairs of whole layers and experts by their prompt, and the controls, with whole layers on both sides."""
    pairs = {shown: load(f"epyc-2c/experts-layers-{name}", Paired) for shown, name in LENGTHS.items()}
    controls = {
        f"{shown}, no change": load(f"epyc-2c/experts-control-{name}", Paired) for shown, name in LENGTHS.items()
    }
    return pairs, controls


def pair_numbers() -> dict[str, float | str]:
    """The numbers of the page that the records of pairs have."""
    pairs, controls = recorded()
    (short, long), control = pairs.values(), controls["short prompt, no change"]
    first, second = short.before[0], long.after[0]
    small = shape(MODEL, MIX, **SMALL)
    asked = Settings(n_ctx=first.settings.n_ctx, flash_attn="on", rpc_servers=("127.0.0.1:1",))
    n_layers, n_cpu_moe = first.settings.n_gpu_layers, second.settings.n_cpu_moe
    return {
        "short_decode": short.compared("decode").text,
        "long_decode": long.compared("decode").text,
        "beyond": " and ".join(_beyond(pairs, controls)) or "none",
        "more_after": _more_after(short, long),
        "control_before": control.rate("decode"),
        "control_after": control.rate("decode", "after"),
        "n_pairs": min(len(pair.rates("decode")) for pair in (*pairs.values(), *controls.values())),
        "pair_cpu": first.machine.cpu,
        "pair_gen": first.n_gen,
        "pair_small": small.n_layer,
        "pair_layers": small.n_layer + 1 - n_layers,
        "pair_experts": n_cpu_moe,
        "freed_layers": freed_bytes(small, asked, n_gpu_layers=n_layers) / MIB,
        "freed_experts": freed_bytes(small, asked, n_gpu_layers=-1, n_cpu_moe=n_cpu_moe) / MIB,
    }


def _beyond(pairs: Mapping[str, Paired], controls: Mapping[str, Paired]) -> list[str]:
    """The changes whose whole interval lies farther from 1 than that of their control."""
    return [
        f"{phase} with the {shown}"
        for (shown, pair), control in zip(pairs.items(), controls.values(), strict=True)
        for phase in PHASES
        if pair.compared(phase).verdict != UNDECIDED and min(_distances(pair, phase)) > max(_distances(control, phase))
    ]


def _distances(pair: Paired, phase: str) -> list[float]:
    """Of both ends of the interval from 1."""
    return [abs(end - 1) for end in pair.compared(phase).ends]


def _more_after(short: Paired, long: Paired) -> str:
    """After which prompt the ratio in decode is larger, as a sentence without its end."""
    (short_low, short_high), (long_low, long_high) = short.compared("decode").ends, long.compared("decode").ends
    if long_low > short_high:
        return "After the long one: its cache stays on the device too"
    return "After the short one" if long_high < short_low else "The intervals overlap, so these pairs do not decide"
