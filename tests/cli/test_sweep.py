"""`inferlab sweep`: its table, its JSON, its file, and what it refuses."""

import json

import pytest
from fakes import ScriptedEngine

from inferlab import cli
from inferlab.experiments.sweep import load_sweep

SWEEP = ["sweep", "tiny", "--n-prompt", "4", "--n-gen", "3", "--repeats", "1"]


@pytest.fixture(autouse=True)
def cache_folder(monkeypatch, tmp_path):
    """A cache folder of the test's own: a sweep goes on where the cache says that it was interrupted."""
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path / "cache"))


def sweep(*options):
    """The exit status of a sweep through an engine that needs no model."""
    return cli.main([*SWEEP, *options], ScriptedEngine())


def test_the_points_are_json(capsys):
    """--json prints a list with what each point changes and measured."""
    assert sweep("--over", "n_gpu_layers=0,8", "--over", "offload-kqv=true,false", "--json") == 0
    points = json.loads(capsys.readouterr().out)
    assert [(p["n_gpu_layers"], p["offload_kqv"]) for p in points] == [(0, True), (0, False), (8, True), (8, False)]
    assert all(p["decode_tokens_per_second"] > 0 for p in points)


def test_the_table_shows_points_and_reasons(capsys):
    """A person reads a row a point, the reason of one that failed, and how far the machine drifted."""
    assert sweep("--over", "n_ubatch=0,64,128") == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "n_ubatch" in shown
    assert "InvalidSettings" in shown
    assert "moved by at most 0.0%" in shown


def test_a_budget_of_nothing_leaves_every_point_waiting(capsys):
    """--budget 0 measures nothing, and says how to go on."""
    assert sweep("--over", "n_ubatch=64,128", "--budget", "0") == 0
    assert "2 of 2 points still wait" in capsys.readouterr().out


def test_the_sweep_can_be_kept(tmp_path, capsys):
    """-o writes the sweep with its raw samples; --llama-bench prints its rows."""
    path = tmp_path / "sweep.json"
    assert sweep("--over", "n_ubatch=64,128", "-o", str(path), "--llama-bench") == 0
    assert {row["n_ubatch"] for row in json.loads(capsys.readouterr().out)} == {64, 128}
    assert len(load_sweep(path).runs) == 2


@pytest.mark.parametrize("over", ["n_ubatch", "=1", "n_ubatch="])
def test_values_need_a_name(over, capsys):
    """An argument that is not NAME=V1,V2 is refused with exit status 2."""
    with pytest.raises(SystemExit):
        sweep("--over", over)
    assert "is not NAME=V1,V2" in capsys.readouterr().err
