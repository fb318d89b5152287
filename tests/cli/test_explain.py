"""`inferlab explain`: a log as tables for people and as one JSON object for programs."""

import io
import json
import sys
from pathlib import Path

import pytest

import inferlab as lab
from inferlab import cli

RUNS = Path(__file__).parents[1] / "data" / "logs"
SLOTS = RUNS / "server-slots.log"


@pytest.fixture
def no_engine():
    """`explain` must need none; it is only closed."""

    class NoEngine:
        def close(self):
            pass

    return NoEngine()


def test_a_finding_is_printed_with_its_line_and_its_fix(no_engine, capsys):
    """What it means, the line of the log, what to do, and where the handbook explains it."""
    assert cli.main(["explain", str(SLOTS)], no_engine) == 0
    out = capsys.readouterr().out
    assert "fault: A request of 362 tokens is longer than the context of 256" in out
    number = next(i for i, line in enumerate(SLOTS.read_text().split("\n"), 1) if "exceeds the available" in line)
    assert f"line {number}: " in out
    assert "- Ask for a longer context (`-c`), up to what the model was trained for, if it fits." in out
    assert "book/it-does-not-fit.md" in out
    assert "CPU_Mapped" in out


def test_a_healthy_log_says_so_and_what_it_cannot_see(no_engine, capsys):
    """Nothing found is said, and what no log shows."""
    assert cli.main(["explain", str(RUNS / "server.log")], no_engine) == 0
    out = capsys.readouterr().out
    assert "Nothing was found" in out
    assert "No log shows clocks" in out


def test_a_log_that_says_little_has_no_good_news(no_engine, capsys):
    """Nothing found in a log without buffers is no proof that all is well, and the command line says so too."""
    assert cli.main(["explain", str(RUNS / "server-default.log")], no_engine) == 0
    assert "does not say where weights and cache lie" in capsys.readouterr().out


def test_a_second_model_and_shared_cells_are_said(no_engine, capsys):
    """A draft model is named, and cells that slots share are not told as those of a slot."""
    assert cli.main(["explain", str(RUNS / "server-draft.log")], no_engine) == 0
    assert "A second model was loaded to draft tokens" in capsys.readouterr().out
    assert cli.main(["explain", str(RUNS / "server-default.log")], no_engine) == 0
    out = capsys.readouterr().out
    assert "context of all slots together: 1024" in out
    assert "4.45 to 161 tokens/s, 60 tokens in 2 requests" in out


def test_json_is_the_report(no_engine, capsys):
    """`--json` prints what `lab.explain(...).to_dict()` has, and the load planned again."""
    assert cli.main(["explain", str(SLOTS), "--json"], no_engine) == 0
    expected = lab.explain(SLOTS).to_dict() | {"derived": lab.derive_memory(SLOTS).to_dict()}
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(expected))


def test_a_log_comes_through_a_pipe(no_engine, capsys, monkeypatch):
    """`-` reads the standard input."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(SLOTS.read_text()))
    assert cli.main(["explain", "-"], no_engine) == 0
    assert "362 tokens" in capsys.readouterr().out


def test_a_missing_file_is_an_error(no_engine, capsys, tmp_path):
    """Exit status 1, and the name that was given."""
    assert cli.main(["explain", str(tmp_path / "no.log")], no_engine) == 1
    assert "UnreadableLog: There is no file" in capsys.readouterr().err
