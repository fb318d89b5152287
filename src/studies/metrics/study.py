"""Numbers of a request, of a crowd at one card, and of a wish that a division checks."""

from __future__ import annotations

from dataclasses import dataclass

from inferlab.measurement.cold_start import ColdStart
from inferlab.measurement.run import Run
from inferlab.model import architectures
from inferlab.model.catalog import known_model
from inferlab.model.find import tiny_model
from inferlab.model.gguf import read_gguf
from inferlab.prediction.memory import kv_cache_bytes_per_token
from inferlab.units import MIB

RAM_BANDWIDTH = 2 * 8 * 6000e6
"""Two channels of DDR5-6000, 8 bytes each."""
SUSTAINED = 20e12
"""FLOP per second of a card at work."""


@dataclass(frozen=True)
class Published:
    """A published measurement of so many sequences at once: seconds, and tokens per second of all."""

    sequences: int
    ttft_seconds: float
    all_tokens_per_second: float

    @property
    def each_tokens_per_second(self) -> float:
        return self.all_tokens_per_second / self.sequences


@dataclass(frozen=True)
class Wish:
    """A card's bytes per second, what a person wants of it, and tokens in the conversation and in the prompt."""

    bandwidth: float
    ttft_seconds: float
    tokens_per_second: float
    n_cells: int
    n_prompt: int


def break_even() -> float:
    """Tokens at which the two assistants of the page's first prediction finish together."""
    return 1 + (1.5 - 0.2) / (1 / 20 - 1 / 60)


def crowd_numbers(one: Published, many: Published) -> dict[str, float]:
    """One sequence and many at once, for the card and for each person."""
    alone, of_many = one.each_tokens_per_second, many.each_tokens_per_second
    return {
        "throughput_gain": many.all_tokens_per_second / one.all_tokens_per_second,
        "all_of_many": many.all_tokens_per_second,
        "each_of_many": of_many,
        "each_alone": alone,
        "tpot_alone": 1e3 / alone,
        "tpot_of_many": 1e3 / of_many,
        "tpot_loss": alone / of_many,
        "ttft_alone": one.ttft_seconds,
        "ttft_of_many": many.ttft_seconds,
        "ttft_loss": many.ttft_seconds / one.ttft_seconds,
    }


def wish_numbers(name: str, wish: Wish) -> dict[str, float]:
    """A known model in Q4_K_M: the most that bandwidth allows on a card and on a CPU, and a prompt's arithmetic."""
    model = known_model(name)
    weights, n_weights = model.files["Q4_K_M"].value, architectures.n_params(model)
    kv_bytes = wish.n_cells * kv_cache_bytes_per_token(model, "f16", "f16")
    decode = wish.bandwidth / (weights + kv_bytes)
    return {
        "decode_estimate": decode,
        "ram_estimate": RAM_BANDWIDTH / (weights + kv_bytes),
        "ttft_estimate_ms": 1e3 * 2 * n_weights * 512 / SUSTAINED,
        "mistral_billions": n_weights / 1e9,
        "mistral_mib": weights / MIB,
        "weights_gb": weights / 1e9,
        "kv_gb": kv_bytes / 1e9,
        "bits_per_weight": 8 * weights / n_weights,
        "needed_tflops": 2 * n_weights * wish.n_prompt / wish.ttft_seconds / 1e12,
        "share_needed": wish.tokens_per_second / decode * 100,
    }


def request_numbers(run: Run, start: ColdStart) -> dict[str, float]:
    """A request of the embedded model: waits, rates and memory, and one start of the program."""
    request_seconds = run.ttft_seconds + (run.n_gen - 1) * run.inter_token_seconds
    return {
        "ttft_ms": run.ttft_seconds * 1e3,
        "tpot_ms": run.inter_token_seconds * 1e3,
        "start_ms": start.wall_seconds * 1e3,
        "load_ms": run.load_seconds * 1e3,
        "decode_rate": run.decode_tokens_per_second,
        "prefill_rate": run.prefill_tokens_per_second,
        "request_rate": run.n_gen / request_seconds,
        "footprint_mib": sum(buffer.n_bytes for buffer in run.buffers) / MIB,
        "weights_mib": run.bytes_on("weights") / MIB,
        "kv_mib": run.bytes_on("kv_cache") / MIB,
        "compute_mib": run.bytes_on("compute") / MIB,
        "tiny_millions": read_gguf(tiny_model()).n_params / 1e6,
    }


def change_numbers(run: Run, again: Run) -> dict[str, float]:
    """Per cent by which the same request differs in a second measurement."""
    return {
        "ttft_change": 100 * abs(again.ttft_seconds / run.ttft_seconds - 1),
        "tpot_change": 100 * abs(again.inter_token_seconds / run.inter_token_seconds - 1),
    }
