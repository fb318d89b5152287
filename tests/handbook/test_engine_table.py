"""The directive for the comparison of engines: rows, columns, labels for narrow screens, and what was read."""

import pytest
from docutils import nodes

from handbook.engine_table import HEADS, engine_table, versions_text
from studies.other_engines.engine_choice import known_engines

ENGINES = list(known_engines().values())


def rows(fields: list[str]) -> list[list[str]]:
    body = next(iter(engine_table(ENGINES, fields).findall(nodes.tbody)))
    return [[cell.astext() for cell in row.findall(nodes.entry)] for row in body.findall(nodes.row)]


@pytest.mark.parametrize("field", HEADS)
def test_a_cell_has_the_text_of_the_data_and_the_name_of_its_column(field):
    """On a narrow screen a row has no heads, so each cell begins with its own."""
    for engine, (title, cell) in zip(ENGINES, rows([field]), strict=True):
        assert title == engine.title
        assert cell == f"{HEADS[field]} {getattr(engine, field).replace('`', '')}"


def test_backticks_are_code():
    """A setting stands as code between the words."""
    table = engine_table([known_engines()["vllm"]], ["offload"])
    assert [one.astext() for one in table.findall(nodes.literal)] == ["--cpu-offload-gb"]


def test_what_was_read_is_said_of_every_engine():
    """Version, date and a citation for each."""
    text = versions_text(ENGINES)
    assert "vLLM up to 0.26 (August 2026) {cite}`vllm`" in text
    assert text.count("{cite}") == len(ENGINES)
