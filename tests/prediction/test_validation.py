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
from inferlab.figures import predicted_beside_measured, speed_residuals, step_seconds
from inferlab.machine import Link
from inferlab.prediction import validation as room
from inferlab.prediction.calibration import Calibration
from inferlab.prediction.validation import (
    Accuracy,
    Checked,
    Point,
    accuracy_verdict,
    measured,
    median_error,
    share_inside,
)
from inferlab.settings import Settings

RECORDS = Path(str(files("inferlab") / "data" / "records"))
FAR = Settings(n_ctx=512, rpc_servers=("127.0.0.1:1",), n_threads=1)
SMALL = Point("llama-3.2-1b", "Q8_0", {"n_layer": 2, "n_vocab": 2048}, FAR, 128, 4)
CALIBRATED = Calibration(CPU_ONLY, "2026-01-31", TRUTH, {"loopback/1": LINK})


@pytest.fixture
def found(monkeypatch, tmp_path):
    """Two points on the machine whose rates the calibration has, one of them a fifth slower than it should be."""
    engine = known_machine(monkeypatch, tmp_path)
    from inferlab.prediction import calibrate

    monkeypatch.setattr(room, "make_shape", calibrate.make_shape)
    one, two = (measured(point, engine) for point in (SMALL, replace(SMALL, settings=FAR.but(n_gpu_layers=1))))
    slow = replace(two, decode_seconds=tuple(1.2 * s for s in two.decode_seconds))
    return Accuracy(CALIBRATED, (one, slow))


def test_a_disturbed_prompt_is_run_a_third_time(monkeypatch, tmp_path):
    """Where two passes are far apart a third decides, and all three samples are kept."""
    engine = known_machine(monkeypatch, tmp_path)
    from inferlab.prediction import calibrate

    monkeypatch.setattr(room, "make_shape", calibrate.make_shape)
    quiet, slowness = engine.generate, iter((1.0, 1.5, 1.0, 1.0))

    def disturbed(prompt, n_gen):
        one = quiet(prompt, n_gen)
        return replace(one, prefill_seconds=next(slowness) * one.prefill_seconds)

    monkeypatch.setattr(engine, "generate", disturbed)
    taken = measured(SMALL, engine)
    assert len(taken.prefill_seconds) == 3
    assert Accuracy(CALIBRATED, (taken,)).checked("prefill")[0].error == pytest.approx(0.0, abs=0.01)


def test_errors_are_predicted_over_measured(found):
    """Where the machine is as calibrated nothing is left over; where it is slower, the prediction was too high."""
    errors = [one.error for one in found.checked("decode")]
    assert errors == pytest.approx([0.0, 0.2], abs=0.01)
    assert median_error(found.checked("prefill")) < 0.01
    assert share_inside(found.checked("decode")) == 0.5
    assert len(found.checked()) == 4


@pytest.mark.parametrize(
    ("rates", "text"),
    [
        ((1.0, 1.05, 0.95), "held it"),
        ((1.0, 1.125, 1.2), "missed it by 2.5 points"),
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


def test_points_are_kept_with_every_sample(found, tmp_path):
    """What was saved beside its calibration is read again, links and settings included."""
    linked = replace(found.points[0], link=Link("127.0.0.1:1", 1.0, None, 0.9, 1e-4))
    kept = Accuracy(CALIBRATED, (*found.points, linked))
    kept.save(tmp_path / "speed-points.json")
    CALIBRATED.save(tmp_path / "calibration.json")
    assert Accuracy.load(tmp_path) == kept
    assert "0.9 GB/s" in linked.text


def test_a_folder_without_points_is_an_error(tmp_path):
    """It says which file was looked for."""
    with pytest.raises(RecordError, match=r"speed-points\.json"):
        Accuracy.load(tmp_path)


def test_figures_show_every_point_with_its_band(found):
    """Predicted on one axis, measured on the other, the band as a bar; the residuals in percent, by what was tried."""
    pairs = [one.pair for one in found.checked("decode")]
    groups = found.pairs_by_place("decode")
    beside, left = predicted_beside_measured(pairs, "badge"), speed_residuals(groups, "badge")
    assert list(groups) == ["all layers there", "some layers there"]
    assert list(beside.data[1].y) == [measured for _, _, measured, _ in pairs]
    assert left.data[0].x[1] == pytest.approx(100 * (1 / 1.2 - 1), abs=1)


def test_a_steps_parts_add_up_to_all_of_it(found):
    """The stack of a plan's terms is the whole step."""
    figure = step_seconds(room.predicted(SMALL, CALIBRATED))
    assert sum(bar.x[1] for bar in figure.data) == pytest.approx(100)


def test_errors_of_the_record_come_out_of_its_raw_samples():
    """From the file's seconds alone, each rate is the one that is shown, and so are the errors and their median."""
    recorded = Accuracy.load("xeon-2c")
    raw = json.loads((RECORDS / "xeon-2c" / "speed-points.json").read_text(encoding="utf-8"))["sequence"]
    rates = {
        "prefill": [one["n_prompt"] / median(one["prefill_seconds"]) for one in raw],
        "decode": [1 / median(one["decode_seconds"]) for one in raw],
    }
    assert len(raw) >= 30
    for phase, measured_rates in rates.items():
        shown = recorded.checked(phase)
        assert [one.measured for one in shown] == pytest.approx(measured_rates)
        errors = [abs(one.predicted / rate - 1) for one, rate in zip(shown, measured_rates, strict=True)]
        assert median_error(shown) == pytest.approx(median(errors))
    assert recorded.badge.startswith("recorded: ")
