"""Memory while a model loads: sizes as the kernel reports them, and the phases in which they grow."""

from dataclasses import replace

import pytest
from fakes import made_load

import inferlab as lab
from inferlab.model.find import find_model
from inferlab.units import KIB, MIB
from studies.journey.load_memory import Held, load_memory, read_held

STATUS = "Name:\tone\nVmLck:\t  8 kB\nVmHWM:\t 900 kB\nRssAnon:\t 100 kB\nRssFile:\t 300 kB\nThreads:\t4\n"
ON_LINUX = pytest.mark.skipif(read_held(1, 0.0) is None, reason="this system does not report memory in /proc")


def test_sizes_are_read_in_bytes(tmp_path):
    """The kernel writes kB of 1024 bytes; a process without such lines is unknown."""
    for pid, text in ((7, STATUS), (8, "Name:\ttwo\n")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "status").write_text(text)
    assert read_held(7, 1.5, tmp_path) == Held(1.5, 300 * KIB, 100 * KIB, 8 * KIB)
    assert read_held(8, 1.5, tmp_path) is None
    assert read_held(9, 1.5, tmp_path) is None


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


def test_a_system_without_proc_gives_unknown():
    """No samples and no peak, never 0 as a result."""
    load = made_load(before=None, samples=(), peak_bytes=None)
    assert (load.grown_bytes, load.phases_with_growth("file_bytes")) == (None, ())


@ON_LINUX
@pytest.mark.engine
@pytest.mark.parametrize(("mode", "grows"), [("mmap", "file_bytes"), ("none", "own_bytes")])
def test_a_mapped_file_is_no_memory_of_its_own(mode, grows):
    """Mapped weights are pages of the file; weights that were read are the process's own; either is kept."""
    settings = lab.Settings(load_mode=mode, devices=(), n_ctx=256)
    load, size = load_memory(settings=settings), find_model(None).stat().st_size
    other = {"file_bytes": "own_bytes", "own_bytes": "file_bytes"}[grows]
    assert load.kept(grows) > 0.9 * size
    assert load.kept(grows) - load.kept(other) > 0.3 * size
    assert list(load.phases)[-2:] == ["kv_cache", "graph_reserve"]


@pytest.fixture(scope="module")
def recorded():
    """The recorded loads by mode and place."""
    return {(one.settings.load_mode, one.place): one for one in lab.load("epyc-2c/load-memory")}


def test_the_recorded_loads_have_the_order_that_claim_d39_names(recorded):
    """Mapping, then locking, then cache and compute buffers; without mapping, locking comes before reading."""
    mapped, read = recorded["mmap_mlock", "host"], recorded["mlock", "host"]
    assert list(mapped.phases) == list(read.phases) == [
        "check", "header", "vocabulary", "tensor_list", "map_and_buffers", "weights", "kv_cache", "graph_reserve",
    ]  # fmt: skip
    assert mapped.phases_with_growth("locked_bytes")[-1] == "weights"
    assert read.phases_with_growth("locked_bytes") == ("map_and_buffers",)


def test_the_recorded_loads_hold_no_second_copy_of_weights_for_a_device(recorded):
    """Claim D43: mapped, the file's pages are resident while they are copied; read, about a tensor is at a time."""
    size, mapped = recorded["none", "device"].model.tensor_bytes, recorded["mmap", "device"]
    assert mapped.peak("file_bytes") > 0.9 * size > 10 * mapped.kept("file_bytes")
    assert recorded["none", "device"].grown_bytes < 0.2 * size
    for mode in ("none", "mmap", "mlock", "mmap_mlock"):
        assert size < recorded[mode, "host"].grown_bytes < 1.2 * size
