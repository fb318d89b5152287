"""Points that hold speed plans to account: kept with their samples, compared with predictions made anew."""

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from statistics import median

import pytest
from fakes import CPU_ONLY
from speed_machine import LINK, TRUTH, known_machine

from inferlab.errors import RecordError
from inferlab.machine import Link
from inferlab.prediction import validation
from inferlab.prediction.calibration import Calibration
from inferlab.prediction.validation import (
    Accuracy,
    Checked,
    Point,
    accuracy_verdict,
    by_group,
    measured,
    median_error,
    repeatability,
    required_error,
    share_inside,
    with_types_left_out,
    without_type,
)
from inferlab.settings import Settings

RECORDS = Path(str(files("inferlab") / "data" / "records"))
FAR = Settings(n_ctx=512, rpc_servers=("127.0.0.1:1",), n_threads=1)
SMALL = Point("llama-3.2-1b", "Q8_0", {"n_layer": 2, "n_vocab": 2048}, FAR, 128, 4)
BANDS = {"prefill": 0.15, "decode": 0.15}
CALIBRATED = Calibration(CPU_ONLY, "2026-01-31", TRUTH, {"loopback/1": LINK}, bands=BANDS)


@pytest.fixture
def accuracy(monkeypatch, tmp_path):
    """Two points on the machine whose rates the calibration has, one of them a fifth slower than it should be."""
    engine = known_machine(monkeypatch, tmp_path)
    from inferlab.prediction import calibrate

    monkeypatch.setattr(validation, "make_shape", calibrate.make_shape)
    whole, partial = measured((SMALL, replace(SMALL, settings=FAR.but(n_gpu_layers=1))), engine)
    slow = replace(partial, decode_seconds=tuple(1.2 * s for s in partial.decode_seconds))
    return Accuracy(CALIBRATED, (whole, slow))


def test_points_are_measured_in_rounds(monkeypatch, tmp_path):
    """Every point once, then all again: a disturbance affects one round of each, and the median is not moved."""
    engine = known_machine(monkeypatch, tmp_path)
    from inferlab.prediction import calibrate

    monkeypatch.setattr(validation, "make_shape", calibrate.make_shape)
    quiet, prompts = engine.generate, []

    def disturbed(prompt, n_gen):
        taken = quiet(prompt, n_gen)
        prompts.append(len(prompt))
        return replace(taken, prefill_seconds=(1.5 if len(prompts) <= 4 else 1.0) * taken.prefill_seconds)

    monkeypatch.setattr(engine, "generate", disturbed)
    taken = measured((SMALL, replace(SMALL, n_prompt=200)), engine)
    assert [n for n in prompts if n > 8] == [128, 200] * 3
    assert all(point.spread("prefill") == pytest.approx(0.5) for point in taken)
    assert repeatability(taken, "prefill") == pytest.approx(0.5)
    assert required_error(taken, "prefill") == pytest.approx(0.5)
    assert required_error(taken, "decode") == 0.1
    assert Accuracy(CALIBRATED, taken).checked("prefill")[0].error == pytest.approx(0.0, abs=0.01)


def test_a_type_that_is_left_out_is_replaced_by_the_nearest(accuracy):
    """Without the rates of the model's type, repacked ones included, the nearest type's stand in."""
    less = without_type(CALIBRATED, "Q8_0")
    assert "Q8_0" not in less.devices["host/1"].matrices
    assert "Q4_K" not in {key.split("/")[0] for key in without_type(CALIBRATED, "Q4_K").devices["host/1"].matrices}
    replaced = with_types_left_out(accuracy)
    assert [rate.measured for rate in replaced["decode"]] == [rate.measured for rate in accuracy.checked("decode")]
    assert replaced["decode"][0].predicted != accuracy.checked("decode")[0].predicted


def test_rates_are_grouped_by_what_a_point_is(accuracy):
    """A group has every phase, and a request names what differs from the defaults."""
    groups = by_group(accuracy, lambda point: point.request)
    assert list(groups) == ["all layers there, short prompt", "some layers there, short prompt"]
    assert {phase: len(checked) for phase, checked in groups["all layers there, short prompt"].items()} == {
        "prefill": 1,
        "decode": 1,
    }
    alone = replace(SMALL, settings=Settings(n_ctx=512, devices=(), n_threads=1, use_extra_bufts=False), n_prompt=900)
    assert alone.request == "one thread, long prompt, nothing repacked"


def test_errors_are_predicted_over_measured(accuracy):
    """Where the machine is as calibrated nothing is left over; where it is slower, the prediction was too high."""
    errors = [rate.error for rate in accuracy.checked("decode")]
    assert errors == pytest.approx([0.0, 0.2], abs=0.01)
    assert median_error(accuracy.checked("prefill")) < 0.01
    assert share_inside(accuracy.checked("decode")) == 0.5
    assert len(accuracy.checked()) == 4


@pytest.mark.parametrize(
    ("rates", "text"),
    [
        ((1.0, 1.05, 0.95), "met both limits"),
        ((1.0, 1.125, 1.2), "missed the allowed median error by 2.5 points"),
        ((1.0, 1.05, 1.5), "had only 67 % inside the band"),
    ],
)
def test_the_bar_is_held_or_missed_by_so_much(rates, text):
    """Ten percent of median error, and nine of ten measurements inside the band."""
    assert accuracy_verdict([Checked("", "decode", rate, 1.0, (rate / 1.3, rate * 1.3)) for rate in rates]) == text


def test_a_point_says_what_it_tries_out():
    """Where its layers lie, a slowed link, or the cache on the other side; a card is no host."""
    card = replace(SMALL, settings=Settings(n_ctx=512, devices=("CUDA0",), n_gpu_layers=7))
    apart = replace(SMALL, settings=FAR.but(offload_kqv=False))
    alone = replace(SMALL, settings=Settings(n_ctx=512, devices=(), n_threads=2))
    places = [point.place for point in (SMALL, card, apart, alone)]
    assert places == ["all layers there", "some layers there", "cache on host", "host alone"]
    assert "7 layers" in card.text
    assert "host, 2 threads" in alone.text


def test_points_are_kept_with_every_sample(accuracy, tmp_path):
    """What was saved beside its calibration is read again, links and settings included."""
    linked = replace(accuracy.points[0], link=Link("127.0.0.1:1", 1.0, None, 0.9, 1e-4))
    kept = Accuracy(CALIBRATED, (*accuracy.points, linked))
    kept.save(tmp_path / "speed-points.json")
    CALIBRATED.save(tmp_path / "calibration.json")
    assert Accuracy.load(tmp_path) == kept
    assert "0.9 GB/s" in linked.text


def test_a_folder_without_points_is_an_error(tmp_path):
    """It says which file was looked for."""
    with pytest.raises(RecordError, match=r"speed-points\.json"):
        Accuracy.load(tmp_path)


def test_errors_of_the_record_come_out_of_its_raw_samples():
    """From the file's seconds alone, each rate is the one that is shown, and so are the errors and their median."""
    recorded = Accuracy.load("epyc-2c")
    raw = json.loads((RECORDS / "epyc-2c" / "speed-points.json").read_text(encoding="utf-8"))["sequence"]
    rates = {
        "prefill": [point["n_prompt"] / median(point["prefill_seconds"]) for point in raw],
        "decode": [1 / median(point["decode_seconds"]) for point in raw],
    }
    assert len(raw) >= 23
    for phase, measured_rates in rates.items():
        shown = recorded.checked(phase)
        assert [rate.measured for rate in shown] == pytest.approx(measured_rates)
        errors = [abs(checked.predicted / rate - 1) for checked, rate in zip(shown, measured_rates, strict=True)]
        assert median_error(shown) == pytest.approx(median(errors))
    assert recorded.badge.startswith("recorded: ")
