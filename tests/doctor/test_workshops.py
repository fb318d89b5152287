"""What a workshop asks of a participant's machine, and the line that tells the teacher."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import ScriptedEngine
from fakes_host import MadeUpHost
from hypothesis import given
from hypothesis import strategies as st

from inferlab.cli import main
from inferlab.doctor import check_for_workshop
from inferlab.doctor.room_line import RoomLine, read_line, read_room
from inferlab.doctor.workshops import syllabi, syllabus
from inferlab.errors import UnknownSyllabus
from inferlab.model.synthetic_model import shape
from inferlab.units import GB, bytes_from_text

ROOT = Path(__file__).parents[2]
NOTEBOOKS = {f"/home/ada/handbook/labs/{name}.ipynb": "{}" for name in syllabi()["one-day"].labs}
INSTALLED = {**MadeUpHost().packages, "jupyterlab": "4"}
LINE = (
    "inferlab 0.1.0 | half-day, cpu | ready | Linux x86_64 | Python 3.12.1 | 4 cores | 15.6 GiB RAM | 100.0 GB free | "
    "cpu, rpc; no GPU | prefill 900 decode 50 tokens/s | kernels: F16 plain"
)


def checked(name="half-day", room="cpu", **host):
    """The check-up and the line of a made-up machine."""
    made_up = MadeUpHost(**{"files": NOTEBOOKS, "packages": INSTALLED, **host})
    return check_for_workshop(name, room, made_up, new_engine=lambda seconds: ScriptedEngine())


# --- the data ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "needs"), syllabi()["one-day"].labs.items())
def test_the_needs_are_those_of_the_index_of_labs(name, needs):
    """The disk and the cores that book/labs.md promises are those that the doctor checks."""
    index = (ROOT / "book" / "labs.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| \[.+?\]\(\.\./labs/{name}\.ipynb\).*\| (.+?) \|$", index, re.MULTILINE)[1]
    disk = re.search(r"(\d+ [MG]B) of disk", row)
    assert needs.disk_bytes == bytes_from_text(disk[1]) if disk else needs.disk_bytes <= GB / 10
    assert (needs.n_cores == 2) is ("two cores" in row)
    assert bool(needs.needs_linux_for) is ("Linux" in row)


def test_a_shape_of_a_lab_fits_into_its_disk():
    """The largest file that lab 6a makes is smaller than the disk that is asked for, and not by much."""
    n_bytes = shape("llama-3.2-1b", "Q4_K_M", n_layer=8, n_vocab=16384).tensor_bytes
    assert 0.8 < n_bytes / syllabi()["half-day"].labs["06a-split-the-model"].disk_bytes < 1


def test_a_longer_workshop_contains_the_shorter():
    """A participant who is ready for the day is ready for the half of it."""
    two_hours, half_day, one_day = (set(one.labs) for one in syllabi().values())
    assert two_hours < half_day < one_day


def test_an_unknown_workshop_names_those_that_exist():
    """The error has the three names."""
    with pytest.raises(UnknownSyllabus, match=r"'week'.*two-hours, half-day, one-day"):
        syllabus("week")


# --- made-up machines ---------------------------------------------------------------------------


def test_a_complete_machine_is_ready():
    """Every finding is ok, and the line says so."""
    checkup, line = checked()
    assert [one for one in checkup.findings if one.state != "ok"] == []
    assert line.state == "ready"
    assert line.workshop == "half-day, cpu"


@pytest.mark.parametrize(
    ("host", "subject", "state"),
    [
        ({"free": 10**8}, "disk for the labs", "problem"),
        ({"files": {}}, "labs", "problem"),
        ({"packages": MadeUpHost().packages}, "labs", "problem"),
        ({"root": None}, "labs", "problem"),
    ],
    ids=["a full disk", "labs that are gone", "no JupyterLab", "no clone"],
)
def test_what_is_missing_is_named(host, subject, state):
    """In the table, and in the line for the teacher."""
    checkup, line = checked(**host)
    assert checkup.about(subject).state == state
    assert subject in line.subjects
    assert not line.is_ready


def test_a_room_with_gpus_needs_one():
    """Without a GPU the machine is not ready for such a room, and is ready for the others."""
    assert checked(room="gpu")[0].about("GPU for the labs").state == "problem"
    assert checked(room="shared")[1].is_ready


def test_what_only_a_build_needs_is_not_asked():
    """A participant needs no browser for drawing figures, and no compiler once llama.cpp is there."""
    checkup, line = checked(has_browser=False, commands={"c++": None})
    assert {one.subject for one in checkup.findings}.isdisjoint({"browser", "Node packages", "C++ compiler"})
    assert line.state == "ready"


def test_another_system_is_told_what_it_cannot_run():
    """Lab 9's cases of memory need Linux; nothing else does."""
    assert "Linux only" in checked("one-day", system="Darwin")[0].about("system").found
    with pytest.raises(KeyError):
        checked("half-day", system="Darwin")[0].about("system")


def test_the_line_names_nobody():
    """No user, no host, no folder."""
    _, line = checked(commands={"c++": None}, built_for=None)
    assert not re.search(r"ada|lovelace|/home", str(line))


# --- the line and the room ----------------------------------------------------------------------

FIELD = st.text(st.characters(blacklist_characters="|\n\r>", blacklist_categories=("C", "Z")), min_size=1)


@given(st.lists(FIELD, min_size=10, max_size=10), st.sampled_from(["", "> ", ">> ", "  "]))
def test_a_line_is_read_as_it_was_written(texts, quoted):
    """Also behind the marks of a quoted mail."""
    line = RoomLine(f"inferlab {texts[0]}", *texts)
    assert read_line(f"{quoted}{line}  ") == line


def test_a_room_is_counted():
    """Who is ready, what is missing how often, the slowest machine, and the pairs to form."""
    broken = replace(read_line(LINE), state="not ready: labs, disk", rates="prefill ? decode ? tokens/s")
    warned = replace(read_line(LINE), state="ready, with a warning: disk", rates="prefill 100 decode 10 tokens/s")
    room = read_room("\n\n".join([LINE, f"> {broken}", str(warned), "see you on Monday"]))
    assert room.sentences() == [
        "2 of 3 machines are ready.",
        "2 times: disk.",
        "1 times: labs.",
        "Decode of the embedded model: slowest 10, median 30, fastest 50 tokens/s.",
        "Form 1 pairs.",
        "Not read: see you on Monday",
    ]


def test_more_broken_machines_than_others_are_told():
    """Nobody is promised a partner who does not exist."""
    broken = replace(read_line(LINE), state="not ready: labs")
    assert read_room("\n".join([LINE, *3 * [str(broken)]])).sentences()[-1] == "Form 1 pairs; 2 people need a machine."


def test_the_command_reads_the_lines_of_a_room(tmp_path, capsys):
    """A line that is not understood is shown, and the exit status says so."""
    (tmp_path / "lines.txt").write_text(f"{LINE}\nhello\n", encoding="utf-8")
    assert main(["doctor", "--room-list", str(tmp_path / "lines.txt")]) == 1
    assert "1 of 1 machines are ready." in capsys.readouterr().out
    assert main(["doctor", "--json", "--room-list", str(tmp_path / "lines.txt")]) == 1
    assert json.loads(capsys.readouterr().out)["not_read"] == ["hello"]


# --- this machine -------------------------------------------------------------------------------


@pytest.mark.engine
def test_the_doctor_checks_this_machine_for_a_workshop():
    """The command as a participant runs it: a real measurement, and a last line that can be read again."""
    command = [sys.executable, "-m", "inferlab.cli", "doctor", "--workshop", "two-hours"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    line = read_line(done.stdout.splitlines()[-1])
    assert line.decode_tokens_per_second > 0
    assert line.kernels.startswith("kernels: F16")
    assert done.returncode == (0 if line.is_ready else 1)
