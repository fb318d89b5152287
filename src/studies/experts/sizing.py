"""What a machine's parts allow: where a model's bytes lie, the most tokens per second, and what another part gains.

    seconds of a token >= bytes read in VRAM / rate of VRAM + bytes read in RAM / rate of RAM

llama.cpp computes a matrix where it lies and one layer after another, so the two times add up. Arithmetic, launches and
transfers are left out, so every rate here is an upper bound; cores, bus and disk are not in it.
Above MOST_TELLING tokens per second a bound tells nothing: starting a token's kernels then takes as long as reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from inferlab.facts import cited_facts
from inferlab.machine import HOST_DEVICE
from inferlab.model.gguf import Model
from inferlab.prediction.cards import known_card
from inferlab.prediction.decode_bound import decode_bytes
from inferlab.prediction.fit import RESERVE_BYTES
from inferlab.prediction.free_memory import free_bytes, machine_for, usable_bytes
from inferlab.prediction.link_rates import Rung, cited_rungs
from inferlab.prediction.memory import MemoryPlan
from inferlab.prediction.memory.placement import has_experts
from inferlab.prediction.predict import predict_memory
from inferlab.prediction.search import Search
from inferlab.settings import Settings

CARD = "gpu0"
NOTHING, LAYERS, EXPERTS = "nothing", "layers", "experts"
MOST_TELLING = 300.0
"""A choice, not a measurement: where a bound of 500 was possible, a published mixture reached 206 tokens per second."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A card and RAM: bytes that a model may use, and bytes per second by their data sheets."""

    vram_bytes: int
    vram_rate: float
    ram_bytes: int
    ram_rate: float


def parts_with(card: str, ram_bytes: int, transfers: str = "two-modules") -> Parts:
    """A known card, and RAM in two channels at the rate of a cited number of modules."""
    known = known_card(card)
    rate = ram_rate(cited_facts("cards")[f"ryzen-9950x-{transfers}"].value)
    return Parts(
        vram_bytes=known.memory_bytes[0],
        vram_rate=known.bandwidth_bytes_per_second,
        ram_bytes=ram_bytes,
        ram_rate=rate,
    )


def ram_rate(transfers: float) -> float:
    """Bytes per second of all channels, 64 bits each, at so many million transfers per second."""
    return cited_facts("cards")["ryzen-9950x-channels"].value * 8 * transfers * 1e6


def rung(name: str) -> Rung:
    """A cited bus or disk."""
    return next(rung for rung in cited_rungs() if rung.name == name)


@dataclass(frozen=True, kw_only=True)
class Placing:
    """Where a model lies on some parts: bytes needed in each memory, and bytes that one token reads there.

    in_ram   what had to leave the card: "nothing", whole "layers" with their cache, or the "experts" of some layers
    n_moved  of how many layers, counting the output as one
    """

    in_ram: str
    n_moved: int
    vram_bytes: int
    ram_bytes: int
    vram_read: int
    ram_read: int

    def fits(self, parts: Parts) -> bool:
        """Whether RAM can hold what lies there; the card holds its part by construction."""
        return self.ram_bytes <= parts.ram_bytes

    def seconds(self, parts: Parts) -> float:
        """The least seconds of one token: the two readings follow each other."""
        return self.vram_read / parts.vram_rate + self.ram_read / parts.ram_rate

    def tokens_per_second(self, parts: Parts) -> float:
        """The most tokens per second of one sequence."""
        return 1 / self.seconds(parts)


def place(model: Model, parts: Parts, n_ctx: int, depth: int = 0, whole_layers: bool = False) -> Placing:
    """Everything on the card if it fits; else the experts of the first layers in RAM, or else the first layers.

    n_ctx         cells of a cache in F16, all of them allocated; depth of them are read for a token
    whole_layers  whether layers are moved as a whole even where they have experts
    Experts of a layer as `n_cpu_moe` moves them, layers as `n_gpu_layers` does, as few as the reserve of the card
    allows. RAM holds the part of the mapped file from the first to the last tensor that lies there.
    """
    settings, machine = Settings(n_ctx=n_ctx, flash_attn="on"), machine_for(vram=parts.vram_bytes)
    free = usable_bytes({CARD: free_bytes(machine, machine.gpus)[CARD]}, RESERVE_BYTES)
    plan_for = partial(predict_memory, model, machine=machine, simulate=False)
    search = Search(plan_for, settings, plan_for(settings), free)
    if search.fits(settings):
        return placing_of(search.planned, model, NOTHING, 0, depth)
    experts = has_experts(model) and not whole_layers
    in_ram, answer = (EXPERTS, search.expert_layers()) if experts else (LAYERS, search.most_layers())
    moved = answer.settings
    n_moved = moved.n_cpu_moe if in_ram == EXPERTS else model.n_layer + 1 - moved.n_gpu_layers
    return placing_of(answer.plan, model, in_ram, n_moved, depth)


def placings(model: Model, parts: Parts, n_ctx: int, depth: int = 0, in_ram: str = EXPERTS) -> tuple[Placing, ...]:
    """Every number of layers in RAM, none first, whether it fits or not: all of each, or their experts alone.

    in_ram  "experts" or "layers"; the other arguments are those of `place`
    Raises InvalidSettings for the experts of a model that has none.
    """
    settings, machine = Settings(n_ctx=n_ctx, flash_attn="on"), machine_for(vram=parts.vram_bytes)
    if in_ram == EXPERTS:
        asked = [settings.but(n_cpu_moe=n_layers) for n_layers in range(model.n_layer + 1)]
    else:
        asked = [settings.but(n_gpu_layers=n_layers) for n_layers in range(model.n_layer + 1, -1, -1)]
    plans = (predict_memory(model, moved, machine=machine, simulate=False) for moved in asked)
    return tuple(placing_of(plan, model, in_ram if n else NOTHING, n, depth) for n, plan in enumerate(plans))


def placing_of(plan: MemoryPlan, model: Model, in_ram: str, n_moved: int, depth: int) -> Placing:
    """Where a plan puts the model, and what a token behind `depth` cells reads."""
    return Placing(
        in_ram=in_ram,
        n_moved=n_moved,
        vram_bytes=plan.most_bytes(CARD),
        ram_bytes=plan.most_bytes(HOST_DEVICE),
        vram_read=decode_bytes(plan, model, depth, frozenset({CARD})),
        ram_read=decode_bytes(plan, model, depth, frozenset({HOST_DEVICE})),
    )
