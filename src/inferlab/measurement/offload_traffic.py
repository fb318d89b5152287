"""Offloading over a link: place of the KV cache, graph splits of a pass, bytes transferred for a token or a prompt."""

from __future__ import annotations

import re
from pathlib import Path

from inferlab.engine.client import LlamaEngine
from inferlab.engine.protocol import Opening
from inferlab.engine.session import default_engine
from inferlab.errors import EngineRefused
from inferlab.measurement.base import with_context
from inferlab.measurement.telemetry.host import loopback_interface_bytes
from inferlab.model.find import find_model
from inferlab.settings import Settings

GRAPH_SPLITS = re.compile(r"splits = (\d+)")


def kv_cache_placement(
    model: str | Path | None, settings: Settings, engine: LlamaEngine | None = None
) -> tuple[dict[str, int], int | None]:
    """Bytes of KV cache on "device" and "host", and the number of graph splits of a pass, None if not logged.

    Raises ModelError, EngineRefused or EngineCrashed.
    """
    engine = engine or default_engine()
    opening = engine.open(find_model(model), settings)
    sides: dict[str, int] = {}
    for buffer in opening.buffers:
        if buffer.kind == "kv_cache":
            side = "host" if buffer.device.startswith("CPU") else "device"
            sides[side] = sides.get(side, 0) + buffer.n_bytes
    return sides, graph_splits(opening)


def graph_splits(opening: Opening) -> int | None:
    """The number of parts into which llama.cpp divides a pass over one token, from its log; None if not logged."""
    counts = GRAPH_SPLITS.findall(opening.log)
    return int(counts[-1]) if counts else None


def link_bytes_per_token(
    model: str | Path | None,
    settings: Settings,
    n_prompt: int = 256,
    n_gen: int = 100,
    engine: LlamaEngine | None = None,
) -> float | None:
    """Bytes that a loopback device's link transfers for one token, in both directions, at depth n_prompt.

        (bytes for n_gen + 1 tokens - bytes for 1 token) / n_gen

    The operating system counts all bytes on the loopback interface; None where it does not report them.
    """
    engine = engine or default_engine()
    engine.open(find_model(model), with_context(settings, n_prompt, n_gen + 1))
    prompt = engine.random_prompt(n_prompt)
    prefill_only, with_decode = (_loopback_bytes(engine, prompt, n) for n in (1, n_gen + 1))
    return None if prefill_only is None or with_decode is None else (with_decode - prefill_only) / n_gen


def link_bytes_of_prompt(
    model: str | Path | None, settings: Settings, n_prompt: int = 256, engine: LlamaEngine | None = None
) -> int | None:
    """Bytes that a loopback device's link transfers for a prompt and its first token, in both directions.

    The smaller of two counts, after one pass that is not counted: other programs that use the loopback interface only
    add bytes. None where the operating system does not count them.
    """
    engine = engine or default_engine()
    engine.open(find_model(model), with_context(settings, n_prompt, 1))
    prompt = engine.random_prompt(n_prompt)
    _, *counts = (_loopback_bytes(engine, prompt, 1) for _ in range(3))
    known = [count for count in counts if count is not None]
    return min(known) if len(known) == len(counts) else None


def full_context_response(model: str | Path | None, settings: Settings, engine: LlamaEngine | None = None) -> str:
    """Decode one token more than the context has cells; the first line of llama.cpp's error, or "accepted"."""
    engine = engine or default_engine()
    chosen = engine.open(find_model(model), settings).settings
    try:
        engine.generate(engine.random_prompt(chosen.n_ctx or 0), 2)
    except EngineRefused as refusal:
        return str(refusal).splitlines()[0]
    return "accepted"


def _loopback_bytes(engine: LlamaEngine, prompt: list[int], n_gen: int) -> int | None:
    before = loopback_interface_bytes()
    engine.generate(prompt, n_gen)
    after = loopback_interface_bytes()
    return None if before is None or after is None else after - before
