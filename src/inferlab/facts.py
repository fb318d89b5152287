"""Cited numbers, each with its source (a key of the bibliography) and its date, and the tables of data/."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Fact:
    """One cited number; `source` is a key of the book's bibliography."""

    value: float
    unit: str
    source: str
    date: str


@dataclass(frozen=True)
class PublishedTable:
    """A published table: a row for each quantization mix, its numbers by the names of their columns."""

    title: str
    source: str
    date: str
    rows: dict[str, dict[str, float]]

    def column(self, name: str) -> dict[str, float]:
        """One column: mix -> number."""
        return {mix: row[name] for mix, row in self.rows.items()}


@cache
def published_tables() -> dict[str, PublishedTable]:
    """Every table of data/facts/tables.toml by its name."""
    return {name: _published(entry) for name, entry in read_table("tables").items()}


def _published(entry: dict[str, Any]) -> PublishedTable:
    rows = {mix: dict(zip(entry["columns"], row, strict=True)) for mix, row in entry["rows"].items()}
    return PublishedTable(entry["title"], entry["source"], entry["date"], rows)


@cache
def cited_facts(table: str) -> dict[str, Fact]:
    """The single numbers of data/facts/`table`.toml by their names, e.g. `cited_facts("estimates")`."""
    return {name: Fact(**entry) for name, entry in read_table(table).items()}


def read_table(name: str, folder: str = "facts") -> dict[str, Any]:
    """The entries of data/`folder`/`name`.toml, unchanged."""
    return parsed(table_text(name, folder))


def table_text(name: str, folder: str = "facts") -> str:
    """The text of data/`folder`/`name`.toml, for a long table of which few entries are asked for."""
    return (files("inferlab") / "data" / folder / f"{name}.toml").read_text(encoding="utf-8")


def parsed(text: str) -> dict[str, Any]:
    """The entries of a text in TOML."""
    return tomllib.loads(text)
