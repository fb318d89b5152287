"""Which studies a page shows: an edit in a study executes and writes its own pages alone."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from handbook.execution import fingerprints
from inferlab.records import shipped, studies

NAMED = re.compile(r"\bstudies(?:\.|\s+import\s+)(\w+)|\{repeat\}\s+(\w+)")
"""A study where a cell imports it, or a directive names it."""
EVERY_RECORD = re.compile(r"\batlas(_table)?\b.*\bimport\b|\bimport\b.*\batlas(_table)?\b|\bshipped\(")
"""The atlas reads the records of all studies."""


def studies_named(text: str) -> list[str]:
    """The studies that a page's text or cells name, or whose records they load; all of them for the atlas.

    With those whose records they load themselves.
    """
    known = {path.name: path for path in studies()}
    if EVERY_RECORD.search(text) or any(name.endswith("/") for name in _records_quoted(text)):
        return sorted(known)
    named = {name for either in NAMED.findall(text) for name in either if name} & known.keys()
    code = (file.read_text(encoding="utf-8") for name in named for file in known[name].glob("*.py"))
    return sorted(named | _studies_of_records("\n".join([text, *code])))


def _studies_of_records(text: str) -> set[str]:
    """The studies of records that are named in quotes, also by their beginning before a part in braces.

    A machine alone before the braces names a study's own records.
    """
    asked = tuple(name for name in _records_quoted(text) if not name.endswith("/"))
    return {study for record, study in _study_of().items() if asked and record.startswith(asked)}


def _records_quoted(text: str) -> list[str]:
    """Names of records in quotes, up to a part in braces."""
    return [quoted[1:] for quoted in re.findall(rf"[\"'](?:{'|'.join(_machines())})/[^\"'{{]*", text)]


@cache
def _study_of() -> dict[str, str]:
    """Record -> its study."""
    folders = {path: path.name for path in studies()}
    return {
        name: study
        for name, path in shipped().items()
        for study in [next((folders[at] for at in path.parents if at in folders), None)]
        if study
    }


def _machines() -> list[str]:
    return sorted({name.partition("/")[0] for name in _study_of()} | {"no machine"})


def studies_digest(text: str) -> str:
    """Digest of every file of the studies that a text names."""
    folders = {path.name: path for path in studies()}
    return fingerprints.contents_digest(
        (f"{name}/{file.relative_to(folders[name])}", file)
        for name in studies_named(text)
        for file in fingerprints.files_below(Path(folders[name]))
    )
