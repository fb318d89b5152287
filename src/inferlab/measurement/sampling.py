"""What a chain of samplers costs for each token, beside the decode step before it.

Every chain is called in turn, each after a decode step of its own, on logits with a known distribution; a large
vocabulary, not the model, decides the time. llama-server calls the same function of llama.cpp for every answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from inferlab.engine.client import LlamaEngine
from inferlab.engine.protocol import Sampler
from inferlab.engine.session import default_engine
from inferlab.errors import InvalidSettings
from inferlab.measurement.base import Measurement, common_fields, with_context
from inferlab.model.find import find_model
from inferlab.model.gguf import read_gguf
from inferlab.settings import Settings

FLAT, SHARP = 1.0, 2.0
SEED = 42
CUT = (Sampler("top_p", (0.95,)), Sampler("min_p", (0.05,)), Sampler("temperature", (0.8,)), Sampler("dist", (SEED,)))
TOP_K = Sampler("top_k", (40,))
DEFAULT = (TOP_K, *CUT)
REPEAT = Sampler("penalties", (64, 1.1, 0.0, 0.0))
CHAINS: dict[str, tuple[Sampler, ...]] = {
    "default": DEFAULT,
    "likeliest token": (Sampler("greedy"),),
    "other temperature and seed": (TOP_K, *CUT[:2], Sampler("temperature", (1.2,)), Sampler("dist", (SEED + 1,))),
    "penalty of 1": (Sampler("penalties", (64, 1.0, 0.0, 0.0)), *DEFAULT),
    "repeat penalty": (REPEAT, *DEFAULT),
    "repeat penalty after top-k": (TOP_K, REPEAT, *CUT),
    "DRY": (Sampler("dry", (0.8, 1.75, 2, 64)), *DEFAULT),
    "top-k off": CUT,
    "only min-p": CUT[1:],
    "only temperature": CUT[2:],
}
"""Chains by name, in the order of common/common.h; `default` is llama-server's, without the samplers that are off."""


@dataclass(frozen=True)
class ChainTimes:
    """One chain on logits of one exponent: seconds of each call, in turns with the other chains."""

    name: str
    samplers: tuple[Sampler, ...]
    exponent: float
    seconds: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Sampling(Measurement):
    """Chains of samplers on one model's vocabulary.

    n_prompt        tokens in the cache at each decode step
    decode_seconds  engine time of the decode step before each call of a chain
    """

    n_vocab: int
    n_prompt: int
    chains: tuple[ChainTimes, ...]
    decode_seconds: tuple[float, ...]

    def seconds(self, name: str, exponent: float = SHARP) -> float:
        """Median seconds of a chain. Raises InvalidSettings for one that was not measured."""
        for one in self.chains:
            if (one.name, one.exponent) == (name, exponent):
                return median(one.seconds)
        raise InvalidSettings(f"There is no chain {name!r} on logits of exponent {exponent} in this measurement.")

    @property
    def step_seconds(self) -> float:
        """Median engine time of a decode step, without sampling."""
        return median(self.decode_seconds)

    def share(self, name: str, exponent: float = SHARP) -> float:
        """Share of the chain in the time of a token: t / (step + t)."""
        seconds = self.seconds(name, exponent)
        return seconds / (self.step_seconds + seconds)


def sample_times(
    model: str | Path | None = None,
    settings: Settings | None = None,
    chains: Mapping[str, Sequence[Sampler]] = CHAINS,
    exponents: Sequence[float] = (SHARP, FLAT),
    n_prompt: int = 128,
    repeats: int = 30,
    engine: LlamaEngine | None = None,
) -> Sampling:
    """Time every chain `repeats` times for each exponent. Raises InvalidSettings, ModelError, EngineError."""
    if not chains or not exponents or min(n_prompt, repeats) < 1:
        raise InvalidSettings("Give at least one chain and one exponent, and n_prompt and repeats of at least 1.")
    engine, path = engine or default_engine(), find_model(model)
    with engine.exclusive():
        opening = engine.open(path, with_context(settings or Settings(), n_prompt, 1))
        prompt = engine.random_prompt(n_prompt)
        found = [engine.sample(prompt, list(chains.values()), exponent, repeats) for exponent in exponents]
        header = read_gguf(path)
        return Sampling(
            **common_fields(engine, opening, header),
            n_vocab=header.n_vocab,
            n_prompt=n_prompt,
            chains=tuple(
                ChainTimes(name, tuple(samplers), exponent, tuple(seconds))
                for exponent, (every, _) in zip(exponents, found, strict=True)
                for (name, samplers), seconds in zip(chains.items(), every, strict=True)
            ),
            decode_seconds=tuple(step for _, steps in found for step in steps),
        )
