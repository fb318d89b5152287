"""What a speed plan uses that was not calibrated: each a sentence for the reader."""

from __future__ import annotations

from collections.abc import Iterator

from inferlab.machine import HOST_DEVICE
from inferlab.prediction.calibration import LEAST_CHECKS, PHASES, Calibration
from inferlab.prediction.speed import PlacedModel, attention_path

FURTHEST = 4  # times the largest measured matrix or cache, beyond which rates are extrapolated
MOST_SPREAD = 0.5  # of the typical check's rounds: above, the machine was busy, and plans are for a busy one


def extrapolations(placed: PlacedModel, calibration: Calibration, n_tokens: int) -> tuple[str, ...]:
    """Sentences that say for which parts of a plan with n_tokens in the cache nothing was measured."""
    sentences = [*_of_weights(placed, calibration), *_of_attention(placed, calibration, n_tokens)]
    sentences += [*_of_threads(placed)]
    if 0 < len(calibration.checks) < LEAST_CHECKS:
        sentences.append(f"a band from {len(calibration.checks)} checks holds less than 90 % of requests")
    spread = max(map(calibration.repeatability, PHASES))
    if spread > MOST_SPREAD:
        sentences.append(f"a quiet machine, because the calibration's rounds lie {100 * spread:.0f} % apart")
    return tuple(f"Not calibrated for this: {sentence}." for sentence in sentences)


def _of_weights(placed: PlacedModel, calibration: Calibration) -> Iterator[str]:
    known = set().union(*(rates.types for rates in placed.rates.values()))
    for type in sorted({tensor.type for tensor, _ in placed.tensors()} - known):
        nearest = next(iter(placed.rates.values())).nearest_type(type)
        yield f"{type} has no rates of its own, so {nearest}, the nearest type in size, stands for it"
    if any("_exps" in tensor.name for tensor, _ in placed.tensors()):
        yield "batches of experts were not measured, so the rate of a prompt is a rough estimate"
    most = max((max(p.n_rows, p.n_cols) for p in calibration.products), default=None)
    largest = max(max(tensor.shape[:2]) for tensor, device in placed.tensors() if tensor.name.startswith("blk."))
    if most and largest > FURTHEST * most:
        yield f"a matrix has {largest:,} rows or columns, and the largest measured one {most:,}"


def _of_attention(placed: PlacedModel, calibration: Calibration, n_tokens: int) -> Iterator[str]:
    settings, path = placed.settings, attention_path(placed.settings)
    for type in sorted({settings.type_k, settings.type_v}):
        if any(rates.attention_of(type, path, placed.size.head_dim_v) is None for rates in placed.rates.values()):
            yield f"keys or values in {type} were not measured, so f16 stands for them"
    if settings.type_k != settings.type_v:
        yield "keys and values of different types were not measured together"
    if any(layer.window for layer in placed.cache):
        yield "sliding windows were not measured"
    sizes = sorted({timed.head_dim for timed in calibration.attentions})
    if sizes and not sizes[0] <= placed.size.head_dim_v <= sizes[-1]:
        yield f"heads of {placed.size.head_dim_v} values lie outside the measured {sizes[0]} to {sizes[-1]}"
    most = max((timed.n_cells for timed in calibration.attentions), default=None)
    if most and n_tokens > FURTHEST * most:
        yield f"{n_tokens:,} tokens in the cache, and attention was measured with {most:,}"


def _of_threads(placed: PlacedModel) -> Iterator[str]:
    measured, requested = placed.rates[HOST_DEVICE].n_threads, placed.settings.n_threads
    if requested is not None and requested != measured and HOST_DEVICE in placed.layers:
        yield f"{requested} threads, and {measured} were measured"
