"""The bar for speed plans: predicted against measured at points that no calibration used.

On a machine without a GPU the host and a loopback device; with one, its card as well.
INFERLAB_SPEED_RECORD names a folder that gets the calibration and the points with their samples.
"""

import os
from pathlib import Path

import pytest
from marks import needs_rpc

from inferlab.engine.client import LlamaEngine
from inferlab.engine.loopback import loopback_device
from inferlab.machine import physical_cores
from inferlab.prediction.calibrate import calibrate
from inferlab.prediction.validation import Accuracy, Point, accuracy_verdict, measured, median_error, share_inside
from inferlab.settings import Settings

pytestmark = [pytest.mark.engine, needs_rpc]

LEAST_POINTS, ALLOWED_SECONDS = 30, 60
HALF = {"n_layer": 12}
SMALL, LARGE = ("qwen2.5-0.5b", HALF), ("mistral-7b", {"n_layer": 2})


def point(which, mix, settings, n_prompt, link=None, **changes):
    name, dimensions = which
    settings = settings.but(n_ctx=n_prompt + 64, load_mode="none", **changes)
    return Point(name, mix, dimensions, settings, n_prompt, 16, link)


def on_host():
    """The host alone, with all its threads."""
    settings = Settings(n_gpu_layers=0, n_threads=physical_cores(), devices=())
    for mix in ("Q8_0", "Q4_K_M", "F16"):
        for depth in (128, 768):
            yield point(SMALL, mix, settings, depth)


def on_device(settings, link=None):
    """Types, layers, depths and types of the cache over an unslowed link."""
    for mix in ("Q8_0", "Q4_0", "Q4_K_M"):
        for n_gpu_layers in (0, 7, -1):
            yield point(SMALL, mix, settings, 128, link, n_gpu_layers=n_gpu_layers)
    for kv in ("f16", "q8_0", "q4_0"):
        for n_gpu_layers in (7, -1):
            yield point(SMALL, "Q8_0", settings, 768, link, n_gpu_layers=n_gpu_layers, type_k=kv, type_v=kv)
    for n_gpu_layers in (0, 2, -1):
        yield point(LARGE, "Q4_K_M", settings, 256, link, n_gpu_layers=n_gpu_layers)
    for flash in ("on", "off"):
        yield point(SMALL, "Q8_0", settings, 512, link, flash_attn=flash, offload_kqv=False)


def behind_link(settings, link):
    """The same model through a slowed link: everything there, half of it, and the cache here."""
    for n_gpu_layers in (7, -1):
        yield point(SMALL, "Q8_0", settings, 256, link, n_gpu_layers=n_gpu_layers)
    for flash in ("on", "off"):
        yield point(SMALL, "Q8_0", settings, 512, link, flash_attn=flash, offload_kqv=False)


def all_points(engine):
    """Every point measured; devices live as long as they are needed."""
    yield from (measured(one, engine) for one in on_host())
    with loopback_device() as device:
        yield from (measured(one, engine) for one in on_device(device.settings()))
    for rate in (0.1, 0.5, 2.0):
        with loopback_device(rate) as device:
            yield from (measured(one, engine) for one in behind_link(device.settings(), device.link))
    for gpu in engine.machine().gpus:
        yield from (measured(one, engine) for one in on_device(Settings(devices=(gpu.name,))))


@pytest.fixture(scope="module")
def accuracy():
    """A calibration of now, and every point measured after it; kept where INFERLAB_SPEED_RECORD says."""
    engine = LlamaEngine()
    try:
        calibration = calibrate(save=False, engine=engine)
        found = Accuracy(calibration, tuple(all_points(engine)))
    finally:
        engine.close()
    if folder := os.environ.get("INFERLAB_SPEED_RECORD"):
        calibration.save(Path(folder) / "calibration.json")
        found.save(Path(folder) / "speed-points.json")
    report(found)
    return found


def test_a_calibration_takes_a_minute(accuracy):
    """From the first run to the last, the files of its shapes included."""
    assert accuracy.calibration.seconds <= ALLOWED_SECONDS


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_predicted_rates_are_near_the_measured_ones(accuracy, phase):
    """The median error is at most 10 %, and nine of ten lie inside the band."""
    checked = accuracy.checked(phase)
    assert len(checked) >= LEAST_POINTS
    assert accuracy_verdict(checked) == "held it"


def report(accuracy):
    print(f"\ncalibration: {accuracy.calibration.seconds:.0f} s")
    for phase in ("prefill", "decode"):
        checked, band = accuracy.checked(phase), accuracy.calibration.bands[phase]
        print(f"{phase}: median error {median_error(checked):.1%}, {share_inside(checked):.0%} inside ±{band:.0%}")
        for one in checked:
            print(f"  {one.error:+7.1%}  {one.predicted:8.1f} {one.measured:8.1f} t/s  {one.text}")
