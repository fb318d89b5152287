"""The progress bar: drawn in terminals and live notebooks, silent otherwise."""

import sys

import pytest

from inferlab import progress
from inferlab.progress import is_interactive, track


def outside_of_tests(monkeypatch, terminal):
    """As in a script run by a person, with standard error on a terminal or not."""
    for name in ("PYTEST_CURRENT_TEST", "INFERLAB_PAGE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)


def test_a_terminal_is_interactive_but_a_page_build_is_not(monkeypatch):
    """A bar is drawn in a terminal and never into an executed page."""
    outside_of_tests(monkeypatch, terminal=True)
    assert is_interactive()
    monkeypatch.setenv("INFERLAB_PAGE", "1")
    assert not is_interactive()


def test_a_notebook_is_interactive_but_a_pipe_is_not(monkeypatch):
    """Without a terminal a bar is drawn in a notebook only."""
    outside_of_tests(monkeypatch, terminal=False)
    assert not is_interactive()
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    assert is_interactive()


@pytest.mark.parametrize("shown", [True, False, None])
def test_every_step_comes_through(shown):
    """Tracking changes nothing about the steps."""
    assert list(track(iter("abc"), 3, "work", shown=shown)) == ["a", "b", "c"]


def test_quick_work_draws_nothing(capsys, monkeypatch):
    """Work that ends before the delay leaves the terminal as it was."""
    monkeypatch.setattr(progress, "DELAY_SECONDS", 3600.0)
    list(track(range(3), 3, "work", shown=True))
    assert capsys.readouterr() == ("", "")


def test_slow_work_shows_its_label(capsys, monkeypatch):
    """After the delay the bar appears, with a label that is never read as markup."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(progress, "DELAY_SECONDS", -1.0)
    list(track(range(3), 3, "measuring [/a]", shown=True))
    assert "measuring [/a]" in capsys.readouterr().err


def test_an_interrupted_bar_is_taken_away(monkeypatch):
    """An error in the work passes through the bar unchanged."""
    monkeypatch.setattr(progress, "DELAY_SECONDS", -1.0)
    with pytest.raises(ZeroDivisionError):
        list(track((1 // n for n in (1, 1, 0)), 3, "work", shown=True))


def test_in_a_notebook_a_bar_leaves_nothing(monkeypatch):
    """All that it displays is in a widget that closes at its end; no empty output stays below the cell."""
    displayed = []
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda *shown, **_: displayed.extend(shown))
    monkeypatch.setattr(progress, "DELAY_SECONDS", -1.0)
    list(track(range(3), 3, "work", shown=True))
    assert displayed
    assert [one for one in displayed if getattr(one, "html", "").rstrip().endswith('"></pre>')] == []


def test_a_line_says_what_is_waited_for(capsys, monkeypatch):
    """It is drawn in a terminal, never read as markup, and silent in a pipe."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress.status(shown=True) as show:
        show("waiting for [/a]")
    assert "waiting for [/a]" in capsys.readouterr().err
    with progress.status() as show:
        show("nobody sees this")
    assert capsys.readouterr() == ("", "")


def test_who_shows_lines_gets_them_instead(capsys):
    """A widget shows what is waited for in its own place, and an empty line says that the wait is over."""
    lines = []
    with progress.shown_by(lines.append):
        with progress.status() as show:
            show("waiting")
        progress.note("it was repeated")
    progress.note("outside")
    assert lines == ["waiting", "", "it was repeated"]
    assert capsys.readouterr().err == "outside\n"
