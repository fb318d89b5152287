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

from typing import Any

from docutils import nodes
from docutils.statemachine import StringList

from handbook.settings_table import month
from handbook.tables import FactsTable, marked, stacked_table
from studies.other_engines.engine_choice import EngineFacts, known_engines

HEADS = {
    "hardware": "Runs on",
    "weights": "Reads",
    "licence": "Licence",
    "offload": "A model larger than the card",
    "serving": "Requests at once",
    "api": "Speaks",
    "defaults": "Default to know",
}
"""Field of `EngineFacts` -> head of its column."""
VERSIONS = "versions"


def setup(app: Any) -> None:
    """Make the directive known."""
    app.add_directive("engines", EnginesTable)


class EnginesTable(FactsTable):
    """A table of engines, or the sentence with what was read."""

    facts, heads = "engines", HEADS

    def run(self) -> list[nodes.Node]:
        engines = list(known_engines().values())
        if self.arguments[0].split() == [VERSIONS]:
            return self.versions(engines)
        return self.titled(engine_table(engines, self.fields()))

    def versions(self, engines: list[EngineFacts]) -> list[nodes.Node]:
        read = nodes.container(classes=["settings-read"])
        lines = StringList([versions_text(engines)], source=self.get_source_info()[0])
        self.state.nested_parse(lines, self.content_offset, read)
        return [read]


def engine_table(engines: list[EngineFacts], fields: list[str]) -> nodes.table:
    """The table: a row for each engine, a column for each field."""
    return stacked_table(["Engine", *(HEADS[field] for field in fields)], (_row(one, fields) for one in engines))


def _row(engine: EngineFacts, fields: list[str]) -> list[nodes.paragraph]:
    title = nodes.paragraph("", "", nodes.strong("", engine.title))
    return [title, *(marked(getattr(engine, field)) for field in fields)]


def versions_text(engines: list[EngineFacts]) -> str:
    """`Read in vLLM 0.26 (August 2026) {cite}...`: version, date and source of each engine, as MyST."""
    texts = (f"{one.title} {one.version} ({month(one.date)}) {{cite}}`{one.source}`" for one in engines)
    return f"Read in {', '.join(texts)}."
