"""What each split mode of llama.cpp needs, excludes or ignores: the table of data/facts/split_modes.toml."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from inferlab.facts import read_table

SAYS = ("refuses", "warns", "silent")


@dataclass(frozen=True)
class SplitRule:
    """One rule.

    modes    of split_mode that it concerns
    asked, does  what a user asks for, and what llama.cpp does
    says     whether it "refuses" the load, "warns", or is "silent"
    refused  whether this library refuses the request
    where    file and line in llama.cpp's repository
    """

    modes: tuple[str, ...]
    asked: str
    does: str
    says: str
    refused: bool
    where: str


@cache
def split_rules() -> dict[str, SplitRule]:
    """Every rule by its name."""
    entries = read_table("split_modes").items()
    return {name: SplitRule(**{**entry, "modes": tuple(entry["modes"])}) for name, entry in entries}
