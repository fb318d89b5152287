"""A cold start: every phase has a boundary, and together they are the wall time."""

from dataclasses import replace

import pytest
from fakes import CARD, CPU_ONLY

import inferlab as lab
from inferlab import figures
from inferlab.engine.log import LogLine, phases_in
from inferlab.errors import InvalidSettings
from inferlab.figures.cold_start import GROUPS
from inferlab.measurement import page_cache
from inferlab.measurement.cold_start import PHASES, ColdStart, ColdStartPairs, cold_start, cold_start_pairs

LOAD_MODES = ("mmap", "none", "mlock", "mmap_mlock", "direct_io", "auto")


@pytest.fixture(scope="module")
def starts():
    """A cold start of each load mode."""
    return {mode: started(mode) for mode in LOAD_MODES}


def started(mode):
    return cold_start(settings=lab.Settings(load_mode=mode))


def less_disturbed(mode):
    """The share of one of two starts that no phase accounts for: what else runs only adds to it."""
    return min(1 - sum(start.phases.values()) / start.wall_seconds for start in (started(mode), started(mode)))


@pytest.mark.engine
@pytest.mark.parametrize("mode", LOAD_MODES)
def test_every_load_mode_goes_through_every_phase_in_order(starts, mode):
    """From the process to the first token, each phase is there and takes time."""
    assert tuple(starts[mode].phases) == PHASES
    assert all(seconds > 0 for seconds in starts[mode].phases.values())


@pytest.mark.engine
@pytest.mark.timed
def test_the_phases_sum_to_the_wall_time():
    """Nothing is left over: 2 % in the median of the load modes, 5 % in each."""
    shares = sorted(less_disturbed(mode) for mode in LOAD_MODES)
    assert shares[0] >= 0
    assert shares[len(shares) // 2] <= 0.02
    assert shares[-1] <= 0.05


@pytest.mark.engine
@pytest.mark.timed  # another test's engine would keep the file in memory
@pytest.mark.skipif(not page_cache.ON_LINUX, reason="only Linux tells what its page cache holds")
def test_an_empty_page_cache_is_confirmed_before_the_start():
    """The record says how much of the file was in memory before and after."""
    lab.measure(n_prompt=8, n_gen=4, repeats=1)  # this session's engine now maps the file
    start = cold_start(page_cache="empty")
    if start.cached_before:
        pytest.skip("this file system keeps its files in memory")
    assert start.cached_before == 0.0
    assert start.cached_after > 0.9


@pytest.mark.engine
def test_a_full_page_cache_can_be_requested():
    """`full` reads the file first; an unknown word is refused."""
    cached = cold_start(page_cache="full").cached_before
    assert cached is None or cached > 0.99
    with pytest.raises(InvalidSettings, match="not one of empty, full, as is"):
        cold_start(page_cache="cold")


def test_a_missing_boundary_leaves_its_time_to_the_next_phase():
    """Phases still add up when llama.cpp leaves out a line."""
    lines = [LogLine(0.1, 2, "init_tokenizer: x"), LogLine(0.5, 2, "load: CPU model buffer size = 1.00 MiB")]
    phases = phases_in(lines, loaded=0.9, ready=1.0)
    assert phases == pytest.approx(
        {"header_seconds": 0.1, "map_and_buffers_seconds": 0.4, "weights_seconds": 0.4, "graph_reserve_seconds": 0.1}
    )
    assert sum(phases.values()) == pytest.approx(1.0)


def test_several_starts_are_drawn_together():
    """One bar for each start; four groups have every phase but making the process, which stands in the label."""
    started_twice = [a_start(0.5), replace(a_start(0.25), settings=lab.Settings(load_mode="none"))]
    figure = figures.cold_starts(started_twice)
    assert [bar.name for bar in figure.data] == list(GROUPS)
    assert [phase for phases, _ in GROUPS.values() for phase in phases] == [p for p in PHASES if p != "process"]
    drawn = [sum(bar.x[i] for bar in figure.data) for i in range(2)]
    assert drawn == pytest.approx([1e3 * sum(s.phases.values()) - 1e3 * s.phases["process"] for s in started_twice])
    assert [name.split("<br>")[0] for name in figure.data[0].y] == ["1: mapped", "2: read into buffers"]
    assert all("process 1 s" in name for name in figure.data[0].y)


def test_pairs_are_compared_phase_by_phase():
    """How often a phase took longer with the empty cache, the spread of it, and the typical start of each kind."""
    pairs = ColdStartPairs(tuple(map(a_start, (0.5, 0.1, 0.4))), tuple(map(a_start, (0.2, 0.3, 0.1))))
    assert pairs.n_slower_when_empty("weights") == pairs.n_slower_when_empty() == 2
    assert pairs.spread_seconds("weights") == pytest.approx(0.4)
    assert pairs.spread_seconds("process") == 0
    assert [one.phases["weights"] for one in pairs.typical] == [0.4, 0.2]


@pytest.mark.parametrize(
    ("empty", "full", "said"),
    [
        ((0.5, 0.6, 0.4), (0.2, 0.3, 0.1), "The disk added about 300 ms. Making the process varied by 0 µs, which is"),
        ((0.1, 0.3, 0.1), (0.2, 0.2, 0.2), "The whole start was even shorter after forgetting"),
        ((0.1, 0.3, 0.1), (0.2, 0.2, 0.2), "The disk cannot be seen in this run"),
    ],
)
def test_pairs_say_what_the_disk_added(empty, full, said):
    """Only where most pairs agree, and where making the process varied by less than the disk added."""
    assert said in ColdStartPairs(tuple(map(a_start, empty)), tuple(map(a_start, full))).finding
    unknown = replace(a_start(0.4), cached_before=None)
    assert "cannot show the disk" in ColdStartPairs((unknown,), (a_start(0.2),)).finding
    late = a_start(0.4)
    late = replace(late, phases=late.phases | {"process": 9.0})
    assert "so only that phase shows the disk" in ColdStartPairs((late,), (a_start(0.2),)).finding


@pytest.mark.engine
def test_pairs_change_their_order():
    """Both kinds are measured as often as there are pairs."""
    pairs = cold_start_pairs(n_pairs=2)
    assert [start.page_cache for start in (*pairs.empty, *pairs.full)] == ["empty", "empty", "full", "full"]


def a_start(weights_seconds):
    """A cold start without an engine: a second for each phase, but for the weights."""
    phases = dict.fromkeys(PHASES, 1.0) | {"weights": weights_seconds}
    common = {"model": CARD, "settings": lab.Settings(n_ctx=256), "machine": CPU_ONLY}
    return ColdStart(
        **common,
        phases=phases,
        wall_seconds=sum(phases.values()),
        page_cache="full",
        cached_before=1.0,
        cached_after=1.0,
    )


def test_the_label_of_a_start_is_what_was_measured():
    """Not what was asked for: a share of the file, or `unconfirmed` where nobody can tell."""
    assert replace(a_start(0.2), cached_before=0.25).page_cache_text == "25 % of the file cached"
    assert replace(a_start(0.2), cached_before=None).page_cache_text.endswith("unconfirmed")
