"""Sphinx directives for claims: the lines that unfold on a page, the rows of the register, and links to them.

```{trial} B03                     one line for each claim named: verdict, claim, correction in a sentence
:open:                             unfolded from the start
What this page found about it.     shown when the line is unfolded, with what decided the claim
```
```{claims} A                      all rows of one section, in the register's own page: a line each that unfolds
```
```{claims-filter}                 choices above the rows; hidden where no script runs
```
{claim}`A05`                       a link to one row
[A05](../book/appendix/claims-on-trial.md#claim-a05)    the same in a lab, where it works in JupyterLab too
"""

from __future__ import annotations

import ast
import html
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx import addnodes
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective, SphinxRole

from handbook import claims
from handbook.cells import FILTER_WORDS
from handbook.claims import Claim
from handbook.directives import load_script
from inferlab.errors import UnknownClaim

REGISTER = "book/appendix/claims-on-trial"
CODE_CELL = "a code cell"
MISLEADING = ("wrong", "contradicts", "outdated")
"""The verdicts whose correction stands in the line of the register, since the claim alone would mislead."""


def setup(app) -> None:
    """Make the directives and the role known, and load the filter's script where there are rows."""
    app.add_node(Fold, html=(_open_fold, _close_fold))
    app.add_node(FoldLine, html=(_open_line, _close_line))
    app.add_directive("trial", Trial)
    app.add_directive("claims", Rows)
    app.add_directive("claims-filter", Filter)
    app.add_role("claim", Link())
    app.connect("doctree-read", _answer_markdown_links)
    load_script(app, "claims.js", lambda doctree: bool(rows_of(doctree)))


class ClaimDirective(SphinxDirective):
    """Base of the directives: generates MyST text and parses it in place."""

    def parsed(self, text: str, parent: nodes.Element) -> nodes.Element:
        """`text` as children of `parent`."""
        lines = StringList(text.strip().splitlines(), source=self.get_source_info()[0])
        self.state.nested_parse(lines, self.content_offset, parent)
        return parent

    def root(self) -> Path:
        return Path(self.env.srcdir)

    def inlines(self, text: str) -> list[nodes.Node]:
        """A paragraph of MyST text as inline nodes; a reference becomes its text."""
        paragraph = self.parsed(text, nodes.Element())[0]
        for link in [*paragraph.findall(addnodes.pending_xref), *paragraph.findall(nodes.reference)]:
            link.replace_self(link.children)
        return paragraph.children

    def known_label(self, label: str, document: str, text: str) -> str:
        """A reference with its own text, or only the text if the document is not in the book."""
        return f"{{ref}}`{text} <{label}>`" if document in self.env.found_docs else text

    def decided(self, claim: Claim) -> str:
        """The places that decide a claim, as MyST text."""
        places = list(dict.fromkeys(self.place(place, claim) for place in claim.decided_in))
        first = next((place for place in places if CODE_CELL in place), "")
        return "; ".join(place if place == first else place.replace(CODE_CELL, "another code cell") for place in places)

    def place(self, place: str, claim: Claim) -> str:
        kind = claims.evidence_kind(place)
        if kind == "reading":
            return f"by reading: {claim.evidence}"
        if kind == "record":
            return f"by the recorded run `{place.removeprefix('record:')}`"
        return f"by a test: “{self.sentence(place)}”" if kind == "test" else self.cell(place)

    def sentence(self, place: str) -> str:
        """A test's sentence; the page is read again when the test's file changes."""
        self.env.note_dependency(str(self.root() / place.partition("::")[0]))
        return sentence_of(self.root(), place)

    def cell(self, place: str) -> str:
        document, _, label = place.partition("#")
        here = "" if document == self.env.docname else f", in {page_name(document)}"
        if document not in self.env.found_docs:
            return f"in {page_name(document)}"
        if label.startswith("fig-"):
            return f"by {{numref}}`{label}`{here}"
        if label.startswith("sec-"):
            return f"in the section “{{ref}}`{label}`”{here}"
        if label.startswith("ex-"):
            return f"by {{ref}}`{label}`{here}"
        return f"by {{ref}}`{CODE_CELL} <{label}>`{here}"


class Fold(nodes.General, nodes.Element):
    """A line that unfolds: its first child is a `FoldLine`, the others are hidden until it is opened."""


class FoldLine(nodes.General, nodes.TextElement):
    """The line of a `Fold` that is always shown."""


class Trial(ClaimDirective):
    """One line that unfolds for each claim named in the argument; the text of the page is under the last."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec = {"open": directives.flag}  # noqa: RUF012 - docutils wants a plain dict

    def run(self) -> list[nodes.Node]:
        try:
            named = [claims.claim(name) for name in self.arguments[0].split()]
        except UnknownClaim as unknown:
            raise self.error(str(unknown)) from unknown
        folds = [self.fold(claim) for claim in named]
        here = nodes.Element()
        self.state.nested_parse(self.content, self.content_offset, here)
        folds[-1][1:1] = here.children
        return folds

    def fold(self, claim: Claim) -> Fold:
        fold = Fold("", self.line(claim), classes=["on-trial", _verdict_class(claim)], open="open" in self.options)
        self.set_source_info(fold)
        row = self.known_label(anchor(claim), REGISTER, f"{claim.id} in appendix C")
        return self.parsed(f"*Decided* {self.decided(claim)}. The whole case: {row}.", fold)

    def place(self, place: str, claim: Claim) -> str:
        """As in the register, but a reading and a test are named only; the register quotes them."""
        kind = claims.evidence_kind(place)
        return f"by {claims.EVIDENCE_KINDS[kind]}" if kind in ("reading", "test") else super().place(place, claim)

    def line(self, claim: Claim) -> FoldLine:
        """Name, verdict, claim and correction in one line, without links, because a click on it unfolds it."""
        line = FoldLine("")
        line += nodes.strong("", claim.id)
        line += nodes.inline("", claim.verdict, classes=["verdict"])
        line += nodes.inline("", "", *self.inlines(quoted(claim.text)), classes=["claim-text"])
        line += nodes.inline("", "", *self.inlines(claim.short), classes=["correction"])
        return line


def _open_fold(translator, fold: Fold) -> None:
    translator.body.append(translator.starttag(fold, "details", **({"open": "open"} if fold["open"] else {})))


def _close_fold(translator, fold: Fold) -> None:
    translator.body.append("</details>\n")


def _open_line(translator, line: FoldLine) -> None:
    translator.body.append("<summary>")


def _close_line(translator, line: FoldLine) -> None:
    translator.body.append("</summary>\n")


class Rows(ClaimDirective):
    """Every claim of one section, as rows that the filter can hide and other pages can link to."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        section = claims.claims(self.arguments[0])
        if not section:
            raise self.error(f"The register has no section {self.arguments[0]!r}: it has {', '.join(claims.SECTIONS)}.")
        return [self.row(claim) for claim in section]

    def row(self, claim: Claim) -> nodes.container:
        row = nodes.container(
            classes=["claim", *(f"is-{value}" for value in filter_values(claim))], names=[anchor(claim)]
        )
        self.state.document.note_explicit_target(row, row)
        side = nodes.container(classes=["claim-side"])
        side += nodes.paragraph("", "", nodes.strong("", claim.id))
        side += nodes.paragraph("", "", nodes.inline("", claim.verdict, classes=["verdict"]))
        row += side
        row += self.case(claim)
        return row

    def case(self, claim: Claim) -> Fold:
        """The claim, with its correction if the claim alone would mislead; unfolded, all that decides it."""
        line = FoldLine("", "", nodes.inline("", "", *self.inlines(claim.text), classes=["claim-text"]))
        if claim.verdict in MISLEADING:
            line += nodes.inline("", "", *self.inlines(claim.short), classes=["correction"])
        case = self.parsed(self.text(claim), Fold("", line, classes=["claim-body"], open=False))
        self.set_source_info(case)
        case[-1]["classes"].append("claim-facts")
        return case

    def text(self, claim: Claim) -> str:
        sources = "; ".join(claims.SOURCES[key] for key in claim.source)
        against = f"*Contradicts {claim.contradicts}.* " if claim.contradicts else ""
        short = "" if claim.verdict in MISLEADING else f"{claim.short} "
        evidence = "" if "reading" in claim.decided_in else f" **Evidence:** {claim.evidence}."
        return (
            f"{against}{short}{claim.correction.strip()}\n\n"
            f"**Source:** {sources}. **Decided** {self.decided(claim)}.{evidence} **Subject of** {self.chapter(claim)}."
        )

    def chapter(self, claim: Claim) -> str:
        document = claims.CHAPTERS[claim.chapter][2]
        text = chapter_name(claim.chapter)
        return f"{{doc}}`{text} </{document}>`" if document in self.env.found_docs else text


class Filter(SphinxDirective):
    """The filters above the register; a script shows them and applies them."""

    def run(self) -> list[nodes.Node]:
        chapters = {key: chapter_name(key) for key in claims.CHAPTERS}
        choices = {
            "verdict": ("Verdict", {v: v for v in claims.VERDICTS}),
            "section": ("Section", {k: f"{k}: {v}" for k, v in claims.SECTIONS.items()}),
            "chapter": ("Chapter", {k: v for k, v in chapters.items() if k in claims.counts("chapter")}),
            "way": ("Decided by", claims.EVIDENCE_KINDS),
        }
        selects = "".join(_select(name, label, options) for name, (label, options) in choices.items())
        return [nodes.raw("", f'<form class="claims-filter" hidden>{selects}{FILTER_WORDS}</form>', format="html")]


class Link(SphinxRole):
    """A link to one row of the register."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        try:
            claim = claims.claim(self.text)
        except UnknownClaim as unknown:
            message = self.inliner.reporter.error(str(unknown), line=self.lineno)
            return [nodes.inline("", self.text)], [message]
        text = nodes.inline("", claim.id)
        if REGISTER not in self.env.found_docs:
            return [text], []
        link = addnodes.pending_xref(
            "", text, refdomain="std", reftype="ref", reftarget=anchor(claim), refexplicit=True
        )
        link["refdoc"], link["refwarn"] = self.env.docname, True
        return [link], []


def _select(name: str, label: str, options: dict[str, str]) -> str:
    """A native select element, for keyboards and screen readers."""
    counted = "".join(
        f'<option value="{_slug(name, key)}">{html.escape(text)}</option>' for key, text in options.items()
    )
    return f'<label>{label} <select name="{name}"><option value="">all</option>{counted}</select></label>'


def filter_values(claim: Claim) -> list[str]:
    """The values by which the filter selects a claim: verdict, section, chapter, and each kind of evidence."""
    kinds = [_slug("way", kind) for kind in claim.evidence_kinds]
    keys = ("verdict", "section", "chapter")
    return [*(_slug(key, getattr(claim, key)) for key in keys), *kinds]


def _verdict_class(claim: Claim) -> str:
    return f"is-{_slug('verdict', claim.verdict)}"


def _slug(name: str, value: str) -> str:
    return f"{name}-{value.lower().replace(' ', '-')}"


def anchor(claim: Claim) -> str:
    """The label of a claim's row, e.g. `claim-a05`."""
    return f"claim-{claim.id.lower()}"


def quoted(text: str) -> str:
    """The text in quotation marks; one that begins with a quotation keeps its own."""
    return text if text.startswith(('"', "“")) else f"“{text}”"


def chapter_name(key: str) -> str:
    """A chapter as prose names it: `chapter 4`, `appendix A`, `the hardware atlas`."""
    number, title, _ = claims.CHAPTERS[key]
    if not number:
        return f"the {title[0].lower()}{title[1:]}"
    return f"chapter {number}" if number.isdigit() else f"appendix {number}"


def page_name(document: str) -> str:
    """A document as prose names it: a chapter and a lab by their number, another page by its title."""
    keys = [key for key, (_, _, path) in claims.CHAPTERS.items() if path == document]
    if keys:
        return f"{{doc}}`{chapter_name(keys[0])} </{document}>`"
    folder, _, name = document.rpartition("/")
    return f"{{doc}}`lab {name.partition('-')[0]} </{document}>`" if folder == "labs" else f"“{{doc}}`/{document}`”"


def sentence_of(root: Path, place: str) -> str:
    """The docstring of the test `tests/test_x.py::test_name`, without its full stop; ExtensionError if it is gone."""
    path, _, name = place.partition("::")
    tree = ast.parse((root / path).read_text(encoding="utf-8")) if (root / path).is_file() else ast.Module([], [])
    tests = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    if not tests:
        raise ExtensionError(f"A claim is decided by {place}, which does not exist: name another place.")
    return " ".join((ast.get_docstring(tests[0]) or "").split()).rstrip(".")


def rows_of(doctree: nodes.document) -> list[nodes.container]:
    """The rows of the register on a page."""
    return [node for node in doctree.findall(nodes.container) if "claim" in node["classes"]]


def _answer_markdown_links(app, doctree) -> None:
    """Make `page.md#claim-a05` link to its row, as to a heading."""
    slugs = app.env.metadata[app.env.docname].get("myst_slugs", {})
    rows = {row["ids"][0]: (row.line or 0, row["ids"][0], row["ids"][0]) for row in rows_of(doctree)}
    app.env.metadata[app.env.docname]["myst_slugs"] = {**slugs, **rows}
