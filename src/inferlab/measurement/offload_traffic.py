"""Two sides of a link: where the cache lies, into how many parts a pass is divided, how much crosses for a token."""

from __future__ import annotations

import re
from pathlib import Path

from inferlab.engine.client import LlamaEngine
from inferlab.engine.protocol import Opening
from inferlab.engine.session import default_engine
from inferlab.errors import EngineRefused
from inferlab.measurement.run import fitted
from inferlab.measurement.telemetry.host import bytes_to_itself
from inferlab.model.find import find_model
from inferlab.settings import Settings

PARTS = re.compile(r"splits = (\d+)")


def cache_sides(
    model: str | Path | None, settings: Settings, engine: LlamaEngine | None = None
) -> tuple[dict[str, int], int | None]:
    """Bytes of KV cache on "device" and "host", and the parts of a pass: llama.cpp's graph splits, None if not logged.

    Raises ModelError, EngineRefused or EngineCrashed.
    """
    engine = engine or default_engine()
    opening = engine.open(find_model(model), settings)
    sides: dict[str, int] = {}
    for buffer in opening.buffers:
        if buffer.kind == "kv_cache":
            side = "host" if buffer.device.startswith("CPU") else "device"
            sides[side] = sides.get(side, 0) + buffer.n_bytes
    return sides, parts(opening)


def parts(opening: Opening) -> int | None:
    """Into how many parts llama.cpp divides a pass for one token, as its log says."""
    found = PARTS.findall(opening.log)
    return int(found[-1]) if found else None


def crossed_bytes(
    model: str | Path | None,
    settings: Settings,
    n_prompt: int = 256,
    n_gen: int = 100,
    engine: LlamaEngine | None = None,
) -> float | None:
    """Bytes that a loopback device's link carries for one token, both ways, with n_prompt tokens before it.

    Counted by the system for all that the machine sends to itself; None where it does not tell.
    """
    engine = engine or default_engine()
    engine.open(find_model(model), fitted(settings, n_prompt, n_gen + 1))
    prompt = engine.random_prompt(n_prompt)
    without, with_them = (_carried(engine, prompt, n) for n in (1, n_gen + 1))
    return None if without is None or with_them is None else (with_them - without) / n_gen


def full_context(model: str | Path | None, settings: Settings, engine: LlamaEngine | None = None) -> str:
    """What llama.cpp answers to one token more than there are cells: the first line of its refusal, or "accepted"."""
    engine = engine or default_engine()
    chosen = engine.open(find_model(model), settings).settings
    try:
        engine.generate(engine.random_prompt(chosen.n_ctx), 2)
    except EngineRefused as refusal:
        return str(refusal).splitlines()[0]
    return "accepted"


def _carried(engine: LlamaEngine, prompt: list[int], n_gen: int) -> int | None:
    before = bytes_to_itself()
    engine.generate(prompt, n_gen)
    after = bytes_to_itself()
    return None if before is None or after is None else after - before

