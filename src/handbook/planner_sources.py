"""Where the planner's numbers of models and cards come from, as tables of its page."""

from __future__ import annotations

from collections.abc import Iterable

from inferlab.facts import read_table
from inferlab.model.catalog import known_models
from inferlab.prediction.cards import known_cards

MODEL_HEADS = ("Source", "Models")
HEADS = ("Source", "Cards")
SHARE_HEADS = ("System", "Memory of the machine", "For the GPU", "Source")


def models_by_source() -> tuple[tuple[str, ...], list[tuple[str, str]]]:
    """Heads and rows: each source of dimensions, and the models that have them from there."""
    return MODEL_HEADS, _by_source((model.source, model.name) for model in known_models().values())


def cards_by_source() -> tuple[tuple[str, ...], list[tuple[str, str]]]:
    """Heads and rows: each source of a bandwidth or a memory, and the cards whose number it has."""
    numbers = ((source, card) for card in known_cards().values() for source in (card.source, card.memory_source))
    return HEADS, _by_source((source, card.title) for source, card in numbers)


def _by_source(titled: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """A row for each source: its citation, and the titles, each once."""
    titles: dict[str, dict[str, None]] = {}
    for source, title in titled:
        titles.setdefault(source, {})[title] = None
    return [(_cited(source), ", ".join(named)) for source, named in titles.items()]


def gpu_shares() -> tuple[tuple[str, ...], list[tuple[str, str, str, str]]]:
    """Heads and rows: what a public log says that a system leaves its GPU, by the memory of the machine."""
    systems = [system for system in read_table("gpu_shares").values() if isinstance(system, dict)]
    return SHARE_HEADS, [
        (system["title"], f"{line['memory']} GB", f"{line['limit']:,} {line['unit']}", _cited(line["source"]))
        for system in systems
        for line in system["logged"]
    ]


def _cited(source: str) -> str:
    return f"{{cite}}`{source}`"
