"""Several engines on the same prompts, on the CPU: answers, seconds and memory; and what their documentation says."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from statistics import median

from inferlab.measurement.base import Measurement
from inferlab.prediction.link_rates import Rung, cited_rungs
from inferlab.records import load
from inferlab.units import GB
from studies.other_engines.engine_choice import COMPUTED, REFUSED, SENT, known_engines

WAYS = {
    "computed in RAM, DDR5-5600": "DDR5-5600, two channels",
    "sent over PCIe 4.0, 16 lanes": "PCIe 4.0, 16 lanes",
    "sent over PCIe 4.0, 8 lanes": "PCIe 4.0, 8 lanes",
}
"""How the part outside the card is read -> the link or memory that it crosses."""
OUTSIDE_GB = 4
"""What lies outside the card in the page's example."""
UNROUNDED = ("F16", "F16 exact", "float32", "fp32")


@dataclass(frozen=True)
class EngineRow:
    """One engine with one kind of weights; a list has one entry for each turn.

    version        of the engine, with what it stands on
    grown_bytes    peak growth of its process until its first answer; None if the system does not report it
    first_seconds  from the request to the first token: prefill, and the choice of that token
    step_seconds   of each later token, on average
    again_seconds  from the request to the first token for the prompt of the same turn, a second time
    same           tokens at the beginning of the answer that are those of llama.cpp in F16
    """

    engine: str
    weights: str
    version: str
    grown_bytes: int | None
    first_seconds: tuple[float, ...]
    step_seconds: tuple[float, ...]
    again_seconds: tuple[float, ...]
    same: tuple[int, ...]

    @property
    def name(self) -> str:
        """`OpenVINO, Q4_0`."""
        return f"{self.engine}, {self.weights}"

    @property
    def first(self) -> float:
        """Median seconds to the first token."""
        return median(self.first_seconds)

    @property
    def step(self) -> float:
        """Median seconds of a later token."""
        return median(self.step_seconds)

    @property
    def again(self) -> float:
        """Median ratio of the second request's seconds to the first one's, turn by turn."""
        return median(b / a for a, b in zip(self.first_seconds, self.again_seconds, strict=True))


@dataclass(frozen=True, kw_only=True)
class EngineComparison(Measurement):
    """Engines on one model; the common fields are those of llama.cpp with F16 weights.

    missing  (engine, weights, reason) of what could not be measured
    """

    n_prompt: int
    n_gen: int
    rows: tuple[EngineRow, ...]
    missing: tuple[tuple[str, str, str], ...] = ()

    def row(self, engine: str, weights: str) -> EngineRow:
        """The row of an engine with some weights."""
        return next(row for row in self.rows if (row.engine, row.weights) == (engine, weights))


@cache
def recorded() -> tuple[EngineComparison, EngineComparison]:
    """The embedded model, and two layers of Mistral 7B."""
    return load("epyc-2c/engines-tiny", EngineComparison), load("epyc-2c/engines-shape", EngineComparison)


def ways() -> dict[str, Rung]:
    """How the part outside the card is read, in words, and the link or memory that it crosses."""
    rungs = {rung.name: rung for rung in cited_rungs()}
    return {way: rungs[name] for way, name in WAYS.items()}


def numbers() -> dict[str, float | int | str]:
    """The numbers of the page *Which engine?*: engines as described, least times in ms, and recorded medians."""
    engines, (ram, bus, narrow), (tiny, large) = known_engines().values(), ways().values(), recorded()
    f16, vino = large.row("llama.cpp", "F16"), large.row("OpenVINO", "F16")
    torch = large.row("transformers", "bfloat16")
    return {
        "engines": len(engines),
        "n_computed": sum(engine.larger == COMPUTED for engine in engines),
        "n_refused": sum(engine.larger == REFUSED for engine in engines),
        "sent_titles": ", ".join(engine.title for engine in engines if engine.larger == SENT),
        "unbatched": ", ".join(engine.title for engine in engines if not engine.batches),
        "factor": ram.bytes_per_second / bus.bytes_per_second,
        "factor_narrow": ram.bytes_per_second / narrow.bytes_per_second,
        "ram_ms": 1e3 * ram.seconds(OUTSIDE_GB * GB),
        "bus_ms": 1e3 * bus.seconds(OUTSIDE_GB * GB),
        "bus_most": 1 / bus.seconds(OUTSIDE_GB * GB),
        "compared": len({row.engine for row in tiny.rows}),
        "agreeing": len(
            {row.engine for row in tiny.rows if row.weights in UNROUNDED and set(row.same) == {tiny.n_gen}}
        ),
        "bits_gain": f16.step / large.row("llama.cpp", "Q4_0").step,
        "vino_behind": vino.step / f16.step,
        "vino_paired": median(a / b for a, b in zip(vino.step_seconds, f16.step_seconds, strict=True)),
        "torch_behind": torch.step / f16.step,
        "scatter": max(f16.step_seconds) / min(f16.step_seconds),
        "torch_first": f16.first / torch.first,
        "vino_first": f16.first / vino.first,
        "vino_again": vino.again,
    }
