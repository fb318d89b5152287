"""The figure of the training ledger: every kind of bytes a bar."""

import pytest

import inferlab as lab
from inferlab.units import MIB
from studies.training import figures


@pytest.fixture(scope="module")
def ledger():
    return lab.load("epyc-2c/training-ledger")


def test_bars_add_up_to_what_was_counted(ledger):
    """Each step's bars together are its counted bytes; the diamond is the growth of its process."""
    figure = figures.ledger_bytes(ledger)
    bars = [trace for trace in figure.data if trace.type == "bar"]
    sums = [sum(values) for values in zip(*(bar.x for bar in bars), strict=True)]
    assert sums == pytest.approx([sum(row.sizes.values()) / MIB for row in ledger.rows])
    assert list(figure.data[-1].x) == [row.grown_bytes / MIB for row in ledger.rows]
    assert "PyTorch training: weights 22.01 MiB, gradients" in figure.layout.meta["alt"]
