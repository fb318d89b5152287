"""The file that names who may enter: one name a line; the word `teacher` behind a name makes an administrator."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


class UnusableList(Exception):
    """The list of names cannot be used: what was found, and how a line should look."""


@dataclass(frozen=True)
class ClassList:
    """Everybody on the list, in its order, and those of them who may restart and remove others' servers."""

    names: tuple[str, ...]
    teachers: frozenset[str]


def read_list(path: str | Path | None) -> ClassList:
    """The names in a file. Raises UnusableList for no file, a missing or empty file, an unusable line, a name twice."""
    if not path:
        raise UnusableList("No list of names was given. Say `make hub HUB_NAMES=file`; hub/README.md shows one.")
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UnusableList(f"The list of names cannot be read: {error}. Name the file by HUB_NAMES=file.") from None
    words = [words for line in lines if (words := line.partition("#")[0].split())]
    names = tuple(line[0] for line in words)
    for number, line in enumerate(words):
        if not NAME.fullmatch(line[0]) or line[1:] not in ([], ["teacher"]):
            raise UnusableList(
                f"{' '.join(line)!r} in {path} is no name. A line has a name of at most 32 small letters, digits, - "
                "or _, and may have the word `teacher` behind it."
            )
        if line[0] in names[:number]:
            raise UnusableList(f"{line[0]!r} stands twice in {path}. Give the second one another name.")
    if not names:
        raise UnusableList(f"{path} has no name. Write one name a line.")
    return ClassList(names, frozenset(line[0] for line in words if line[1:]))
