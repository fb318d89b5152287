"""Sphinx directive for the types of speculation in llama.cpp, from data/facts/speculation.toml.

```{speculation-types} needs proposes       a row for each type, a column for each of these fields
:kind: ngram                                only the types that look tokens up, or (draft) those that compute them
:caption: Types without a model             numbers the table; with :name: it can be referred to
:name: tab-speculation-ngram
```

On a narrow screen each row becomes a block of its own.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives

from handbook.tables import FactsTable, marked, stacked_table
from inferlab.options.speculation import SpeculationType, speculation_types

HEADS = {
    "needs": "Needs",
    "proposes": "Proposes",
    "excludes": "Turned off or ignored",
    "defaults": "Defaults",
    "at": "Source",
}
"""Field of `SpeculationType` -> head of its column."""
KINDS = ("ngram", "draft")


def setup(app: Any) -> None:
    """Make the directive known."""
    app.add_directive("speculation-types", SpeculationTable)


class SpeculationTable(FactsTable):
    """A table of types."""

    facts, heads = "speculation", HEADS
    option_spec = {**FactsTable.option_spec, "kind": lambda text: directives.choice(text, KINDS)}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        return self.titled(speculation_table(types_of(self.options.get("kind")), self.fields()))


def types_of(kind: str | None) -> list[SpeculationType]:
    """The types of one kind, or all."""
    return [one for one in speculation_types().values() if kind is None or one.name.startswith(f"{kind}-")]


def speculation_table(types: list[SpeculationType], fields: list[str]) -> nodes.table:
    """The table: a row for each type, a column for each field."""
    return stacked_table(["Type", *(HEADS[field] for field in fields)], (_row(one, fields) for one in types))


def _row(one: SpeculationType, fields: list[str]) -> list[nodes.paragraph]:
    texts = (", ".join(one.at) if field == "at" else getattr(one, field) for field in fields)
    return [marked(f"`{one.name}`"), *map(marked, texts)]
