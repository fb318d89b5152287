"""Rates of one machine's links and memories beside cited ones, and what they allow a token of decode.

A published rate read backwards says what it can mean:

    most bytes for a token       = bandwidth / rate                     (`decode_bound.most_token_bytes`)
    least tokens for a reading   = rate * bytes for a token / bandwidth

The second is above 1 where one sequence, token by token, cannot have the rate: then several sequences shared a reading
of the weights, drafts were checked together, a prompt was counted, or the bytes or the bandwidth are others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from inferlab.facts import cited_facts
from inferlab.machine import Machine
from inferlab.model.catalog import KnownModel, known_models
from inferlab.model.gguf import Model
from inferlab.model.synthetic_model import shape
from inferlab.prediction import cost, validation
from inferlab.prediction.calibration import Calibration
from inferlab.prediction.cards import known_card
from inferlab.prediction.decode_bound import most_token_bytes, token_bytes
from inferlab.prediction.link_rates import Rung, cited_rungs, measured_rungs, ordered
from inferlab.prediction.validation import Accuracy
from inferlab.records import load
from inferlab.shown import Shown
from inferlab.units import GB, GIB, KIB, bytes_text

LOOPBACK = "loopback device"
PEAKS = ("fp16-sum32", "fp16-sum16", "int8")
REQUESTS = {"long answer": (50, 800), "chat": (500, 500), "summary": (8000, 200)}
"""Name of a request -> tokens of its prompt and of its answer."""
CLAIMED_TOKENS = 287
"""Tokens per second of claim D16."""

Rows = tuple[Sequence[str], Sequence[Sequence[str | float]]]


@dataclass(frozen=True)
class ReadPoint:
    """Reading a block of one size over and over on one core: bytes, and bytes per second in the fastest call."""

    n_bytes: int
    bytes_per_second: float


@dataclass(frozen=True)
class DeviceRates:
    """A device's link in bytes per second each way, and its own memory; None where that is the host's."""

    name: str
    to_device: float
    to_host: float
    memory: float | None = None


@dataclass(frozen=True)
class CacheLevel:
    """A data cache of a core as the system reports it."""

    level: int
    n_bytes: int


@dataclass(frozen=True, kw_only=True)
class LinkRates(Shown):
    """Rates of one machine in bytes per second; None where a rate could not be measured.

    disk     None where pages cannot be dropped from the page cache, as in a file system in memory
    threads  that read `host_ram` together
    """

    machine: Machine
    date: str
    disk: float | None
    page_cache: float
    host_ram: float
    threads: int
    caches: tuple[CacheLevel, ...]
    sweep: tuple[ReadPoint, ...]
    devices: tuple[DeviceRates, ...]

    @property
    def badge(self) -> str:
        return self.machine.badge(self.date)

    @property
    def rates(self) -> dict[str, tuple[str, float | None]]:
        """Name -> (place, bytes per second) of every rung, as `prediction.link_rates` takes them."""
        rates: dict[str, tuple[str, float | None]] = {
            "this disk": ("disk", self.disk),
            "page cache, read()": ("page cache", self.page_cache),
            f"host RAM, {self.threads} threads": ("host RAM", self.host_ram),
        }
        for level in self.caches:
            rates[f"L{level.level} cache, one core"] = ("cache", self.cache_rate(level))
        for device in self.devices:
            place = "network" if device.name == LOOPBACK else "bus"
            rates[f"to {device.name}"] = (place, device.to_device)
            rates[f"memory of {device.name}"] = ("VRAM", device.memory)
        return rates

    def cache_rate(self, level: CacheLevel) -> float | None:
        """The rate of the largest block that fills at most half of a cache, and is too large for the one before."""
        before = max((cache.n_bytes for cache in self.caches if cache.level < level.level), default=0)
        fitting = [point for point in self.sweep if before < point.n_bytes <= level.n_bytes / 2]
        return fitting[-1].bytes_per_second if fitting else None


@cache
def recorded() -> LinkRates:
    """The rates of two EPYC cores."""
    return load("epyc-2c/link-rates", LinkRates)


@cache
def rungs() -> tuple[Rung, ...]:
    """The recorded rates and the cited ones, slowest first."""
    return ordered([*cited_rungs(), *measured_rungs(recorded().rates)])


@cache
def _mistral() -> Model:
    return shape("mistral-7b-v0.3", "Q4_K_M")


@cache
def _cited() -> dict[str, Rung]:
    return {rung.name: rung for rung in cited_rungs()}


def numbers() -> dict[str, float | str]:
    """The numbers of the page *Compute against bandwidth* that need no measurement."""
    return _card_numbers() | _link_numbers() | _claim_numbers() | _plan_numbers()


def _card_numbers() -> dict[str, float | str]:
    """Data sheets of an RTX 4090, and published rates of an RTX 4080."""
    cards = {name: fact.value for name, fact in cited_facts("cards").items()}
    bandwidth, bits = cards["rtx-4090-bandwidth"] * 1e9, bits_per_weight(_mistral())
    file, prefill, decode = shape("qwen2.5-7b", "Q4_K_M"), cards["rtx-4080-prefill"], cards["rtx-4080-decode"]
    multiplied = cost.operations(file, 1)[0] / 2
    read = file.tensor_bytes - next(t.n_bytes for t in file.tensors if t.name == "token_embd.weight")
    far = cards["rtx-4080-bandwidth"] * 1e9
    numbers: dict[str, float | str] = {
        "card_gb": bandwidth / 1e9,
        "card_bits": bits,
        "pub_prefill": prefill,
        "pub_decode": decode,
        "pub_prefill_tflops": 2 * prefill * multiplied / 1e12,
        "pub_decode_tflops": 2 * decode * multiplied / 1e12,
        "pub_prefill_reads": 100 * prefill / 512 * read / far,
        "pub_decode_reads": 100 * decode * read / far,
        "share_95": prefill / decode * 5 / 95,
    }
    for peak in PEAKS:
        key, rate = peak.replace("-", "_"), cards[f"rtx-4090-{peak}"] * 1e12
        ridge = rate / bandwidth
        numbers |= {f"{key}_tflops": rate / 1e12, f"{key}_ridge": ridge, f"{key}_q4": ridge * bits / 16}
    return numbers


def _link_numbers() -> dict[str, float | str]:
    """What was measured, bounds of decode by cited links, and a tenth of the weights across a bus."""
    links, needed, cited = recorded(), token_bytes(_mistral()), _cited()
    near = next(point for point in links.sweep if point.n_bytes == 512 * KIB)
    best = max(point.bytes_per_second for point in links.sweep)
    ends = next((p.n_bytes for p in links.sweep if p.bytes_per_second < best / 2), None)
    bus, vram = cited["PCIe 4.0, 16 lanes"], cited["GeForce RTX 4090"]
    part, rest = bus.seconds(0.1 * needed), vram.seconds(0.9 * needed)
    return {
        "token_gb": needed / GB,
        "bus_tokens": bus.most_tokens_per_second(needed),
        "vram_tokens": vram.most_tokens_per_second(needed),
        "lan_s": cited["Ethernet, 1 Gbit/s"].seconds(_mistral().tensor_bytes),
        "second_read": links.page_cache / links.disk,
        "disk_gb": links.disk / GB,
        "cached_gb": links.page_cache / GB,
        "near_gb": near.bytes_per_second / GB,
        "far_gb": links.sweep[-1].bytes_per_second / GB,
        "ram_all_gb": links.host_ram / GB,
        "cliff": f"The rate first fell below half of the best at {bytes_text(ends)}" if ends else "No cache showed",
        "tenth_bus_ms": 1000 * part,
        "tenth_vram_ms": 1000 * rest,
        "tenth_tokens": 1 / (part + rest),
        "tenth_card": 1 / (part + cited["GeForce RTX 5090"].seconds(0.9 * needed)),
        "tenth_slot": 1 / (cited["PCIe 5.0, 16 lanes"].seconds(0.1 * needed) + rest),
    }


def _claim_numbers() -> dict[str, float | str]:
    """What a published rate leaves for a token, and how it can be higher than one sequence allows."""
    claimed, moe = _cited()["GeForce RTX 5090"].bytes_per_second, shape("qwen3-30b-a3b", "Q4_K_M")
    most = most_token_bytes(claimed, CLAIMED_TOKENS)
    largest = largest_model(most, "Q4_K_M")
    served = shape("llama-3.2-1b", "Q4_K_M", n_layer=4, n_vocab=8192)
    sixteen = load("epyc-2c/steps-by-kernel")[0].at(16).tokens_per_second
    return {
        "claimed_tokens": CLAIMED_TOKENS,
        "card_5090": claimed / GB,
        "claimed_gb": most / GB,
        "claimed_weights": 8 * most / bits_per_weight(_mistral()) / 1e9,
        "claimed_model": largest.name if largest else "none",
        "moe_file": moe.tensor_bytes / GB,
        "moe_token": token_bytes(moe) / GB,
        "served_reading": tokens_for_a_reading(recorded().host_ram, sixteen, token_bytes(served)),
    }


def bits_per_weight(model: Model) -> float:
    """Bits of the file's tensors for each weight, over the whole model."""
    return 8 * model.tensor_bytes / sum(tensor.n_elements for tensor in model.tensors)


def largest_model(n_bytes: float, mix: str) -> KnownModel | None:
    """The known dense model with the most bytes for a token that still needs at most `n_bytes`; None for none.

    Models with experts are left out: they have more weights than a token reads.
    """
    needed = {token_bytes(shape(known, mix)): known for known in known_models().values() if not known.n_expert}
    return needed.get(max((n for n in needed if n <= n_bytes), default=-1))


def tokens_for_a_reading(bandwidth_bytes_per_second: float, tokens_per_second: float, n_bytes: float) -> float:
    """Least tokens that one reading of `n_bytes` gave; above 1, one token after another is ruled out."""
    return n_bytes / most_token_bytes(bandwidth_bytes_per_second, tokens_per_second)


def accuracies() -> Mapping[str, Accuracy]:
    """The plans of speed of every machine, and those of mixtures of experts, beside what was measured."""
    mixtures = Accuracy(load("epyc-2c/experts-calibration", Calibration), load("epyc-2c/experts-points"))
    return {**validation.recorded(), "epyc-2c, experts": mixtures}


def _plan_numbers() -> dict[str, float | str]:
    by_machine = accuracies()
    trial, left_out = by_machine["epyc-2c"], validation.with_types_left_out(by_machine["epyc-2c"])
    return {
        "calibration_minutes": trial.calibration.seconds / 60,
        "n_types": len({product.type for product in trial.calibration.products}),
        "n_checks": len(trial.calibration.checks),
        "n_points": len(trial.points),
        "n_models": len({point.name for point in trial.points}),
        "n_mixtures": len(by_machine["epyc-2c, experts"].points),
        **{f"left_out_{phase}": 100 * validation.median_error(left_out[phase]) for phase in validation.PHASES},
    }


def share_table() -> Rows:
    """Heads and rows: how much of each request's time decode takes at the published rates of an RTX 4080."""
    prefill, decode = (cited_facts("cards")[f"rtx-4080-{phase}"].value for phase in ("prefill", "decode"))
    rows = []
    for name, (n_prompt, n_gen) in REQUESTS.items():
        answer = n_gen / decode
        rows.append((name, f"{n_prompt:,} + {n_gen}", 100 * answer / (n_prompt / prefill + answer)))
    return ("request", "prompt + answer, tokens", "decode, % of the time"), rows


def rungs_table() -> Rows:
    """Heads and rows: every rate with its origin, and one pass over Mistral 7B in Q4_K_M."""
    needed, rows = token_bytes(_mistral()), []
    for rung in rungs():
        origin = "measured" if rung.measured else f"{{cite}}`{rung.source}`"
        seconds, most = 1000 * rung.seconds(needed), rung.most_tokens_per_second(needed)
        bounds = ("–", "–") if rung.place in ("cache", "network") else (seconds, most)
        rows.append((rung.name, rung.bytes_per_second / GB, origin, *bounds))
    return ("rung", "GB/s", "origin", "pass, ms", "tokens/s"), rows


def memories_table() -> Rows:
    """Heads and rows of the page *The role*: capacity against speed, and tokens of a model that fills the memory."""
    links, cited, facts = recorded(), _cited(), cited_facts("cards")
    drive, modules = facts["990-pro-largest"], facts["64gb-module"]
    ram, nvme = cited["DDR5-5600, two channels"], cited["NVMe SSD (990 PRO)"]
    of_ram, of_drive = f"{{cite}}`{ram.source},{modules.source}`", f"{{cite}}`{nvme.source},{drive.source}`"
    host = f"RAM: {links.machine.cpu}, {links.machine.n_cores} cores"
    places: list[tuple[str, float, float, str]] = [
        (f"VRAM: {card.title}", card.memory_bytes[0], card.bandwidth_bytes_per_second, f"{{cite}}`{card.source}`")
        for card in map(known_card, ("rtx-4060", "rtx-5090"))
    ]
    places += [
        ("RAM: DDR5-5600, two modules", 2 * modules.value * GIB, ram.bytes_per_second, of_ram),
        (host, links.machine.ram_bytes, links.host_ram, f"recorded, {links.date[:10]}"),
        ("disk: 990 PRO", drive.value * 1e9, nvme.bytes_per_second, of_drive),
    ]
    rows = [(name, n_bytes / GIB, rate / 1e9, origin, rate / n_bytes) for name, n_bytes, rate, origin in places]
    return ("memory", "GiB", "GB/s", "origin", "tokens/s, filled"), rows
