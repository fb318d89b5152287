"""The trials of the operating system: what their sides are, and that a record says so."""

from pathlib import Path

import pytest
from fakes import ScriptedEngine, scripted_pass

import inferlab as lab
from inferlab.engine import libraries
from inferlab.engine.openmp import DEFAULT
from inferlab.measurement.paired import Paired
from inferlab.model.find import tiny_model
from studies.operating_system import operating_system
from studies.operating_system.operating_system import main, measure_trial, trials, with_cpu_backend


@pytest.fixture(autouse=True)
def no_shape(monkeypatch):
    """The embedded model in place of a shape: nothing is written."""
    monkeypatch.setattr(operating_system, "make_shape", lambda *_, **__: tiny_model())


def test_only_the_controls_have_two_equal_sides(monkeypatch):
    """Any other trial changes a surrounding or the threads."""
    monkeypatch.setattr(operating_system, "physical_cores", lambda: 4)
    monkeypatch.setattr(operating_system, "usable_cpu_numbers", lambda: [0, 1, 2, 3])
    found = trials()
    same = {name for name, one in found.items() if (one.before, one.threads[0]) == (one.after, one.threads[1])}
    assert same == {"control-idle", "control-busy"}
    assert (found["fewer-busy"].threads, found["more-idle"].threads) == ((4, 3), (4, 5))
    apart = found["isolated-busy"]
    assert (apart.after.cores, apart.after.neighbor_cores, apart.threads) == ((0, 1, 2), (3,), (4, 3))


def test_one_core_has_no_trial_of_fewer_threads(monkeypatch):
    """There is nothing below one."""
    monkeypatch.setattr(operating_system, "physical_cores", lambda: 1)
    assert not {"fewer-idle", "fewer-busy", "isolated-busy"} & set(trials())


def test_a_trial_becomes_a_record_of_both_sides(tmp_path):
    """The name, the threads and the faster side come back from the file."""
    engines = ScriptedEngine([scripted_pass(prefill=0.4)]), ScriptedEngine([scripted_pass(prefill=0.2)])
    trial = trials()["more-idle"]
    found = measure_trial(trial, n_pairs=10, n_prompt=8, n_gen=3, engines=engines)
    assert lab.load(lab.save(found, tmp_path / "one.json"), Paired) == found
    assert (found.name, found.ratio("prefill"), found.verdict("prefill")) == ("more-idle", 2.0, "faster")
    assert found.verdict("decode") == "no difference found"
    assert tuple(side[0].settings.n_threads for side in (found.before, found.after)) == trial.threads
    assert found.cpu is not None


def test_the_command_writes_a_record_and_says_the_verdict(monkeypatch, tmp_path, capsys):
    """One line for each phase."""
    made = measure_trial(trials()["control-idle"], n_pairs=10, n_gen=3, engines=(ScriptedEngine(), ScriptedEngine()))
    monkeypatch.setattr(operating_system, "measure_trial", lambda *_: made)
    main(["control-idle", "--out", str(tmp_path)])
    before, after = lab.load(tmp_path / "os-control-idle.json").surroundings
    assert before == after
    assert capsys.readouterr().out.count("no difference found") == 2


def test_a_copy_of_the_libraries_has_the_other_backend(monkeypatch, tmp_path):
    """Under each of its names, and nothing else changes."""
    installed, other = tmp_path / "installed", tmp_path / "other.so"
    installed.mkdir()
    other.write_text("new")
    for name in ("libggml-cpu.so", "libggml-cpu.so.0", "libggml-base.so", "libllama.so"):
        (installed / name).write_text("old")
    monkeypatch.setattr(libraries, "folder", lambda: installed)
    copy = with_cpu_backend(other, tmp_path / "copy")
    assert {path.name for path in copy.iterdir() if path.read_text() == "new"} == {"libggml-cpu.so", "libggml-cpu.so.0"}
    assert (copy / "libllama.so").read_text() == "old"


def test_an_engine_of_another_build_gets_its_libraries():
    """By the variable that llama-cpp-python reads."""
    built = trials()["build-baseline"].before
    assert built.engine(Path("folder")).environment["LLAMA_CPP_LIB_PATH"] == "folder"
    assert "-DGGML_AVX=off" in built.build


def test_trials_spin_as_other_programs_do():
    """As long as the library by itself, or not at all where waiting threads sleep; never the bound of our workers."""
    assert trials()["control-idle"].before.engine().environment == {"GOMP_SPINCOUNT": DEFAULT}
    assert trials()["passive-idle"].after.engine().environment == {"OMP_WAIT_POLICY": "passive"}


def test_the_records_of_waiting_are_made_by_name(tmp_path, monkeypatch, capsys):
    """The command measures them beside the trials, and writes a file of each."""
    shown = lab.load("epyc-2c/waiting-tiny")
    monkeypatch.setattr(operating_system, "measure_waiting", lambda *_: shown)
    main(["waiting-tiny", "--out", str(tmp_path)])
    assert lab.load(tmp_path / "waiting-tiny.json") == shown
    assert shown.text in capsys.readouterr().out
