"""Where the folder of this book is, and links that start a lab on a public service: on a site that knows both.

The environment variable BOOK_REPOSITORY names the repository, like https://github.com/owner/handbook@main (the branch
is main unless named). Then each lab has a line below its title with links to Binder and Colab, and to what works there.
In a page, `{only} launched` and `{only} not launched` show their content on such a site alone, and on every other one
(not a heading, which MyST would show anyway). `{repository}` shows commands for the folder, after the one that
fetches it where the repository is known. `{launch-cell}` is the cell that makes a notebook on Colab ready. What Binder
builds is in the folder .binder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from docutils import nodes
from sphinx import addnodes
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

LABS = "labs/"
TAG = "launched"
WHAT_WORKS = "launched-labs"
"""The label of the section that says what a launched lab can do."""

SERVICES = {
    "Binder": "https://mybinder.org/v2/gh/{owner}/{name}/{branch}?urlpath=lab/tree/{lab}",
    "Colab": "https://colab.research.google.com/github/{owner}/{name}/blob/{branch}/{lab}",
}
"""The address that starts a lab, by the name of the service."""

CLONE = "git clone --branch {branch} https://github.com/{owner}/{name} handbook"
"""Brings the folder of this book."""

COLAB_CELL = """\
!git clone --quiet --depth 1 --branch {branch} https://github.com/{owner}/{name} handbook
!nvidia-smi > /dev/null 2>&1 && export CMAKE_ARGS=-DGGML_CUDA=on; pip install --quiet ./handbook
from google.colab import output
output.enable_custom_widget_manager()"""
"""Installs the library, for the card where the session has one, and lets Colab show widgets that it does not know."""

ADDRESS = re.compile(r"https://github\.com/(?P<owner>[\w-]+)/(?P<name>[\w.-]+?)(?:\.git)?/?(?:@(?P<branch>[\w./-]+))?")


@dataclass(frozen=True)
class Repository:
    """A public repository on GitHub, and the branch that is launched."""

    owner: str
    name: str
    branch: str = "main"

    def filled(self, text: str, lab: str = "") -> str:
        """A text with this repository in the places of its words."""
        return text.format(owner=self.owner, name=self.name, branch=self.branch, lab=lab)


def repository(environment: Mapping[str, str] = os.environ) -> Repository | None:
    """BOOK_REPOSITORY; None where it is not set. Raises ExtensionError if it is no address on GitHub."""
    text = environment.get("BOOK_REPOSITORY", "").strip()
    if not text:
        return None
    if not (address := ADDRESS.fullmatch(text)):
        raise ExtensionError(
            f"BOOK_REPOSITORY is {text!r}: name a repository on GitHub, like https://github.com/owner/handbook@main. "
            "Binder and Colab open labs from there."
        )
    return Repository(**{key: value for key, value in address.groupdict().items() if value})


class Commands(SphinxDirective):
    """`{repository}`: commands in the folder of this book, after the one that fetches it where the address is known."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        fetched = [known.filled(CLONE)] if (known := repository()) else []
        text = "\n".join([*fetched, *self.content])
        return [nodes.literal_block(text, text, language="sh")]


class LaunchCell(SphinxDirective):
    """`{launch-cell}`: the cell that installs the library on Colab; nothing where no repository is known."""

    def run(self) -> list[nodes.Node]:
        if (known := repository()) is None:
            return []
        text = known.filled(COLAB_CELL)
        return [nodes.literal_block(text, text, language="ipython3")]


def setup(app) -> None:
    """Give labs their links, and pages the tag `launched`, where the repository is known."""
    app.add_directive("repository", Commands)
    app.add_directive("launch-cell", LaunchCell)
    app.add_config_value("book_repository", "", "env")  # another repository: every page is read again
    app.connect("config-inited", _know_the_repository)
    app.connect("doctree-read", _add_links)


def _know_the_repository(app, config) -> None:
    if known := repository():
        config.book_repository = known.filled("{owner}/{name}@{branch}")
        app.tags.add(TAG)


def _add_links(app, doctree: nodes.document) -> None:
    docname = app.env.docname
    if docname.startswith(LABS) and (known := repository()):
        title = next(doctree.findall(nodes.title))
        title.parent.insert(title.parent.index(title) + 1, _line(known, docname))


def _line(known: Repository, docname: str) -> nodes.paragraph:
    binder, colab = (
        nodes.reference("", name, refuri=known.filled(address, f"{docname}.ipynb"))
        for name, address in SERVICES.items()
    )
    there = addnodes.pending_xref(
        "",
        nodes.inline("", "what works there, and what does not"),
        refdomain="std",
        reftype="ref",
        reftarget=WHAT_WORKS,
        refdoc=docname,
        refexplicit=True,
        refwarn=True,
    )
    start, text = nodes.Text("Start this lab without installing anything: "), nodes.Text
    return nodes.paragraph("", "", start, binder, text(", "), colab, text("; "), there, text("."))
