"""Memory while a model loads: what is counted over the memory before, the phases in which it grows, and the figures."""

import os
from dataclasses import replace

import pytest
from fakes import made_load

from inferlab.measurement.cold_start import PHASES
from inferlab.measurement.memory import Residence
from inferlab.units import MIB
from studies.cold_start import figures, load_memory
from studies.cold_start.measure import held


@pytest.fixture(scope="module")
def recorded():
    """The recorded loads by mode and place."""
    return load_memory.recorded()


def test_growth_belongs_to_the_phase_of_its_moment():
    """The file is mapped first, then locked; the cache comes last."""
    load = made_load()
    assert load.ends == {"header": 1.0, "map_and_buffers": 2.0, "weights": 3.0, "graph_reserve": 4.0}
    found = [load.phases_with_growth(f"{name}_bytes") for name in ("file", "locked", "own")]
    assert found == [("map_and_buffers",), ("weights",), ("graph_reserve",)]


def test_peaks_and_what_is_kept_are_counted_over_the_memory_before():
    """The kernel's peak is of everything; the process before takes 110 MiB of it."""
    load = made_load()
    assert (load.grown_bytes, load.peak("file_bytes"), load.kept("own_bytes")) == (402 * MIB, 300 * MIB, 100 * MIB)
    dropped = replace(load, samples=(*load.samples, replace(load.samples[0], seconds=3.9)))
    assert (dropped.peak("file_bytes"), dropped.kept("file_bytes")) == (300 * MIB, 0)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="this system does not report memory in /proc")
def test_the_memory_of_a_process_is_read():
    """This process has pages of its libraries and memory of its own, in bytes."""
    found = held(os.getpid(), 1.5)
    assert found.seconds == 1.5
    assert min(found.file_bytes, found.own_bytes) > MIB


def test_the_recorded_loads_have_the_order_that_claim_d39_names(recorded):
    """Mapping, then locking, then cache and compute buffers; without mapping, locking comes before reading."""
    mapped, read = recorded["mmap_mlock", "host"], recorded["mlock", "host"]
    assert list(mapped.phases) == list(read.phases) == list(PHASES[1:-1])
    assert mapped.phases_with_growth("locked_bytes")[-1] == "weights"
    assert read.phases_with_growth("locked_bytes") == ("map_and_buffers",)


def test_the_recorded_loads_hold_no_second_copy_of_weights_for_a_device(recorded):
    """Claim D43: mapped, the file's pages are resident while they are copied; read, about a tensor is at a time."""
    size, mapped = recorded["none", "device"].model.tensor_bytes, recorded["mmap", "device"]
    assert mapped.peak("file_bytes") > 0.9 * size > 10 * mapped.kept("file_bytes")
    assert recorded["none", "device"].grown_bytes < 0.2 * size
    for mode in ("none", "mmap", "mlock", "mmap_mlock"):
        assert size < recorded[mode, "host"].grown_bytes < 1.2 * size


def test_the_page_says_the_peaks_of_the_record():
    """Mapped, the peak holds the weights; read, it holds little, and what is left is no more than the peak."""
    found = load_memory.numbers()
    assert found["read_peak"] < found["load_weights"] < found["mapped_peak"]
    assert 0 < found["mapped_left"] < found["mapped_peak"]
    assert 0 < found["read_left"] <= found["read_peak"]


def by_name(figure):
    return {trace.name: trace for trace in figure.data}


def test_memory_while_loading_is_drawn_over_the_memory_before():
    """Lines start at 0, and the phases that take long enough are named."""
    figure = figures.load_memory(made_load())
    assert by_name(figure)["pages of the file"].y == (0, 300, 300, 300)
    assert by_name(figure)["locked"].y == (0, 0, 300, 300)
    assert [one.text for one in figure.layout.annotations][-3:] == ["map, buffers", "weights", "cache, compute"]
    assert "peak 402 MiB, 400 MiB left" in figure.layout.meta["alt"]


def test_peaks_are_compared_with_what_is_left():
    """One pair of bars for each load."""
    figure = figures.load_peaks((made_load(),))
    assert [(trace.name, trace.x) for trace in figure.data] == [("peak", (402,)), ("left", (400,))]
    assert "mmap_mlock, host: peak 402, left 400" in figure.layout.meta["alt"]


def test_resident_pages_are_stacked():
    """The four kinds of pages add up to the file-backed and the private ones."""
    pages = Residence(10 * MIB, 5 * MIB, 6 * MIB, 2 * MIB, 4 * MIB, 0)
    figure = figures.resident_memory({"mmap": pages}, "badge")
    assert [trace.x[0] for trace in figure.data] == [6, 4, 4, 2]
