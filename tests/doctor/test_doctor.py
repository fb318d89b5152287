"""The whole check-up, of made-up machines and, through the command, of this one."""

import json
import os
import subprocess
import sys

import pytest
from fakes import ScriptedEngine
from fakes_host import OTHER_ENVIRONMENT, MadeUpHost, checked, subjects

from inferlab.doctor import Host, check_machine

NO_COMPILER = {"c++": None}

# --- made-up machines ---------------------------------------------------------------------------


def test_a_complete_machine_has_nothing_to_fix():
    """Every finding is ok, none has a fix, and the last line leads to the labs."""
    checkup = checked()
    assert checkup.state == "ok"
    assert checkup.remedies == {}
    assert checkup.next_step == "Ready. Next: `make lab`, and the labs in the order of their numbers."


def test_what_does_not_apply_is_not_mentioned():
    """Without a GPU nothing is said about CUDA; without a clone nothing about building the book."""
    applying = subjects(root=None)
    assert applying.isdisjoint({"CUDA toolkit", "GPU and llama.cpp", "several GPUs", "your model"})
    assert applying.isdisjoint({"Node packages", "browser"})


def test_the_last_line_says_what_to_do_next():
    """Problems are named to be fixed; warnings are named and do not stop the reader."""
    assert checked(commands=NO_COMPILER, built_for=None).next_step == (
        "Next: fix what is a problem (C++ compiler), then check again with `inferlab doctor`."
    )
    assert checked(commands=NO_COMPILER, root=None, prefix=OTHER_ENVIRONMENT).next_step == (
        "Ready, with a warning about: C++ compiler. Next: `inferlab measure`."
    )


def test_the_check_up_has_an_engine_of_its_own_with_a_time_limit():
    """A model that the session has open stays open, and an engine that hangs does not hang the check-up."""
    made = []

    class Watched(ScriptedEngine):
        def __init__(self, timeout_seconds):
            super().__init__()
            self.timeout_seconds, self.closed = timeout_seconds, False
            made.append(self)

        def close(self):
            self.closed = True

    assert check_machine(MadeUpHost(), new_engine=Watched).about("engine").state == "ok"
    assert [(engine.timeout_seconds, engine.closed) for engine in made] == [(120.0, True)]


# --- this machine -------------------------------------------------------------------------------


@pytest.mark.engine
def test_the_doctor_examines_this_machine(tmp_path):
    """The command as a reader runs it: a real decode, one JSON object, and nobody's name in it."""
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("INFERLAB_MODEL", None)
    command = [sys.executable, "-m", "inferlab.cli", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=300)
    printed = json.loads(done.stdout)
    states = {f["subject"]: f["state"] for f in printed["findings"]}
    assert states["llama-cpp-python"] == states["embedded model"] == states["engine"] == "ok", printed
    assert done.returncode == int(printed["state"] == "problem")
    assert printed["machine"]["n_cores"] >= 1
    assert all(f["remedy"] for f in printed["findings"] if f["state"] != "ok")
    assert str(tmp_path) not in done.stdout
    assert f"/{Host().user}/" not in done.stdout
    assert done.stderr == ""
