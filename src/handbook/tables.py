"""Captioned tables, numbered as tables though a cell can caption only figures, and rows that are blocks on a phone."""

from __future__ import annotations

from docutils import nodes
from sphinx.transforms import SphinxTransform


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
