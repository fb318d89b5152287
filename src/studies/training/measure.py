"""The call that made the record: the bytes of each step in a process of its own, then all steps timed in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from inferlab.engine.client import LlamaEngine
from inferlab.engine.protocol import Entry, Opening, entries_of
from inferlab.engine.session import default_engine
from inferlab.measurement.base import common_fields, with_context
from inferlab.measurement.pytorch import peak_growth, required
from inferlab.measurement.turns import in_turns
from inferlab.model.find import tiny_model
from inferlab.model.gguf import Model, read_gguf
from inferlab.model.numpy_llama import Llama
from inferlab.settings import Settings
from studies import recipes
from studies.recipes import Recipe
from studies.training.study import LedgerRow, TrainingLedger
from studies.training.torch_steps import STEPS, Held, TorchSteps, held_apart

PAUSE_SECONDS = 0.2  # after a step, the threads of both programs wait busily for the next for a while


def training_ledger(n_tokens: int, repeats: int, flash_attn: str) -> TrainingLedger:
    """The steps of the embedded model on random tokens, `repeats` turns. Raises PyTorchUnavailable."""
    torch, engine, path = required(), default_engine(), tiny_model()
    settings, header = with_context(Settings(flash_attn=flash_attn), n_tokens, 0), read_gguf(path)
    opening, grown = _opened_afresh(engine, path, settings, n_tokens)
    tokens, n_threads = engine.random_prompt(n_tokens), opening.settings.n_threads
    steps = TorchSteps(header, tokens, n_threads)
    agreement = _agreement(engine, steps, header, tokens)
    seconds = _in_turns(engine, steps, tokens, repeats)
    common = common_fields(engine, opening, header)
    held = dict.fromkeys(("engine_decode", "engine_prefill"), Held(_buffer_sizes(opening), grown))
    held |= {step: held_apart(step, path, tokens, n_threads) for step in STEPS}
    rows = tuple(LedgerRow(step, kept.sizes, tuple(seconds[step]), kept.grown_bytes) for step, kept in held.items())
    return TrainingLedger(**common, torch=torch.__version__, n_tokens=n_tokens, **agreement, rows=rows)


def _opened_afresh(engine: LlamaEngine, path: Path, settings: Settings, n_tokens: int) -> tuple[Opening, int | None]:
    """The model opened in a new worker, and that worker's peak growth until its first prefill has ended."""
    engine.close()
    engine.machine()  # starts the worker
    with peak_growth(engine.pid) as grown:
        opening = engine.open(path, settings)
        engine.step(entries_of(engine.random_prompt(n_tokens)))
    return opening, grown[0]


def _agreement(engine: LlamaEngine, steps: TorchSteps, header: Model, tokens: Sequence[int]) -> dict[str, Any]:
    """How far PyTorch's logits are from NumPy's, and how often its likeliest token is llama.cpp's."""
    engine.keep(0)
    picks = engine.step([Entry(token, position, wanted=True) for position, token in enumerate(tokens)]).picks
    with steps.torch.inference_mode():
        logits = steps.network.logits(tokens).numpy()
    expected = Llama(header).logits(tokens)
    return {
        "logits_difference": float(np.abs(logits - expected).max()),
        "largest_logit": float(np.abs(expected).max()),
        "same_picks": int((logits.argmax(-1) == np.asarray(picks)).sum()),
    }


def _in_turns(
    engine: LlamaEngine, steps: TorchSteps, tokens: Sequence[int], repeats: int
) -> dict[str, tuple[float, ...]]:
    """Seconds of every step, all of them once in each turn; before each counted step stands one that is not."""
    timers: dict[str, Callable[[], float]] = {
        "engine_prefill": partial(_engine_seconds, engine, tokens, 0),
        "engine_decode": partial(_engine_seconds, engine, tokens, len(tokens) - 1),
        **{step: partial(steps.seconds, step) for step in STEPS},
    }

    def once(timed: Callable[[], float]) -> float:
        time.sleep(PAUSE_SECONDS)
        timed()
        return timed()

    return dict(zip(timers, in_turns(once, [*timers.values()], range(repeats)), strict=True))


def _engine_seconds(engine: LlamaEngine, tokens: Sequence[int], n_cached: int) -> float:
    """Engine time of the tokens after the first `n_cached`, which are in the cache."""
    engine.keep(n_cached)
    return engine.step(entries_of(tokens[n_cached:], n_cached)).seconds


def _buffer_sizes(opening: Opening) -> dict[str, int]:
    kinds = dict.fromkeys(buffer.kind for buffer in opening.buffers)
    return {kind: sum(buffer.n_bytes for buffer in opening.buffers if buffer.kind == kind) for kind in kinds}


RECIPES: Mapping[str, Recipe] = {
    "training-ledger": partial(training_ledger, n_tokens=512, repeats=21, flash_attn="on"),
}

if __name__ == "__main__":
    recipes.main(RECIPES)
