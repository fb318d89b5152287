"""Figures of batching, slots, prefix reuse and the cache along an answer: they draw what was measured."""

from dataclasses import replace

import pytest
from fakes import BatchEngine, made_run, scripted_pass

from inferlab.engine.log import Buffer
from inferlab.measurement.batching import batched_decode
from inferlab.measurement.telemetry.samples import Sample
from inferlab.settings import Settings
from inferlab.units import MIB
from studies.cache_and_batch import figures
from studies.cache_and_batch.continuous_batching import Request, schedule
from studies.cache_and_batch.prefix_cache import reuse_prefix


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
    figure = figures.slots(ways)
    assert list(of(figure, "static").base) == [0, 4, 0]
    assert list(of(figure, "continuous").base) == [0, 1, 0]
    assert set(of(figure, "static").y) == {"static 1", "static 2"}
    assert "static: 6.00 s for 3 requests" in figure.layout.meta["alt"]


def test_a_reused_prefix_beside_one_that_is_read_again():
    """Milliseconds to the first token, with and without reuse."""
    reuse = reuse_prefix(n_shared=(60,), n_own=20, engine=BatchEngine(lambda n: n / 1000))
    figure = figures.prefix_reuse(reuse)
    assert list(of(figure, "everything is read").y) == pytest.approx([80])
    assert list(of(figure, "the beginning is shared").y) == pytest.approx([20])


def test_without_a_cache_a_token_costs_the_prefill_of_everything():
    """One line is the prefill of the whole text, the other a single decode behind it."""
    runs = [made_run(n_prompt=n, passes=(scripted_pass(prefill=n / 100),)) for n in (8, 16)]
    lines = {trace.name: trace for trace in figures.time_without_cache(runs).data}
    assert lines["without a cache"].y == pytest.approx((80, 160))
    assert lines["with a cache"].y == pytest.approx((80, 80))


def test_used_cells_stay_below_those_read_and_those_below_the_reserved():
    """Three lines that never cross, and the growth of the process beside them; without samples there is none."""
    answered = replace(scripted_pass(gaps=[0.2] * 3, share=1.0), began=0.0)
    run = made_run(
        n_prompt=250,
        n_gen=4,
        settings=Settings(n_ctx=1024),
        passes=(answered,),
        buffers=(Buffer("CPU", "kv_cache", 8 * MIB),),
        samples=tuple(Sample(0.4 + 0.2 * i, rss_bytes=100 * MIB + i * MIB) for i in range(5)),
    )
    reserved, looked_at, used, grown = (trace.y for trace in figures.cache_use(run).data)
    assert set(reserved) == {8.0}
    assert looked_at == (2.0, 2.0, 2.0, 2.0)
    assert all(a < b <= c for a, b, c in zip(used, looked_at, reserved, strict=True))
    assert grown[0] == 0 < grown[-1]
    assert len(figures.cache_use(replace(run, samples=())).data) == 3
