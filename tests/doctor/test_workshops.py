"""What a workshop asks of a participant's machine, and the line that tells the teacher."""

import ast
import json
import re
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import CPU_ONLY, WITH_GPU, ScriptedEngine, made_run, scripted_pass
from fakes_host import CUDA_BUILD, MadeUpHost, UnloadableEngine, nvidia_driver
from hypothesis import given
from hypothesis import strategies as st

from handbook.workshop_minutes import pace
from inferlab.cli import main
from inferlab.doctor import check_for_workshop
from inferlab.doctor.room_line import RoomLine, read_room
from inferlab.doctor.workshops import MOST_SLOWER, PAGE, RECORDED, SHARE, syllabi, syllabus
from inferlab.errors import EngineUnavailable, UnknownSyllabus
from inferlab.machine import Device
from inferlab.model.kernels import Matrices
from inferlab.model.synthetic_model import shape
from inferlab.records import load
from inferlab.units import GB, bytes_from_text

ROOT = Path(__file__).parents[2]
NOTEBOOKS = {f"/home/ada/handbook/labs/{name}.ipynb": "{}" for name in syllabi()["one-day"].labs}
INSTALLED = {**MadeUpHost().packages, "jupyterlab": "4"}
LINE = (
    "inferlab 0.1.0 | half-day, cpu | ready | Linux x86_64 | Python 3.12.1 | 4 cores | 15.6 GiB RAM | 100.0 GB free | "
    "cpu; no GPU | kernels: F16 plain | prefill 900 decode 50 tokens/s"
)
RTX_4090 = "NVIDIA GeForce RTX 4090, 24564, 570.86"
LONGEST_LINE = 210


def checked(name="half-day", room="cpu", engine=None, **host):
    """The check-up and the line of a made-up machine."""
    made_up = MadeUpHost(**{"files": NOTEBOOKS, "packages": INSTALLED, **host})
    return check_for_workshop(name, room, made_up, new_engine=lambda seconds: engine or ScriptedEngine())


def run_here(rate):
    """A measurement of the embedded model on the teacher's machine, by the plain kernel."""
    timed = scripted_pass(gaps=(1 / rate,) * 2, share=1.0)
    return replace(made_run(), passes=(timed,), weights=(Matrices("F16", "CPU", 10**7),), machine=CPU_ONLY)


class DeadEngine(UnloadableEngine):
    """An engine that fails whenever it is asked."""

    def generate(self, prompt, n_gen):
        raise self.fails


# --- the data ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "needs"), syllabi()["one-day"].labs.items())
def test_the_needs_are_those_of_the_index_of_labs(name, needs):
    """The disk and the cores that book/labs.md promises are those that the doctor checks."""
    index = (ROOT / "book" / "labs.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| \[.+?\]\(\.\./labs/{name}\.ipynb\).*\| (.+?) \|$", index, re.MULTILINE)[1]
    disk = re.search(r"(\d+ [MG]B) of disk", row)
    assert needs.disk_bytes == bytes_from_text(disk[1]) if disk else needs.disk_bytes <= GB / 10
    assert (needs.n_cores == 2) is ("two cores" in row)
    assert "make tools" not in row
    assert bool(needs.needs_linux_for) is ("Linux" in row)


def shapes_of(lab):
    """Bytes of the weights in each file that a lab's cells ask `make_shape` for."""
    cells = json.loads((ROOT / "labs" / f"{lab}.ipynb").read_text(encoding="utf-8"))["cells"]
    source = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    for call in calls:
        if getattr(call.func, "attr", "") == "make_shape":
            asked = [ast.literal_eval(value) for value in call.args]
            yield shape(
                *asked, **{keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
            ).tensor_bytes


@pytest.mark.parametrize("lab", ["04a", "04b", "06a", "06b"])
def test_the_files_of_a_lab_fit_into_its_disk(lab):
    """The synthetic models that its cells make stay in the cache folder; the disk that is asked for holds them."""
    name, needs = next((name, needs) for name, needs in syllabi()["one-day"].labs.items() if name.startswith(lab))
    assert 0 < sum(shapes_of(name)) < 0.95 * needs.disk_bytes


def test_the_disk_of_lab_5_holds_its_three_large_files():
    """Its speeds are measured with one shape in three types, and nothing else that it makes is as large."""
    size = {"n_layer": 4, "n_vocab": 8192}
    files = [shape("llama-3.2-1b", kind, **size).tensor_bytes for kind in ("F16", "Q8_0", "Q4_K_M")]
    lab = (ROOT / "labs" / "05-quantize-and-compare.ipynb").read_text(encoding="utf-8").replace('\\"', '"')
    assert '"llama-3.2-1b", ("F16", "Q8_0", "Q4_K_M")' in lab
    assert "n_layer=4, n_vocab=8192" in lab
    assert 0.5 < sum(files) / syllabi()["one-day"].labs["05-quantize-and-compare"].disk_bytes < 0.95


def test_a_longer_workshop_contains_the_shorter():
    """A participant who is ready for the day is ready for the half of it."""
    two_hours, half_day, one_day = (set(workshop.labs) for workshop in syllabi().values())
    assert two_hours < half_day < one_day


def test_an_unknown_workshop_names_those_that_exist():
    """The error has the three names."""
    with pytest.raises(UnknownSyllabus, match=r"'week'.*two-hours, half-day, one-day"):
        syllabus("week")


# --- made-up machines ---------------------------------------------------------------------------


def test_a_complete_machine_is_ready():
    """Every finding is ok, and the line says so."""
    checkup, line = checked()
    assert [finding for finding in checkup.findings if finding.state != "ok"] == []
    assert line.state == "ready"
    assert line.workshop == "half-day, cpu"


@pytest.mark.parametrize(
    ("host", "subject"),
    [
        ({"free": 10**8}, "disk for the labs"),
        ({"files": {}}, "labs"),
        ({"packages": MadeUpHost().packages}, "labs"),
        ({"root": None}, "labs"),
    ],
    ids=["a full disk", "labs that are gone", "no JupyterLab", "no clone"],
)
def test_what_is_missing_is_named(host, subject):
    """In the table, and in the line for the teacher."""
    checkup, line = checked(**host)
    assert checkup.about(subject).state == "problem"
    assert subject in line.subjects
    assert not line.is_ready


def test_disk_is_judged_by_the_labs_of_the_workshop():
    """Two GB are enough for half a day and too little for a day; a full disk is a problem for every workshop."""
    assert checked("half-day", free=2 * GB)[1].state == "ready"
    assert checked("one-day", free=2 * GB)[1].state == "not ready: disk for the labs"
    assert checked("two-hours", free=GB // 100)[1].state == "not ready: disk"


def test_a_room_with_gpus_needs_one():
    """Without a GPU the machine is not ready for such a room; without a card in it, a neighbor has one."""
    alone, _ = checked(room="gpu")
    assert (alone.about("GPU for the labs").state, alone.about("GPU for the labs").remedy) == ("problem", SHARE)
    idle, _ = checked(room="gpu", commands=nvidia_driver(RTX_4090))
    assert "make book GPU=cuda" in idle.about("GPU for the labs").remedy
    assert checked(room="gpu", engine=ScriptedEngine(machine=WITH_GPU), built_for=CUDA_BUILD)[1].is_ready


def test_a_room_that_shares_a_gpu_says_where_it_is_checked():
    """The laptop is checked for the labs; the GPU on the server, by the teacher, with a command that is named."""
    checkup, line = checked(room="shared")
    assert line.is_ready
    assert "doctor --workshop half-day --room gpu" in checkup.about("shared GPU").found


def test_every_finding_that_is_not_ok_says_what_to_do():
    """By a command, or by the page for participants; and the last line has the command that checks again."""
    broken = {"system": "Darwin", "root": None, "free": 10**8, "has_browser": False}
    few = ScriptedEngine(machine=replace(CPU_ONLY, n_cores=1))
    checkup, _ = checked("one-day", room="gpu", engine=few, **broken)
    wrong = {finding.subject: finding.remedy for finding in checkup.findings if finding.state != "ok"}
    assert {"labs", "disk for the labs", "cores for the labs", "GPU for the labs", "system"} <= set(wrong)
    assert all(wrong.values())
    assert "`inferlab doctor --workshop one-day --room gpu`" in checkup.next_step
    assert (ROOT / PAGE).is_file()


def test_an_engine_that_does_not_measure_is_a_problem():
    """The reason is in the finding in one line, and the line for the teacher has ? in place of rates."""
    checkup, line = checked(engine=DeadEngine("libcuda.so is missing"))
    assert "first measurement" in line.subjects
    assert "\n" not in checkup.about("first measurement").found
    assert (line.kernels, line.rates) == ("kernels: not measured", "prefill ? decode ? tokens/s")
    assert line.decode_tokens_per_second is None


@pytest.mark.parametrize(
    ("gaps", "doubt"),
    [((1e-5,) * 2, None), ((0.1, 0.1), "decode slower than half of the")],
    ids=["fast", "slow"],
)
def test_a_slow_machine_shows_before_the_day(gaps, doubt, monkeypatch):
    """Beside the rate that was recorded with the same kernels: a plan allows for a machine half as fast."""
    monkeypatch.setattr("inferlab.measurement.run.Run.kernel_shares", lambda run, n: {"plain": 1.0})
    finding = checked(engine=ScriptedEngine([scripted_pass(gaps=gaps)]))[0].about("first measurement")
    assert (finding.state, doubt is None or doubt in finding.found) == ("ok" if doubt is None else "warning", True)


def test_rates_of_other_kernels_are_not_compared():
    """A machine whose kernels are unknown, or other than the recorded, is not called slow."""
    assert checked(engine=ScriptedEngine([scripted_pass(gaps=(0.1, 0.1))]))[1].state == "ready"


def test_a_slow_machine_is_one_that_the_plans_do_not_allow_for():
    """The doctor and the plans have the same factor, and the record is one of the embedded model."""
    assert pace().slowest_machine == MOST_SLOWER
    assert load(RECORDED).model.file == "tiny.gguf"


def test_passes_that_disagree_are_a_warning():
    """Something else was running, or the battery: the labs' comparisons would show it."""
    passes = [scripted_pass(gaps=(gap, gap)) for gap in (0.1, 0.1, 0.1, 0.3)]
    finding = checked(engine=ScriptedEngine(passes))[0].about("first measurement")
    assert finding.state == "warning"
    assert "3.0 times as fast as its slowest" in finding.found


def test_what_only_a_build_needs_is_not_asked():
    """A participant needs no browser for drawing figures, and no compiler once llama.cpp is there."""
    checkup, line = checked(has_browser=False, commands={"c++": None})
    assert {finding.subject for finding in checkup.findings}.isdisjoint({"browser", "Node packages", "C++ compiler"})
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

WORD = st.text(st.characters(blacklist_characters="|>", blacklist_categories=("C", "Z")), min_size=1, max_size=9)
FIELD = st.lists(WORD, min_size=1, max_size=6).map(" ".join).filter(lambda text: "inferlab" not in text)
RATE = st.one_of(st.integers(0, 10**6).map(str), st.just("?"))
LINES = st.builds(
    lambda version, middle, prefill, decode: RoomLine(
        f"inferlab {version}", *middle, f"prefill {prefill} decode {decode} tokens/s"
    ),
    WORD,
    st.lists(FIELD, min_size=9, max_size=9),
    RATE,
    RATE,
)


@given(LINES, st.sampled_from(["", "> ", ">> ", "  ", "Ada: ", "> [16:02] Ada: "]))
def test_a_line_is_read_as_it_was_written(line, before):
    """Also behind the marks of a quoted mail, and behind a name."""
    assert list(read_room(f"{before}{line}  ").machines.values()) == [line]


@given(st.lists(LINES, min_size=1, max_size=4), st.sampled_from(["", "> "]), st.integers(40, 90))
def test_lines_that_a_mail_broke_are_read(lines, quoted, width):
    """A mail program breaks a line at a space, and marks each piece; none of them is lost."""
    pieces = (textwrap.wrap(str(line), width, break_long_words=False, break_on_hyphens=False) for line in lines)
    room = read_room("\n".join(f"{quoted}{piece}" for broken in pieces for piece in broken))
    assert list(room.machines.values()) == lines
    assert room.unread == []


def test_the_line_is_short_enough_for_a_chat():
    """Also with a card; only what is missing makes it longer."""
    card = Device("CUDA0", "NVIDIA GeForce RTX 4090", "gpu", 24 * 2**30, backend="CUDA")
    engine = ScriptedEngine(machine=replace(WITH_GPU, devices=(*CPU_ONLY.devices, card)))
    _, line = checked("two-hours", "gpu", engine, built_for=CUDA_BUILD, commands=nvidia_driver(RTX_4090))
    assert line.devices == "cuda; NVIDIA GeForce RTX 4090 24.0 GiB"
    assert len(str(line)) <= LONGEST_LINE


def line_with(state="ready", rates="prefill 900 decode 50 tokens/s"):
    """A line with another state, or with other rates."""
    return replace(only_line(LINE), state=state, rates=rates)


def only_line(text):
    """The line of the only machine in a text."""
    (line,) = read_room(text).machines.values()
    return line


def test_a_room_is_counted():
    """Who is ready, what is missing how often, the slowest machine beside the teacher's, the pairs, and the rest."""
    broken = line_with("not ready: labs, disk", "prefill ? decode ? tokens/s")
    slow = line_with("ready, with a warning: disk", "prefill 100 decode 10 tokens/s")
    room = read_room("\n\n".join([LINE, f"> {broken}", f"Ada: {slow}", "see you on Monday"]))
    assert room.sentences(run_here(40)) == [
        "2 of 3 machines ready.",
        "Not ready because of: labs (1), disk (1).",
        "Ready, with warnings about: disk (1).",
        "Slowest: Ada, decode 10 tokens/s (kernels: F16 plain); this machine: 40 tokens/s (kernels: F16 plain), "
        "4 times as fast.",
        "Pair: line 3 (not ready: labs, disk) with line 1.",
        "1 line not read:",
        "> see you on Monday",
    ]


def test_rates_of_a_room_are_compared_where_the_kernels_are_the_same():
    """Otherwise both stand with their kernels, and no factor; nor where this machine was not measured."""
    room = read_room(LINE.replace("F16 plain", "F16 AMX"))
    assert room.sentences(run_here(40))[-1].endswith("this machine: 40 tokens/s (kernels: F16 plain).")
    assert room.sentences(EngineUnavailable("none"))[-1].endswith("(kernels: F16 AMX). This machine was not measured.")


def test_a_pair_has_the_fastest_machine_without_a_warning():
    """A warned machine is the last choice for two people."""
    fast = line_with("ready, with a warning: disk", "prefill 900 decode 500 tokens/s")
    cleo = line_with(rates="prefill 900 decode 90 tokens/s")
    lines = {"Ada": LINE, "Bert": fast, "Cleo": cleo, "Dan": line_with("not ready: labs")}
    assert read_room("\n".join(f"{name}: {line}" for name, line in lines.items())).pairs == [("Dan", "Cleo")]


def test_more_broken_machines_than_others_are_told():
    """Nobody is promised a partner who does not exist."""
    room = read_room("\n".join([LINE, *3 * [str(line_with("not ready: labs"))]]))
    assert room.sentences(run_here(50))[-1] == "Bring 2 machines, for line 3, line 4."


def test_who_sends_again_counts_once():
    """After a repair the last line of a name counts, also in a chat that puts the time before the name."""
    room = read_room(f"[16:02] Ada: {line_with('not ready: labs')}\n[18:20] Ada: {LINE}")
    assert (room.ready, room.broken) == (["Ada"], [])


@pytest.mark.parametrize(
    "text", [LINE[:150], LINE.replace("decode 50", "decode fast"), f"{LINE[:150]}\nhello", "inferlab", LINE[9:]]
)
def test_what_is_no_whole_line_is_quoted(text):
    """Cut off, edited, or without its beginning: no part of it is lost, and none is guessed."""
    room = read_room(text)
    assert not room.machines
    assert " ".join(room.unread) == " ".join(text.split())


def test_what_stands_behind_a_line_is_kept():
    """The line counts, and the words after it are shown."""
    room = read_room(f"{LINE} and my charger is broken")
    assert (len(room.machines), room.unread) == (1, ["and my charger is broken"])


def test_the_command_reads_the_lines_of_a_room(tmp_path, capsys):
    """A line that is not understood is shown, and the exit status says so; a file that is not there is named."""
    lines = tmp_path / "lines.txt"
    lines.write_text(f"{LINE}\nhello\n", encoding="utf-8")
    assert main(["doctor", "--room-list", str(lines)], ScriptedEngine()) == 1
    assert "1 of 1 machine ready." in capsys.readouterr().out
    assert main(["doctor", "--json", "--room-list", str(lines)], ScriptedEngine()) == 1
    printed = json.loads(capsys.readouterr().out)
    assert (printed["ready"], printed["not_read"]) == (["line 1"], ["hello"])
    assert printed["machines"]["line 1"]["workshop"] == "half-day, cpu"
    with pytest.raises(SystemExit):
        main(["doctor", "--room-list", str(tmp_path / "none.txt")], ScriptedEngine())
    assert "none.txt cannot be read: No such file" in capsys.readouterr().err


# --- this machine -------------------------------------------------------------------------------


@pytest.mark.engine
def test_the_doctor_checks_this_machine_for_a_workshop():
    """The command as a participant runs it: a real measurement, and a last line that can be read again."""
    command = [sys.executable, "-m", "inferlab.cli", "doctor", "--workshop", "two-hours"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    line = only_line(done.stdout.splitlines()[-1])
    assert line.decode_tokens_per_second > 0
    assert line.kernels.startswith("kernels: F16")
    assert done.returncode == (0 if line.is_ready else 1)
