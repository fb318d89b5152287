"""The register of claims: complete, judged, each the subject of a chapter, and decided in places that exist."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from handbook import claims
from handbook.directives.trials import ClaimDirective, sentence_of
from inferlab.errors import UnknownClaim
from inferlab.records import shipped

ROOT = Path(__file__).parents[2]
REGISTER = "book/appendix/claims-on-trial"
PER_SECTION = {"A": 33, "B": 36, "C": 17, "D": 47, "E": 7}

EVERY = pytest.mark.parametrize("claim", claims.claims(), ids=lambda claim: claim.id)


@cache
def source_of(document: str) -> str | None:
    """The text of a page or of a lab's cells with their metadata; None where there is no such document."""
    page, lab = ROOT / f"{document}.md", ROOT / f"{document}.ipynb"
    if page.is_file():
        return page.read_text(encoding="utf-8")
    if not lab.is_file():
        return None
    cells = json.loads(lab.read_text(encoding="utf-8"))["cells"]
    names = (cell["metadata"].get("mystnb", {}).get("figure", {}).get("name") for cell in cells)
    return "\n".join(["".join(cell["source"]) for cell in cells] + [f"name: {name}" for name in names if name])


def has_label(text: str, label: str) -> bool:
    """Whether a page defines a label: a target, a figure's or directive's name, an exercise's label."""
    name = re.escape(label)
    return re.search(rf"^\({name}\)=|^\s*:?(name|label): {name}$", text, re.MULTILINE) is not None


def documents() -> list[str]:
    """Every page and lab but the register itself."""
    paths = [*ROOT.glob("book/**/*.md"), *ROOT.glob("labs/*.ipynb")]
    names = sorted(path.relative_to(ROOT).with_suffix("").as_posix() for path in paths)
    return [name for name in names if name != REGISTER]


def cited_in(text: str) -> set[str]:
    """The ids of claims that a page draws, or links to."""
    boxes = re.findall(r"^[`:]{3,}\{trial\} *(.+)$", text, re.MULTILINE)
    links = re.findall(r"\{claim\}`([^`]+)`", text)
    rows = re.findall(r"claims-on-trial\.(?:md|html)#claim-(\w+)|<claim-(\w+)>", text)
    return {*" ".join(boxes).split(), *links, *("".join(row).upper() for row in rows)}


def exists(place: str) -> bool:
    """Whether what an entry of `decided_in` names is there."""
    way = claims.evidence_kind(place)
    if way == "record":
        return place.removeprefix("record:") in shipped()
    if way == "test":
        path, _, name = place.partition("::")
        return (ROOT / path).is_file() and name in functions(ROOT / path)
    document, _, label = place.partition("#")
    return way == "reading" or has_label(source_of(document) or "", label)


@cache
def functions(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)}


def test_the_register_is_complete():
    """Every claim of the five documents has its entry, numbered without a gap."""
    assert [claim.id for claim in claims.claims()] == [
        f"{letter}{number:02}" for letter, count in PER_SECTION.items() for number in range(1, count + 1)
    ]


@EVERY
def test_a_claim_has_all_its_parts(claim):
    """No entry without a source, a verdict of the six, a correction, short and whole, its evidence and a decision."""
    assert claim.verdict in claims.VERDICTS
    assert claim.source
    assert set(claim.source) <= set(claims.SOURCES)
    assert claim.text.strip().endswith((".", "?"))
    assert claim.correction.strip().endswith(".")
    assert claim.short.endswith(".")
    assert len(claim.short.split()) <= 25
    assert "{" not in claim.short
    assert claim.evidence.strip()
    assert not claim.evidence.endswith(".")
    assert claim.chapter in claims.CHAPTERS
    assert claim.decided_in
    assert bool(claim.contradicts) == (claim.verdict == "contradicts")


@EVERY
def test_what_decides_a_claim_is_there(claim):
    """No link to a cell, a label, a record or a test that is gone."""
    assert [place for place in claim.decided_in if not exists(place)] == []


@pytest.mark.parametrize("document", documents())
def test_a_page_cites_only_claims_that_exist(document):
    """Every id in a box, a role or a link belongs to the register."""
    assert cited_in(source_of(document)) <= {claim.id for claim in claims.claims()}


@pytest.mark.parametrize(
    "place",
    [
        "book/workflow/pipeline#fig-that-is-gone",
        "book/workflow/no-such-page#fig-pipeline-ttft",
        "labs/03-follow-the-pipeline#fig-that-is-gone",
        "record:no-machine/no-run",
        "tests/handbook/test_claims.py::test_that_is_gone",
        "tests/test_that_is_gone.py::test_gone",
    ],
)
def test_a_lost_place_is_noticed(place):
    """The check above can fail, for each kind of place."""
    assert not exists(place)


def test_the_claims_of_a_page_are_found_however_they_are_written():
    """A box, a role, a link with its own text and a lab's plain link all count as carrying a claim."""
    plain = "[that](../book/appendix/claims-on-trial.md#claim-e05)"
    text = f"```{{trial}} A01 B02\n{{claim}}`C03` {{ref}}`this <claim-d04>` {plain}"
    assert cited_in(text) == {"A01", "B02", "C03", "D04", "E05"}


def test_an_unknown_claim_is_answered_with_the_register():
    """The error says where the register begins and ends."""
    with pytest.raises(UnknownClaim, match="no claim 'Z99': the register runs from A01 to E07"):
        claims.claim("Z99")


def test_the_sentence_of_a_test_is_quoted_without_its_full_stop():
    """A reader sees what the test finds, and a test that is gone stops the build."""
    from sphinx.errors import ExtensionError

    here = "tests/handbook/test_claims.py::"
    assert sentence_of(ROOT, here + "test_a_page_cites_only_claims_that_exist").endswith("belongs to the register")
    with pytest.raises(ExtensionError, match="test_gone, which does not exist"):
        sentence_of(ROOT, here + "test_gone")


def test_a_page_is_read_again_when_a_test_that_it_quotes_changes(tmp_path):
    """The sentence of a test stands on the page, so the page depends on the test's file."""
    (tmp_path / "test_x.py").write_text('def test_y():\n    """It holds."""\n')
    seen = []
    page = SimpleNamespace(root=lambda: tmp_path, env=SimpleNamespace(note_dependency=seen.append))
    assert ClaimDirective.sentence(page, "test_x.py::test_y") == "It holds"
    assert seen == [str(tmp_path / "test_x.py")]
