"""Experts in RAM: the numbers, tables and figure of the page."""

from statistics import median

import pytest

from studies.experts import study
from studies.experts.figures import ram_reads
from studies.experts.sizing import EXPERTS, LAYERS


@pytest.fixture(scope="module")
def found():
    return study.numbers()


def rows(table):
    heads, cells = table
    return [dict(zip(heads, row, strict=True)) for row in cells]


def test_experts_gain_most_at_a_full_cache(found):
    """Whole layers take their cache along; the gain is the ratio of the bounds in the table."""
    assert 1 < found["gain_empty"] < found["gain_full"]
    bounds = {(row["in RAM"][:7], row["cache"]): float(row["tokens/s, at most"]) for row in rows(study.bounds_table())}
    assert bounds["experts", "full"] == pytest.approx(found["experts_full"], abs=0.05)
    assert found["gain_full"] == pytest.approx(found["experts_full"] / found["layers_full"])


def test_the_placings_of_the_table_are_points_of_the_figure():
    """What fits the card is one of the numbers of layers that the lines go through."""
    ways = study.ram_reads()
    for (way, depth), one in study.placed().items():
        layers = "layers, empty cache" if depth == "empty" else f"layers, {study.N_CTX:,} tokens in use"
        if way == LAYERS or depth == "empty":
            assert (one.vram_bytes / 2**30, one.ram_read / 1e9) in ways[EXPERTS if way == EXPERTS else layers]


def test_larger_ubatches_copy_less_and_need_more_room(found):
    """Fewer copies of all the prompt, and the experts of no fewer layers in RAM."""
    table = rows(study.prompts_table())
    copied = [row[f"for {study.N_CTX:,} tokens"] for row in table]
    moved = [row["fewest layers with experts in RAM"] for row in table]
    assert copied == sorted(copied, reverse=True)
    assert moved == sorted(moved)
    assert found["bytes_kept"] == pytest.approx(100 * copied[2] / copied[0])
    assert found["n_experts_2048"] == moved[2]
    assert float(table[0]["prompt tokens/s, by the bus"]) == pytest.approx(found["prompt_512"], abs=0.5)


def test_a_token_reads_a_sixteenth_of_the_experts_and_all_else(found):
    """8 of 128 experts; the parts of a layer are all of its tensors and a full cache."""
    (_, held, read), *others = study.layer_table()[1]
    assert read == pytest.approx(held / 16)
    assert all(part[1] == part[2] for part in others)
    assert found["rest_factor"] == pytest.approx(sum(part[2] for part in others) / read)
    assert all(float(row["share, %"]) < 100 for row in rows(study.bytes_table()))


def test_the_pairs_of_the_page_are_those_of_the_records():
    """Recomputed from the seconds of the passes; what counts as a gain is farther from 1 than its control."""
    numbers, (pairs, controls) = study.pair_numbers(), study.recorded()
    long = pairs["long prompt"]
    seconds = [[sum(one.decode_seconds) for one in side[0].passes] for side in (long.before, long.after)]
    ratio = median(before / after for before, after in zip(*seconds, strict=True))
    assert float(numbers["long_decode"].split()[0]) == pytest.approx(ratio, abs=0.005)
    assert numbers["n_pairs"] == 8 * 2
    assert 0.9 < numbers["freed_experts"] / numbers["freed_layers"] < 1.1
    for shown in pairs:
        if f"decode with the {shown}" in numbers["beyond"]:
            assert abs(pairs[shown].compared("decode").ratio - 1) > abs(
                controls[f"{shown}, no change"].compared("decode").ratio - 1
            )


def test_the_figure_says_where_each_line_begins_and_ends():
    """The text alternative has both ends of a line; each card has a vertical line; the axis reaches all points."""
    points = {"layers": [(18.0, 0.0), (2.0, 3.2)], "experts": [(18.0, 0.0), (3.0, 1.1)]}
    figure = ram_reads(points, (8, 16))
    assert "experts from 0.00 GB with 18.0 GiB on the card to 1.10 GB with 3.0 GiB" in figure.layout.meta["alt"]
    assert [shape.x0 for shape in figure.layout.shapes] == [7.0, 15.0]
    assert [note.x for note in figure.layout.annotations if note.text == "16 GiB"] == [15.0]
    assert [tuple(trace.y) for trace in figure.data] == [(0.0, 3.2), (0.0, 1.1)]
    assert figure.layout.yaxis.range[1] >= 3.2
    assert figure.layout.yaxis.range[0] == pytest.approx(0)
