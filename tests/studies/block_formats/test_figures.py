"""Figures of quantized files, read off the figures themselves."""

import numpy as np
import pytest

import inferlab as lab
from studies.block_formats import dequantize, figures, quantize_numpy, quantize_q4_k

WEIGHTS = np.random.default_rng(3).normal(0, 0.02, (4, 256)).astype(np.float32)
WAYS = (quantize_numpy.absmax(WEIGHTS), quantize_numpy.q4_k(WEIGHTS))
BLOCK = dequantize.open_q4_k(quantize_q4_k.q4_k_bytes(WEIGHTS)[:144])
TRIALS = list(quantize_q4_k.trials(WEIGHTS[0, :32]))


def test_every_type_for_weights_has_a_bar_as_long_as_its_bits():
    """Each type once, the widest on top; sums of internal types are left out."""
    figure = figures.bits_per_weight()
    bars = {name: bits for bar in figure.data for name, bits in zip(bar.y, bar.x, strict=True)}
    assert (bars["Q4_K"], bars["Q8_0"], bars["Q2_K"], bars["IQ1_S"]) == (4.5, 8.5, 2.625, 1.5625)
    assert not {"Q8_K", "Q8_1", "I32"} & set(bars)
    assert figure.layout.yaxis.categoryarray[0] in ("F16", "BF16")


def test_a_super_block_shows_its_codes_and_what_they_stand_for():
    """Eight rows of 32 codes, each row named by its scale and minimum, the weights under the pointer."""
    heat = figures.super_block(BLOCK, "a matrix").data[0]
    assert np.asarray(heat.z).tolist() == BLOCK.codes.tolist()
    assert heat.y[5] == f"5: {BLOCK.scales[5]} / {BLOCK.minima[5]}"
    assert np.asarray(heat.customdata)[5, 7] == BLOCK.weights[5, 7]


def test_rounding_errors_are_measured_in_the_weights_own_spread():
    """A bar is the root mean square error in percent of the standard deviation, and Q4_K stands out."""
    bar = figures.rounding_errors(WEIGHTS, WAYS, "a matrix").data[0]
    assert bar.x[1] == pytest.approx(100 * WAYS[1].rmse(WEIGHTS) / WEIGHTS.std())
    assert bar.y == ("one scale a row<br>4.06 bits", "Q4_K<br>4.5 bits")
    assert len(set(bar.marker.color)) == 2


def test_the_search_shows_which_trials_were_kept():
    """21 trials in order, and a mark on each that was better than all before it."""
    trials, kept = figures.scale_search(TRIALS, "a matrix").data
    assert len(trials.x) == 21
    assert len(kept.x) == sum(trial.kept for trial in TRIALS[1:])
    assert kept.y[-1] == min(min(trials.y), kept.y[-1])


def test_shares_of_a_mix_add_up():
    """Each model's types share 100 % of its bytes; the small one is mostly Q5_0, which its rows force on it."""
    figure = figures.mixed_types([lab.shape("qwen2.5-0.5b"), lab.shape("llama-3.2-1b")])
    bars = {bar.name: bar for bar in figure.data}
    assert "44.2 % Q5_0" in figure.layout.meta["alt"]
    assert sum(bar.x[0] for bar in bars.values()) == pytest.approx(100)
    assert bars["Q5_0"].x[0] == pytest.approx(44.2, abs=0.1)
    assert bars["Q5_0"].x[1] == 0
