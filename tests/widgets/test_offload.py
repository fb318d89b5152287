"""The live lab of chapter 6: predictions follow the controls, points survive whatever happens, Cancel cancels."""

import gc
import json
import os
import signal
import time
from pathlib import Path
from statistics import median

import psutil
import pytest
from fakes import CPU_ONLY, ScriptedEngine

from inferlab import figures, widgets
from inferlab.engine.loopback import LoopbackDevice
from inferlab.errors import DeviceUnavailable, EngineCrashed, MeasurementCancelled
from inferlab.model.find import tiny_model
from inferlab.prediction.calibration import Calibration
from inferlab.prediction.rates import AttentionRates, DeviceRates, LinkRates, MatrixRates
from inferlab.records import load
from inferlab.widgets import split_lab
from inferlab.widgets.attempts import CancellableEngine
from inferlab.widgets.split_predictions import for_all_cores

SLOW, FAST = MatrixRates(2e-10, 2e-11), MatrixRates(1e-10, 1e-11)
CELL = AttentionRates(1e-10, 0.0, 1e-11)
ATTENTION = {f"{kind}/{way}/64": CELL for kind in ("f16", "q8_0") for way in ("flash", "plain")}


def rates(name, types):
    return DeviceRates(name, 1, True, 1e10, {"F16": types, "F32": types}, ATTENTION, 1e-5, 1e-4)


CALIBRATION = Calibration(
    CPU_ONLY,
    "2026-01-31",
    {"host/3": rates("host/3", FAST), "host/1": rates("host/1", SLOW), "loopback/9": rates("far", SLOW)},
    {"loopback/9": LinkRates(1e9, 1e-4)},
    bands={"prefill": 0.15, "decode": 0.15},
)


@pytest.fixture
def scripted(monkeypatch):
    """A function that makes the lab on a scripted engine, on a machine without any device."""
    monkeypatch.setattr(widgets.offload.libraries, "backends", lambda: ("cpu",))
    return lambda **script: split_lab(tiny_model(), CALIBRATION, engine=ScriptedEngine(**script))


@pytest.fixture(scope="module")
def real():
    """The lab on the embedded model with llama.cpp and a loopback device."""
    lab = split_lab(tiny_model(), CALIBRATION, n_prompt=16, n_gen=4, repeats=1)
    yield lab
    lab.close()


def press(lab):
    """Press Measure and wait for its end."""
    lab.measure_button.click()
    lab.thread.join(timeout=60)


def begin(lab):
    """Press Measure for a minute of work, and wait for its first pass."""
    lab.workload, kept = (16, 400, 50), lab.workload
    lab.measure_button.click()
    while not lab._cancellable.n_passes:
        time.sleep(0.02)
    lab.workload = kept


def of(figure, name):
    return next(trace for trace in figure.data if trace.name == name)


# --- with a scripted engine -------------------------------------------------------------------


def test_a_measured_point_joins_the_figure_with_its_number(scripted):
    """Its median stands at its n_gpu_layers, and the table has its residual."""
    lab = scripted()
    lab.n_gpu_layers.value = 3
    press(lab)
    press(lab)
    points = of(lab.figure, "decode, measured")
    assert list(points.x) == [3, 3]
    assert [text for text in of(lab.figure, "every pass").text if text] == ["1", "2"]
    assert points.y[0] == median(lab.runs[0].points("decode_tokens_per_second"))
    assert lab.history.value.count("%)") == 4


@pytest.mark.engine
def test_the_controls_are_what_is_measured(scripted):
    """Every control reaches the engine's settings."""
    lab = scripted()
    asked = {"n_gpu_layers": 2, "n_ctx": 512, "type_k": "q8_0", "type_v": "q8_0", "flash_attn": "on"}
    for name, value in (asked | {"offload_kqv": False}).items():
        getattr(lab, name).value = value
    press(lab)
    told = lab.engine.opened[-1].to_dict()
    assert {name: told[name] for name in (*asked, "offload_kqv")} == asked | {"offload_kqv": False}


def test_a_point_of_other_settings_is_hollow(scripted):
    """Only points whose other settings are those of the curve are filled."""
    lab = scripted()
    press(lab)
    lab.offload_kqv.value = False
    assert of(lab.figure, "decode, measured").marker.symbol == ("circle-open",)
    lab.offload_kqv.value = True
    assert of(lab.figure, "decode, measured").marker.symbol == ("circle",)


def test_an_error_keeps_the_points_and_stands_in_the_status_line(scripted):
    """A worker that dies costs its own attempt alone, which stays with its reason."""
    lab = scripted()
    press(lab)
    lab.engine.fails = EngineCrashed("its RPC device is gone <b>")
    press(lab)
    press(lab)
    assert [bool(attempt.run) for attempt in lab.attempts] == [True, False, True]
    assert "EngineCrashed: its RPC device is gone &lt;b&gt;" in lab.history.value
    assert not lab.measure_button.disabled


def no_port(*_, **__):
    raise DeviceUnavailable("The loopback device found no free port in 5 attempts. Try again.")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"on_loopback": True}, "DeviceUnavailable: The loopback device found no free port"),
        ({"path": Path("gone.gguf")}, "ModelNotFound: "),
    ],
)
def test_what_keeps_it_from_measuring_is_told_and_costs_nothing(scripted, monkeypatch, changed, reason):
    """A device without a port, or a model whose file has gone: the status line says it, and the points stay."""
    lab = scripted()
    press(lab)
    monkeypatch.setattr(widgets.offload, "loopback_device", no_port)
    vars(lab).update(changed)
    press(lab)
    assert reason in lab.status.value
    assert len(lab.runs) == 1


def test_settings_that_do_not_go_together_are_told(scripted):
    """A quantized V cache without flash attention is refused before anything is loaded."""
    lab = scripted()
    lab.flash_attn.value = "off"
    lab.type_v.value = "q8_0"
    assert "type_v='q8_0' needs flash attention" in lab.status.value.replace("&#x27;", "'")


def test_what_is_saved_holds_every_sample(scripted, tmp_path):
    """The JSON can be read as a sweep again, the failed attempt with its reason."""
    lab = scripted()
    press(lab)
    lab.engine.fails = EngineCrashed("died")
    press(lab)
    saved = load(lab.save(tmp_path / "mine.json"))
    assert saved.runs == lab.runs
    assert [point.error for point in saved.points] == [None, "EngineCrashed: died"]


def test_a_disk_that_is_full_is_told(scripted, tmp_path):
    """Saving where nothing can be written says so and keeps the points."""
    lab = scripted()
    press(lab)
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert lab.save(tmp_path / "file" / "mine.json") is None
    assert "RecordError" in lab.status.value
    assert len(lab.runs) == 1


def test_while_it_measures_nothing_else_can_be_pressed(scripted):
    """Only Cancel is open, and the progress can be seen."""
    lab = scripted()
    lab.set_busy(True)
    assert all(control.disabled for control in (*lab.controls, lab.measure_button, lab.save_button))
    assert (lab.cancel_button.disabled, lab.progress.layout.visibility) == (False, "visible")
    lab.set_busy(False)
    assert lab.progress.layout.visibility == "hidden"


def test_a_stopped_engine_begins_no_further_pass():
    """After Cancel no pass begins, whatever the measurement still wants."""
    cancellable = CancellableEngine(ScriptedEngine(), lambda n: None)
    cancellable.generate([1], 3)
    cancellable.stop()
    with pytest.raises(MeasurementCancelled, match="nothing of it is kept"):
        cancellable.generate([1], 3)
    assert cancellable.n_passes == 1


def test_every_control_has_a_label(scripted):
    """A screen reader reads what each one moves."""
    lab = scripted()
    assert [control.description for control in lab.controls[:3]] == ["n_gpu_layers", "n_ctx", "type_k"]
    assert all(control.description for control in lab.controls)


def test_a_device_with_all_cores_has_the_rates_of_the_host_with_as_many(monkeypatch):
    """The overhead stays that of a device, and so does the link."""
    monkeypatch.setattr(widgets.split_predictions, "physical_cores", lambda: 3)
    cores = for_all_cores(CALIBRATION)
    known, far = CALIBRATION.devices["loopback/9"], cores.devices["loopback/3"]
    assert (far.matrices, far.step_seconds) == (CALIBRATION.devices["host/3"].matrices, known.step_seconds)
    assert cores.links["loopback/3"] == CALIBRATION.links["loopback/9"]
    assert for_all_cores(cores) is cores


def test_without_a_calibration_it_can_be_made_here(scripted, monkeypatch):
    """Bytes are predicted at once; a press measures what rates rest on, and the curve appears."""
    monkeypatch.setattr(widgets.offload, "kept_calibration", lambda: None)
    monkeypatch.setattr(widgets.offload, "calibrate", lambda engine: CALIBRATION)
    lab = split_lab(tiny_model(), engine=ScriptedEngine())
    assert "tokens/s" not in lab.notes.value
    assert lab.calibrate_button.layout.display is None
    lab.calibrate_button.click()
    lab.thread.join(timeout=30)
    assert "tokens/s" in lab.notes.value
    assert lab.calibrate_button.layout.display == "none"


# --- on a built page --------------------------------------------------------------------------


def test_on_a_page_a_recorded_sweep_lies_on_a_slider(monkeypatch):
    """No kernel, no widget: every n_gpu_layers of the record is a position, under a badge that says recorded."""
    monkeypatch.setattr(figures, "on_page", lambda: True)
    figure = split_lab()
    assert type(figure).__name__ == "Figure"
    [control] = figure.layout.meta["controls"]
    assert (control["name"], control["values"]) == ("n_gpu_layers", [str(n) for n in range(10)])
    assert any("recorded: " in (note.text or "") for note in figure.layout.annotations)


# --- for real ---------------------------------------------------------------------------------


@pytest.mark.engine
def test_a_real_point_lands_beside_its_prediction(real):
    """Layers lie on the loopback device as the figure says, and the badge names it."""
    real.n_gpu_layers.value = 3
    press(real)
    assert len(real.runs) == 1, real.status.value
    assert real.runs[0].settings.n_gpu_layers == 3
    assert "loopback device" in real.runs[0].badge
    assert real.attempts[0].residual("decode") is not None


@pytest.mark.engine
@pytest.mark.timed
def test_predictions_follow_a_control_at_once(real):
    """Bytes on either side and the rates of every split, within a tenth of a second each."""
    real.n_gpu_layers.value = 0
    gc.freeze()  # what other tests have left is not collected meanwhile
    for n in (1, 4, 7, 2):
        began = time.perf_counter()
        real.n_gpu_layers.value = n
        assert time.perf_counter() - began < 0.1
    gc.unfreeze()
    assert len(of(real.figure, "decode, predicted").x) == 8
    assert "gpu0" in real.notes.value


@pytest.mark.engine
def test_cancel_ends_a_real_measurement_and_the_next_one_works(real):
    """The point before it stays, the worker is gone, and Measure measures again on the same device."""
    before = len(real.runs)
    begin(real)
    pid, device = real.engine.pid, real._device
    real.cancel_button.click()
    real.thread.join(timeout=60)
    assert "Cancelled" in real.status.value
    assert (len(real.runs), psutil.pid_exists(pid), real.engine.pid) == (before, False, None)
    press(real)
    assert (len(real.runs), real._device) == (before + 1, device)


@pytest.mark.engine
@pytest.mark.parametrize("reaped", [True, False])
def test_a_killed_device_is_told_and_replaced(real, monkeypatch, reaped):
    """Killed in the middle of a measurement, it costs that attempt; the next press starts another one.

    Its connection breaks before its process counts as ended, so the next press may still find it alive.
    """
    if not reaped:
        monkeypatch.setattr(LoopbackDevice, "alive", True)
    before = len(real.runs)
    begin(real)
    os.kill(real._device.pid, signal.SIGKILL)
    real.thread.join(timeout=60)
    assert "RPC device is gone" in real.status.value
    assert len(real.runs) == before
    press(real)
    assert len(real.runs) == before + 1


@pytest.mark.engine
def test_no_process_is_left_when_it_is_closed(tmp_path):
    """Worker and device end with the lab."""
    lab = split_lab(tiny_model(), n_prompt=16, n_gen=4, repeats=1)
    press(lab)
    pids = [lab.engine.pid, lab._device.pid]
    lab.close()
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert json.loads(lab.save(tmp_path / "after.json").read_text(encoding="utf-8"))["points"]


@pytest.mark.engine
def test_the_figure_tells_what_it_shows(real):
    """Whoever cannot see it reads the split, the prediction and each measurement."""
    plan, speeds = real.predicted.memory(real.settings), real.predicted.speeds(real.settings)
    alt = figures.split(3, plan, speeds, real.runs).layout.meta["alt"]
    assert "With n_gpu_layers 3: host " in alt
    assert "measurement 1 at 3 layers" in alt
