"""Sweeps: the order of points, what is kept when something goes wrong, drift, and the ways in and out."""

from dataclasses import replace

import pytest
from fakes import CPU_ONLY, ScriptedEngine, made_run, scripted_pass

from inferlab.errors import EngineRefused, InvalidSettings
from inferlab.measurement.llama_bench import from_rows, to_rows
from inferlab.measurement.sweep import (
    Point,
    Sweep,
    from_runs,
    grid_points,
    load_order,
    row,
    sweep,
)
from inferlab.records import load, save
from inferlab.settings import Settings

FAST, SLOW = scripted_pass(), scripted_pass(gaps=(0.2, 0.2))


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path))
    return tmp_path / "sweeps"


def swept(engine=None, **changes):
    request = {"over": {"n_ubatch": (64, 128)}, "n_prompt": 4, "n_gen": 3, "repeats": 1, "progress": False}
    return sweep("tiny", Settings(), engine=engine or ScriptedEngine(), **(request | changes))


class FailingEngine(ScriptedEngine):
    """An engine that cannot open some settings."""

    def __init__(self, refuses, error, **scripted):
        super().__init__(**scripted)
        self.refuses, self.error = refuses, error

    def open(self, model, settings):
        if self.refuses(settings):
            raise self.error
        return super().open(model, settings)


class TiringEngine(ScriptedEngine):
    """An engine that decodes at half its speed after `fresh` generations."""

    def __init__(self, fresh):
        super().__init__()
        self.fresh = fresh

    def generate(self, prompt, n_gen):
        super().generate(prompt, n_gen)
        return FAST if len(self.asked) <= self.fresh else SLOW


def test_every_combination_is_a_point():
    """The grid is the product of its values, the last name changing fastest, and every point has its run."""
    done = swept(over={"n_ubatch": (64, 128), "n_prompt": (2, 4)})
    assert [tuple(point.changes.values()) for point in done.points] == [(64, 2), (64, 4), (128, 2), (128, 4)]
    assert [run.n_prompt for run in done.runs] == [2, 4, 2, 4]
    assert done.complete


def test_points_that_share_a_loaded_model_follow_each_other():
    """Workloads change inside settings, whatever the order of the grid's names, from small to large."""
    points = grid_points({"n_prompt": (8, 2), "type_k": ("f16", "q8_0")})
    assert [tuple(points[i].changes.values()) for i in load_order(points)] == [
        (2, "f16"),
        (8, "f16"),
        (2, "q8_0"),
        (8, "q8_0"),
    ]


def test_one_context_holds_every_workload():
    """Without n_ctx all points get the same one, large enough for the largest workload."""
    engine = ScriptedEngine()
    swept(engine, over={"n_prompt": (10, 300)})
    assert {settings.n_ctx for settings in engine.opened} == {512}


def test_a_failed_point_stays_with_its_reason():
    """What llama.cpp refuses, or what no setting can be, is kept as words, and the other points are measured."""
    engine = FailingEngine(lambda s: s.n_ubatch == 128, EngineRefused("out of memory"))
    done = swept(engine, over={"n_ubatch": (64, 128, 256), "n_batch": (0, 256)})
    reasons = [point.error for point in done.points if point.changes["n_batch"]]
    assert reasons == [None, "EngineRefused: out of memory", None]
    assert all("InvalidSettings: n_batch=0" in point.error for point in done.points if not point.changes["n_batch"])
    assert done.complete
    assert len(done.failed) == 4


def test_an_interrupted_sweep_goes_on_where_it_ended(own_cache):
    """Ctrl-C loses nothing: the same call measures only what is left, and then nothing remains to resume."""

    class Interrupted(ScriptedEngine):
        def open(self, model, settings):
            if settings.n_ubatch == 128:
                raise KeyboardInterrupt
            return super().open(model, settings)

    with pytest.raises(KeyboardInterrupt):
        swept(Interrupted())
    second = ScriptedEngine()
    done = swept(second)
    assert done.complete
    assert second.opened[0].n_ubatch == 128
    assert list(own_cache.iterdir()) == []


@pytest.mark.parametrize(
    ("machine", "request_"),
    [({}, {"n_prompt": 5}), ({"llama_cpp_commit": "another"}, {}), ({"cpu": "Another CPU"}, {})],
)
def test_another_request_machine_or_build_does_not_resume(machine, request_):
    """A sweep goes on only from the same workload, llama.cpp and machine."""
    swept(each=lambda so_far: True)
    engine = ScriptedEngine(machine=replace(CPU_ONLY, **machine))
    swept(engine, **request_)
    assert {settings.n_ubatch for settings in engine.opened} == {64, 128}


def test_failed_points_are_tried_again_when_a_sweep_goes_on():
    """A reason that an interruption left behind does not keep a point from being measured."""
    failing = FailingEngine(lambda s: s.n_ubatch == 64, EngineRefused("busy"))
    left = swept(failing, over={"n_ubatch": (64, 128, 256)}, each=lambda so_far: len(so_far.runs) == 1)
    assert not left.complete
    assert all(point.run for point in swept(over={"n_ubatch": (64, 128, 256)}).points)


def test_a_budget_or_a_callback_ends_the_sweep():
    """budget_seconds=0 measures nothing; `each` sees the sweep after every point, and True from it ends it."""
    assert [point.open for point in swept(budget_seconds=0).points] == [True, True]
    seen = []
    left = swept(each=lambda so_far: seen.append(len(so_far.runs)) or True)
    assert seen == [1]
    assert not left.complete


def test_a_steady_machine_drops_nothing():
    """The anchor is measured again at the end, and the points say how far it had moved."""
    done = swept()
    assert len(done.anchors) == 2
    assert done.drift == 0
    assert done.points[1].drift == 0


def test_points_beside_a_drifting_anchor_are_dropped():
    """Once the anchor moves by more than a tenth, the points since the last good one lose their runs, and say why."""
    fresh = 3 * 3  # the first three points: two warm-ups that agree and one counted pass each
    done = swept(TiringEngine(fresh), over={"n_ubatch": (32, 64, 128)})
    assert [bool(point.run) for point in done.points] == [True, False, False]
    assert "dropped: the anchor, measured again after it, had moved by -50%" in done.points[1].error
    assert done.points[1].drift == pytest.approx(-0.5)


@pytest.mark.parametrize(
    ("over", "told"),
    [
        ({"n_gpu_layer": (1,)}, "nothing 'n_gpu_layer' to sweep over"),
        ({"n_ctx": 512}, "must be a list of values"),
        ({"n_ctx": ()}, "of at least one"),
        ({"type_k": "f16"}, "must be a list of values"),
    ],
)
def test_what_cannot_be_swept_is_refused(over, told):
    """A name that is no setting and a value that is no list are refused before anything is measured."""
    with pytest.raises(InvalidSettings, match=told):
        swept(over=over)


def test_one_run_can_be_selected():
    """`at` finds the run with the given values, and says what is wrong when there is none or more than one."""
    done = swept(over={"n_ubatch": (64, 128), "n_prompt": (2, 4)})
    assert done.at(n_ubatch=64, n_prompt=4).n_prompt == 4
    with pytest.raises(InvalidSettings, match="2 points have that"):
        done.at(n_ubatch=64)


def test_a_row_says_what_changed_what_was_measured_and_what_failed():
    """One row for each point, as tables and programs show it."""
    done = swept(FailingEngine(lambda s: s.n_ubatch == 128, EngineRefused("no")))
    measured, failed = map(row, done.points)
    assert [measured["n_ubatch"], failed["n_ubatch"]] == [64, 128]
    assert measured["decode_tokens_per_second"] == done.runs[0].decode_tokens_per_second
    assert failed["error"] == "EngineRefused: no"


def test_a_sweep_survives_its_file(tmp_path):
    """Saved and loaded, a sweep has the same grid, runs with raw samples, reasons, drifts and anchors."""
    done = swept(over={"n_ubatch": (64, 128), "tensor_split": (None, (1.0, 2.0))})
    assert load(save(done, tmp_path / "sweep.json")) == done


def test_runs_of_llama_bench_become_a_sweep():
    """Its rows come back over what differs between them."""
    runs = [made_run(settings=Settings(n_ctx=256, n_gpu_layers=n, n_threads=4)) for n in (0, 8)]
    back = from_runs(from_rows([row for run in runs for row in to_rows(run)]))
    assert back.over == {"n_gpu_layers": (0, 8)}
    assert back.at(n_gpu_layers=8).decode_tokens_per_second == pytest.approx(runs[1].decode_tokens_per_second)


def test_runs_become_a_sweep_over_what_differs():
    """Finished runs are points of the grid of their differences; no runs are no grid."""
    runs = [made_run(), replace(made_run(), n_prompt=16)]
    assert [point.changes for point in from_runs(runs).points] == [{"n_prompt": 8}, {"n_prompt": 16}]
    assert from_runs([]).points == ()
    assert Point({}).open


def test_the_gain_of_a_point_over_another_is_a_share_of_its_rate():
    """Half the time between tokens is a gain of 1, and the other way round a loss of one half."""
    points = (Point({"n_threads": 1}, made_run(passes=(SLOW,))), Point({"n_threads": 2}, made_run(passes=(FAST,))))
    done = Sweep({"n_threads": (1, 2)}, points)
    assert done.gain("decode", {"n_threads": 2}, {"n_threads": 1}) == pytest.approx(1)
    assert done.gain("decode", {"n_threads": 1}, {"n_threads": 2}) == pytest.approx(-0.5)
    assert done.gain("prefill", {"n_threads": 2}, {"n_threads": 1}) == 0


def test_samples_can_be_taken_beside_every_run():
    """`telemetry` reaches each measurement, the anchors too."""
    done = swept(telemetry=0.05)
    assert all(run.sampling.interval_seconds == 0.05 for run in (*done.runs, *done.anchors))
    assert all(run.sampling is None for run in swept().runs)
