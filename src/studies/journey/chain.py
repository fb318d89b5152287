"""A conversation from the start of the program to a full context: seconds of its phases, predicted or bounded.

Two answers, which must not be mixed:

bound       what cited rates of links and memories allow at least; arithmetic, launches and waits only add to it
prediction  from a calibrated machine: fitted rates for the start, `predict_speed` for prompt and answer

    least token    card bytes / card + host bytes / RAM + cache bytes in RAM of the card's layers / slower of bus, RAM
    least prompt   ubatches * bytes of the matrices that every ubatch needs / card
"""

from __future__ import annotations

from dataclasses import dataclass

from inferlab.machine import HOST_DEVICE
from inferlab.model.gguf import Model
from inferlab.prediction.calibration import Calibration
from inferlab.prediction.decode_bound import decode_bytes
from inferlab.prediction.link_rates import Rung, slowest
from inferlab.prediction.memory.cache import batches, cache_layers, cell_bytes
from inferlab.prediction.memory.plan import MemoryPlan
from inferlab.prediction.predict import predict_memory, predict_speed
from inferlab.prediction.speed import for_last_token, matrices
from inferlab.settings import Settings

CARD = "gpu0"
PARTS = 4  # in which an answer is predicted, each at the depth of its middle token


@dataclass(frozen=True)
class Places:
    """What the bytes of a conversation cross: the disk of the file, the bus to the card, host RAM, the card."""

    disk: Rung
    bus: Rung
    ram: Rung
    card: Rung


def least_start(plan: MemoryPlan, model: Model, places: Places) -> dict[str, float]:
    """Least seconds of reading the mapped file and of copying the card's weights, one after the other."""
    return {
        "read": places.disk.seconds(model.file_bytes),
        "copy": places.bus.seconds(plan.devices[CARD].weights_bytes),
    }


def least_prompt(plan: MemoryPlan, model: Model, n_tokens: int, places: Places) -> float:
    """Least seconds of a prompt with all layers on the card, from its memory's rate alone: see the equation above."""
    every = sum(tensor.n_bytes for tensor, _ in matrices(model) if not for_last_token(tensor, model))
    return -(-n_tokens // batches(plan.settings)[1]) * places.card.seconds(every)


def least_token(plan: MemoryPlan, model: Model, depth: int, places: Places) -> float:
    """Least seconds of one token on top of `depth` cells, from the bytes of each place: see the equation above."""
    crossing = _crossing_bytes(plan, model, depth)
    there = decode_bytes(plan, model, depth, frozenset({CARD}))
    here = decode_bytes(plan, model, depth, frozenset({HOST_DEVICE, CARD})) - there - crossing
    return places.card.seconds(there) + places.ram.seconds(here) + slowest((places.bus, places.ram)).seconds(crossing)


def least_answer(plan: MemoryPlan, model: Model, depth: int, n_tokens: int, places: Places) -> float:
    """Least seconds of n_tokens on top of `depth` cells of a model without windows: the mean of first and last."""
    ends = (least_token(plan, model, at, places) for at in (depth, depth + n_tokens - 1))
    return n_tokens * sum(ends) / 2


def least_clock(plan: MemoryPlan, model: Model, n_new: int, n_answer: int, places: Places) -> list[tuple[float, int]]:
    """(least seconds since the start, tokens in the context) after the load and after each prompt and answer.

    Whole turns of n_new and n_answer tokens, as many as fit in n_ctx.
    """
    at, depth = sum(least_start(plan, model, places).values()), 0
    points = [(at, depth)]
    while depth + n_new + n_answer <= plan.settings.n_ctx:
        at += least_prompt(plan, model, n_new, places)
        points.append((at, depth + n_new))
        at += least_answer(plan, model, depth + n_new, n_answer, places)
        depth += n_new + n_answer
        points.append((at, depth))
    return points


def predicted_phases(
    model: Model, settings: Settings, calibration: Calibration, start: float, n_prompt: int, n_gen: int
) -> dict[str, float]:
    """Seconds of start, prefill and decode of one request on a calibrated machine, and of the whole.

    start  seconds of a start on the host; the bytes of a device cross the calibrated link besides
    """
    device = predict_memory(model, settings, simulate=False).devices.get(CARD)
    link = next(iter(calibration.links.values()))
    each = (n_gen - 1) / PARTS
    parts = [
        predict_speed(model, settings, calibration, n_prompt + round(part * each), round(each)) for part in range(PARTS)
    ]
    seconds = {
        "start": start + (device.weights_bytes / link.bytes_per_second if device else 0.0),
        "prefill": parts[0].prefill.seconds,
        "decode": each * sum(part.decode.seconds for part in parts),
    }
    return seconds | {"whole": sum(seconds.values())}


def _crossing_bytes(plan: MemoryPlan, model: Model, depth: int) -> int:
    """Bytes of cache in host RAM that belong to layers of a card; with flash attention they cross the bus."""
    blocks = [row for row in plan.layers if row.index is not None]
    settings = plan.settings
    return sum(
        min(depth + 1, layer.window or depth + 1) * cell_bytes(layer, settings.type_k, settings.type_v)
        for row, layer in zip(blocks, cache_layers(model), strict=True)
        if row.device != HOST_DEVICE and row.kv_cache_device == HOST_DEVICE
    )
