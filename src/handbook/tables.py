"""Captioned tables, numbered as tables though a cell can caption only figures, and rows that are blocks on a phone.

A directive for a table of facts, with the columns that a page asks for, is a `FactsTable`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files

from docutils import nodes
from docutils.parsers.rst import directives
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

    def number_as_table(self, figure: nodes.figure, found: nodes.table) -> None:
        caption = next(figure.findall(nodes.caption))
        found.insert(0, nodes.title(caption.rawsource, "", *caption.children))
        for key in ("ids", "names", "classes"):
            found[key] += figure[key]
        for name in figure["ids"]:
            self.document.ids[name] = found
        figure.replace_self(found.parent.children)


class StackedTables(SphinxTransform):
    """In a table of the class `stack` each cell begins with its column's head, for narrow screens.

    There book.css makes each row a block of its own and hides the line of heads. The first cell names the block.
    """

    default_priority = 841

    def apply(self, **kwargs) -> None:
        for table in self.document.findall(nodes.table):
            named = any("stack-label" in one["classes"] for one in table.findall(nodes.inline))
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


class FactsTable(SphinxDirective):
    """A directive whose argument names fields of the entries in data/facts/`facts`.toml, a column for each."""

    facts: str
    heads: dict[str, str]
    required_arguments = 1
    final_argument_whitespace = True
    option_spec = {  # noqa: RUF012 - docutils wants a plain dict
        "caption": directives.unchanged_required,
        "name": directives.unchanged,
    }

    def fields(self) -> list[str]:
        """The fields that the page asks for; the page is built again when the facts change."""
        self.env.note_dependency(str(files("inferlab") / "data" / "facts" / f"{self.facts}.toml"))
        asked = self.arguments[0].split()
        unknown = [field for field in asked if field not in self.heads]
        if unknown:
            raise self.error(f"There is no column {', '.join(unknown)}. There are: {', '.join(self.heads)}.")
        return asked

    def titled(self, table: nodes.table) -> list[nodes.Node]:
        """The table with the directive's caption and name."""
        if "caption" in self.options:
            inlines, _ = self.state.inline_text(self.options["caption"], self.lineno)
            table.insert(0, nodes.title(self.options["caption"], "", *inlines))
        self.add_name(table)
        self.set_source_info(table)
        return [table]


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
