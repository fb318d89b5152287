"""The tables of engines and of types of speculation: rows, columns, labels for narrow screens, and what was read."""

import pytest
from docutils import nodes

from handbook.directives.facts_tables import (
    ENGINES,
    KINDS,
    SPECULATION,
    engine_table,
    speculation_table,
    types_of,
    versions_text,
)
from inferlab.options.speculation import speculation_types
from studies.other_engines.engine_choice import known_engines

ENGINE_FACTS = list(known_engines().values())


def rows(table: nodes.table) -> list[list[str]]:
    body = next(iter(table.findall(nodes.tbody)))
    return [[cell.astext() for cell in row.findall(nodes.entry)] for row in body.findall(nodes.row)]


@pytest.mark.parametrize("field", ENGINES)
def test_a_cell_has_the_text_of_the_data_and_the_name_of_its_column(field):
    """On a narrow screen a row has no heads, so each cell begins with its own; backticks mark code."""
    for engine, cells in zip(ENGINE_FACTS, rows(engine_table(ENGINE_FACTS, [field])), strict=True):
        assert cells == [engine.title, f"{ENGINES[field]} {getattr(engine, field).replace('`', '')}"]


@pytest.mark.parametrize("field", [name for name in SPECULATION if name != "at"])
def test_a_type_of_speculation_is_shown_in_the_same_way(field):
    """Its own name is code."""
    types = types_of(None)
    assert types == list(speculation_types().values())
    for known, cells in zip(types, rows(speculation_table(types, [field])), strict=True):
        assert cells == [known.name, f"{SPECULATION[field]} {getattr(known, field).replace('`', '')}"]


def test_backticks_are_code():
    """A setting stands as code between the words."""
    table = engine_table([known_engines()["vllm"]], ["offload"])
    assert [code.astext() for code in table.findall(nodes.literal)] == ["--cpu-offload-gb"]


def test_what_was_read_is_said_of_every_engine():
    """Version, date and a citation for each."""
    text = versions_text(ENGINE_FACTS)
    assert "vLLM up to 0.26 (August 2026) {cite}`vllm`" in text
    assert text.count("{cite}") == len(ENGINE_FACTS)


def test_the_kinds_are_all_types():
    """Look-ups and models, each type once."""
    assert [known for kind in KINDS for known in types_of(kind)] == types_of(None)
    assert all(known.needs_a_model == (kind == "draft") for kind in KINDS for known in types_of(kind))


def test_the_place_in_the_source_is_a_cell():
    """Files and lines, with commas between them."""
    assert rows(speculation_table(types_of("ngram"), ["at"]))[0][1].endswith("ngram-map.cpp:48, ngram-map.cpp:100")
