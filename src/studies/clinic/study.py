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

Specimens = Mapping[str, Specimen]
Rows = tuple[Sequence[str], Sequence[Sequence[str]]]


def first_finding(specimen: Specimen) -> LogFinding | None:
    """What the log reader puts first; None where it finds nothing."""
    try:
        return next(iter(explain(specimen.log).findings), None)
    except UnreadableLog:
        return None


def complaints(specimen: Specimen) -> tuple[list[str], int | None]:
    """Lines of the log that complain or name the cause, and the place of the cause among them; None without it."""
    lines = [line.strip() for line in specimen.log.splitlines()]
    cause = next((number for number, line in enumerate(lines) if line == specimen.own_words), None)
    places = [number for number, line in enumerate(lines) if COMPLAINT.search(line) or number == cause]
    return [lines[number] for number in places], None if cause is None else places.index(cause)


def faults(specimens: Specimens) -> list[Specimen]:
    """The specimens that llama.cpp had words for: all but the control."""
    return [specimen for specimen in specimens.values() if specimen.own_words]


def shown(specimens: Specimens) -> Specimen:
    """The first fault whose first complaint of several is its cause; the first of all where there is none."""
    several = (
        specimen for specimen in faults(specimens) if len(complaints(specimen)[0]) > 1 and complaints(specimen)[1] == 0
    )
    return next(several, faults(specimens)[0])


def numbers(specimens: Specimens) -> dict[str, int | str]:
    """The numbers of the page *Troubleshooting*."""
    ill = faults(specimens)
    counted = [(len(lines), place) for lines, place in map(complaints, ill)]
    several = [(n, place) for n, place in counted if n > 1 and place is not None]
    sound = explain(specimens[CONTROL].log).findings
    return {
        "n_faults": len(ill),
        "n_named": sum(bool(first_finding(specimen)) for specimen in ill),
        "n_before": sum(bool(specimen.before) for specimen in ill),
        "only_log": ", ".join(specimen.name for specimen in ill if not specimen.before) or "none",
        "n_several": len(several),
        "n_first": sum(place == 0 for _, place in several),
        "n_last": sum(place == n - 1 for n, place in several),
        "gone": ", ".join(specimen.name for specimen in ill if specimen.ended == "exit") or "none",
        "n_sound": sum(finding.severity == "fault" for finding in sound),
        "shown_name": shown(specimens).name,
    }


def words_table(specimens: Specimens) -> Rows:
    """Heads and rows: each fault in llama.cpp's own words, and whether this library refuses it before the load."""
    rows = [
        (specimen.name, f"`{specimen.own_words}`", "before" if specimen.before else "no")
        for specimen in faults(specimens)
    ]
    return ("fault", "llama.cpp's own words", "refused"), rows


def complaints_table(specimens: Specimens) -> Rows:
    """Heads and rows: every complaint about the shown fault, without folders."""
    lines = complaints(shown(specimens))[0]
    rows = [(f"{number}.", f"`{FOLDER.sub('', line)}`") for number, line in enumerate(lines, 1)]
    return ("complaint", "line of the log"), rows
