"""How findings are shown: as text, in the terminal, in a notebook; and what is kept out of them."""

from dataclasses import replace

import pytest
from fakes import CPU_ONLY
from fakes_host import checked

from inferlab.cli.doctor import report
from inferlab.doctor import Checkup, Finding

NO_COMPILER = Finding("C++ compiler", "problem", "none <here> [bold]", "sudo apt-get install g++")
LITTLE_DISK = Finding("disk", "warning", "1 GB free", "df -h .")


def checkup_of(*findings):
    return Checkup(findings, CPU_ONLY, "Next: read on.")


def test_the_worst_finding_is_the_state_of_the_machine():
    """One problem among warnings is a problem."""
    assert checkup_of(LITTLE_DISK, NO_COMPILER, LITTLE_DISK).state == "problem"
    assert checkup_of(LITTLE_DISK).state == "warning"
    assert checkup_of().state == "ok"


def test_asking_about_a_subject_that_was_not_checked_names_those_that_were():
    """A misspelt subject is not mistaken for one that is fine."""
    with pytest.raises(KeyError, match="'GPU' was not checked here; Python, virtual environment"):
        checked().about("GPU")


# --- in a notebook ------------------------------------------------------------------------------


def test_the_notebook_shows_states_as_words_and_escapes_what_it_found():
    """Colour is beside the word, never instead of it; no finding becomes markup, and backticks become code."""
    html = checkup_of(NO_COMPILER, LITTLE_DISK)._repr_html_()
    assert ">problem<" in html
    assert ">warning<" in html
    assert "none &lt;here&gt; [bold]" in html
    assert ">sudo apt-get install g++</code>" in html
    ready = checked()._repr_html_()
    assert ">make lab</code>" in ready
    assert "`" not in ready


# --- as text and in the terminal ----------------------------------------------------------------


def test_as_text_each_command_stands_whole_on_its_line():
    """A plain interpreter and a printed book show the same findings."""
    lines = repr(checkup_of(NO_COMPILER, LITTLE_DISK)).splitlines()
    assert "problem  C++ compiler: none <here> [bold]" in lines
    assert "to fix C++ compiler: sudo apt-get install g++" in lines
    assert lines[-1] == "Next: read on."


def test_a_command_worth_knowing_stands_whole_where_people_read(monkeypatch, capsys):
    """In the terminal, as text and in the notebook; not twice where it fixes something as well."""
    long = "CMAKE_ARGS='-D" + "x" * 80 + "' make book"
    worth_knowing = Finding("build for this machine", "ok", "CUDA 12.8", command=long)
    checkup = checkup_of(worth_knowing, NO_COMPILER)
    monkeypatch.setenv("COLUMNS", "40")
    report(checkup, as_json=False)
    assert f"    {long}\n" in capsys.readouterr().out
    assert f"build for this machine (CUDA 12.8): {long}" in repr(checkup).splitlines()
    assert "make book</code>" in checkup._repr_html_()
    assert checkup_of(worth_knowing, replace(NO_COMPILER, remedy=long)).commands == {}


@pytest.mark.parametrize(("finding", "status"), [(NO_COMPILER, 1), (LITTLE_DISK, 0)], ids=["problem", "warning"])
def test_the_exit_status_suits_a_setup_check(monkeypatch, capsys, finding, status):
    """1 for a problem, 0 for warnings; words and whole commands in the terminal, however narrow it is."""
    monkeypatch.setenv("COLUMNS", "40")
    long = replace(finding, remedy="make " + "x" * 80)
    assert report(checkup_of(long), as_json=False) == status
    printed = capsys.readouterr().out
    assert finding.state in printed
    assert f"    {long.remedy}\n" in printed
    assert "\x1b" not in printed
