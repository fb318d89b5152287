"""Sphinx directive for the comparison of engines, from data/facts/engines.toml.

```{engines} hardware weights licence       a row for each engine, a column for each of these fields
:caption: What each engine runs on          numbers the table; with :name: it can be referred to
:name: tab-engines-hardware
```
```{engines} versions                       in place of a table, what was read of each engine, with its sources
```

On a narrow screen each row becomes a block of its own.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from handbook.settings_table import month
from handbook.tables import name_cells
from inferlab.prediction.engine_choice import EngineFacts, known_engines

HEADS = {
    "hardware": "Runs on",
    "weights": "Reads",
    "licence": "Licence",
    "offload": "A model larger than the card",
    "cache": "KV cache",
    "serving": "Requests at once",
    "api": "Speaks",
    "defaults": "Default to know",
}
"""Field of `EngineFacts` -> head of its column."""
VERSIONS = "versions"


def setup(app: Any) -> None:
    """Make the directive known."""
    app.add_directive("engines", EnginesTable)


class EnginesTable(SphinxDirective):
    """A table of engines, or the sentence with what was read."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec = {  # noqa: RUF012 - docutils wants a plain dict
        "caption": directives.unchanged_required,
        "name": directives.unchanged,
    }

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(files("inferlab") / "data" / "facts" / "engines.toml"))
        asked, engines = self.arguments[0].split(), list(known_engines().values())
        if asked == [VERSIONS]:
            return self.versions(engines)
        unknown = [field for field in asked if field not in HEADS]
        if unknown:
            raise self.error(f"There is no column {', '.join(unknown)}. There are: {', '.join(HEADS)}.")
        table = engine_table(engines, asked)
        if "caption" in self.options:
            inlines, _ = self.state.inline_text(self.options["caption"], self.lineno)
            table.insert(0, nodes.title(self.options["caption"], "", *inlines))
        self.add_name(table)
        self.set_source_info(table)
        return [table]

    def versions(self, engines: list[EngineFacts]) -> list[nodes.Node]:
        read = nodes.container(classes=["settings-read"])
        lines = StringList([versions_text(engines)], source=self.get_source_info()[0])
        self.state.nested_parse(lines, self.content_offset, read)
        return [read]


def engine_table(engines: list[EngineFacts], fields: list[str]) -> nodes.table:
    """The table: a row for each engine, a column for each field."""
    table = nodes.table(classes=["stack", "settings"])
    group = nodes.tgroup("", cols=len(fields) + 1)
    group += [nodes.colspec(colwidth=1) for _ in range(len(fields) + 1)]
    heads = ("Engine", *(HEADS[field] for field in fields))
    group += nodes.thead("", nodes.row("", *(nodes.entry("", nodes.paragraph(text=head)) for head in heads)))
    group += nodes.tbody("", *(_row(engine, fields) for engine in engines))
    table += group
    name_cells(table)
    return table


def _row(engine: EngineFacts, fields: list[str]) -> nodes.row:
    title = nodes.paragraph("", "", nodes.strong("", engine.title))
    cells = (nodes.entry("", nodes.paragraph("", "", *marked(getattr(engine, field)))) for field in fields)
    return nodes.row("", nodes.entry("", title), *cells)


def marked(text: str) -> list[nodes.Node]:
    """A text in which backticks mark code."""
    return [nodes.literal("", part) if i % 2 else nodes.Text(part) for i, part in enumerate(text.split("`")) if part]


def versions_text(engines: list[EngineFacts]) -> str:
    """`Read in vLLM 0.26 (August 2026) {cite}...`: version, date and source of each engine, as MyST."""
    texts = (f"{one.title} {one.version} ({month(one.date)}) {{cite}}`{one.source}`" for one in engines)
    return f"Read in {', '.join(texts)}."
