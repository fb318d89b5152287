"""Points of a roofline: FLOP and bytes per second that runs achieved, and the batch size at the ridge.

Two FLOP count for each weight and token, and the bytes of the weights once for each pass of at most n_ubatch tokens.
Attention, norms and activations are left out of both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from inferlab.machine import Ceiling
from inferlab.measurement.ceilings import COLUMNS
from inferlab.measurement.run import Run
from inferlab.model.gguf import Model
from inferlab.model.kernels import kernel
from inferlab.prediction.speed import intensity, matrices


@dataclass(frozen=True)
class Achieved:
    """One phase of a run: tokens in the prompt, FLOP per byte of weights read, and FLOP per second."""

    name: str
    n_prompt: int
    flop_per_byte: float
    flops_per_second: float

    @property
    def bytes_per_second(self) -> float:
        """Bytes of weights read in a second."""
        return self.flops_per_second / self.flop_per_byte

    @property
    def point(self) -> tuple[str, float, float]:
        """(name, FLOP per byte, FLOP per second) for `figures.roofline`."""
        return self.name, self.flop_per_byte, self.flops_per_second

    def shares(self, ceiling: Ceiling, type: str) -> tuple[float, float]:
        """Shares that it reached of the memory roof and of the matrix roof of a type of weights; 1 is the roof."""
        memory, matrix = ceiling.bandwidth_bytes_per_second, ceiling.matrix_flops_per_second[type]
        return self.bytes_per_second / memory, self.flops_per_second / matrix


def achieved(runs: Iterable[Run], model: Model, decode: bool = True) -> list[Achieved]:
    """The prefill of every run and, with `decode`, the decode of the run with the fewest cells in use.

    `model` is the model of the runs: its file read, or `lab.shape` of the same name.
    """
    runs = sorted(runs, key=lambda run: run.n_prompt)
    found = [_prefill(run, model) for run in runs]
    with_decode = [run for run in runs if run.decode_tokens_per_second]
    return [*found, _decode(with_decode[0], model)] if decode and with_decode else found


def _prefill(run: Run, model: Model) -> Achieved:
    n_tokens = min(run.n_prompt, run.settings.n_ubatch)
    n_passes = -(-run.n_prompt // run.settings.n_ubatch)
    each = intensity(model, n_tokens)
    flops = each * _read_bytes(model) * n_passes / run.prefill_seconds
    return Achieved(f"prefill of {run.n_prompt}", run.n_prompt, each, flops)


def _decode(run: Run, model: Model) -> Achieved:
    each = intensity(model, 1)
    return Achieved("decode", run.n_prompt, each, each * _read_bytes(model) * run.decode_tokens_per_second)


def _read_bytes(model: Model) -> int:
    """Bytes of the matrices that a pass reads, the same as `speed.intensity` counts."""
    return sum(tensor.n_bytes for tensor, _ in matrices(model))


def kernel_of(ceiling: Ceiling, type: str) -> str | None:
    """The CPU kernel that set the roof of a type (see model.kernels); None on a card, or where it was not recorded."""
    if ceiling.device != "host" or type not in ceiling.buffers:
        return None
    return kernel(type, ceiling.buffers[type], COLUMNS)


def ridge_tokens(ceiling: Ceiling, type: str, model: Model) -> float:
    """Tokens in a pass above which arithmetic takes longer than reading the weights."""
    return ceiling.ridge(type) / intensity(model, 1)
