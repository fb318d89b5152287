"""A published rate read backwards: what it can mean, and which readings the bandwidth rules out.

    most bytes for a token       = bandwidth / rate                     (`decode_bound.most_token_bytes`)
    least tokens for a reading   = rate * bytes for a token / bandwidth

The second is above 1 where one sequence, token by token, cannot have the rate: then several sequences shared a reading
of the weights, drafts were checked together, a prompt was counted, or the bytes or the bandwidth are others.
"""

from __future__ import annotations

from collections.abc import Iterable

from inferlab.model.catalog import KnownModel, known_models
from inferlab.model.gguf import Model
from inferlab.model.synthetic_model import shape
from inferlab.prediction.decode_bound import most_token_bytes, token_bytes

MIXES = ("F16", "Q8_0", "Q6_K", "Q4_K_M", "Q2_K")


def bits_per_weight(model: Model) -> float:
    """Bits of the file's tensors for each weight, over the whole model."""
    return 8 * model.tensor_bytes / sum(tensor.n_elements for tensor in model.tensors)


def most_weights(bandwidth_bytes_per_second: float, tokens_per_second: float, bits: float) -> float:
    """The most weights of `bits` each that a token can have read at this rate, with an empty cache.

    Raises InvalidSettings for a rate that is not positive.
    """
    return 8 * most_token_bytes(bandwidth_bytes_per_second, tokens_per_second) / bits


def largest_models(n_bytes: float, mixes: Iterable[str] = MIXES) -> dict[str, KnownModel | None]:
    """Mix -> the known dense model with the most bytes for a token that still needs at most `n_bytes`; None for none.

    Models with experts are left out: they have more weights than a token reads.
    """
    dense = [one for one in known_models().values() if not one.n_expert]
    found: dict[str, KnownModel | None] = {}
    for mix in mixes:
        needed = {token_bytes(shape(one, mix)): one for one in dense}
        found[mix] = needed.get(max((n for n in needed if n <= n_bytes), default=-1))
    return found


def least_tokens_for_a_reading(
    bandwidth_bytes_per_second: float, tokens_per_second: float, n_bytes: float
) -> float:
    """Tokens that one reading of `n_bytes` must have given; above 1, one token after another is ruled out.

    Raises InvalidSettings for a rate that is not positive.
    """
    return n_bytes / most_token_bytes(bandwidth_bytes_per_second, tokens_per_second)
