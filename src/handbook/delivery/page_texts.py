"""What each page says, section by section: the text that the search, the descriptions and the cards of terms show.

Only the article counts: no navigation, no program code of a cell, no mathematics in TeX. A page's texts are kept beside
the build when the page is written, because a later build writes only the pages that changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes

from handbook.cells import NOT_SEARCHED
from handbook.directives.trials import FoldLine

UNREAD = (
    nodes.raw,
    nodes.comment,
    nodes.image,
    nodes.math_block,
    nodes.meta,
    nodes.substitution_definition,
    addnodes.toctree,
    addnodes.index,
)
"""What is not text for a reader of a result."""

CELL_END = " · "
"""Before, between and behind the cells of a table, whose words would read as one sentence."""

WORD = re.compile(r"[^\W\d_]")
"""What a cell needs to be found by: a number alone says nothing without its row and column."""

NO_ADDRESS = ". URL: ."
"""The end of an entry of the bibliography whose address is left out."""

FOLDER = ".texts"


@dataclass(frozen=True)
class Section:
    """A heading, a term of the glossary or a row of the register, with the text under it and its place on the page."""

    anchor: str
    heading: str
    text: str


@dataclass(frozen=True)
class PageTexts:
    """A page's title, its sections in reading order, and each term with its definition, by the term's anchor."""

    title: str
    sections: list[Section] = field(default_factory=list)
    terms: dict[str, list[str]] = field(default_factory=dict)


def setup(app) -> None:
    """Keep the texts of each page that is written."""
    app.connect("html-page-context", _keep)


def kept(app) -> dict[str, PageTexts]:
    """The texts of every page of the book, by the page's name, in alphabetical order."""
    paths = {name: _path(app, name) for name in sorted(app.env.found_docs)}
    return {name: _read(path) for name, path in paths.items() if path.exists()}


def texts_of(doctree: nodes.document) -> PageTexts:
    """The texts of a page."""
    title = next(iter(doctree.findall(nodes.title)), None)
    terms = {anchor: entry for item in doctree.findall(nodes.definition_list_item) for anchor, entry in _terms(item)}
    return PageTexts(_plain(title) if title else "", list(_sections(doctree)), terms)


def first_paragraph(doctree: nodes.document, least: int = 40) -> str:
    """The first paragraph of at least so many characters: where a page opens with *In short*, the first of that box."""
    searched = (text for text in doctree.findall(nodes.paragraph) if not _has_class(text.parent, NOT_SEARCHED))
    texts = map(_plain, searched)
    return next((text for text in texts if len(text) >= least), "")


def n_words(node: nodes.Element) -> int:
    """Words of a section with the sections below it, or of another part of a page."""
    below = [section for section in node.findall(nodes.section) if section is not node]
    return sum(len(_plain(part).split()) for part in (node, *below))


def shortened(text: str, most: int) -> str:
    """The whole sentences of a text that fit in so many characters; if the first does not fit, its first words."""
    if len(text) <= most:
        return text
    ends = [end.end() for end in re.finditer(r"[.?!](?=\s)", text[: most + 1])]
    if ends:
        return text[: ends[-1]]
    words = re.match(rf".{{1,{most - 1}}}(?=[\s,;:])", text)
    return (words[0] if words else text[: most - 1]).rstrip(" ,;:(") + "…"


def _sections(doctree: nodes.document) -> Iterator[Section]:
    for part in doctree.findall(_is_part):
        if isinstance(part, nodes.section):
            yield Section(part["ids"][0], _plain(part[_title_at(part)]), _plain(part))
        elif isinstance(part, nodes.definition_list_item):
            names = [_plain(term) for term in part.findall(nodes.term)]
            yield Section(_first_id(part), ", ".join(names), _definition(part))
        else:
            side, body = part.children[:2]
            yield Section(part["ids"][0], "Claim " + _plain(side).replace(" ", ": ", 1), _plain(body))


def _is_part(node: nodes.Node) -> bool:
    """Whether a node is found for itself: a section, an entry of the glossary, a row of the register of claims."""
    if isinstance(node, nodes.definition_list_item):
        return bool(_first_id(node))
    if isinstance(node, nodes.section):
        return _title_at(node) is not None
    return _has_class(node, "claim")


def _title_at(section: nodes.section) -> int | None:
    """The place of a section's own title; an exercise is a section without one."""
    return section.first_child_matching_class(nodes.title)


def _plain(node: nodes.Node) -> str:
    """The text of a node without that of the parts below it, its spaces as one."""
    text = " ".join("".join(_words(node, inside=False)).split())
    text = text.replace(f"{CELL_END}· ", CELL_END).strip(CELL_END).replace(NO_ADDRESS, ".")
    return re.sub(r" (?=[.,;:)](?:\s|$))", "", text)


def _words(node: nodes.Node, inside: bool = True) -> Iterator[str]:
    if isinstance(node, nodes.Text):
        yield node.astext()
    elif isinstance(node, nodes.tgroup):
        yield CELL_END.join(["", *filter(WORD.search, map(_plain, node.findall(nodes.entry))), ""])
    elif not (inside and _is_left_out(node)):
        for child in node.children:
            yield from _words(child)
            yield " " if isinstance(node, FoldLine) else ""
        if not isinstance(node, nodes.Inline):
            yield " "


def _is_left_out(node: nodes.Node) -> bool:
    code = _has_class(node, "cell_input") or (isinstance(node, nodes.literal_block) and _is_output(node))
    tex = isinstance(node, nodes.math) and bool(re.search(r"[\\{]", node.astext()))
    facts = isinstance(node, nodes.paragraph) and "claim-facts" in node["classes"]
    elsewhere = _has_class(node, NOT_SEARCHED)
    address = isinstance(node, nodes.reference) and node.astext() == node.get("refuri")
    return code or tex or facts or elsewhere or address or isinstance(node, (*UNREAD, nodes.title)) or _is_part(node)


def _is_output(node: nodes.Node) -> bool:
    return _has_class(node.parent, "cell_output")


def _has_class(node: nodes.Node, name: str) -> bool:
    return isinstance(node, nodes.container) and name in node["classes"]


def _first_id(item: nodes.definition_list_item) -> str:
    return next((anchor for term in item.findall(nodes.term) for anchor in term["ids"]), "")


def _definition(item: nodes.definition_list_item) -> str:
    return " ".join(_plain(part) for part in item.findall(nodes.definition))


def _terms(item: nodes.definition_list_item) -> Iterator[tuple[str, list[str]]]:
    for term in item.findall(nodes.term):
        for anchor in term["ids"]:
            yield anchor, [_plain(term), _definition(item)]


def _keep(app, pagename: str, templatename: str, context: dict, doctree: nodes.document | None) -> None:
    if doctree is None:
        return
    path = _path(app, pagename)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(texts_of(doctree)), ensure_ascii=False), encoding="utf-8")


def _path(app, name: str) -> Path:
    return Path(app.doctreedir).parent / FOLDER / f"{name}.json"


def _read(path: Path) -> PageTexts:
    entry: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return PageTexts(entry["title"], [Section(**section) for section in entry["sections"]], entry["terms"])
