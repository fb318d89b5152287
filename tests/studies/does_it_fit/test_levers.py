"""It does not fit: what each change frees, and that the sentences follow the tables."""

import pytest

from studies.does_it_fit import levers

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def rows():
    return {row[0]: row[1:] for row in levers.levers_table()[1]}


def test_a_change_makes_it_fit_where_it_frees_what_is_missing(rows):
    """The first row is measured against no flash attention, every other one against what is still missing."""
    gib = {name: float(freed.removeprefix("at least ").removesuffix(" GiB")) for name, (freed, _) in rows.items()}
    assert all(n > 0 for n in gib.values())
    missing = levers.numbers()["missing_gib"]
    assert rows["flash attention on in place of off"][1] == f"no, {missing:.2f} GiB missing"
    for name, (freed, fits) in list(rows.items())[1:]:
        if not freed.startswith("at least"):
            assert fits.startswith("yes") == (gib[name] >= missing)


def test_the_sentence_about_the_cache_follows_the_table(rows):
    """What a cache in q8_0 frees, and whether it fits then."""
    freed, fits = rows["cache in `q8_0`"]
    said = levers.numbers()["q8"]
    assert said.startswith(f"this frees {freed}, ")
    assert said.endswith("and it fits") == fits.startswith("yes")


def test_the_parts_on_the_card_are_the_whole():
    """Weights, cache and compute buffer; the larger model's weights alone exceed the 7 GiB."""
    found = levers.numbers()
    assert found["weights_gib"] + found["cache_gib"] + found["compute_gib"] == pytest.approx(found["on_gib"])
    assert found["on_gib"] - 7 == pytest.approx(found["missing_gib"])
    assert found["large_weights_gib"] > 7


def test_only_fewer_layers_or_a_smaller_type_help_the_larger_file():
    """No context is short enough where the weights are too large."""
    rows = {row[0]: row[2] for row in levers.larger_table()[1]}
    assert rows["as asked"].startswith("no")
    assert rows["context 2,048"].startswith("no")
    assert rows["weights in Q4_K_M"].startswith("yes")
