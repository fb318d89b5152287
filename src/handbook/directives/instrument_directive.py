"""Sphinx directive that shows an instrument, with the answer to its default question.

```{instrument} planner
```

The answer is in the page before any script runs, and in print. Controls are shown where scripts run. An instrument
that runs llama.cpp says how large the files are that its start asks for. With `:fold:` and a title, the instrument is
in a closed fold; of several on a page, each has its own worker and its own part of the address.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import gettempdir
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

from handbook.delivery.instruments import FOLDER, llama_bytes
from inferlab.instruments import INSTRUMENTS
from inferlab.instruments.dropped import DroppedFiles
from inferlab.instruments.views import element, html_of, paragraph
from inferlab.units import MB

SHEET, SCRIPT = f"{FOLDER}/instrument.css", f"{FOLDER}/page.js"
MARK = 'data-instrument="'
NO_FILES = DroppedFiles(Path(gettempdir()))


def setup(app: Any) -> None:
    """Make the directive known, and give pages with instruments their script and sheet."""
    app.add_directive("instrument", Instrument)
    app.connect("html-page-context", _load_files, priority=950)


class Instrument(SphinxDirective):
    """One instrument by its name."""

    required_arguments = 1
    option_spec = {"fold": directives.unchanged_required}  # noqa: RUF012 (docutils has it so)

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        if name not in INSTRUMENTS:
            raise self.error(f"There is no instrument {name!r}. There are: {', '.join(INSTRUMENTS)}.")
        note = loaded(*llama_bytes(Path(self.env.srcdir))) if "results" in INSTRUMENTS[name].DEFAULTS else None
        shown = page_html(name, note)
        if title := self.options.get("fold"):
            shown = folded(title, shown)
        return [nodes.raw("", shown, format="html")]


def loaded(usual: int, compatible: int) -> list[Any]:
    """A sentence about the bytes that a start asks for, before a server compresses them."""
    sizes = f"{usual / MB:.0f} MB, or {compatible / MB:.0f} MB in a browser that needs the compatibility build"
    text = f"Start asks for llama.cpp and the model: {sizes}. Nothing of it is loaded before."
    return paragraph(text, kind="pst-js-only")


def folded(title: str, shown: str) -> str:
    """The HTML of an instrument in a closed fold under its title."""
    return f'<details class="instrument-fold">{html_of(element("summary", {}, title))}{shown}</details>'


def page_html(name: str, note: list[Any] | None = None) -> str:
    """The HTML of an instrument: its form with a note, the verdict, and the answer to its default question."""
    module = INSTRUMENTS[name]
    answer = module.answer(module.DEFAULTS, NO_FILES)
    status = element("p", {"class": "instrument-status", "role": "status", "data-state": answer.state}, answer.summary)
    shown = html_of(element("div", {"class": "instrument-answer"}, answer.view))
    form = html_of(module.form()) + (html_of(note) if note else "")
    return f'<div class="instrument" {MARK}{name}">{form}{html_of(status)}{shown}</div>'


def _load_files(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """After `assets` has chosen the files of the page."""
    if MARK in context.get("body", ""):
        app.builder.add_css_file(SHEET)
        app.builder.add_js_file(SCRIPT, defer="defer")
