"""What one change frees on a card of 8 GiB, of which 1 GiB stays free: computed for a model that does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from inferlab.model.synthetic_model import shape
from inferlab.prediction.fit import Fit, fit
from inferlab.settings import Settings
from inferlab.units import GIB

DEVICE = "gpu0"
MISTRAL, LLAMA = "mistral-7b-v0.3", "llama-3.1-8b"
on_card = partial(fit, vram="8GiB")
OFF, ON = (Settings(n_ctx=32_768, flash_attn=flash) for flash in ("off", "on"))
Q8 = ON.but(type_k="q8_0", type_v="q8_0")


def numbers() -> dict[str, float | str]:
    """The numbers of the page: Mistral 7B with 32,768 tokens on the card, and Llama 3.1 8B in Q8_0."""
    on, quantized = _mistral(ON), _mistral(Q8)
    parts = on.plan.devices[DEVICE]
    fits = {"yes": "and it fits", "no": "and it still does not fit"}.get(quantized.fits, "and it may fit")
    longest = on_card(shape(MISTRAL), OFF, simulate=False, within_trained=True).largest_n_ctx
    return {
        "missing_gib": -on.margin_bytes / GIB,
        "on_gib": _most(on) / GIB,
        "weights_gib": parts.weights_bytes / GIB,
        "cache_gib": parts.kv_cache_bytes / GIB,
        "compute_gib": parts.compute_bytes / GIB,
        "q8": f"this frees {freed(on, quantized)}, {fits}",
        "longest_off": longest.value,
        "large_weights_gib": _llama("Q8_0").plan.devices[DEVICE].weights_bytes / GIB,
    }


def levers_table() -> tuple[Sequence[str], list[Sequence[str]]]:
    """Heads and rows: what each change of Mistral 7B frees, and whether it fits then."""
    off, on = _mistral(OFF), _mistral(ON)
    fewer = on.most_layers
    changes = {
        "context 16,384 in place of 32,768": _mistral(ON.but(n_ctx=16_384)),
        "one slot of 8,192 in place of four": _mistral(ON.but(n_ctx=8192)),
        "cache in `q8_0`": _mistral(Q8),
        "ubatch 256 in place of 512": _mistral(ON.but(n_ubatch=256)),
        f"{fewer.value} layers on the GPU in place of {shape(MISTRAL).n_layer + 1}": _mistral(fewer.settings),
        "weights in Q3_K_M": on_card(shape(MISTRAL, "Q3_K_M"), ON),
    }
    return ("change", "frees", "does it fit then?"), [
        ("flash attention on in place of off", freed(off, on), verdict(on)),
        *((name, freed(on, after), verdict(after)) for name, after in changes.items()),
    ]


def larger_table() -> tuple[Sequence[str], list[Sequence[str]]]:
    """Heads and rows: Llama 3.1 8B in Q8_0 with 8,192 tokens, whose weights alone are too large."""
    large = _llama("Q8_0")
    fewer = large.most_layers
    changes = {
        "as asked": large,
        "context 2,048": _llama("Q8_0", n_ctx=2048),
        f"{fewer.value} layers on the GPU": on_card(shape(LLAMA, "Q8_0"), fewer.settings),
        **{f"weights in {mix}": _llama(mix) for mix in ("Q6_K", "Q5_K_M", "Q4_K_M")},
    }
    return ("change", "on the card, at most", "does it fit then?"), [
        (name, f"{_most(after) / GIB:.2f} GiB", verdict(after)) for name, after in changes.items()
    ]


def verdict(after: Fit) -> str:
    """Whether it fits, with the bytes that are left or missing."""
    gib = abs(after.margin_bytes) / GIB
    words = {"yes": f"yes, {gib:.2f} GiB left", "no": f"no, {gib:.2f} GiB missing"}
    return words.get(after.fits, "not sure")


def freed(before: Fit, after: Fit) -> str:
    """What a change frees, in GiB; a bound gives the least."""
    least = "at least " if after.plan.compute_range else ""
    return f"{least}{(_most(before) - _most(after)) / GIB:.2f} GiB"


def _mistral(settings: Settings) -> Fit:
    return on_card(shape(MISTRAL), settings)


def _llama(mix: str, n_ctx: int = 8192) -> Fit:
    return on_card(shape(LLAMA, mix), Settings(n_ctx=n_ctx, flash_attn="on"))


def _most(after: Fit) -> int:
    """Bytes on the card, at most."""
    return after.plan.most_bytes(DEVICE)
