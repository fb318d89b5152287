"""Sphinx directives for the tables of engines and of types of speculation, from data/facts.

```{engines} hardware weights licence       a row for each engine, a column for each of these fields
:caption: What each engine runs on          numbers the table; with :name: it can be referred to
:name: tab-engines-hardware
```
```{engines} versions                       in place of a table, what was read of each engine, with its sources
```
```{speculation-types} needs proposes       a row for each type of speculation in llama.cpp
:kind: ngram                                only the types that look tokens up, or (draft) those that compute them
```

On a narrow screen each row becomes a block of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives

from handbook.directives.tables import TableDirective, marked, month, stacked_table
from inferlab.options.speculation import SpeculationType, speculation_types
from studies.other_engines.engine_choice import EngineFacts, known_engines

ENGINES = {
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
SPECULATION = {
    "needs": "Needs",
    "proposes": "Proposes",
    "excludes": "Turned off or ignored",
    "defaults": "Defaults",
    "at": "Source",
}
"""Field of `SpeculationType` -> head of its column."""
KINDS = ("ngram", "draft")


def setup(app: Any) -> None:
    """Make the directives known."""
    app.add_directive("engines", EnginesTable)
    app.add_directive("speculation-types", SpeculationTable)


class FactsTable(TableDirective):
    """A directive whose argument names fields of the entries of a table of facts, a column for each."""

    required_arguments = 1
    final_argument_whitespace = True

    def fields(self, heads: Mapping[str, str]) -> list[str]:
        asked = self.arguments[0].split()
        unknown = [field for field in asked if field not in heads]
        if unknown:
            raise self.error(f"There is no column {', '.join(unknown)}. There are: {', '.join(heads)}.")
        return asked


class EnginesTable(FactsTable):
    """A table of engines, or the sentence with what was read."""

    def run(self) -> list[nodes.Node]:
        self.note_facts("engines")
        engines = known_engines().values()
        if self.arguments[0].split() == [VERSIONS]:
            return [self.what_was_read(versions_text(engines))]
        return [self.titled(engine_table(engines, self.fields(ENGINES)))]


class SpeculationTable(FactsTable):
    """A table of types of speculation."""

    option_spec = {**TableDirective.option_spec, "kind": lambda text: directives.choice(text, KINDS)}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        self.note_facts("speculation")
        return [self.titled(speculation_table(types_of(self.options.get("kind")), self.fields(SPECULATION)))]


def types_of(kind: str | None) -> list[SpeculationType]:
    """The types of one kind, or all."""
    return [known for known in speculation_types().values() if kind is None or known.name.startswith(f"{kind}-")]


def engine_table(engines: Iterable[EngineFacts], fields: list[str]) -> nodes.table:
    """A row for each engine, a column for each field."""
    rows = ([nodes.paragraph("", "", nodes.strong("", engine.title)), *_cells(engine, fields)] for engine in engines)
    return stacked_table(["Engine", *(ENGINES[field] for field in fields)], rows)


def speculation_table(types: Iterable[SpeculationType], fields: list[str]) -> nodes.table:
    """A row for each type, a column for each field."""
    rows = ([marked(f"`{known.name}`"), *_cells(known, fields)] for known in types)
    return stacked_table(["Type", *(SPECULATION[field] for field in fields)], rows)


def _cells(entry: EngineFacts | SpeculationType, fields: list[str]) -> list[nodes.paragraph]:
    values = [getattr(entry, field) for field in fields]
    return [marked(value if isinstance(value, str) else ", ".join(value)) for value in values]


def versions_text(engines: Iterable[EngineFacts]) -> str:
    """`Read in vLLM 0.26 (August 2026) {cite}...`: version, date and source of each engine, as MyST."""
    texts = (f"{engine.title} {engine.version} ({month(engine.date)}) {{cite}}`{engine.source}`" for engine in engines)
    return f"Read in {', '.join(texts)}."
