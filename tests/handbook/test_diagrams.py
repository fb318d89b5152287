"""The diagrams that are committed, and how a build tells a current picture from a stale one."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from handbook.directives import diagrams
from inferlab.errors import StaleDiagram

FOLDER = Path(__file__).parents[2] / "book" / "diagrams"
SOURCES = sorted(FOLDER.glob("*.mmd"))


@pytest.fixture
def folder(tmp_path):
    """A folder with one diagram whose picture is current."""
    (tmp_path / "settings.json").write_text("{}")
    (tmp_path / "a.mmd").write_text("flowchart LR\n  A --> B\n")
    mark = diagrams.digest("flowchart LR\n  A --> B\n", "{}")
    (tmp_path / "a.svg").write_text(f'<svg data-digest="{mark}"/>')
    return tmp_path


def test_every_committed_picture_comes_from_its_source():
    """What a page shows is what its source says: no picture is older than its source or its settings."""
    assert SOURCES
    assert diagrams.stale(FOLDER) == []


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_committed_picture_stands_alone(source):
    """A picture is well-formed SVG, has a title for readers who cannot see it, and refers to no other host."""
    text = source.with_suffix(".svg").read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert root.find("{http://www.w3.org/2000/svg}title").text
    assert "http" not in text.replace("http://www.w3.org/", "")


def test_a_current_picture_is_found_by_its_source(folder):
    """Blanks at line ends and around the source do not make a picture stale."""
    assert diagrams.rendered("flowchart LR  \n  A --> B", folder) == (folder / "a.svg").read_text()


@pytest.mark.parametrize(("name", "text"), [("a.mmd", "flowchart LR\n  A --> C\n"), ("settings.json", "{1: 2}")])
def test_an_edited_source_or_palette_is_stale_until_it_is_drawn_again(folder, name, text):
    """The build says which diagram is stale and which command draws it."""
    (folder / name).write_text(text)
    assert diagrams.stale(folder) == [folder / "a.mmd"]
    with pytest.raises(StaleDiagram, match=r"flowchart LR.*make diagrams"):
        diagrams.rendered((folder / "a.mmd").read_text(), folder)


def test_check_reports_stale_diagrams_to_the_shell(folder, capsys):
    """`python -m handbook.directives.diagrams check` exits with 1 and names the file; 0 when all are current."""
    assert diagrams.main(["check", "--folder", str(folder)]) == 0
    (folder / "a.svg").unlink()
    assert diagrams.main(["check", "--folder", str(folder)]) == 1
    assert "stale: " in capsys.readouterr().out
