"""Tables of appendix A: every left-out model, request and type has a row, and its numbers are the record's."""

from dataclasses import replace

from fakes import CPU_ONLY
from speed_machine import LINK, TRUTH

from handbook import accuracy_table
from inferlab.prediction.calibration import Calibration
from inferlab.prediction.validation import Accuracy, Point
from inferlab.settings import Settings

HERE = Settings(n_ctx=512, devices=(), n_threads=2)
CALIBRATED = Calibration(CPU_ONLY, "2026-01-31", TRUTH, {"loopback/1": LINK}, bands={"prefill": 0.25, "decode": 0.5})
ONE = Point("llama-3.2-1b", "Q8_0", {"n_layer": 2, "n_vocab": 2048}, HERE, 128, 4)


def accuracy():
    """Two points; the machine is as predicted for the first, and half as fast for the second."""
    exact = {rate.phase: rate for rate in Accuracy(CALIBRATED, (with_seconds(1.0, 1.0),)).checked()}
    true = {phase: (128 if phase == "prefill" else 1) / rate.predicted for phase, rate in exact.items()}
    slow = {phase: 2 * seconds for phase, seconds in true.items()}
    return Accuracy(CALIBRATED, (with_seconds(*true.values()), replace(with_seconds(*slow.values()), mix="Q6_K")))


def with_seconds(prefill, decode):
    return replace(ONE, prefill_seconds=(prefill,) * 3, decode_seconds=(decode,) * 3)


def test_a_machine_has_a_row_for_each_phase():
    """Median error, what was allowed, the largest error, how many rates lie inside the band, and the band."""
    rows = accuracy_table.by_machine({"known-2c": Accuracy(CALIBRATED, accuracy().points[:1])}).data.splitlines()
    assert rows[2:] == [
        "| known-2c, prefill | 0 % | 10 % | 0 % | 1 of 1 inside 25 % |",
        "| known-2c, decode | 0 % | 10 % | 0 % | 1 of 1 inside 50 % |",
    ]


def test_every_model_request_and_type_is_left_out_once():
    """A row for each model with its mix, for each kind of request, and one for types."""
    rows = accuracy_table.left_out(accuracy()).data.splitlines()[2:]
    names = [row.split(" | ")[0].removeprefix("| ") for row in rows]
    assert names == [
        "llama-3.2-1b Q8_0",
        "llama-3.2-1b Q6_K",
        "host alone, short prompt",
        "the type of most weights: the nearest type stands in",
    ]
    assert rows[0].endswith("| 0 % and 0 % | 2 of 2 |")
