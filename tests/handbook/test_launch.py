"""Links that start a lab elsewhere: which repository they name, what Binder builds, and what is published."""

import ast
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from docutils import nodes
from docutils.statemachine import StringList
from docutils.utils import new_document
from sphinx.errors import ExtensionError

from handbook.directives import launch
from handbook.directives.launch import Repository, repository

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("https://github.com/ada/handbook", Repository("ada", "handbook")),
        ("https://github.com/ada/hand.book.git@next/one", Repository("ada", "hand.book", "next/one")),
        ("https://github.com/ada/handbook/@v1.0", Repository("ada", "handbook", "v1.0")),
        ("", None),
    ],
)
def test_a_repository_is_read_from_its_address(address, found):
    """With a branch behind it, or without; a site without a repository has no links."""
    assert repository({"BOOK_REPOSITORY": address}) == found


@pytest.mark.parametrize(
    "address", ["github.com/ada/handbook", "https://example.org/ada/handbook", "https://github.com/ada"]
)
def test_what_is_no_repository_on_github_ends_the_build(address):
    """The error says how an address looks."""
    with pytest.raises(ExtensionError, match="name a repository on GitHub, like https"):
        repository({"BOOK_REPOSITORY": address})


def lab_page(title="Lab 3"):
    document = new_document("lab")
    document += nodes.section("", nodes.title("", title), nodes.paragraph("", "text"))
    return document


APP = SimpleNamespace(env=SimpleNamespace(docname="labs/03-follow-the-pipeline"))


def test_a_lab_has_its_links_below_its_title(monkeypatch):
    """Each leads to this lab's notebook in the repository, and the third to what works there."""
    monkeypatch.setenv("BOOK_REPOSITORY", "https://github.com/ada/handbook@next")
    page = lab_page()
    launch._add_links(APP, page)
    line = page[0][1]
    binder, colab = (link["refuri"] for link in line.findall(nodes.reference))
    assert binder == "https://mybinder.org/v2/gh/ada/handbook/next?urlpath=lab/tree/labs/03-follow-the-pipeline.ipynb"
    assert colab.endswith("/github/ada/handbook/blob/next/labs/03-follow-the-pipeline.ipynb")
    assert line.astext().endswith("what works there, and what does not.")


def test_without_a_repository_a_lab_has_no_line(monkeypatch):
    """Nor does a page that is no lab."""
    monkeypatch.delenv("BOOK_REPOSITORY", raising=False)
    page = lab_page()
    launch._add_links(APP, page)
    assert len(page[0]) == 2


def commands(*lines: str) -> str:
    """What `{repository}` shows with these lines in it."""
    directive = launch.Commands("repository", [], {}, StringList(lines), 1, 0, "", None, SimpleNamespace(reporter=None))
    (block,) = directive.run()
    return block.astext()


def test_commands_begin_with_the_one_that_fetches_the_folder(monkeypatch):
    """Where the repository is known; elsewhere they stand alone, and nothing is to be filled in."""
    monkeypatch.setenv("BOOK_REPOSITORY", "https://github.com/ada/handbook@next")
    assert commands("cd handbook", "make lab") == (
        "git clone --branch next https://github.com/ada/handbook handbook\ncd handbook\nmake lab"
    )
    monkeypatch.delenv("BOOK_REPOSITORY")
    assert commands("cd handbook", "make lab") == "cd handbook\nmake lab"


def test_no_page_has_an_address_to_fill_in():
    """Where no repository is known, the page of the labs says whose folder it is."""
    pages = [*ROOT.glob("book/**/*.md"), *ROOT.glob("labs/*.ipynb"), ROOT / "README.md"]
    assert [path.name for path in pages if "git clone ADDRESS" in path.read_text(encoding="utf-8")] == []
    labs = (ROOT / "book" / "labs.md").read_text(encoding="utf-8")
    assert "```{repository}\n" in labs
    assert "README.md" in re.search(r"\{only\} not launched\n(.*?)^````$", labs, re.MULTILINE | re.DOTALL)[1]


def test_the_section_that_the_links_name_is_there():
    """It is shown where the links are, and it has the cell for Colab."""
    text = (ROOT / "book" / "labs.md").read_text(encoding="utf-8")
    shown = "".join(re.findall(r"^````\{only\} launched\n(.*?)^````$", text, re.MULTILINE | re.DOTALL))
    assert f"({launch.WHAT_WORKS})=" in shown
    assert "```{launch-cell}" in shown


def test_the_cell_for_colab_installs_and_shows_widgets():
    """Its lines of Python parse, and it installs the folder that it clones."""
    lines = Repository("ada", "handbook").filled(launch.COLAB_CELL).splitlines()
    shell = [line for line in lines if line.startswith("!")]
    ast.parse("\n".join(line for line in lines if not line.startswith("!")))
    folder = shell[0].split()[-1]
    assert shell[0].split()[-2:] == ["https://github.com/ada/handbook", "handbook"]
    assert shell[1].endswith(f"pip install --quiet ./{folder}")


@pytest.mark.parametrize("name", ["postBuild", "start"])
def test_binder_can_run_its_files(name):
    """They are executable scripts; the first runs a target of the Makefile, the second becomes what Binder starts."""
    script = ROOT / ".binder" / name
    text = script.read_text(encoding="utf-8")
    assert os.access(script, os.X_OK)
    assert text.startswith("#!/usr/bin/env bash\n")
    targets = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)[1].split()
    assert {line.split()[1] for line in text.splitlines() if line.startswith("make ")} <= set(targets)
    assert name != "start" or text.endswith('exec "$@"\n')


def test_the_site_is_published_with_its_address_and_its_repository():
    """The workflow of GitHub Pages builds with both variables, and sends the folder that `make book` fills."""
    steps = yaml.safe_load((ROOT / ".github" / "workflows" / "pages.yml").read_text(encoding="utf-8"))
    steps = steps["jobs"]["publish"]["steps"]
    build = next(step for step in steps if step.get("run") == "make book")
    assert set(build["env"]) == {"BOOK_URL", "BOOK_REPOSITORY"}
    assert "github.repository }}@${{ github.ref_name" in build["env"]["BOOK_REPOSITORY"]
    upload = next(step for step in steps if step.get("uses", "").startswith("actions/upload-pages-artifact"))
    assert upload["with"]["path"] == "_build/html"
