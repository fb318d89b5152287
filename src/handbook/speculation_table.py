"""Sphinx directive for the types of speculation in llama.cpp, from data/facts/speculation.toml.

```{speculation-types} needs proposes       a row for each type, a column for each of these fields
:kind: ngram                                only the types that look tokens up, or (draft) those that compute them
:caption: Types without a model             numbers the table; with :name: it can be referred to
:name: tab-speculation-ngram
```

On a narrow screen each row becomes a block of its own.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

from handbook.engine_table import marked
from handbook.tables import name_cells
from inferlab.engine.speculation import SpeculationType, speculation_types

HEADS = {"needs": "Needs", "proposes": "Proposes", "excludes": "Turned off or ignored", "defaults": "Defaults",
         "at": "Source"}  # fmt: skip
"""Field of `SpeculationType` -> head of its column."""
KINDS = ("ngram", "draft")


def setup(app: Any) -> None:
    """Make the directive known."""
    app.add_directive("speculation-types", SpeculationTable)


class SpeculationTable(SphinxDirective):
    """A table of types."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec = {  # noqa: RUF012 - docutils wants a plain dict
        "kind": lambda text: directives.choice(text, KINDS),
        "caption": directives.unchanged_required,
        "name": directives.unchanged,
    }

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(files("inferlab") / "data" / "facts" / "speculation.toml"))
        asked = self.arguments[0].split()
        unknown = [field for field in asked if field not in HEADS]
        if unknown:
            raise self.error(f"There is no column {', '.join(unknown)}. There are: {', '.join(HEADS)}.")
        table = speculation_table(types_of(self.options.get("kind")), asked)
        if "caption" in self.options:
            inlines, _ = self.state.inline_text(self.options["caption"], self.lineno)
            table.insert(0, nodes.title(self.options["caption"], "", *inlines))
        self.add_name(table)
        self.set_source_info(table)
        return [table]


def types_of(kind: str | None) -> list[SpeculationType]:
    """The types of one kind, or all."""
    return [one for one in speculation_types().values() if kind is None or one.name.startswith(f"{kind}-")]


def speculation_table(types: list[SpeculationType], fields: list[str]) -> nodes.table:
    """The table: a row for each type, a column for each field."""
    table = nodes.table(classes=["stack", "settings"])
    group = nodes.tgroup("", cols=len(fields) + 1)
    group += [nodes.colspec(colwidth=1) for _ in range(len(fields) + 1)]
    heads = ("Type", *(HEADS[field] for field in fields))
    group += nodes.thead("", nodes.row("", *(nodes.entry("", nodes.paragraph(text=head)) for head in heads)))
    group += nodes.tbody("", *(_row(one, fields) for one in types))
    table += group
    name_cells(table)
    return table


def _row(one: SpeculationType, fields: list[str]) -> nodes.row:
    title = nodes.paragraph("", "", nodes.literal("", one.name))
    texts = (", ".join(one.at) if field == "at" else getattr(one, field) for field in fields)
    cells = (nodes.entry("", nodes.paragraph("", "", *marked(text))) for text in texts)
    return nodes.row("", nodes.entry("", title), *cells)
