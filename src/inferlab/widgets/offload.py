"""The live lab of chapter 6: a model split between host and device, predicted and measured."""

from __future__ import annotations

import html
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import ipywidgets as ipw

from inferlab import figures
from inferlab.engine import libraries
from inferlab.engine.client import LlamaEngine
from inferlab.engine.loopback import LoopbackDevice, loopback_device
from inferlab.engine.protocol import Engine
from inferlab.errors import EngineCrashed, InferlabError
from inferlab.machine import physical_cores
from inferlab.measurement.base import with_context
from inferlab.measurement.run import Run, measure
from inferlab.measurement.sweep import Sweep
from inferlab.model.find import find_model
from inferlab.model.gguf import Model, read_gguf
from inferlab.prediction.calibrate import calibrate
from inferlab.prediction.calibration import Calibration
from inferlab.prediction.memory import MemoryPlan
from inferlab.prediction.speed import SpeedPlan
from inferlab.records import load, save
from inferlab.settings import FLASH_ATTN, KV_TYPES, Settings
from inferlab.widgets.attempts import MOVED, Attempt, CancellableEngine, as_sweep, table
from inferlab.widgets.fit_figure import FitFigure
from inferlab.widgets.live_lab import LiveLab, labelled
from inferlab.widgets.save_pictures import SavePictures
from inferlab.widgets.split_predictions import SplitPredictions, for_all_cores, kept_calibration, prediction_text

RECORDED = "epyc-2c/split-layers"
CONTEXTS = (512, 1024, 2048, 4096, 8192, 16384, 32768)
LINKS = {"as fast as it goes": None, "10 GB/s": 10.0, "3 GB/s": 3.0, "1 GB/s": 1.0, "0.3 GB/s": 0.3}


def split_lab(
    model: str | Path | None = None,
    calibration: Calibration | None = None,
    n_prompt: int = 128,
    n_gen: int = 17,
    repeats: int = 3,
    engine: Engine | None = None,
) -> SplitLab | figures.Figure:
    """Controls for the placement of layers and KV cache; bytes and rates are predicted at once, measured by a button.

    calibration  what the rates are predicted from (None: the one kept by `lab.calibrate`; without any, bytes alone)
    On a built page, where no kernel answers, a recorded sweep over n_gpu_layers on a slider.
    """
    if figures.on_page():
        return recorded_split(load(RECORDED, Sweep))
    return SplitLab(model, calibration, (n_prompt, n_gen, repeats), engine)


def recorded_split(sweep: Sweep) -> figures.Figure:
    """A slider over the n_gpu_layers of a sweep: bytes by device as logged, every measured rate."""
    badge = figures.recorded_badge(sweep.runs[-1])

    def draw(n_gpu_layers: int) -> figures.Figure:
        return figures.split(n_gpu_layers, sweep.at(n_gpu_layers=n_gpu_layers), runs=sweep.runs, badge=badge)

    return figures.slider(draw, {"n_gpu_layers": sweep.over["n_gpu_layers"]})


class SplitLab(LiveLab):
    """The live lab of chapter 6; `attempts` has every press of Measure, `runs` the measurements among them.

    workload  n_prompt, n_gen and repeats of every measurement
    Without a GPU the device is a loopback device, which computes with all cores.
    """

    def __init__(
        self,
        model: str | Path | None,
        calibration: Calibration | None,
        workload: tuple[int, int, int],
        engine: Engine | None = None,
    ) -> None:
        self.path = find_model(model)
        self.model: Model = read_gguf(self.path)
        self.workload = workload
        self.engine = engine or LlamaEngine()
        self.machine = self.engine.machine()
        self.on_loopback = not self.machine.gpus and "rpc" in libraries.backends()
        self.predicted = SplitPredictions(self.model, self.machine, *workload[:2])
        kept = calibration or kept_calibration()
        self.predicted.use_calibration(self._for_device(kept) if kept else None)
        self.attempts: list[Attempt] = []
        self._device: LoopbackDevice | None = None
        self._cancellable: CancellableEngine | None = None
        self._began = time.monotonic()
        self._make_controls()
        self.figure = figures.live(figures.split(0))
        self.status = ipw.HTML()
        self._set_status(self._place_text())
        self.notes = ipw.HTML()
        self.history = ipw.HTML()
        self.update()

    # --- controls -------------------------------------------------------------------------------

    def _make_controls(self) -> None:
        top = self.model.n_layer + 1
        n_prompt, n_gen, _ = self.workload
        contexts = [n for n in CONTEXTS if n_prompt + n_gen <= n <= max(512, self.model.n_ctx_train or CONTEXTS[-1])]
        self.n_gpu_layers = labelled(ipw.IntSlider, "n_gpu_layers", value=top // 2, min=0, max=top)
        self.n_ctx = labelled(ipw.SelectionSlider, "n_ctx", options=contexts, value=min(contexts, key=_near_2048))
        self.type_k = labelled(ipw.Dropdown, "type_k", options=KV_TYPES, value="f16")
        self.type_v = labelled(ipw.Dropdown, "type_v", options=KV_TYPES, value="f16")
        self.flash_attn = labelled(ipw.Dropdown, "flash_attn", options=FLASH_ATTN, value="on")
        self.offload_kqv = labelled(ipw.Checkbox, "offload_kqv: the cache lies with its layer", value=True)
        self.link = labelled(ipw.Dropdown, "link to the device", options=list(LINKS.items()), index=0)
        self.measure_button = ipw.Button(description="Measure", button_style="primary", icon="play")
        self.cancel_button = ipw.Button(description="Cancel", icon="stop", disabled=True)
        self.save_button = ipw.Button(description="Save as JSON", icon="save", disabled=True)
        self.calibrate_button = ipw.Button(description="Calibrate (a minute)", icon="tachometer")
        self.calibrate_button.layout.display = "none" if self.predicted.calibration else None
        self.picture_button = SavePictures(label="Save picture (PNG)")
        for button in (self.measure_button, self.cancel_button, self.save_button, self.calibrate_button):
            button.layout.width = "auto"
        self.progress = ipw.IntProgress(value=0, min=0, max=1, layout={"width": "min(34em, 95%)"})
        self.progress.layout.visibility = "hidden"
        for control in self.controls:
            control.observe(lambda _: self.update(), "value")
        self.measure_button.on_click(lambda _: self.start())
        self.cancel_button.on_click(lambda _: self.cancel())
        self.save_button.on_click(lambda _: self.save())
        self.calibrate_button.on_click(lambda _: self.start_calibration())

    @property
    def controls(self) -> list[ipw.Widget]:
        """The controls; the link only where its rate can be limited."""
        moved = [getattr(self, name) for name in MOVED]
        return [*moved, self.link] if self.on_loopback else moved

    @property
    def box(self) -> ipw.VBox:
        ways_out = [self.save_button, self.picture_button]
        buttons = ipw.HBox([self.measure_button, self.cancel_button, self.calibrate_button, *ways_out])
        buttons.layout.flex_flow = "row wrap"
        shown = [self.figure, FitFigure(self.figure), self.history]
        return ipw.VBox([*self.controls, self.notes, buttons, self.progress, self.status, *shown])

    def _place_text(self) -> str:
        """The line that names processor and device before the first measurement."""
        gpus = ", ".join(gpu.description for gpu in self.machine.gpus)
        shared = "a loopback device: both sides share this machine's memory"
        place = gpus or (shared if self.on_loopback else "no device")
        return html.escape(f"Runs on {self.machine.cpu}, with {place}. Predict first, then press Measure.")

    # --- predicting -----------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        """Settings of the controls and the device. Raises InvalidSettings for values that exclude each other."""
        asked = Settings(**{name: getattr(self, name).value for name in MOVED})
        return self._device.settings(asked) if self._device else asked

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(attempt.run for attempt in self.attempts if attempt.run)

    def update(self) -> None:
        """Predict bytes and rates for the controls' values and draw them; show the error if that is impossible."""
        try:
            self._ready_device()
            settings = self.settings
            memory, speeds = self.predicted.memory(settings), self.predicted.speeds(settings)
        except InferlabError as error:
            super().failed(error)
            return
        self.notes.value = prediction_text(settings, memory, speeds)
        self._draw(settings, memory, speeds)

    def _draw(self, settings: Settings, memory: MemoryPlan, speeds: Sequence[SpeedPlan]) -> None:
        figures.redraw(self.figure, figures.split(settings.n_gpu_layers, memory, speeds, self.runs))

    # --- measuring ------------------------------------------------------------------------------

    def start(self) -> None:
        """Measure with the controls' values in a background thread, so that Cancel can be pressed."""
        self._cancellable = CancellableEngine(self.engine, self._on_pass)
        self._set_status("Measuring: loading the model …")
        self.run_in_background(self.measure_once)

    def cancel(self) -> None:
        """Cancel the running measurement; earlier ones stay."""
        if self._cancellable is not None:
            self._set_status("Cancelling …")
            self._cancellable.stop()

    def measure_once(self) -> Run:
        """Measure with the controls' values and keep the attempt with its prediction."""
        cancellable = self._cancellable or CancellableEngine(self.engine, self._on_pass)
        self._ready_device()
        settings = with_context(self.settings, *self.workload[:2])
        speeds = self.predicted.speeds(settings)
        self.attempts.append(Attempt(settings, speeds[settings.n_gpu_layers] if speeds else None))
        run = measure(self.path, settings, *self.workload, engine=cancellable, progress=False)
        self.attempts[-1] = replace(self.attempts[-1], run=run)
        self._set_status(f"{html.escape(figures.summary(run))}<br>{html.escape(run.badge)}")
        self.history.value = table(self.attempts)
        self._draw(settings, self.predicted.memory(settings), speeds)
        return run

    def failed(self, error: Exception) -> None:
        """Show the error and keep it in place of the run; a cancelled attempt is dropped."""
        cancelled = self._cancellable is not None and self._cancellable.stopped
        if self.attempts and self.attempts[-1].run is None and self.attempts[-1].error is None:
            failed = self.attempts.pop()
            if not cancelled:
                self.attempts.append(replace(failed, error=f"{type(error).__name__}: {error}"))
        if cancelled:
            self.engine.close()
            self._set_status(f"Cancelled. {len(self.runs)} measured points are kept.")
        else:
            if isinstance(error, EngineCrashed):
                self._end_device()  # a killed one's connection breaks before its process has ended
            super().failed(error)
        self.history.value = table(self.attempts)

    def _on_pass(self, n_passes: int) -> None:
        most = self.workload[2] + 2
        self.progress.max, self.progress.value = max(most, n_passes), n_passes
        seconds = f"{time.monotonic() - self._began:.0f} s so far"
        counted = f"Passes warm up until two agree, then {self.workload[2]} count."
        self._set_status(f"Measuring: pass {n_passes}, {seconds}. {counted}")

    def set_busy(self, busy: bool) -> None:
        """Disable every control but Cancel while work runs, and enable them afterwards."""
        self._began = time.monotonic()
        if not busy:
            self._cancellable = None
        for control in (*self.controls, self.measure_button, self.calibrate_button, self.picture_button):
            control.disabled = busy
        self.cancel_button.disabled = not busy
        self.save_button.disabled = busy or not self.attempts
        self.progress.value, self.progress.layout.visibility = 0, "visible" if busy else "hidden"

    def _set_status(self, text: str) -> None:
        """Set the status line; a screen reader reads it when it changes."""
        self.status.value = f"<p role='status'>{text}</p>"

    # --- calibrating ----------------------------------------------------------------------------

    def start_calibration(self) -> None:
        """Calibrate in the background, and keep the calibration for later sessions."""
        self._set_status("Calibrating this machine: about a minute, longer the first time …")
        self.run_in_background(self.calibrate_once)
        self.cancel_button.disabled = True

    def calibrate_once(self) -> None:
        """Calibrate, then predict rates from the calibration."""
        own = self.engine if isinstance(self.engine, LlamaEngine) else None
        calibration = self._for_device(calibrate(engine=own))
        self.predicted.use_calibration(calibration)
        self.calibrate_button.layout.display = "none"
        self._set_status(f"Rates are predicted now, from {html.escape(calibration.badge)}")
        self.update()

    def _for_device(self, calibration: Calibration) -> Calibration:
        return for_all_cores(calibration) if self.on_loopback else calibration

    # --- the device, and the end ----------------------------------------------------------------

    def _ready_device(self) -> None:
        """Start a loopback device with the chosen link rate, if none is running. Raises DeviceUnavailable."""
        if not self.on_loopback:
            return
        old, rate = self._device, self.link.value
        if old and old.alive and (old.link.gigabytes_per_second if old.link else None) == rate:
            return
        self._end_device()
        self._device = loopback_device(rate, n_threads=physical_cores())

    def save(self, path: str | Path | None = None) -> Path | None:
        """Write every attempt with its raw samples as JSON; without a path, next to the notebook."""
        name = path or f"split-{datetime.now():%Y-%m-%d-%H%M%S}.json"
        try:
            written = save(as_sweep(self.attempts), name)
        except InferlabError as error:
            super().failed(error)
            return None
        self._set_status(f"{len(self.attempts)} points are written to {html.escape(str(written.resolve()))}.")
        return written

    def close(self) -> None:
        """Close the worker process and the device; the figure stays."""
        if isinstance(self.engine, LlamaEngine):
            self.engine.close()
        self._end_device()

    def _end_device(self) -> None:
        if self._device:
            self._device.close()
            self._device = None


def _near_2048(n_ctx: int) -> int:
    return abs(n_ctx - 2048)
