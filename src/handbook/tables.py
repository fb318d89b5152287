"""Captioned tables: numbered as tables, though a cell can caption only figures."""

from __future__ import annotations

from docutils import nodes
from sphinx.transforms import SphinxTransform


def setup(app) -> None:
    """Turn the figures that hold a table into tables before Sphinx collects labels."""
    app.add_transform(CaptionedTables)


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
