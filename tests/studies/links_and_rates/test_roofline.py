"""What a run achieved under a machine's roofs, compared with sums done by hand."""

from math import prod

import pytest
from fakes import made_run, scripted_pass

from inferlab.machine import Ceiling
from inferlab.model.synthetic_model import shape
from inferlab.settings import Settings
from studies.links_and_rates import figures, roofline

SHAPE = shape("llama-3.2-1b", "F16", n_layer=2, n_vocab=512)
BLOCKS = [t for t in SHAPE.tensors if t.name.startswith("blk.") and len(t.shape) > 1]
LAST = sum(prod(t.shape) for t in BLOCKS if t.name.startswith("blk.1.ffn"))
WEIGHTS, HEAD = sum(prod(t.shape) for t in BLOCKS) - LAST, 512 * 2048 + LAST  # for every token, for the last one
CEILING = Ceiling("host", 2, 1e9, {"F16": 8e9})
BATCHED = Settings(n_ctx=4096, n_batch=2048, n_ubatch=2048)


def a_run(n_prompt, seconds, settings=BATCHED):
    return made_run(n_prompt=n_prompt, settings=settings, passes=(scripted_pass(prefill=seconds, gaps=(0.125, 0.125)),))


def test_a_prompt_counts_two_flop_for_each_weight_and_token():
    """The output matrix works once in a pass, and so does the last block behind its attention; the rate is what was
    counted over the measured time.
    """
    told = roofline.achieved([a_run(100, 2.0)], SHAPE)[0]
    flop = 2 * 100 * WEIGHTS + 2 * HEAD
    assert told.flops_per_second == pytest.approx(flop / 2.0)
    assert told.flop_per_byte == pytest.approx(flop / (2 * (WEIGHTS + HEAD)), rel=1e-3)
    assert told.bytes_per_second == pytest.approx(2 * (WEIGHTS + HEAD) / 2.0, rel=1e-3)


def test_a_prompt_beyond_a_ubatch_reads_the_weights_again():
    """The intensity is that of one pass: more tokens do not raise it."""
    once, twice = (roofline.achieved([a_run(n, 1.0, Settings(n_ctx=4096))], SHAPE)[0] for n in (512, 1024))
    assert once.flop_per_byte == twice.flop_per_byte
    assert twice.flops_per_second == pytest.approx(2 * once.flops_per_second)


def test_decode_is_a_pass_of_one_token():
    """About one FLOP for each byte of F16, at the measured rate."""
    told = roofline.achieved([a_run(16, 1.0), a_run(4, 1.0)], SHAPE)[-1]
    assert (told.name, told.flop_per_byte) == ("decode", pytest.approx(1.0, rel=1e-3))
    assert told.bytes_per_second == pytest.approx(2 * (WEIGHTS + HEAD) * 10, rel=1e-3)


def test_shares_are_of_both_roofs():
    """A gigabyte and eight GFLOP in a second are the roofs: half a GB/s and one GFLOP/s are a half and an eighth."""
    assert roofline.Achieved("decode", 1, 2.0, 1e9).shares(CEILING, "F16") == (0.5, 0.125)


def test_the_ridge_in_tokens_is_where_both_roofs_meet():
    """Eight FLOP a byte, one a token and byte of F16: eight tokens."""
    assert roofline.ridge_tokens(CEILING, "F16", SHAPE) == pytest.approx(8, rel=1e-3)


def test_each_series_has_a_symbol_of_its_own_for_decode():
    """Decode is orange everywhere, so the symbol tells two series apart."""
    figure = figures.rates_against_length({"Q4_K_M": [made_run()], "F16": [made_run()]}, {})
    symbols = [trace.marker.symbol for trace in figure.data if trace.name.startswith("decode")]
    assert len(set(symbols)) == 2


def test_prefill_is_drawn_against_length_with_decode_at_one():
    """Points stand where they were measured; a ridge is named above the axes, beside its line."""
    runs = [a_run(1, 0.1), a_run(64, 0.5)]
    figure = figures.rates_against_length({"F16": runs}, {"F16": 8.0, "Q4_K": 4.0})
    traces = {trace.name: trace for trace in figure.data}
    assert (list(traces["prefill, F16"].x), [round(y) for y in traces["prefill, F16"].y]) == ([1, 64], [10, 128])
    assert traces["decode, F16"].y == (10.0,)
    assert [shape.x0 for shape in figure.layout.shapes] == [4.0, 8.0]
    assert "ridge for F16 lies at 8 tokens" in figure.layout.meta["alt"]
    names = {note.text: note for note in figure.layout.annotations if note.text.startswith("ridge")}
    assert {name: note.xanchor for name, note in names.items()} == {"ridge, Q4_K": "right", "ridge, F16": "left"}
    assert all((note.yref, note.y, note.yanchor) == ("paper", 1, "bottom") for note in names.values())


def test_one_length_is_picked_out_under_the_roofs():
    """The figure shows its share of each roof, and its point at the measured values."""
    phases = roofline.achieved([a_run(1, 0.5), a_run(64, 0.5)], SHAPE)
    figure = figures.roofline_at(CEILING, phases, ("F16",), "measured: here", 64)
    assert list(figure.data[-1].x) == [phases[1].flop_per_byte]
    reading, working = (100 * share for share in phases[1].shares(CEILING, "F16"))
    text = f"prefill of 64 tokens: {reading:.0f} % of the memory roof, {working:.0f} % of that of F16"
    assert text in figure.layout.meta["alt"]


HOST = Ceiling("host", 2, 20e9, {"F16": 200e9, "Q4_K": 600e9})
POINTS = [("1 token", 2, 30e9), ("512 tokens", 900, 150e9)]


def test_points_stand_under_roofs_that_bend_at_their_ridges():
    """Left of the ridge a roof is bandwidth times intensity, right of it the matrix rate, beyond the last point."""
    figure = figures.roofline(HOST, POINTS, ["F16", "Q4_K"], "badge")
    *roofs, measured = figure.data
    assert [roof.name for roof in roofs] == ["F16", "Q4_K"]
    assert roofs[0].y[0] == pytest.approx(roofs[0].x[0] * 20)
    assert (roofs[0].x[1], *roofs[0].y[1:]) == (10, 200, 200)
    assert roofs[0].x[2] > 900
    assert (list(measured.y), list(measured.text)) == ([30, 150], ["1 token", "512 tokens"])
    assert "ridges at 10 FLOP per byte for F16" in figure.layout.meta["alt"]


def a_page_run(after=HOST):
    """Prompts at round rates: 100 tokens a second and more, in both types."""
    models = {mix: shape("llama-3.2-1b", mix, n_layer=2, n_vocab=512) for mix in roofline.KINDS}
    runs = {
        mix: [a_run(n, (n + 50 * k) / 10_000) for n in lengths]
        for k, (mix, lengths) in enumerate(roofline.LENGTHS.items(), 1)
    }
    return roofline.Measured(HOST, after, models, runs)


def test_the_numbers_of_a_run_compare_its_rates():
    """Rates grow with the prompt here, by hand: n tokens in n + 50 steps of time with Q4_K_M, n + 100 with F16."""
    found = roofline.numbers(a_page_run())
    assert found["first_octave"] == pytest.approx(8 / 58 * 51)
    assert found["eight_in_one"] == pytest.approx(58 / 51)
    assert found["sixteen_in_eight"] == pytest.approx(66 / 58)
    assert found["plateau"] == pytest.approx(356 / 306)
    assert found["rates_ratio"] == 3
    assert found["roofs_apart"] == "memory 0 %, F16 0 %, Q4_K 0 %"


def test_the_higher_roof_counts_and_a_difference_is_told():
    """Half of the bandwidth after the prompts changes no roof."""
    slow = Ceiling("host", 2, 10e9, HOST.matrix_flops_per_second)
    found = a_page_run(slow)
    assert found.roof.bandwidth_bytes_per_second == 20e9
    assert roofline.numbers(found)["roofs_apart"].startswith("memory 100 %")
    heads, rows = roofline.roof_table(found)
    assert [row[2] for row in rows] == ["20.0 GB/s", "200 GFLOP/s", "600 GFLOP/s"]
    assert all(len(row) == len(heads) for row in rows)


@pytest.mark.parametrize(
    ("reads", "works", "said"),
    [(50, 60, "nearer to the arithmetic"), (80, 60, "runs close to"), (60, 20, "other costs than reading")],
)
def test_what_limits_decode_is_told_by_its_shares(reads, works, said):
    """The nearer roof, and whether it is near."""
    assert said in roofline._decode_text(reads, works)


def test_points_above_a_roof_are_counted():
    """None lies above high roofs, and all above low ones."""
    low = Ceiling("host", 2, 1.0, {"F16": 1.0, "Q4_K": 1.0})
    high = Ceiling("host", 2, 1e30, {"F16": 1e30, "Q4_K": 1e30})
    run = a_page_run()
    texts = [
        roofline.numbers(roofline.Measured(roof, roof, run.models, run.runs))["roof_remark"] for roof in (low, high)
    ]
    assert texts == ["Here 13 of the 13 points lie above the roof", "Here none of the 13 points does"]
