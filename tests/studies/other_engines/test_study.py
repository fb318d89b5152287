"""Other engines: the readings and numbers of the page, its figures, and what an engine that is missing says."""

import json
import sys
from statistics import median

import pytest

from inferlab.errors import OtherEngineFailed
from inferlab.model.find import tiny_model
from inferlab.records import shipped
from inferlab.units import GB
from studies.other_engines import figures, measure, study, worker
from studies.other_engines.client import OtherEngine, Request


def raw(name):
    """A record's rows as they lie in its file, by engine and weights."""
    rows = json.loads(shipped()[f"epyc-2c/{name}"].read_text(encoding="utf-8"))["rows"]
    return {(row["engine"], row["weights"]): row for row in rows}


def test_the_page_says_what_the_record_has():
    """Medians over each other, from the file itself."""
    rows, found = raw("engines-shape"), study.numbers()
    f16, q4, vino = rows["llama.cpp", "F16"], rows["llama.cpp", "Q4_0"], rows["OpenVINO", "F16"]
    assert found["bits_gain"] == median(f16["step_seconds"]) / median(q4["step_seconds"]) > 1
    assert found["vino_first"] == median(f16["first_seconds"]) / median(vino["first_seconds"])
    assert found["vino_again"] < 0.5 < min(row.again for row in study.recorded()[1].rows if row.engine != "OpenVINO")
    assert found["agreeing"] == found["compared"] == len({engine for engine, _ in raw("engines-tiny")})
    assert found["compared"] == len(figures.COLOURS)


def test_the_page_counts_engines_and_divides_bytes_by_rates():
    """Computed, sent and refused are all engines; half of the lanes take twice as long."""
    found, ways = study.numbers(), study.ways()
    assert found["n_computed"] + found["n_refused"] + len(found["sent_titles"].split(", ")) == found["engines"]
    assert found["ram_ms"] == 1e3 * 4 * GB / ways["computed in RAM, DDR5-5600"].bytes_per_second
    assert found["bus_most"] == pytest.approx(1e3 / found["bus_ms"])
    assert found["factor_narrow"] == pytest.approx(2 * found["factor"], rel=0.01)


@pytest.mark.parametrize("comparison", study.recorded())
def test_the_recorded_comparisons_are_whole(comparison):
    """At least four engines beside each other, fifteen turns, versions for all."""
    rows = comparison.rows
    assert len({row.engine for row in rows}) >= 4
    assert all(len(times) == 15 for row in rows for times in (row.first_seconds, row.step_seconds, row.same))
    assert all(row.version for row in rows)
    assert not comparison.missing


def test_the_order_of_decode_is_that_of_the_bits_but_for_transformers():
    """What the page says of the recorded decode of the larger model."""
    bits = {"float32": 32, "fp32": 32, "F16 exact": 32, "F16": 16, "bfloat16": 16, "Q8_0": 8, "Q4_0": 4, "int4": 4}
    rows = study.recorded()[1].rows
    pairs = [(wide, narrow) for wide in rows for narrow in rows if bits[wide.weights] > bits[narrow.weights]]
    assert {late.name for early, late in pairs if early.step < late.step} == {"transformers, bfloat16"}


def test_a_recipe_measures_the_rows_of_its_record():
    """llama.cpp in every type and each engine in its weights, with as many turns."""
    for name, recipe in measure.RECIPES.items():
        weights = next(one for one in recipe.args if "OpenVINO" in one)
        assert set(weights) <= set(worker.OPENED)
        asked = [("llama.cpp", type) for type in measure.TYPES]
        asked += [(engine, kind) for engine, kinds in weights.items() for kind in kinds]
        assert [*raw(name)] == asked
        assert len(raw(name)["llama.cpp", "F16"]["same"]) == recipe.keywords["repeats"]


def test_an_engine_that_is_not_installed_is_named():
    """Its process ends, and the error has the last line that it wrote."""
    one = OtherEngine((sys.executable, "-S", "-m", worker.__name__))
    with pytest.raises(OtherEngineFailed, match="No module named"):
        one.open(Request("MLX", "float16", tiny_model(), 2, 256))
    one.close()


def test_medians_stand_among_the_turns():
    """Every turn is a point of the figure, and the text alternative has the medians."""
    comparison = study.recorded()[1]
    drawn = figures.decode_rates(comparison)
    marks = [x for trace in drawn.data if trace.marker.symbol == "line-ns-open" for x in trace.x]
    assert sorted(marks) == pytest.approx(sorted(median(1 / t for t in row.step_seconds) for row in comparison.rows))
    assert sum(len(trace.x) for trace in drawn.data) == len(comparison.rows) * 16
    assert all(row.name in drawn.layout.meta["alt"] for row in comparison.rows)


def test_each_way_is_a_line_from_nothing_to_its_least_time():
    """The text alternative has its end; the badge says that nothing was run."""
    drawn = figures.outside_the_card(study.ways())
    assert [trace.name for trace in drawn.data] == [*study.ways()]
    assert list(drawn.data[0].y) == [0, pytest.approx(2 * study.numbers()["ram_ms"])]
    assert f"{drawn.data[0].y[1]:.0f} ms" in drawn.layout.meta["alt"]
    assert any("nothing" in note.text for note in drawn.layout.annotations)
