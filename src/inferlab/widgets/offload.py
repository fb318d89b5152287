"""The live lab of chapter 6: a model split between host and device, predicted as controls move, measured on a press."""

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
from inferlab.errors import InferlabError
from inferlab.experiments.sweep import Sweep
from inferlab.machine import physical_cores
from inferlab.measurement.run import Run, fitted, measure
from inferlab.model.find import find_model
from inferlab.model.gguf import Model, read_gguf
from inferlab.prediction.calibrate import calibrate
from inferlab.prediction.calibration import Calibration
from inferlab.prediction.memory import MemoryPlan
from inferlab.prediction.speed import SpeedPlan
from inferlab.records import load, save
from inferlab.settings import FLASH_ATTN, KV_TYPES, Settings
from inferlab.widgets.attempts import MOVED, Attempt, Watched, as_sweep, table
from inferlab.widgets.pressing import Pressed, labelled
from inferlab.widgets.rates import Predicted, for_all_cores, kept_calibration, told
from inferlab.widgets.saving import SavePictures

RECORDED = "xeon-2c/split-layers"
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
    """Controls for where layers and cache lie; bytes and rates predicted as they move; a button that measures.

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


class SplitLab(Pressed):
    """The live lab of chapter 6; `attempts` keeps every press, `runs` what was measured, for the cells below.

    workload  n_prompt, n_gen and repeats of every measurement
    Without a GPU the device is a loopback device, which computes with all cores while the host's one thread waits.
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
        self.predicted = Predicted(self.model, self.machine, *workload[:2])
        self._know(calibration or kept_calibration())
        self.attempts: list[Attempt] = []
        self._device: LoopbackDevice | None = None
        self._watched: Watched | None = None
        self._began = time.monotonic()
        self._make_controls()
        self.figure = figures.live(figures.split(0))
        self.status = ipw.HTML()
        self._say(self._where())
        self.notes = ipw.HTML()
        self.history = ipw.HTML()
        self.update()

    # --- controls -------------------------------------------------------------------------------

    def _make_controls(self) -> None:
        top = (self.model.n_layer or 0) + 1
        n_prompt, n_gen, _ = self.workload
        contexts = [n for n in CONTEXTS if n_prompt + n_gen <= n <= max(512, self.model.n_ctx_train or CONTEXTS[-1])]
        self.n_gpu_layers = labelled(ipw.IntSlider, "n_gpu_layers", value=top // 2, min=0, max=top)
        self.n_ctx = labelled(ipw.SelectionSlider, "n_ctx", options=contexts, value=min(contexts, key=_near_2048))
        self.type_k = labelled(ipw.Dropdown, "type_k", options=KV_TYPES, value="f16")
        self.type_v = labelled(ipw.Dropdown, "type_v", options=KV_TYPES, value="f16")
        self.flash_attn = labelled(ipw.Dropdown, "flash_attn", options=FLASH_ATTN, value="on")
        self.offload_kqv = labelled(ipw.Checkbox, "offload_kqv: the cache lies with its layer", value=True)
        self.link = labelled(ipw.Dropdown, "link to the device", options=list(LINKS.items()), value=None)
        self.measure_button = ipw.Button(description="Measure", button_style="primary", icon="play")
        self.cancel_button = ipw.Button(description="Cancel", icon="stop", disabled=True)
        self.save_button = ipw.Button(description="Save as JSON", icon="save", disabled=True)
        self.calibrate_button = ipw.Button(description="Calibrate (a minute)", icon="tachometer")
        self.calibrate_button.layout.display = "none" if self.predicted.calibration else None
        self.picture_button = SavePictures(label="Save picture (PNG)")
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
        """What the reader moves; the link only where it can be slowed."""
        moved = [getattr(self, name) for name in MOVED]
        return [*moved, self.link] if self.on_loopback else moved

    @property
    def box(self) -> ipw.VBox:
        ways_out = [self.save_button, self.picture_button]
        buttons = ipw.HBox([self.measure_button, self.cancel_button, self.calibrate_button, *ways_out])
        buttons.layout.flex_flow = "row wrap"
        return ipw.VBox([*self.controls, self.notes, buttons, self.progress, self.status, self.figure, self.history])

    def _where(self) -> str:
        """Where it will run, before anything has."""
        gpus = ", ".join(gpu.description for gpu in self.machine.gpus)
        shared = "a loopback device: both sides share this machine's memory"
        place = gpus or (shared if self.on_loopback else "no device")
        return html.escape(f"Runs on {self.machine.cpu}, with {place}. Predict first, then press Measure.")

    # --- predicting -----------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        """What the controls say, with the device. Raises InvalidSettings for what does not go together."""
        asked = Settings(**{name: getattr(self, name).value for name in MOVED})
        return self._device.settings(asked) if self._device else asked

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(attempt.run for attempt in self.attempts if attempt.run)

    def update(self) -> None:
        """Predict bytes and rates for what the controls say, and draw them; what cannot be predicted is told."""
        try:
            self._ready_device()
            settings = self.settings
            memory, speeds = self.predicted.memory(settings), self.predicted.speeds(settings)
        except InferlabError as error:
            super().failed(error)
            return
        self.notes.value = told(settings, memory, speeds)
        self._draw(settings, memory, speeds)

    def _draw(self, settings: Settings, memory: MemoryPlan, speeds: Sequence[SpeedPlan]) -> None:
        figures.redraw(self.figure, figures.split(settings.n_gpu_layers, memory, speeds, self.runs))

    # --- measuring ------------------------------------------------------------------------------

    def start(self) -> None:
        """Measure what the controls say, beside the notebook's own thread, so that Cancel can be pressed."""
        self._watched = Watched(self.engine, self._passed)
        self._say("Measuring: loading the model …")
        self.beside(self.measure_once)

    def cancel(self) -> None:
        """End the measurement that runs; what was measured before stays."""
        if self._watched is not None:
            self._say("Cancelling …")
            self._watched.stop()

    def measure_once(self) -> Run:
        """Measure what the controls say and keep the attempt with its prediction."""
        watched = self._watched or Watched(self.engine, self._passed)
        self._ready_device()
        settings = fitted(self.settings, *self.workload[:2])
        speeds = self.predicted.speeds(settings)
        self.attempts.append(Attempt(settings, speeds[settings.n_gpu_layers] if speeds else None))
        run = measure(self.path, settings, *self.workload, engine=watched, progress=False)
        self.attempts[-1] = replace(self.attempts[-1], run=run)
        self._say(f"{html.escape(figures.summary(run))}<br>{html.escape(run.badge)}")
        self.history.value = table(self.attempts)
        self._draw(settings, self.predicted.memory(settings), speeds)
        return run

    def failed(self, error: Exception) -> None:
        """Tell why, and keep the reason where the run would have been; a cancelled attempt leaves nothing."""
        cancelled = self._watched is not None and self._watched.stopped
        if self.attempts and self.attempts[-1].run is None and self.attempts[-1].error is None:
            failed = self.attempts.pop()
            if not cancelled:
                self.attempts.append(replace(failed, error=f"{type(error).__name__}: {error}"))
        if cancelled:
            self.engine.close()
            self._say(f"Cancelled. {len(self.runs)} measured points are kept.")
        else:
            super().failed(error)
        self.history.value = table(self.attempts)

    def _passed(self, n_passes: int) -> None:
        most = self.workload[2] + 2
        self.progress.max, self.progress.value = max(most, n_passes), n_passes
        seconds = f"{time.monotonic() - self._began:.0f} s so far"
        counted = f"Passes warm up until two agree, then {self.workload[2]} count."
        self._say(f"Measuring: pass {n_passes}, {seconds}. {counted}")

    def busy(self, busy: bool) -> None:
        """Nothing else may run while something is measured, and nothing can be moved."""
        self._began = time.monotonic()
        if not busy:
            self._watched = None
        for control in (*self.controls, self.measure_button, self.calibrate_button, self.picture_button):
            control.disabled = busy
        self.cancel_button.disabled = not busy
        self.save_button.disabled = busy or not self.attempts
        self.progress.value, self.progress.layout.visibility = 0, "visible" if busy else "hidden"

    def _say(self, text: str) -> None:
        """A line that a screen reader reads when it changes."""
        self.status.value = f"<p role='status'>{text}</p>"

    # --- calibrating ----------------------------------------------------------------------------

    def start_calibration(self) -> None:
        """Measure what predictions of rates rest on, and keep it for every later session."""
        self._say("Calibrating this machine: about a minute, once …")
        self.beside(self.calibrate_once)
        self.cancel_button.disabled = True

    def calibrate_once(self) -> None:
        """Calibrate, and predict rates from it."""
        self._know(calibrate(engine=self.engine))
        self.calibrate_button.layout.display = "none"
        self._say(f"Rates are predicted now, from {html.escape(self.predicted.calibration.badge)}")
        self.update()

    def _know(self, calibration: Calibration | None) -> None:
        self.predicted.know(for_all_cores(calibration) if calibration and self.on_loopback else calibration)

    # --- the device, and the end ----------------------------------------------------------------

    def _ready_device(self) -> None:
        """Have a loopback device that lives, behind the link asked for. Raises DeviceUnavailable."""
        if not self.on_loopback:
            return
        old, rate = self._device, self.link.value
        if old and old.alive and (old.link.gigabytes_per_second if old.link else None) == rate:
            return
        if old:
            old.close()
            self._device = None
        self._device = loopback_device(rate, n_threads=physical_cores())

    def save(self, path: str | Path | None = None) -> Path | None:
        """Write every attempt with its raw samples as JSON, beside the notebook if no path is given."""
        name = path or f"split-{datetime.now():%Y-%m-%d-%H%M%S}.json"
        try:
            written = save(as_sweep(self.attempts), name)
        except InferlabError as error:
            super().failed(error)
            return None
        self._say(f"{len(self.attempts)} points are written to {html.escape(str(written.resolve()))}.")
        return written

    def close(self) -> None:
        """End the worker and the device; the figure stays."""
        if isinstance(self.engine, LlamaEngine):
            self.engine.close()
        if self._device:
            self._device.close()
            self._device = None


def _near_2048(n_ctx: int) -> int:
    return abs(n_ctx - 2048)
