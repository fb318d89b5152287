"""What the provoked faults say: which complaint names the cause, what knew it before, and what the log reader finds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from inferlab.errors import UnreadableLog
from inferlab.log_reader import LogFinding, explain
from studies.clinic.clinic import Specimen

CONTROL = "holes in the cache"
COMPLAINT = re.compile(r"error|fail", re.IGNORECASE)
FOLDER = re.compile(r"/\S*/(?=\w+\.gguf)")

Found = Mapping[str, Specimen]
Rows = tuple[Sequence[str], list[Sequence[str]]]


def first_finding(one: Specimen) -> LogFinding | None:
    """What the log reader puts first; None where it finds nothing."""
    try:
        return next(iter(explain(one.log).findings), None)
    except UnreadableLog:
        return None


def complaints(one: Specimen) -> tuple[list[str], int | None]:
    """Lines of the log that complain or name the cause, and the place of the cause among them; None without it."""
    lines = [line.strip() for line in one.log.splitlines()]
    cause = next((number for number, line in enumerate(lines) if line == one.own_words), None)
    places = [number for number, line in enumerate(lines) if COMPLAINT.search(line) or number == cause]
    return [lines[number] for number in places], None if cause is None else places.index(cause)


def faults(found: Found) -> list[Specimen]:
    """The specimens that llama.cpp had words for: all but the control."""
    return [one for one in found.values() if one.own_words]


def shown(found: Found) -> Specimen:
    """The first fault whose first complaint of several is its cause; the first of all where there is none."""
    several = (one for one in faults(found) if len(complaints(one)[0]) > 1 and complaints(one)[1] == 0)
    return next(several, faults(found)[0])


def numbers(found: Found) -> dict[str, int | str]:
    """The numbers of the page *Troubleshooting*."""
    ill = faults(found)
    counted = [(len(lines), place) for lines, place in map(complaints, ill)]
    several = [(n, place) for n, place in counted if n > 1 and place is not None]
    sound = explain(found[CONTROL].log).findings
    return {
        "n_faults": len(ill),
        "n_named": sum(bool(first_finding(one)) for one in ill),
        "n_before": sum(bool(one.before) for one in ill),
        "only_log": ", ".join(one.name for one in ill if not one.before) or "none",
        "n_several": len(several),
        "n_first": sum(place == 0 for _, place in several),
        "n_last": sum(place == n - 1 for n, place in several),
        "gone": ", ".join(one.name for one in ill if one.ended == "exit") or "none",
        "n_sound": sum(one.severity == "fault" for one in sound),
        "shown_name": shown(found).name,
    }


def words_table(found: Found) -> Rows:
    """Heads and rows: each fault in llama.cpp's own words, and whether this library refuses it before the load."""
    rows = [(one.name, f"`{one.own_words}`", "before" if one.before else "no") for one in faults(found)]
    return ("fault", "llama.cpp's own words", "refused"), rows


def complaints_table(found: Found) -> Rows:
    """Heads and rows: every complaint about the shown fault, without folders."""
    lines = complaints(shown(found))[0]
    rows = [(f"{number}.", f"`{FOLDER.sub('', line)}`") for number, line in enumerate(lines, 1)]
    return ("complaint", "line of the log"), rows
