"""Figures of the training ledger: every kind of bytes a bar, every repetition a point."""

import pytest

import inferlab as lab
from inferlab import figures
from inferlab.measurement.training_ledger import STEPS
from inferlab.units import MIB


@pytest.fixture(scope="module")
def ledger():
    return lab.load("epyc-2c/training-ledger")


def test_bars_add_up_to_what_was_counted(ledger):
    """Each step's bars together are its counted bytes; the diamond is the growth of its process."""
    figure = figures.ledger_bytes(ledger)
    bars = [trace for trace in figure.data if trace.type == "bar"]
    sums = [sum(values) for values in zip(*(bar.x for bar in bars), strict=True)]
    assert sums == pytest.approx([row.counted_bytes / MIB for row in ledger.rows])
    assert list(figure.data[-1].x) == [row.grown_bytes / MIB for row in ledger.rows]
    assert "PyTorch training: weights 22.01 MiB, gradients" in figure.layout.meta["alt"]


def test_every_repetition_is_a_point(ledger):
    """Two programs, each with its samples and its medians."""
    figure = figures.ledger_seconds(ledger)
    assert [trace.name for trace in figure.data] == ["llama.cpp", "llama.cpp", "PyTorch", "PyTorch"]
    samples, medians = figure.data[::2], figure.data[1::2]
    assert sum(len(trace.x) for trace in samples) == sum(len(row.seconds) for row in ledger.rows)
    assert sum(len(trace.x) for trace in medians) == len(STEPS)
    assert medians[1].x[-1] == 1e3 * ledger.of("training").median_seconds
