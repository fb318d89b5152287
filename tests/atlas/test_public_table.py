"""The atlas's table of published rates: one line for each card with a model, and a way to each source."""

from dataclasses import replace

import pytest
from bs4 import BeautifulSoup

from handbook import atlas_table
from inferlab.results.public_rates import DECODE, PROMPT, public_rates
from studies.hardware_atlas.public_groups import PublicGroup, groups

PLAIN = next(row for row in public_rates() if row.phase == DECODE and not row.is_partial and not row.depth)


def shown(*rows):
    """The table of one group."""
    return BeautifulSoup(atlas_table.public_table([PublicGroup(rows)]).data, "html.parser")


@pytest.fixture(scope="module")
def page():
    """The table of all."""
    return BeautifulSoup(atlas_table.public_table(groups(public_rates())).data, "html.parser")


def test_the_table_says_whose_its_rates_are(page):
    """Of others, how many stand behind the lines, and in each line how many and whose."""
    assert f"{len(public_rates()):,} rates that others published" in page.summary.get_text()
    assert page.caption.get_text().startswith("Measured and published by others")
    assert sum(int(row["data-results"]) for row in page.select("tbody tr")) == len(public_rates())
    for row in page.select("tbody tr"):
        assert "/" in row.select("td")[-1].small.get_text()


def test_each_rate_leads_to_its_source(page):
    """Every cell with a rate is a link to the address of a row of that rate."""
    rates = {(row.address, atlas_table.number_text(row.rate)) for row in public_rates()}
    assert {(link["href"], link.get_text()) for link in page.select("tbody a")} <= rates
    assert all(cell.a or cell.get_text() == "none" for row in page.select("tbody tr") for cell in row.select("td")[2:5])


def test_what_can_be_chosen_is_in_the_lines(page):
    """Card, model, backend, weights and what was measured; a line has several of the last."""
    for select in page.select("select"):
        offered = {option.get_text() for option in select.select("option")} - {"all"}
        in_lines = {value for row in page.select("tbody tr") for value in row[f"data-{select['name']}"].split("|")}
        assert offered == in_lines
    assert {select["name"] for select in page.select("select")} == set(atlas_table.PUBLIC_CHOICES)


def test_a_line_says_what_was_not_usual():
    """A cell has the test, and settings that are not llama.cpp's; an ubatch matters to a prompt alone."""
    settings = {"flash_attn": False, "type_k": "q8_0", "type_v": "q8_0", "n_ubatch": 2048}
    decode, prompt = replace(PLAIN, **settings), replace(PLAIN, phase=PROMPT, **settings)
    cells = [[line.get_text() for line in cell.select("small")] for cell in shown(decode, prompt).select("td")]
    assert cells[2] == [decode.test, "flash_attn off, cache q8_0"]
    assert cells[3] == [prompt.test, "flash_attn off, cache q8_0, n_ubatch 2048"]
    plain = replace(PLAIN, flash_attn=None, type_k="f16", type_v="f16")
    assert [line.get_text() for line in shown(plain).select("td")[2].select("small")] == [plain.test]


def test_a_part_in_ram_is_said_and_can_be_chosen():
    """What lies in RAM stands below the model."""
    page = shown(replace(PLAIN, n_gpu_layers=20))
    assert page.select("td")[1].small.get_text() == "20 layers on the card"
    assert page.select_one("tbody tr")["data-weights"] == "part in RAM"


def test_what_a_source_says_cannot_become_markup():
    """Anybody may contribute a row."""
    html = atlas_table.public_table([PublicGroup((replace(PLAIN, host='"><b>', place='a"><i>:3'),))]).data
    assert "<b>" not in html
    assert "<i>" not in html
