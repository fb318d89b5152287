"""Figures of kernels' rates, read off the figures themselves."""

from dataclasses import replace

import pytest
from fakes import CARD, made_run, scripted_pass

from inferlab.model.kernels import Matrices
from studies.kernels import figures
from studies.kernels.study import Pairs


def a_run(n_bytes, prefill, decode):
    """A run of a shape of so many bytes, whose passes have these rates."""
    passes = tuple(scripted_pass(gaps=(1.25 / decode,) * 2, prefill=8 / rate) for rate in (prefill, prefill * 1.01))
    return made_run(model=replace(CARD, tensor_bytes=n_bytes, synthetic=True), passes=passes)


RUNS = {"F16": a_run(2**31, 100, 10), "Q8_0": a_run(2**30, 90, 16), "Q4_0": a_run(2**29, 120, 20)}
MIX_RATES = figures.mix_rates(RUNS)


def test_rates_are_relative_to_the_first():
    """Every pass is a point and the median a dot, without lines; ticks in the decode panel are the ratio of bytes."""
    every, dots, *_ = decode = [trace for trace in MIX_RATES.data if trace.xaxis == "x2"]
    assert dots.x == pytest.approx((1, 1.6, 2))
    assert len(every.x) == 6
    assert decode[-1].x == (1, 2, 4)
    assert {trace.mode for trace in MIX_RATES.data} == {"markers"}
    assert "synthetic" in MIX_RATES.layout.annotations[0].text


def test_a_dot_has_the_colour_of_its_kernel():
    """The kernel that multiplies most of the bytes, with one legend entry; an unknown one is said to be."""
    weights = (Matrices("Q4_K", "CPU_REPACK", 30), Matrices("Q6_K", "CPU", 20))
    runs = {
        "F16": replace(RUNS["F16"], weights=(Matrices("F16", "CPU", 50),)),
        "Q4_K_M": replace(RUNS["Q4_0"], weights=weights),
    }
    figure = figures.mix_rates(runs)
    assert [trace.name for trace in figure.data if trace.showlegend] == ["plain", "repacked", "if only bytes counted"]
    assert "Q4_K_M prefill 1.20, decode 2.00 (Q4_K repacked, Q6_K tiled from 8 tokens)" in figure.layout.meta["alt"]
    assert "not recorded" in MIX_RATES.layout.meta["alt"]


def test_repacking_is_drawn_as_ratios():
    """One row for each file, with the repacked share in its name; right of the line repacking is faster."""
    default = replace(RUNS["Q4_0"], weights=(Matrices("Q4_0", "CPU_REPACK", 75), Matrices("Q6_K", "CPU", 25)))
    pairs = {"Q4_0": Pairs("Q4_0", (default,) * 2, (RUNS["F16"],) * 2)}
    figure = figures.repacking(pairs)
    assert list(figure.layout.yaxis.categoryarray) == ["Q4_0, 75 % repacked"]
    assert [tuple(t.x) for t in figure.data if t.marker.size == 11] == [pytest.approx((1.2,)), pytest.approx((2.0,))]
    assert [shape.x0 for shape in figure.layout.shapes] == [1, 1]
