"""Figures of quantization, read off the figures themselves."""

import re
from dataclasses import replace

import numpy as np
import pytest
from fakes import CARD, made_fidelity, made_run, scripted_pass

import inferlab as lab
from inferlab.facts import published_tables
from inferlab.model.kernels import Matrices
from studies.block_formats import dequantize, quantize_numpy, quantize_q4_k
from studies.block_formats import figures as block_formats_figures
from studies.kernels import figures as kernels_figures
from studies.kernels import repacking
from studies.quantization import figures as quantization_figures
from studies.quantization import quant_tradeoffs

WEIGHTS = np.random.default_rng(3).normal(0, 0.02, (4, 256)).astype(np.float32)
WAYS = (quantize_numpy.absmax(WEIGHTS), quantize_numpy.q4_k(WEIGHTS))
BLOCK = dequantize.open_q4_k(quantize_q4_k.q4_k_bytes(WEIGHTS)[:144])
TRIALS = list(quantize_q4_k.trials(WEIGHTS[0, :32]))


def a_run(n_bytes, prefill, decode):
    """A run of a shape of so many bytes, whose passes have these rates."""
    passes = tuple(scripted_pass(gaps=(1.25 / decode,) * 2, prefill=8 / rate) for rate in (prefill, prefill * 1.01))
    return made_run(model=replace(CARD, tensor_bytes=n_bytes, synthetic=True), passes=passes)


def a_fidelity(kl, n_bytes=2000):
    """A comparison whose tokens diverge by `kl` in the mean."""
    card = replace(CARD, tensor_bytes=n_bytes)
    return made_fidelity((1.0, 2.0, 3.0), (kl, 0.5 * kl, 1.5 * kl), (True, True, False), model=card)


RUNS = {"F16": a_run(2**31, 100, 10), "Q8_0": a_run(2**30, 90, 16), "Q4_0": a_run(2**29, 120, 20)}
MATRIX_LOSSES = lab.load("epyc-2c/matrix-losses")
LOSSES = quant_tradeoffs.Losses({"Q8_0": a_fidelity(0.001), "Q4_0": a_fidelity(0.05)})
ROWS = quant_tradeoffs.rows(LOSSES, RUNS)
EVERY = {
    "bits_per_weight": block_formats_figures.bits_per_weight(),
    "super_block": block_formats_figures.super_block(BLOCK, "a matrix"),
    "rounding_errors": block_formats_figures.rounding_errors(WEIGHTS, WAYS, "a matrix"),
    "scale_search": block_formats_figures.scale_search(TRIALS, "a matrix"),
    "mixed_types": block_formats_figures.mixed_types([lab.shape("qwen2.5-0.5b"), lab.shape("llama-3.2-1b")]),
    "mix_rates": kernels_figures.mix_rates(RUNS),
    "published_mix_rates": quantization_figures.published_mix_rates(published_tables()["llama-3.1-8b-rates"]),
    "fidelity": quantization_figures.fidelity(LOSSES),
    "losses_with_matrix": quantization_figures.losses_with_matrix(MATRIX_LOSSES),
    "losses_by_text": quantization_figures.losses_by_text(MATRIX_LOSSES, ("Q2_K", "IQ2_XXS")),
    "pareto": quantization_figures.pareto(ROWS, LOSSES.badge),
}


@pytest.mark.parametrize("name", EVERY)
def test_every_figure_says_its_numbers_and_where_they_come_from(name):
    """A text alternative with numbers, and a badge below that says measured, computed, read or cited."""
    layout = EVERY[name].layout
    assert any(character.isdigit() for character in layout.meta["alt"])
    assert any(word in note.text for note in layout.annotations for word in ("computed", "read", "measured", "cited"))
    assert layout.xaxis.title.text or layout.yaxis.title.text


def test_every_type_for_weights_has_a_bar_as_long_as_its_bits():
    """Each type once, the widest on top; sums of internal types are left out."""
    bars = {name: bits for bar in EVERY["bits_per_weight"].data for name, bits in zip(bar.y, bar.x, strict=True)}
    assert (bars["Q4_K"], bars["Q8_0"], bars["Q2_K"], bars["IQ1_S"]) == (4.5, 8.5, 2.625, 1.5625)
    assert not {"Q8_K", "Q8_1", "I32"} & set(bars)
    assert EVERY["bits_per_weight"].layout.yaxis.categoryarray[0] in ("F16", "BF16")


def test_a_super_block_shows_its_codes_and_what_they_stand_for():
    """Eight rows of 32 codes, each row named by its scale and minimum, the weights under the pointer."""
    heat = EVERY["super_block"].data[0]
    assert np.asarray(heat.z).tolist() == BLOCK.codes.tolist()
    assert heat.y[5] == f"5: {BLOCK.scales[5]} / {BLOCK.minima[5]}"
    assert np.asarray(heat.customdata)[5, 7] == BLOCK.weights[5, 7]


def test_rounding_errors_are_measured_in_the_weights_own_spread():
    """A bar is the root mean square error in percent of the standard deviation, and Q4_K stands out."""
    bar = EVERY["rounding_errors"].data[0]
    assert bar.x[1] == pytest.approx(100 * WAYS[1].rmse(WEIGHTS) / WEIGHTS.std())
    assert bar.y == ("one scale a row<br>4.06 bits", "Q4_K<br>4.5 bits")
    assert len(set(bar.marker.color)) == 2


def test_the_search_shows_which_trials_were_kept():
    """21 trials in order, and a mark on each that was better than all before it."""
    trials, kept = EVERY["scale_search"].data
    assert len(trials.x) == 21
    assert len(kept.x) == sum(trial.kept for trial in TRIALS[1:])
    assert kept.y[-1] == min(min(trials.y), kept.y[-1])


def test_shares_of_a_mix_add_up():
    """Each model's types share 100 % of its bytes; the small one is mostly Q5_0, which its rows force on it."""
    bars = {bar.name: bar for bar in EVERY["mixed_types"].data}
    assert sum(bar.x[0] for bar in bars.values()) == pytest.approx(100)
    assert bars["Q5_0"].x[0] == pytest.approx(44.2, abs=0.1)
    assert bars["Q5_0"].x[1] == 0


def test_rates_are_relative_to_the_first():
    """Every pass is a point and the median a dot, without lines; ticks in the decode panel are the ratio of bytes."""
    every, dots, *_ = decode = [trace for trace in EVERY["mix_rates"].data if trace.xaxis == "x2"]
    assert dots.x == pytest.approx((1, 1.6, 2))
    assert len(every.x) == 6
    assert decode[-1].x == (1, 2, 4)
    assert {trace.mode for trace in EVERY["mix_rates"].data} == {"markers"}
    assert "synthetic" in EVERY["mix_rates"].layout.annotations[0].text


def test_a_dot_has_the_colour_of_its_kernel():
    """The kernel that multiplies most of the bytes, with one legend entry; an unknown one is said to be."""
    weights = (Matrices("Q4_K", "CPU_REPACK", 30), Matrices("Q6_K", "CPU", 20))
    runs = {"F16": replace(RUNS["F16"], weights=(Matrices("F16", "CPU", 50),)),
            "Q4_K_M": replace(RUNS["Q4_0"], weights=weights)}  # fmt: skip
    figure = kernels_figures.mix_rates(runs)
    assert [trace.name for trace in figure.data if trace.showlegend] == ["plain", "repacked", "if only bytes counted"]
    assert "Q4_K_M prefill 1.20, decode 2.00 (Q4_K repacked, Q6_K tiled from 8 tokens)" in figure.layout.meta["alt"]
    assert "not recorded" in EVERY["mix_rates"].layout.meta["alt"]


def test_repacking_is_drawn_as_ratios():
    """One row for each file, with the repacked share in its name; right of the line repacking is faster."""
    default = replace(RUNS["Q4_0"], weights=(Matrices("Q4_0", "CPU_REPACK", 75), Matrices("Q6_K", "CPU", 25)))
    pairs = {"Q4_0": repacking.Pairs("Q4_0", (default,) * 2, (RUNS["F16"],) * 2)}
    figure = kernels_figures.repacking(pairs)
    assert list(figure.layout.yaxis.categoryarray) == ["Q4_0, 75 % repacked"]
    assert [tuple(t.x) for t in figure.data if t.marker.size == 11] == [pytest.approx((1.2,)), pytest.approx((2.0,))]
    assert [shape.x0 for shape in figure.layout.shapes] == [1, 1]


def test_published_rates_keep_their_uncertainty():
    """The table's rates divided by its F16 row, with its standard deviations."""
    decode, prefill, _ = EVERY["published_mix_rates"].data
    assert decode.x[decode.y.index("Q4_K_M")] == pytest.approx(71.93 / 29.17)
    assert prefill.x[prefill.y.index("Q4_K_M")] == pytest.approx(821.81 / 923.49)
    assert decode.error_x.array[0] == pytest.approx(0.04 / 29.17)


def test_fidelity_shows_errors_that_can_be_seen():
    """The mean divergence of each type; an error that its dot would hide is told below the axis instead."""
    trace = EVERY["fidelity"].data[0]
    assert trace.x == pytest.approx((0.001, 0.05))
    assert min(trace.error_x.array) > 0
    assert EVERY["fidelity"].layout.xaxis.type == "log"
    same = made_fidelity((1.0, 2.0, 3.0), (0.0100, 0.0101, 0.0102), (True, True, True))
    figure = quantization_figures.fidelity(quant_tradeoffs.Losses({"Q8_0": same}))
    assert figure.data[0].error_x.array is None
    assert "standard errors of at most" in figure.layout.annotations[0].text.replace("<br>", " ")


def test_a_quantized_type_takes_more_bits_than_its_name_says():
    """Scales and minima come on top of the number in the name."""
    numbers = {name: int(found[1]) for name in dequantize.TYPES if (found := re.search(r"(?:Q|FP)(\d)", name))}
    assert numbers
    assert all(dequantize.TYPES[name].bits_per_weight > bits for name, bits in numbers.items() if name != "Q8_K")


def test_the_front_joins_what_nothing_beats():
    """Only types with a loss and a rate are drawn; a type that is slower, larger and worse is off the line."""
    front, types = EVERY["pareto"].data
    assert types.text == ("Q8_0", "Q4_0")
    assert len(front.x) == 2
    worse = {**RUNS, "Q5_0": a_run(2**30 + 1, 90, 15)}
    losses = replace(LOSSES, by_name={**LOSSES.by_name, "Q5_0": a_fidelity(0.01)})
    front, types = quantization_figures.pareto(quant_tradeoffs.rows(losses, worse), LOSSES.badge).data
    assert (len(front.x), len(types.x)) == (2, 3)


def test_a_loss_is_shown_without_a_matrix_and_with_it():
    """A row for each type, most bits on top; a line joins the two; what needs a matrix has one mark."""
    figure = EVERY["losses_with_matrix"]
    marks = {trace.name: trace for trace in figure.data if trace.mode == "markers"}
    assert set(marks) == {"no matrix", "training text"}
    rows = list(figure.layout.yaxis.categoryarray)
    assert (rows[0].split(",")[0], rows[-1].split(",")[0], len(rows)) == ("Q8_0", "IQ1_S", 18)
    named = {row.split(",")[0] for row in marks["no matrix"].y}
    assert "IQ2_XXS" not in named
    assert "Q8_0" in named
    joined = [trace for trace in figure.data if trace.mode == "lines"]
    assert len(joined) == len(named) - 2  # Q8_0 and MXFP4 have no matrix


def test_texts_are_compared_in_units_of_the_right_one():
    """The training text's matrix is 1 in every row; no matrix is farther right where it was made."""
    marks = {trace.name: dict(zip(trace.y, trace.x, strict=True)) for trace in EVERY["losses_by_text"].data}
    assert marks["training text"] == {"Q2_K": 1.0, "IQ2_XXS": 1.0}
    assert marks["no matrix"]["Q2_K"] > marks["code examples"]["Q2_K"] > 1
    assert "IQ2_XXS" not in marks["no matrix"]
