"""The claims that this handbook was written against, each with its verdict and the place where it is decided.

The entries lie in data/claims/*.toml, one file for each section. Where an entry says how it was decided, it names
the thing itself, so that a test can find out when that thing is gone:

    decided_in = ["book/workflow/pipeline#fig-pipeline-ttft"]   a cell's figure, or another label, on a page
    decided_in = ["labs/03-follow-the-pipeline#fig-lab03-ttft"] the same in a lab
    decided_in = ["record:some-machine/some-run"]               a file under data/records, without its .json
    decided_in = ["tests/handbook/test_claims_decided.py::test_name"]    a test of this repository
    decided_in = ["reading"]                                    the sources under `evidence`, and nothing else
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from inferlab.errors import UnknownClaim

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

VERDICTS = ("wrong", "contradicts", "outdated", "not checkable", "holds under conditions", "holds")

SOURCES = {
    "outline": "outline of the handbook",
    "hybrid-1": "hybrid execution, first version",
    "hybrid-2": "hybrid execution, second version",
    "index": "workstation documentation, index",
    "engines": "workstation documentation, inference engines",
}

SECTIONS = {
    "A": "Memory placement, KV cache, offloading",
    "B": "Phases, metrics and bottlenecks",
    "C": "Quantization and file formats",
    "D": "Engines and frameworks",
    "E": "Hardware",
}

CHAPTERS = {
    "role": ("1", "The role", "book/foundations/role-and-metrics"),
    "anatomy": ("2", "Anatomy of a model", "book/foundations/anatomy"),
    "pipeline": ("3", "The pipeline", "book/workflow/pipeline"),
    "bottlenecks": ("4", "Bottlenecks", "book/workflow/bottlenecks"),
    "engines": ("", "Inference engines", "book/workflow/engines"),
    "quantization": ("5", "Quantization", "book/optimization/quantization"),
    "tuning": ("6", "Tuning", "book/optimization/tuning"),
    "advanced": ("7", "Advanced techniques", "book/optimization/advanced"),
    "toolkit": ("8", "Toolkit", "book/community/toolkit"),
    "troubleshooting": ("9", "Troubleshooting", "book/community/troubleshooting"),
    "hardware": ("", "Hardware atlas", "book/community/hardware-atlas"),
    "compute": ("A", "Compute against bandwidth", "book/appendix/compute-and-bandwidth"),
}
"""Key of a chapter -> (number or letter, short title, document)."""

WAYS = {"cell": "a cell of the book", "record": "a recorded run", "test": "a test", "reading": "reading"}


@dataclass(frozen=True)
class Claim:
    """One claim of a source document, in our words, with its verdict; text fields hold MyST Markdown."""

    id: str
    source: tuple[str, ...]
    text: str
    verdict: str
    correction: str
    evidence: str
    chapter: str
    decided_in: tuple[str, ...]
    contradicts: str = ""

    @property
    def section(self) -> str:
        """The letter of its section."""
        return self.id[0]

    @property
    def ways(self) -> tuple[str, ...]:
        """How it was decided, in the order of `WAYS`, each once."""
        found = {way_of(place) for place in self.decided_in}
        return tuple(way for way in WAYS if way in found)


def way_of(place: str) -> str:
    """`cell`, `record`, `test` or `reading`, by the form of one entry of `decided_in`."""
    if place == "reading":
        return "reading"
    if place.startswith("record:"):
        return "record"
    return "test" if place.startswith("tests/") else "cell"


def claim(name: str) -> Claim:
    """One claim by its name, e.g. `claim("A05")`. Raises UnknownClaim for another name."""
    if name not in _register():
        names = sorted(_register())
        raise UnknownClaim(f"There is no claim {name!r}: the register runs from {names[0]} to {names[-1]}.")
    return _register()[name]


def claims(section: str | None = None) -> tuple[Claim, ...]:
    """All claims in the order of their names, or those of one section."""
    return tuple(one for one in _register().values() if section in (None, one.section))


def counts(by: str = "verdict") -> dict[str, int]:
    """How many claims have each `verdict`, `section`, `chapter`, or first of their `ways`; most frequent first."""
    values = [one.ways[0] if by == "ways" else getattr(one, by) for one in claims()]
    return {value: values.count(value) for value in sorted(set(values), key=lambda v: (-values.count(v), v))}


@cache
def _register() -> dict[str, Claim]:
    found: dict[str, Claim] = {}
    for section in SECTIONS:
        text = (files("inferlab") / "data" / "claims" / f"{section}.toml").read_text(encoding="utf-8")
        found |= {name: _claim(name, entry) for name, entry in sorted(tomllib.loads(text).items())}
    return found


def _claim(name: str, entry: dict) -> Claim:
    lists = {key: tuple(entry[key]) for key in ("source", "decided_in")}
    return Claim(**{"id": name, "contradicts": "", **entry, **lists})
