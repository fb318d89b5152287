"""The fitted coefficients of the model of a card: data/public_rates/model.toml, for a backend, a chip and a type.

    a coefficient = that of its backend x factor of the chip x factor of the type x yearly ** years before `present`

`card_model` has the equations, `studies.public_rates` fits and judges them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from inferlab.facts import read_table
from inferlab.prediction.card_model import PromptRates, TokenRates

USUAL = {"cuda": "CUDA", "rocm": "ROCm", "vulkan": "Vulkan", "metal": "Metal", "sycl": "SYCL"}
"""A card's usual backend, as the list of cards has it -> llama.cpp's name."""
BACKENDS = tuple(USUAL.values())
KINDS = ("f16", "bf16", "q8", "k", "k3", "q4", "mxfp4", "iq4", "iq")
"""Types of weights whose blocks are unpacked alike."""
TERA = 1e12


@dataclass(frozen=True)
class Arithmetic:
    """What a card computes: its generation of chips, and operations a second with 32-bit numbers."""

    chip: str
    flops: float


@dataclass(frozen=True)
class CardRecord:
    """What public rows say of a card beyond the model, in one backend: factors of the time, and how many rows."""

    token: float = 1.0
    prompt: float = 1.0
    n_token: int = 0
    n_prompt: int = 0


@cache
def arithmetic() -> dict[str, Arithmetic]:
    """The arithmetic of every card of the list, data/facts/arithmetic.toml."""
    return {name: Arithmetic(entry["chip"], entry["fp32"] * TERA) for name, entry in read_table("arithmetic").items()}


def kind_of(type: str) -> str:
    """The kind of a mix of llama-quantize, by its name."""
    if type in ("F16", "F32"):
        return "f16"
    if type == "BF16":
        return "bf16"
    if type.startswith("IQ"):
        return "iq4" if type.startswith("IQ4") else "iq"
    if type.startswith(("Q2", "Q3")):
        return "k3"
    named = {"Q8_0": "q8", "MXFP4_MOE": "mxfp4", "Q4_0": "q4", "Q4_1": "q4", "Q5_0": "q4", "Q5_1": "q4"}
    return named.get(type, "k")


@dataclass(frozen=True)
class Case:
    """What the coefficients depend on, beside the card.

    years  before `present`, for results of older builds
    """

    backend: str
    chip: str
    kind: str
    latent: bool = False
    quantized_cache: bool = False
    flash_attn: bool = True
    years: float = 0.0


def token_rates(case: Case) -> TokenRates:
    """The coefficients of a token."""
    table = fitted()["token"]
    of, yearly = table[case.backend], table["yearly"]
    score = _score(table, case) * (table["latent_no_flash"] if case.latent and not case.flash_attn else 1.0)
    return TokenRates(
        reached=of["reached"],
        unpack=of["unpack"][case.kind] * yearly["unpack"] ** case.years,
        launch=of["launch"] * table["chips"].get(case.chip, 1.0) * yearly["launch"] ** case.years,
        route=of["route"] * yearly["route"] ** case.years,
        state=of["state"] * yearly["state"] ** case.years,
        reached_cache=of["reached_cache"] * (table["quantized_cache"] if case.quantized_cache else 1.0),
        score=score,
        host_rate=table["host_rate"],
        crossing=table["crossing"],
    )


def prompt_rates(case: Case) -> PromptRates:
    """The coefficients of a prompt."""
    table = fitted()["prompt"]
    of, yearly, chip = table[case.backend], table["yearly"], table["chips"].get(case.chip, {})
    score = _score(table, case) * (table["quantized_cache"] if case.quantized_cache else 1.0)
    return PromptRates(
        matrix=of["matrix"] * chip.get("matrix", 1.0) * of["types"][case.kind] / yearly["matrix"] ** case.years,
        fill=of["fill"],
        experts=of["experts"] / yearly["experts"] ** case.years,
        fill_experts=of["fill_experts"],
        reread=table["reread"],
        layer=of["layer"] * yearly["layer"] ** case.years,
        route=of["route"] * yearly["layer"] ** case.years,
        state=of["state"] * yearly["state"] ** case.years,
        score=score * chip.get("score", 1.0) * yearly["score"] ** case.years,
        bus_rate=table["bus_rate"],
    )


def _score(table: dict[str, Any], case: Case) -> float:
    """What latent keys and attention without its own kernel cost, in both phases."""
    of = table[case.backend]
    return of["score"] * (of["latent"] if case.latent else 1.0) * (1.0 if case.flash_attn else table["no_flash"])


def card_record(card: str, backend: str) -> CardRecord:
    """What the rows say of a card; without any, nothing."""
    return CardRecord(**fitted()["cards"].get(card, {}).get(backend, {}))


@cache
def fitted() -> dict[str, Any]:
    """data/public_rates/model.toml."""
    return read_table("model", "public_rates")
