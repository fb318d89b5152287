"""What a plan uses that was not calibrated is named, each part in a sentence; a plan of measured parts has no notes."""

from dataclasses import replace

import pytest
from fakes import CPU_ONLY
from speed_machine import TRUTH

from inferlab.measurement.operations import Attention, Product
from inferlab.model.synthetic_model import shape
from inferlab.prediction.calibration import Calibration
from inferlab.prediction.predict import predict_speed
from inferlab.prediction.validation import without_type
from inferlab.settings import Settings

PRODUCTS = (Product("F16", 4096, 1024, 1, seconds=(1e-3,)),)
ATTENTIONS = tuple(Attention("F16", "F16", True, size, 8, 2, 1, 1024, 1023, seconds=(1e-3,)) for size in (64, 256))
KNOWN = Calibration(CPU_ONLY, "2026-01-31", TRUTH, products=PRODUCTS, attentions=ATTENTIONS)
HERE = Settings(n_gpu_layers=0, n_threads=2)


def notes(name="llama-3.2-1b", mix="Q8_0", settings=HERE, n_prompt=100, calibration=KNOWN, **changes):
    changes = {"n_layer": 2, "n_vocab": 2048, **changes}
    return predict_speed(shape(name, mix, **changes), settings, calibration, n_prompt, 8).notes


def test_what_was_measured_needs_no_note():
    """A model of calibrated types and head sizes, with a short prompt and calibrated threads."""
    assert notes() == ()


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"calibration": without_type(KNOWN, "Q8_0")}, "Q8_0 has no rates of its own, so Q6_K"),
        ({"name": "qwen3-30b-a3b"}, "batches of experts were not measured, so the rate of a prompt is"),
        ({"name": "gemma-3-1b"}, "sliding windows were not measured"),
        ({"settings": HERE.but(type_k="q5_0", type_v="q5_0")}, "q5_0 were not measured, so f16"),
        ({"settings": HERE.but(type_k="q8_0")}, "of different types were not measured together"),
        ({"settings": HERE.but(n_threads=7)}, "7 threads, and 2 were measured"),
        ({"n_prompt": 5000}, "5,008 tokens in the cache, and attention was measured with 1,024"),
        ({"n_ff": 20480}, "20,480 rows or columns, and the largest measured one 4,096"),
        ({"head_dim": 32}, "heads of 32 values lie outside the measured 64 to 256"),
    ],
)
def test_every_extrapolation_is_named(asked, text):
    """One part of the request that was not measured is one sentence, which says so first."""
    sentences = notes(**asked)
    assert any(text in note for note in sentences), sentences
    assert all(note.startswith("Not calibrated for this: ") for note in sentences)


def test_too_few_checks_are_named():
    """Below nine checks the largest error does not bound nine of ten."""
    from inferlab.prediction.calibration import Check

    check = Check("host/2", "wide", HERE, 96, {"prefill": 1.0, "decode": 1.0}, {"prefill": (1.0,), "decode": (1.0,)})
    assert any("1 checks holds less than 90 %" in note for note in notes(calibration=replace(KNOWN, checks=(check,))))


def test_a_calibration_of_a_busy_machine_says_so():
    """Where the typical check took half as long again in its slowest round, the rates are those of a busy machine."""
    from inferlab.prediction.calibration import Check

    def check(slowest):
        seconds = {phase: (1.0, 1.2, slowest) for phase in ("prefill", "decode")}
        return Check("host/2", "wide", HERE, 96, {"prefill": 1.0, "decode": 1.0}, seconds)

    for slowest, told in ((1.4, []), (1.7, ["a quiet machine, because the calibration's rounds lie 70 % apart"])):
        said = notes(calibration=replace(KNOWN, checks=(check(slowest),) * 9))
        assert [note for note in said if "quiet" in note] == [f"Not calibrated for this: {text}." for text in told]
