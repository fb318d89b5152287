"""What has the book built again while somebody writes."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from handbook.execution import watch


@pytest.fixture
def checkout(tmp_path):
    for name in ("book/page.md", "labs/lab.ipynb", "src/inferlab/run.py", "_config.yml", "_build/html/index.html"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("first")
    return tmp_path


def written(path):
    path.write_text("edited")


def dated(path):
    os.utime(path, (1, 1))


@pytest.mark.parametrize(
    ("name", "edit"),
    [(name, written) for name in ("book/page.md", "labs/lab.ipynb", "src/inferlab/run.py", "_config.yml", "_toc.yml")]
    + [("book/page.md", dated), ("book/page.md", Path.unlink)],
)
def test_an_edit_is_seen(checkout, name, edit):
    """Pages, labs, the library and the settings are watched; a new file, a new date and a removed page count, too."""
    before = watch.watched_files(checkout)
    edit(checkout / name)
    assert watch.edited(before, watch.watched_files(checkout)) == [checkout / name]


def test_what_a_build_writes_is_not_watched(checkout):
    """The site and hidden files never have the book built again."""
    before = watch.watched_files(checkout)
    for name in ("_build/html/index.html", "book/.page.md.swp"):
        (checkout / name).write_text("edited")
    assert watch.watched_files(checkout) == before


def test_each_edit_builds_strictly_and_tells_the_address(checkout, monkeypatch, capsys):
    """The book is built at the start and after an edit, in a fresh process, until Ctrl-C; a failure is told."""
    commands = []

    def run(command, **_):
        commands.append(command[1:])
        if len(commands) == 1:
            (checkout / "book/page.md").write_text("edited")
        return SimpleNamespace(returncode=len(commands) - 1)

    def sleep(_):
        if len(commands) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(watch.subprocess, "run", run)
    monkeypatch.setattr(watch.time, "sleep", sleep)
    monkeypatch.chdir(checkout)
    watch.main()
    told = capsys.readouterr().out
    assert commands == [["build", ".", "-n", "-W", "--keep-going"]] * 2
    assert "Edited: book/page.md" in told
    assert "Built in" in told
    assert "NOT built" in told
    assert f"Open {(checkout / '_build/html/index.html').as_uri()}" in told
