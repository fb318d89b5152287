"""The figure of the cache by formula."""

from inferlab.units import MIB
from studies.anatomy.figures import kv_formulas


def test_a_formula_is_compared_with_the_engine():
    """Each bar says how many times the engine's bytes it is, and the text says the bytes."""
    figure = kv_formulas({"right": 3 * MIB, "query heads": 6 * MIB}, 3 * MIB, "made for a test")
    assert [name.split(": ")[1] for name in figure.data[0].y] == ["1.00 times", "2.00 times"]
    assert "query heads 6.00 MiB" in figure.layout.meta["alt"]
