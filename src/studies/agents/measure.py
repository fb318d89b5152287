"""The calls that made the records: the session in each setting, and a slot that is saved and restored."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from inferlab.engine.llama_server import LlamaServer, llama_server
from inferlab.engine.session import this_machine
from inferlab.machine import LOOPBACK_ADDRESS
from inferlab.measurement.base import served_fields
from inferlab.measurement.http_client import Stream, stream, whole_answer
from inferlab.model.find import find_model
from inferlab.model.gguf import read_gguf
from inferlab.model.synthetic_model import make_shape
from studies import recipes
from studies.agents.replay import SECONDS, replay
from studies.agents.study import (
    HYBRID_SETTINGS,
    N_CTX,
    N_CTX_SMALL,
    SCALE,
    WINDOWED_SETTINGS,
    Replay,
    SlotFiles,
    main_settings,
)
from studies.recipes import Recipe

SMALL_WIDTHS: dict[str, Any] = {
    "n_embd": 256,
    "n_ff": 1024,
    "n_vocab": 8192,
    "n_head": 4,
    "n_head_kv": 4,
    "head_dim": 64,
}
"""Widths of the shapes: what is kept and read does not depend on them, and two cores read 12,000 tokens in seconds."""


def plain() -> Path:
    """A shape of Qwen2.5 0.5B, which was trained for 32,768 tokens, with two small layers."""
    return make_shape("qwen2.5-0.5b", "Q8_0", n_layer=2, **SMALL_WIDTHS)


def windowed() -> Path:
    """A shape of Gemma 3 1B, which was trained for 32,768 tokens: five small layers with windows and one without."""
    return make_shape("gemma-3-1b", "Q8_0", n_layer=6, **SMALL_WIDTHS)


def hybrid() -> Path:
    """A shape of Granite 4.0 H 350M with half of its layers: two with attention, the others with states."""
    return make_shape("granite-4.0-h-350m", "Q8_0", n_layer=16, n_vocab=8192)


def with_plain_shape() -> tuple[Replay, ...]:
    """The session in the six settings."""
    return tuple(replay(plain(), name, options, N_CTX) for name, options in main_settings().items())


def with_windows() -> tuple[Replay, ...]:
    """The session with windows, with checkpoints and without."""
    return tuple(replay(windowed(), name, options, N_CTX) for name, options in WINDOWED_SETTINGS.items())


def with_states(n_turns: int) -> tuple[Replay, ...]:
    """The first turns of the session at a tenth of its size with a hybrid, with --cache-reuse and without."""
    return tuple(
        replay(hybrid(), name, options, N_CTX_SMALL, SCALE, n_turns) for name, options in HYBRID_SETTINGS.items()
    )


def with_trained(model: str, repeats: int) -> tuple[Replay, ...]:
    """The session at a tenth of its size in the six settings, in turns, with a trained model."""
    path, settings = find_model(model), main_settings(SCALE)
    return tuple(
        replay(path, name, options, N_CTX_SMALL, SCALE) for _ in range(repeats) for name, options in settings.items()
    )


# --- files of slots ---------------------------------------------------------------------------


def slot_files(n_first: int, n_gen: int, n_more: int) -> tuple[SlotFiles, ...]:
    """A slot of each shape saved, the server started anew, the slot restored."""
    return tuple(save_and_restore(path, n_first, n_gen, n_more) for path in (plain(), windowed()))


def save_and_restore(model: Path, n_first: int, n_gen: int, n_more: int) -> SlotFiles:
    """Read a prompt, save the slot, start a new server, restore it; go on from its text, then back before its answer.

    n_first, n_gen  tokens of the prompt and of the answer; n_more  tokens that each later prompt adds
    """
    header, chance = read_gguf(model), random.Random(0)
    words = range(header.n_vocab // 2, header.n_vocab)
    prompt, more, other = (chance.choices(words, k=n) for n in (n_first, n_more, n_more))
    with tempfile.TemporaryDirectory() as folder:
        options = "-c", str(N_CTX), "-np", "1", "--slot-save-path", folder
        with llama_server(model, options=options) as server:
            first = _completion(server, prompt, n_gen)
            saved = _slot(server, "save")
        told = [token for event in first.events if not event.data["stop"] for token in event.data["tokens"]]
        with llama_server(model, options=options) as server:
            restored = _slot(server, "restore")
            on = _completion(server, prompt + told + more, n_gen)
            back = _completion(server, prompt + other, n_gen)
            return SlotFiles(
                **served_fields(server, header, this_machine()),
                options=options[2:4],
                n_tokens=saved["n_saved"],
                n_bytes=saved["n_written"],
                n_first=_timings(first)["prompt_n"],
                first_seconds=_timings(first)["prompt_ms"] / 1e3,
                save_ms=saved["timings"]["save_ms"],
                restore_ms=restored["timings"]["restore_ms"],
                n_next=len(prompt + told + more),
                n_read=_timings(on)["prompt_n"],
                n_back=len(prompt + other),
                n_back_read=_timings(back)["prompt_n"],
            )


def _completion(server: LlamaServer, prompt: list[int], n_gen: int) -> Stream:
    body = {"prompt": prompt, "n_predict": n_gen, "ignore_eos": True, "temperature": 0, "stream": True}
    more = {"cache_prompt": True, "return_tokens": True, "id_slot": 0}
    return stream(LOOPBACK_ADDRESS, server.port, "/completion", body | more, SECONDS)


def _timings(answer: Stream) -> dict[str, Any]:
    timings: dict[str, Any] = answer.events[-1].data["timings"]
    return timings


def _slot(server: LlamaServer, action: str) -> dict[str, Any]:
    return whole_answer(LOOPBACK_ADDRESS, server.port, f"/slots/0?action={action}", {"filename": "agent.bin"}, SECONDS)


RECIPES: Mapping[str, Recipe] = {
    "agent-shape": partial(with_plain_shape),
    "agent-windows": partial(with_windows),
    "agent-hybrid": partial(with_states, n_turns=8),
    "agent-smollm2": partial(with_trained, model="smollm2", repeats=3),
    "agent-slot-files": partial(slot_files, n_first=12_000, n_gen=90, n_more=600),
}

if __name__ == "__main__":
    recipes.main(RECIPES)
