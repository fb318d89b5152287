"""The directive for the types of speculation: rows, columns and labels for narrow screens."""

import pytest
from docutils import nodes

from handbook.speculation_table import HEADS, KINDS, speculation_table, types_of
from inferlab.options.speculation import speculation_types


def rows(kind: str | None, fields: list[str]) -> list[list[str]]:
    body = next(iter(speculation_table(types_of(kind), fields).findall(nodes.tbody)))
    return [[cell.astext() for cell in row.findall(nodes.entry)] for row in body.findall(nodes.row)]


@pytest.mark.parametrize("field", [name for name in HEADS if name != "at"])
def test_a_cell_has_the_text_of_the_data_and_the_name_of_its_column(field):
    """On a narrow screen a row has no heads, so each cell begins with its own."""
    for one, (name, cell) in zip(speculation_types().values(), rows(None, [field]), strict=True):
        assert name == one.name
        assert cell == f"{HEADS[field]} {getattr(one, field).replace('`', '')}"


def test_the_kinds_are_all_types():
    """Look-ups and models, each type once."""
    assert [one for kind in KINDS for one in types_of(kind)] == types_of(None)
    assert all(one.needs_a_model == (kind == "draft") for kind in KINDS for one in types_of(kind))


def test_the_place_in_the_source_is_a_cell():
    """Files and lines, with commas between them."""
    assert rows("ngram", ["at"])[0][1].endswith("ngram-map.cpp:48, ngram-map.cpp:100")
