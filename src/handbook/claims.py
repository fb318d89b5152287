"""Reads the register of claims on trial: each claim with its verdict and the evidence that decides it.

The entries are in data/claims/*.toml, one file for each section. `decided_in` names the evidence itself, so that a test
fails when the evidence no longer exists:

    decided_in = ["book/workflow/pipeline#fig-pipeline-ttft"]   a cell's figure, or another label, on a page
    decided_in = ["labs/03-follow-the-pipeline#fig-lab03-ttft"] the same in a lab
    decided_in = ["record:some-machine/some-run"]               a file under data/records, without its .json
    decided_in = ["tests/handbook/test_claims_decided.py::test_name"]    a test of this repository
    decided_in = ["reading"]                                    only the sources under `evidence`
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from inferlab.errors import UnknownClaim
from inferlab.facts import read_table

VERDICTS = ("wrong", "contradicts", "outdated", "not checkable", "holds under conditions", "holds")

SOURCES = {
    "outline": "outline of the handbook",
    "hybrid-1": "notes on hybrid execution, draft 1",
    "hybrid-2": "notes on hybrid execution, draft 2",
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
    "engines": ("D", "Inference engines", "book/appendix/inference-engines"),
    "quantization": ("5", "Quantization", "book/optimization/quantization"),
    "tuning": ("6", "Tuning", "book/optimization/tuning"),
    "advanced": ("7", "Advanced techniques", "book/optimization/advanced"),
    "toolkit": ("8", "Toolkit", "book/community/toolkit"),
    "troubleshooting": ("9", "Troubleshooting", "book/community/troubleshooting"),
    "hardware": ("", "Hardware atlas", "book/appendix/hardware-atlas"),
    "compute": ("A", "Compute against bandwidth", "book/appendix/compute-and-bandwidth"),
}
"""Key of a chapter -> (number or letter, short title, document)."""

EVIDENCE_KINDS = {"cell": "a cell of the book", "record": "a recorded run", "test": "a test", "reading": "reading"}


@dataclass(frozen=True)
class Claim:
    """One claim of a source document, in our words, with its verdict; text fields hold MyST Markdown.

    short       the correction in one sentence, for the line on a page
    correction  the whole of it, for the register
    """

    id: str
    source: tuple[str, ...]
    text: str
    verdict: str
    short: str
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
    def evidence_kinds(self) -> tuple[str, ...]:
        """The kinds of its evidence, in the order of `EVIDENCE_KINDS`, each once."""
        kinds = {evidence_kind(place) for place in self.decided_in}
        return tuple(kind for kind in EVIDENCE_KINDS if kind in kinds)


def evidence_kind(place: str) -> str:
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
    return tuple(entry for entry in _register().values() if section in (None, entry.section))


def counts(by: str = "verdict") -> dict[str, int]:
    """How many claims have each `verdict`, `section`, `chapter`, or first of `evidence_kinds`; most frequent first."""
    values = [entry.evidence_kinds[0] if by == "evidence_kinds" else getattr(entry, by) for entry in claims()]
    return {value: values.count(value) for value in sorted(set(values), key=lambda v: (-values.count(v), v))}


@cache
def _register() -> dict[str, Claim]:
    """Every claim by its name, section by section."""
    entries = (entry for section in SECTIONS for entry in sorted(read_table(section, "claims").items()))
    return {name: _claim(name, entry) for name, entry in entries}


def _claim(name: str, entry: dict) -> Claim:
    lists = {key: tuple(entry[key]) for key in ("source", "decided_in")}
    return Claim(**{"id": name, "contradicts": "", **entry, **lists})
