"""Tuning: the line through the layers, what the sweeps say, and what the parameter guide computes."""

import json
from statistics import median

import pytest

from inferlab import figures
from inferlab.records import shipped
from studies.tuning import study
from studies.tuning.measure import RECIPES

SWEPT = [name.removeprefix("tune-") for name in RECIPES if name.startswith("tune-")]


def raw_decode(name, index):
    """Median tokens per second of decode of a point, from the seconds of its passes."""
    point = json.loads(shipped()[name].read_text(encoding="utf-8"))["points"][index]
    seconds = [one["decode_seconds"] for one in point["run"]["passes"]]
    return median(len(one) / sum(one) for one in seconds)


@pytest.mark.parametrize("name", SWEPT)
def test_every_sweep_is_whole_and_one_over_one_setting_can_be_drawn(name):
    """All points were measured, no anchor moved too far, and the figure has a text for who cannot see it."""
    sweep = study.swept(name)
    assert sweep.complete
    assert not sweep.failed
    if name not in ("flash_attn", "kv_types"):
        assert figures.option_effect(sweep, name).layout.meta["alt"]


def test_a_third_thread_on_two_cores_is_a_loss_and_times_of_layers_add_up():
    """The rates are those of the record's seconds; points lie nearer to the line than it rises; the device gains."""
    found = study.numbers()
    assert found["threads_2"] > found["threads_3"] > found["threads_1"]
    assert found["threads_1"] == pytest.approx(raw_decode("xeon-2c/tune-n_threads", 0))
    assert found["threads_loss"] == pytest.approx(100 * (found["threads_3"] / found["threads_2"] - 1))
    assert 0 < found["layers_scatter"] < 8 * found["layers_slope"]
    assert found["layers_worth"] == found["layers_crossing"] / found["layers_slope"] > 0
    assert min(found["device_decode"], found["device_prefill"]) > 1


def test_what_cannot_matter_changes_less_than_what_does():
    """Batch, context and load mode are controls; ubatch and threads change prefill; windows grow as computed."""
    found = study.guide_numbers()
    assert abs(found["batch_gain"]) < found["control_prefill"] < found["ubatch_most"]
    assert found["threads_batch"] > 1 + found["control_prefill"] / 100
    assert 1 < min(found["split_growth"], found["pool_growth"]) < max(found["split_growth"], found["pool_growth"]) < 4
    assert found["window_factor"] > 2
    assert found["window"] == 1024


def test_the_last_layers_gain_most():
    """33 layers at 4 ms are 132 ms on the host; on the device they take a tenth."""
    heads, rows = study.last_layers_table()
    assert all(len(row) == len(heads) for row in rows)
    assert rows[0][1:] == (pytest.approx(1000 / 132), "–")
    assert rows[-1][1] == pytest.approx(10_000 / 132)
    gains = [float(row[2]) for row in rows[1:]]
    assert gains == sorted(gains)


def test_other_programs_get_the_same_lines():
    """One tab for each, with the context that the guide's first line asks for."""
    text = study.same_elsewhere()
    assert text.count("{tab-item}") == len(study.PROGRAMS)
    assert text.count("32768") >= len(study.PROGRAMS)


@pytest.mark.engine
def test_more_layers_than_a_model_has_are_all_of_them():
    """Forty layers of the embedded model are its seven, and no row of a matrix is divided."""
    assert study.forty_layers().startswith("Seven and forty layers give the same buffers.\nSplit by rows, the model is")
