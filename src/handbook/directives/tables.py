"""Captioned tables, numbered as tables though a cell can caption only figures, and rows that are blocks on a phone.

A directive for a table of facts is a `TableDirective`.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from importlib.resources import files

from babel.dates import format_date
from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective


def setup(app) -> None:
    """Turn the figures that hold a table into tables before Sphinx collects labels; name the cells of stacked rows."""
    app.add_transform(CaptionedTables)
    app.add_transform(StackedTables)


class CaptionedTables(SphinxTransform):
    """A cell's figure that holds one table becomes that table, with the figure's caption and names."""

    default_priority = 840  # Sphinx collects labels at 850

    def apply(self, **kwargs) -> None:
        for figure in list(self.document.findall(nodes.figure)):
            tables = list(figure.findall(nodes.table))
            if len(tables) == 1:
                self.number_as_table(figure, tables[0])

    def number_as_table(self, figure: nodes.figure, table: nodes.table) -> None:
        caption = next(figure.findall(nodes.caption))
        table.insert(0, nodes.title(caption.rawsource, "", *caption.children))
        for key in ("ids", "names", "classes"):
            table[key] += figure[key]
        for name in figure["ids"]:
            self.document.ids[name] = table
        figure.replace_self(table.parent.children)


class StackedTables(SphinxTransform):
    """In a table of the class `stack` each cell begins with its column's head, for narrow screens.

    There book.css makes each row a block of its own and hides the line of heads. The first cell names the block.
    """

    default_priority = 841

    def apply(self, **kwargs) -> None:
        for table in self.document.findall(nodes.table):
            named = any("stack-label" in text["classes"] for text in table.findall(nodes.inline))
            if "stack" in table["classes"] and not named:
                name_cells(table)


def name_cells(table: nodes.table) -> None:
    """Put the head of its column before the text of each cell but a row's first; an empty cell stays empty."""
    heads = [head.astext() for head in next(iter(table.findall(nodes.thead))).findall(nodes.entry)]
    for row in next(iter(table.findall(nodes.tbody))).findall(nodes.row):
        for head, cell in list(zip(heads, row.findall(nodes.entry), strict=True))[1:]:
            text = next(iter(cell.findall(nodes.paragraph)), None)
            if text and text.children:
                text.insert(0, nodes.inline("", f"{head} ", classes=["stack-label"]))


class TableDirective(SphinxDirective):
    """Base of the directives for tables of facts, with an optional caption and name."""

    option_spec = {  # noqa: RUF012 - docutils wants a plain dict
        "caption": directives.unchanged_required,
        "name": directives.unchanged,
    }

    def note_facts(self, name: str) -> None:
        """The page is built again when data/facts/`name`.toml changes."""
        self.env.note_dependency(str(files("inferlab") / "data" / "facts" / f"{name}.toml"))

    def titled(self, table: nodes.table) -> nodes.table:
        """The table with the directive's caption and name."""
        if "caption" in self.options:
            inlines, messages = self.state.inline_text(self.options["caption"], self.lineno)
            table.insert(0, nodes.title(self.options["caption"], "", *inlines, *messages))
        self.add_name(table)
        self.set_source_info(table)
        return table

    def what_was_read(self, text: str) -> nodes.container:
        """A sentence in MyST about versions and sources."""
        read = nodes.container(classes=["settings-read"])
        self.state.nested_parse(StringList([text], source=self.get_source_info()[0]), self.content_offset, read)
        return read


def has_raw(doctree: nodes.document, text: str) -> bool:
    """Whether the HTML that cells left on a page has a text."""
    return any(text in raw.astext() for raw in doctree.findall(nodes.raw))


def month(date: str) -> str:
    """`August 2026` for "2026-08"."""
    return format_date(datetime.date.fromisoformat(f"{date}-01"), "MMMM yyyy", locale="en")


def stacked_table(heads: Sequence[str], rows: Iterable[Sequence[nodes.paragraph]]) -> nodes.table:
    """A table whose rows are blocks on a narrow screen; a row is a paragraph for each column."""
    table = nodes.table(classes=["stack", "settings"])
    group = nodes.tgroup("", cols=len(heads))
    group += [nodes.colspec(colwidth=1) for _ in heads]
    group += nodes.thead("", _row([nodes.paragraph(text=head) for head in heads]))
    group += nodes.tbody("", *map(_row, rows))
    table += group
    name_cells(table)
    return table


def _row(cells: Sequence[nodes.paragraph]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", cell) for cell in cells))


def marked(text: str) -> nodes.paragraph:
    """A paragraph of a text in which backticks mark code."""
    parts = [nodes.literal("", part) if i % 2 else nodes.Text(part) for i, part in enumerate(text.split("`")) if part]
    return nodes.paragraph("", "", *parts)
