"""Training beside inference: what the record says, the numbers and the table of the page, and its figure."""

import json
from statistics import median

import pytest

from inferlab.errors import PyTorchUnavailable
from inferlab.measurement import pytorch
from inferlab.model.find import tiny_model
from inferlab.model.gguf import read_gguf
from inferlab.records import shipped
from inferlab.units import MIB
from studies.training import figures, measure, study


@pytest.fixture(scope="module")
def ledger():
    return study.recorded()


def test_the_recorded_bytes_follow_from_the_weights(ledger):
    """Weights and gradients are four bytes each, Adam's two averages eight; under inference_mode nothing is saved."""
    n = ledger.model.n_params
    assert n == sum(tensor.n_elements for tensor in read_gguf(tiny_model()).tensors)
    training = ledger.row("training").sizes
    assert (training["weights"], training["gradients"], training["adam"]) == (4 * n, 4 * n, 8 * n)
    assert ledger.row("inference").sizes == {"weights": 4 * n}
    assert set(ledger.row("decode").sizes) == {"weights", "kv_cache"}
    assert ledger.row("recorded").sizes["saved"] > ledger.row("recorded").sizes["weights"]


def test_the_recorded_network_is_the_embedded_model(ledger):
    """PyTorch's logits are NumPy's up to rounding, and its likeliest tokens llama.cpp's but for near ties."""
    assert ledger.logits_difference < 1e-5 * ledger.largest_logit
    assert ledger.same_picks >= 0.99 * ledger.n_tokens


def test_the_page_says_what_the_record_has():
    """Medians and growth from the file itself."""
    raw = json.loads(shipped()["epyc-2c/training-ledger"].read_text(encoding="utf-8"))
    rows, found = {row["step"]: row for row in raw["rows"]}, study.numbers()
    for step, row in rows.items():
        assert found[f"{step}_ms"] == 1e3 * median(row["seconds"])
        assert found[f"{step}_grown"] == row["grown_bytes"] / MIB
        assert len(row["seconds"]) == found["repeats"] == measure.RECIPES["training-ledger"].keywords["repeats"]
    assert found["decode_factor"] == pytest.approx(found["decode_ms"] / found["engine_decode_ms"])
    assert found["recorded_slower"] == pytest.approx(100 * (found["recorded_ms"] / found["inference_ms"] - 1))


def test_each_column_of_the_table_adds_up():
    """Sixteen bytes for each weight, in 32 bits and in mixed precision alike; an answer needs the weights alone."""
    heads, rows = study.bytes_table()
    columns = dict(zip(heads, zip(*rows, strict=True), strict=True))
    for head in heads[1:]:
        *parts, total, _ = columns[head]
        assert float(total) == pytest.approx(sum(float(part) for part in parts if part != "–"))
    assert columns["training, 32 bits"][-2] == columns["training, mixed"][-2] == "16"
    assert columns["inference, F16"][0] == "2"


def test_bars_add_up_to_what_was_counted(ledger):
    """Each step's bars together are its counted bytes; the diamond is the growth of its process."""
    figure = figures.ledger_bytes(ledger)
    bars = [trace for trace in figure.data if trace.type == "bar"]
    sums = [sum(values) for values in zip(*(bar.x for bar in bars), strict=True)]
    assert sums == pytest.approx([sum(row.sizes.values()) / MIB for row in ledger.rows])
    assert list(figure.data[-1].x) == [row.grown_bytes / MIB for row in ledger.rows]
    assert "PyTorch training: weights 22.01 MiB, gradients" in figure.layout.meta["alt"]


def test_a_missing_pytorch_is_said_before_anything_is_loaded(monkeypatch):
    """The error says how to get PyTorch."""
    monkeypatch.setattr(pytorch, "find_spec", lambda name: None)
    with pytest.raises(PyTorchUnavailable, match="pip install torch"):
        measure.RECIPES["training-ledger"]()
