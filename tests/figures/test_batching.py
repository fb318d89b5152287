"""Figures of batching, slots, prefix reuse, depth and verification: they draw what was measured."""

import pytest
from fakes import BatchEngine

from inferlab import figures
from inferlab.figures.style import tick_values
from inferlab.measurement.batching import batched_decode
from inferlab.measurement.depth import decode_at_depths
from studies.cache_and_batch import figures as cache_and_batch_figures
from studies.cache_and_batch.continuous_batching import Request, schedule
from studies.cache_and_batch.prefix_cache import reuse_prefix
from studies.speculation import figures as speculation_figures
from studies.speculation.speculative import time_verification


def of(figure, name):
    """The last trace of that name: the line through the medians where there are points too."""
    return [trace for trace in figure.data if trace.name == name][-1]


@pytest.fixture
def measured():
    return batched_decode(sizes=(1, 4), n_prompt=5, n_gen=3, engine=BatchEngine(), progress=False)


def test_rates_of_a_batch_together_and_each(measured):
    """Two lines, all together and each, and a dotted line for a batch that costs no more than one sequence."""
    figure = figures.batch_rates(measured)
    assert list(of(figure, "all together").y) == [0.8, 2.0]
    assert list(of(figure, "each of them").y) == [0.8, 0.5]
    assert list(of(figure, "n times one").y) == [0.8, 3.2]
    assert "4: 2.0, 0.5" in figure.layout.meta["alt"]


def test_the_steps_of_a_batch(measured):
    """Every step is a point, in milliseconds."""
    figure = figures.batch_steps(measured)
    assert list(of(figure, "median").y) == [1250, 2000]
    assert len(of(figure, "one step").x) == 18
    assert list(of(figures.batch_steps(measured, {1: 1.25, 4: 1.3}), "expected").y) == [1250, 1300]


def test_sizes_that_lie_close_have_no_labels_of_their_own():
    """The least size is named, then powers of two before the others; every label has room on a phone."""
    sizes = [1, 2, 3, 4, 5, 6, 7, 8, 12, 15, 16, 17, 32]
    assert tick_values(sizes) == [1, 4, 8, 12, 16, 32]
    assert tick_values(sizes, log=True) == [1, 2, 3, 4, 6, 8, 16, 32]
    assert (tick_values([]), tick_values([0]), tick_values([64, 256, 512])) == ([], [0], [64, 256, 512])


def test_steps_of_two_kernels_are_two_lines(measured):
    """A line for each name, with the same sequences on the axis."""
    figure = figures.batch_steps_by_kernel({"repacked": measured, "as in the file": measured})
    assert list(of(figure, "repacked").y) == list(of(figure, "as in the file").y) == [1250, 2000]
    assert list(figure.layout.xaxis.tickvals) == [1, 4]
    assert "as in the file: 1 1250.0 ms, 4 2000.0 ms" in figure.layout.meta["alt"]


def test_slots_share_one_time_axis():
    """A bar for each answer, in its slot's row, from its begin to its end."""
    requests = [Request(2, n) for n in (1, 4, 2)]
    ways = {
        name: schedule(requests, n_slots=2, continuous=way, engine=BatchEngine(lambda n: 1.0))
        for name, way in {"static": False, "continuous": True}.items()
    }
    figure = cache_and_batch_figures.slots(ways)
    assert list(of(figure, "static").base) == [0, 4, 0]
    assert list(of(figure, "continuous").base) == [0, 1, 0]
    assert set(of(figure, "static").y) == {"static 1", "static 2"}
    assert "static: 6.00 s for 3 requests" in figure.layout.meta["alt"]


def test_a_reused_prefix_beside_one_that_is_read_again():
    """Milliseconds to the first token, with and without reuse."""
    reuse = reuse_prefix(n_shared=(60,), n_own=20, engine=BatchEngine(lambda n: n / 1000))
    figure = cache_and_batch_figures.prefix_reuse(reuse)
    assert list(of(figure, "everything is read").y) == pytest.approx([80])
    assert list(of(figure, "the beginning is shared").y) == pytest.approx([20])


def test_a_line_for_each_model_over_its_cells():
    """Milliseconds of a token by the cells in use."""
    found = decode_at_depths(cells=(256, 512), n_gen=2, engine=BatchEngine())
    figure = figures.token_against_depth({"MHA": found, "MQA": found})
    assert list(of(figure, "MQA").x) == [256, 512]
    assert list(of(figure, "MHA").y) == [1250, 1250]


def test_costs_of_verification_stand_beside_single_passes():
    """A line for each kernel with its intervals, and the line that no draft may reach."""
    costs = time_verification(sizes=(1, 4), repeats=10, engine=BatchEngine())
    figure = speculation_figures.verification_costs({"here": costs})
    assert list(of(figure, "here").y) == [1.0, 1.6]
    assert list(of(figure, "here").error_y.array) == [0, 0]
    assert list(of(figure, "n single passes").y) == [1, 4]
    assert "here: 4 tokens 1.60" in figure.layout.meta["alt"]
