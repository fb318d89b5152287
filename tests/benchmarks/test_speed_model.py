"""The bar for speed plans: predicted against measured on models and requests that took no part in the calibration.

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
from inferlab.prediction.validation import (
    Accuracy,
    Point,
    accuracy_verdict,
    measured,
    median_error,
    repeatability,
    required_error,
    share_inside,
)
from inferlab.settings import Settings

pytestmark = [pytest.mark.engine, needs_rpc]

LEAST_POINTS, ALLOWED_SECONDS = 23, 120
SHAPES = {
    "mistral-7b": ("Q2_K", 3),
    "phi-3-mini-4k": ("Q6_K", 4),
    "granite-3.1-2b": ("Q4_K_M", 8),
    "llama-3.1-8b": ("Q5_K_S", 2),
    "olmo-2-7b": ("Q4_0", 4),
    "starcoder2-3b": ("Q8_0", 5),
    "qwen2.5-7b": ("Q3_K_M", 2),
    "llama-3.2-1b": ("BF16", 5),
    "gemma-3-1b": ("IQ4_NL", 14),
}
"""Published models, mix and blocks of each. No model of the calibration has their dimensions together, but single
matrices have sizes that it measures too: 3072 x 8192 of Phi 3 and 4096 x 4096 of Mistral in checks, 4096 x 1024 of
Llama 3.1 8B in a product.
"""


def point(name, settings, n_prompt, link=None, **changes):
    mix, n_layer = SHAPES[name]
    settings = settings.but(n_ctx=n_prompt + 64, load_mode="none", **changes)
    return Point(name, mix, {"n_layer": n_layer, "n_vocab": 8192}, settings, n_prompt, 16, link)


def on_host():
    """Every shape with all threads, some with one, with another cache, without flash attention or repacking."""
    all_threads = Settings(n_gpu_layers=0, n_threads=physical_cores(), devices=())
    lengths = (160, 80, 333, 220, 120, 450, 260, 140, 190)
    yield from (point(name, all_threads, n) for name, n in zip(SHAPES, lengths, strict=True))
    yield point("granite-3.1-2b", all_threads, 1300)
    yield point("olmo-2-7b", all_threads, 500, flash_attn="off")
    yield point("phi-3-mini-4k", all_threads, 800, type_k="q4_0", type_v="q4_0")
    yield point("granite-3.1-2b", all_threads, 200, use_extra_bufts=False)
    for name, n in (("qwen2.5-7b", 90), ("starcoder2-3b", 150), ("mistral-7b", 70)):
        yield point(name, all_threads.but(n_threads=1), n)


def on_device(settings):
    """All or some layers on the device, and the cache on the host with both ways of attention."""
    yield point("phi-3-mini-4k", settings, 150)
    yield point("granite-3.1-2b", settings, 250, n_gpu_layers=5)
    yield point("starcoder2-3b", settings, 180, n_gpu_layers=3)
    yield point("mistral-7b", settings, 300, n_gpu_layers=0)
    yield point("qwen2.5-7b", settings, 400, offload_kqv=False, flash_attn="on")
    yield point("granite-3.1-2b", settings, 350, offload_kqv=False, flash_attn="off")


def behind_link(settings, link):
    """A model through a slowed link."""
    yield point("phi-3-mini-4k", settings, 160, link, n_gpu_layers=2)


def all_points(engine):
    """Every point measured in rounds; devices live as long as they are needed."""
    yield from measured(tuple(on_host()), engine)
    with loopback_device() as device:
        yield from measured(tuple(on_device(device.settings())), engine)
    with loopback_device(0.5) as device:
        yield from measured(tuple(behind_link(device.settings(), device.link)), engine)
    for gpu in engine.machine().gpus:
        yield from measured(tuple(on_device(Settings(devices=(gpu.name,)))), engine)


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


def test_a_calibration_takes_a_minute_or_two(accuracy):
    """From the first operation to the last check, the files of its models included."""
    assert accuracy.calibration.seconds <= ALLOWED_SECONDS


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_predicted_rates_are_near_the_measured_ones(accuracy, phase):
    """The median error is at most 10 % or the machine's repeatability, and nine of ten lie inside the band."""
    checked = accuracy.checked(phase)
    assert len(checked) >= LEAST_POINTS
    assert accuracy_verdict(checked, required_error(accuracy.points, phase)) == "met both limits"


def report(accuracy):
    print(f"\ncalibration: {accuracy.calibration.seconds:.0f} s")
    for phase in ("prefill", "decode"):
        checked, band = accuracy.checked(phase), accuracy.calibration.bands[phase]
        repeated = repeatability(accuracy.points, phase)
        print(
            f"{phase}: median error {median_error(checked):.1%}, {share_inside(checked):.0%} inside ±{band:.0%}, "
            f"rounds {repeated:.1%} apart"
        )
        for one in checked:
            print(f"  {one.error:+7.1%}  {one.predicted:8.1f} {one.measured:8.1f} t/s  {one.text}")
