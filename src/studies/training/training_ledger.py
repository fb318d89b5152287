"""One training step beside one inference step of the same model: bytes that each keeps, and seconds.

llama.cpp makes the inference steps `engine_decode` and `engine_prefill`; PyTorch makes the steps of `torch_steps`.
All have the same weights, tokens and number of threads; PyTorch's weights are 32-bit floats.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from inferlab.engine.protocol import Engine, Entry, entries_of
from inferlab.engine.session import default_engine
from inferlab.errors import InvalidSettings
from inferlab.measurement.base import Measurement, common_fields, with_context
from inferlab.measurement.pytorch import peak_growth, required
from inferlab.measurement.queued import queued
from inferlab.model.find import find_model
from inferlab.model.gguf import Model, read_gguf
from inferlab.model.numpy_llama import Llama
from inferlab.settings import Settings
from studies.training import torch_steps
from studies.training.torch_steps import Held, TorchSteps

ENGINE_STEPS = ("engine_decode", "engine_prefill")
STEPS = (*ENGINE_STEPS, *torch_steps.STEPS)
PAUSE_SECONDS = 0.2  # after a step, the threads of both programs wait busily for the next for a while


@dataclass(frozen=True)
class LedgerRow:
    """One step: bytes by kind, the seconds of each repetition, and the peak growth of a process that made only it.

    step         one of STEPS
    sizes        of llama.cpp its buffers: weights, kv_cache, compute, output;
                 of PyTorch the tensors kept: weights, gradients, adam, saved, kv_cache
    seconds      engine time of llama.cpp's steps, wall time of PyTorch's
    grown_bytes  from before the model was opened; None if the system does not report it
    """

    step: str
    sizes: dict[str, int]
    seconds: tuple[float, ...]
    grown_bytes: int | None = None

    @property
    def median_seconds(self) -> float:
        return median(self.seconds)


@dataclass(frozen=True, kw_only=True)
class TrainingLedger(Measurement):
    """The steps of a model in llama.cpp and in PyTorch, timed in turns.

    torch              PyTorch's version
    n_tokens           tokens of a step; a decode step has one, after n_tokens - 1 cached ones
    logits_difference  largest difference between PyTorch's logits and those of `model.numpy_llama`
    largest_logit      the largest of those logits without its sign, to compare it with
    same_picks         tokens after which PyTorch and llama.cpp find the same next token the likeliest
    """

    torch: str
    n_tokens: int
    logits_difference: float
    largest_logit: float
    same_picks: int
    rows: tuple[LedgerRow, ...]

    @property
    def badge(self) -> str:
        """As for every measurement, with PyTorch's version."""
        return f"{super().badge}; PyTorch {self.torch}"

    def of(self, step: str) -> LedgerRow:
        """The row of one of STEPS."""
        return next(row for row in self.rows if row.step == step)


@queued
def training_ledger(
    model: str | Path | None = None,
    settings: Settings | None = None,
    n_tokens: int = 512,
    repeats: int = 15,
    engine: Engine | None = None,
) -> TrainingLedger:
    """Count the bytes of each step in a process of its own, then time all steps in turns, `repeats` times.

    model is a GGUF file of a Llama in F16 or F32; the tokens are random, as in llama-bench.
    Raises PyTorchUnavailable, UnsupportedArchitecture, InvalidSettings, ModelError, EngineRefused or EngineCrashed.
    """
    torch, engine = required(), engine or default_engine()
    if n_tokens < 2 or repeats < 1:
        raise InvalidSettings("n_tokens must be a whole number of at least 2, and repeats of at least 1.")
    settings = with_context(settings or Settings(), n_tokens, 0)
    path = find_model(model)
    header = read_gguf(path)
    with engine.exclusive():
        opening, grown = _opened_afresh(engine, path, settings, n_tokens)
        tokens, n_threads = engine.random_prompt(n_tokens), opening.settings.n_threads
        steps = TorchSteps(header, tokens, n_threads)
        agreement = _agreement(engine, steps, header, tokens)
        seconds = _in_turns(engine, steps, tokens, repeats)
        common = common_fields(engine, opening, header)
    held = {step: Held(_buffer_sizes(opening.buffers), grown) for step in ENGINE_STEPS}
    held |= {step: torch_steps.held_apart(step, path, tokens, n_threads) for step in torch_steps.STEPS}
    rows = tuple(LedgerRow(step, held[step].sizes, tuple(seconds[step]), held[step].grown_bytes) for step in STEPS)
    return TrainingLedger(**common, torch=torch.__version__, n_tokens=n_tokens, **agreement, rows=rows)


def _opened_afresh(engine: Engine, path: Path, settings: Settings, n_tokens: int) -> tuple[Any, int | None]:
    """The model opened in a new worker, and that worker's peak growth until its first prefill has ended."""
    engine.close()
    engine.machine()  # starts the worker
    with peak_growth(engine.pid) as grown:
        opening = engine.open(path, settings)
        engine.step(entries_of(engine.random_prompt(n_tokens)))
    return opening, grown[0]


def _agreement(engine: Engine, steps: TorchSteps, header: Model, tokens: Sequence[int]) -> dict[str, Any]:
    """How far PyTorch's logits are from NumPy's, and how often its likeliest token is llama.cpp's."""
    engine.keep(0)
    picks = engine.step([Entry(token, position, wanted=True) for position, token in enumerate(tokens)]).picks
    with steps.torch.inference_mode():
        found = steps.network.logits(tokens).numpy()
    expected = Llama(header).logits(tokens)
    return {
        "logits_difference": float(np.abs(found - expected).max()),
        "largest_logit": float(np.abs(expected).max()),
        "same_picks": int((found.argmax(-1) == np.asarray(picks)).sum()),
    }


def _in_turns(engine: Engine, steps: TorchSteps, tokens: Sequence[int], repeats: int) -> dict[str, list[float]]:
    """Seconds of every step, all of them once in each turn; before each counted step stands one that is not."""
    timers = {"engine_prefill": lambda: _prefill_seconds(engine, tokens)}
    timers |= {"engine_decode": lambda: _decode_seconds(engine, tokens)}
    timers |= {step: lambda step=step: steps.seconds(step) for step in torch_steps.STEPS}
    found: dict[str, list[float]] = {step: [] for step in timers}
    for _ in range(repeats):
        for step, timed in timers.items():
            time.sleep(PAUSE_SECONDS)
            timed()
            found[step].append(timed())
    return found


def _prefill_seconds(engine: Engine, tokens: Sequence[int]) -> float:
    engine.keep(0)
    return engine.step(entries_of(tokens)).seconds


def _decode_seconds(engine: Engine, tokens: Sequence[int]) -> float:
    last = len(tokens) - 1
    engine.keep(last)
    return engine.step(entries_of(tokens[last:], last)).seconds


def _buffer_sizes(buffers: Sequence[Any]) -> dict[str, int]:
    kinds = dict.fromkeys(buffer.kind for buffer in buffers)
    return {kind: sum(buffer.n_bytes for buffer in buffers if buffer.kind == kind) for kind in kinds}
