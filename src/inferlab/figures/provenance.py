"""The badge of a figure on a built page: one quiet line under the figure that unfolds into the whole badge."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping
from typing import Any

from inferlab.figures.style import BADGE

ORIGINS = re.compile(r"\b(?:measured|recorded|computed|cited)\b")
MACHINE = re.compile(r"(?:measured|recorded)[^:.]*: (?P<place>.+?), \d{4}-\d\d-\d\d")
COMMIT = re.compile(r"llama\.cpp (?:\S+ )?(?P<commit>[0-9a-f]{7,})\b")
SHORT = 72
"""A badge of at most this many characters is shown whole."""


def without_badge(figure: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The figure without its badge and the space below it, and the different badges of its positions."""
    layout = dict(figure.get("layout") or {})
    notes = [note for note in _every_note(layout) if note.get("name") == BADGE]
    if not notes:
        return dict(figure), []
    layout["annotations"] = _others(layout["annotations"])
    if positions := _positions(layout):
        plain = [{**each, "annotations": _others(each.get("annotations", []))} for each in positions]
        layout["meta"] = {**layout["meta"], "positions": plain}
    margin = layout.get("margin") or {}
    if spare := max(0, (margin.get("b") or 0) + notes[0].get("yshift", 0)):
        layout |= {"margin": {**margin, "b": margin["b"] - spare}, "height": layout["height"] - spare}
    return {**figure, "layout": layout}, list(dict.fromkeys(note["text"].replace("<br>", " ") for note in notes))


def provenance_html(badges: Iterable[str]) -> str:
    """One line that says where the numbers come from and unfolds the rest; nothing without a badge."""
    whole = list(badges)
    if not whole:
        return ""
    if whole == [badge_in_short(whole[0])]:
        return f'<p class="provenance">{html.escape(whole[0])}</p>'
    rest = "".join(f"<p>{html.escape(badge)}</p>" for badge in whole)
    return f'<details class="provenance"><summary>{html.escape(badge_in_short(whole[0]))}</summary>{rest}</details>'


def badge_in_short(badge: str) -> str:
    """`measured · Intel Xeon · llama.cpp 0c1e570`; the first clause where no machine measured."""
    machine, engine = MACHINE.search(badge), COMMIT.search(badge)
    if machine:
        origins = dict.fromkeys(ORIGINS.findall(badge))
        commit = [f"llama.cpp {engine['commit']}"] if engine else []
        return " · ".join([" and ".join(origins), processor_name(machine["place"]), *commit])
    for end in ("; ", ", ", ": "):
        if len(badge) <= SHORT:
            break
        badge = badge.partition(end)[0]
    return badge


def processor_name(text: str) -> str:
    """`Intel Xeon` for `Intel(R) Xeon(R) Processor`."""
    return re.sub(r"\((?:R|TM)\)| (?:Processor|CPU)\b", "", text)


def _every_note(layout: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The annotations of the view shown first, then those of every position of its controls."""
    moved = [position.get("annotations", []) for position in _positions(layout)]
    return [note for notes in (layout.get("annotations") or [], *moved) for note in notes]


def _positions(layout: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return (layout.get("meta") or {}).get("positions") or []


def _others(notes: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [note for note in notes if note.get("name") != BADGE]
