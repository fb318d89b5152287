"""A workstation: the numbers and tables of the page, and the cores of the engine."""

import pytest

from studies.experts import workstation


@pytest.fixture(scope="module")
def found():
    return workstation.numbers()


def test_the_rates_of_ram_follow_from_the_data_sheet(found):
    """Channels of 64 bits, at the speed of two modules and of four; two threads on one core lose, by the records."""
    assert 0 < found["crowded"] < 50
    assert found["two_gb"] == pytest.approx(found["cpu_channels"] * 8 * found["cpu_two-modules"] / 1000)
    assert found["four_less"] == pytest.approx(100 * (1 - found["cpu_four-modules"] / found["cpu_two-modules"]))


def test_a_model_that_fits_is_bound_by_its_card(found):
    """The table has the bounds of the prose, and conversations only where nothing else lies in RAM."""
    heads, rows = workstation.models_table()
    table = {row[0]: dict(zip(heads, row, strict=True)) for row in rows}
    whole = table[workstation.title(workstation.WHOLE)]
    assert float(whole["tokens/s, two modules"]) == pytest.approx(found["whole"], rel=0.01)
    assert whole["tokens/s, two modules"] == whole["four modules"]
    split = table[workstation.title(workstation.SPLIT)]
    assert split["in RAM"] == f"{found['split_layers']} layers"
    assert [row["conversations on the card"] == "–" for row in table.values()] == [
        row["in RAM"] != "nothing" for row in table.values()
    ]


def test_another_part_gains_where_the_bytes_lie():
    """Bandwidth of RAM gains nothing for a model that fits, and most for one of which most time is spent there."""
    heads, rows = workstation.changes_table()
    rates = {row[0]: dict(zip(heads[1:], row[1:], strict=True)) for row in rows}
    fits, dense = map(workstation.title, (workstation.WHOLE, workstation.DENSE))
    faster = rates["bandwidth of RAM, twice"]
    assert faster[fits] == pytest.approx(rates["nothing"][fits], rel=1e-3)
    assert faster[dense] > rates["bandwidth of VRAM, twice"][dense] > rates["nothing"][dense]


def test_each_side_gets_whole_cores():
    """The second threads of the engine's cores belong to nobody."""
    assert workstation.cpu_lists(16, 12) == ("0-11", "12-15,28-31")
    assert "AllowedCPUs=0-11\n" in workstation.slice_text()
    assert workstation.slice_text().count("AllowedCPUs=12-15,28-31") == 1
