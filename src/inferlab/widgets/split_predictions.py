"""Predictions of the split lab: bytes and rates of every split, and the calibration behind the rates."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import replace

from inferlab.errors import RecordError
from inferlab.machine import Machine, physical_cores
from inferlab.model.gguf import Model
from inferlab.prediction import predict
from inferlab.prediction.calibration import Calibration
from inferlab.prediction.memory import MemoryPlan
from inferlab.prediction.speed import SpeedPlan
from inferlab.settings import Settings
from inferlab.units import MIB


class SplitPredictions:
    """Predictions for one model on one machine, each computed once: bytes for settings, rates for every n_gpu_layers.

    calibration  source of the rates; None: bytes alone
    """

    def __init__(self, model: Model, machine: Machine, n_prompt: int, n_gen: int) -> None:
        self.model, self.machine, self.workload = model, machine, (n_prompt, n_gen)
        self._plans: dict[str, MemoryPlan] = {}
        self.use_calibration(None)

    def use_calibration(self, calibration: Calibration | None) -> None:
        """Predict rates from this calibration from now on."""
        self.calibration = calibration
        self._curves: dict[str, list[SpeedPlan]] = {}

    def memory(self, settings: Settings) -> MemoryPlan:
        """Bytes on either side for these settings."""
        key = repr(settings)
        if key not in self._plans:
            self._plans[key] = predict.predict_memory(self.model, settings, self.machine)
        return self._plans[key]

    def speeds(self, settings: Settings) -> list[SpeedPlan]:
        """Rates for every n_gpu_layers, from 0 to all blocks and the output layer."""
        if self.calibration is None:
            return []
        key = repr(settings.but(n_gpu_layers=0))
        if key not in self._curves:
            every = range(self.model.n_layer + 2)
            self._curves[key] = [self._speed(settings.but(n_gpu_layers=n)) for n in every]
        return self._curves[key]

    def _speed(self, settings: Settings) -> SpeedPlan:
        return predict.predict_speed(self.model, settings, self.calibration, *self.workload, self.machine)


def prediction_text(settings: Settings, memory: MemoryPlan, speeds: Sequence[SpeedPlan]) -> str:
    """The prediction for these settings in one line of HTML, for readers who cannot see the figure."""
    parts = [_total(memory, device) for device in memory.devices]
    for phase in ("prefill", "decode") if speeds else ():
        step = getattr(speeds[settings.n_gpu_layers], phase)
        parts.append(f"{phase} {step.tokens_per_second:.1f} tokens/s, most of its time {step.bound_by}")
    return f"<p><strong>Predicted.</strong> {html.escape('; '.join(parts))}.</p>"


def _total(memory: MemoryPlan, device: str) -> str:
    """Predicted bytes of a device; a range where the prediction is one."""
    least, most = (f"{n_bytes / MIB:,.0f}" for n_bytes in (memory.least_bytes(device), memory.most_bytes(device)))
    return f"{device} {most} MiB" if least == most else f"{device} {least} to {most} MiB"


def kept_calibration() -> Calibration | None:
    """The calibration that `lab.calibrate` saved on this machine; None if there is none or it cannot be read."""
    try:
        return Calibration.load()
    except RecordError:
        return None


def for_all_cores(calibration: Calibration) -> Calibration:
    """The calibration for a loopback device with every core: the host's rates, a device's overhead."""
    cores = physical_cores()
    far = next((name for name in calibration.devices if name.startswith("loopback/")), None)
    if far is None or far == f"loopback/{cores}":
        return calibration
    known, name = calibration.devices[far], f"loopback/{cores}"
    like_host = replace(
        calibration.host(cores), name=name, step_seconds=known.step_seconds, block_seconds=known.block_seconds
    )
    kept = {key: rates for key, rates in calibration.devices.items() if key != far}
    links = {**calibration.links, name: calibration.links[far]}
    return replace(calibration, devices={**kept, name: like_host}, links=links)
