"""What is called recorded: raw samples in the file, from which the numbers that are shown come out again."""

import json
from importlib.resources import files
from pathlib import Path
from statistics import median

import pytest

from inferlab.records import run_from_dict

RECORDS = Path(str(files("inferlab") / "data" / "records"))


def runs_in(path):
    """Every run of a file as plain JSON: a run, or the points and anchors of a sweep."""
    data = json.loads(path.read_text(encoding="utf-8"))
    if "passes" in data:
        return [data]
    return [point["run"] for point in data.get("points", ()) if point.get("run")] + data.get("anchors", [])


EVERY = [(path, index) for path in sorted(RECORDS.glob("*/*.json")) for index in range(len(runs_in(path)))]
pytestmark = pytest.mark.parametrize(
    ("path", "index"), EVERY, ids=[f"{path.parent.name}/{path.stem}/{index}" for path, index in EVERY]
)


def test_the_median_comes_out_of_the_samples(path, index):
    """Prefill and decode rates, computed from the raw seconds, are those that a figure shows."""
    raw = runs_in(path)[index]
    shown = run_from_dict(raw)
    prefill = median(raw["n_prompt"] / one["prefill_seconds"] for one in raw["passes"])
    assert shown.prefill_tokens_per_second == pytest.approx(prefill)
    rates = [len(one["decode_seconds"]) / sum(one["decode_seconds"]) for one in raw["passes"] if one["decode_seconds"]]
    assert shown.decode_tokens_per_second == (pytest.approx(median(rates)) if rates else None)


def test_it_says_where_when_and_with_what(path, index):
    """Machine, date, build and the kind of the weights are in the record."""
    run = run_from_dict(runs_in(path)[index])
    assert run.machine.cpu
    assert len(run.date) == 10
    assert run.machine.llama_cpp
    assert run.model.synthetic == ("shape" in run.model.name)
    assert run.passes
