"""Cold starts: the numbers of the page, its table of waits, and what of a loaded file is in RAM."""

import json
from dataclasses import replace
from math import ceil, isnan
from statistics import median

import pytest
from fakes import made_run

import inferlab as lab
from inferlab.measurement.memory import Residence
from inferlab.records import shipped
from inferlab.units import MIB
from studies.cold_start import study
from studies.cold_start.wait import recorded_places, recorded_rates

HERE = Residence(100 * MIB, 50 * MIB, 30 * MIB, 4 * MIB, 2 * MIB, 7 * MIB)


@pytest.fixture(scope="module")
def numbers():
    return study.numbers()


def test_a_start_from_the_disk_takes_longer_than_one_from_the_page_cache(numbers):
    """Mapped and read; getting at the weights is a part of the start, and its median is that of the file's record."""
    raw = json.loads(shipped()["xeon-2c/llama-3.2-1b-cold-start"].read_text())["sequence"]
    for mode in ("mmap", "none"):
        assert numbers[f"larger_{mode}_full_s"] < numbers[f"larger_{mode}_empty_s"]
        for state in ("empty", "full"):
            kind = [one["phases"] for one in raw if (one["settings"]["load_mode"], one["page_cache"]) == (mode, state)]
            seconds = median(one["map_and_buffers"] + one["weights"] for one in kind)
            assert numbers[f"larger_{mode}_{state}_file_s"] == pytest.approx(seconds)
            assert seconds < numbers[f"larger_{mode}_{state}_s"]


def test_the_figure_has_one_start_of_each_kind():
    """In the order of the table: mapped, then read, without and with the file in the page cache."""
    found = [(one.settings.load_mode, one.page_cache) for one in study.typical()]
    assert found == [(mode, state) for mode in ("mmap", "none") for state in ("empty", "full")]


def test_the_page_says_how_wrong_the_wait_is(numbers):
    """All unseen starts ended in time; without the margin a cached start is computed worst."""
    assert numbers["in_time"] == numbers["n_unseen"]
    assert numbers["error_limited"] < numbers["error_cached"] > 20
    assert numbers["loading_Q4_K_M"] > numbers["loading_Q8_0"]
    assert numbers["ram_rate"] > numbers["disk_rate"] > numbers["limited_rate"] / 1e3


def test_the_table_has_the_waits_of_every_place():
    """Whole seconds, longer for a slower place and for a larger file."""
    heads, rows = study.wait_table()
    assert heads == ("model", "page cache", "recorded disk", "SATA disk", "network share")
    assert all(list(row[1:]) == sorted(row[1:]) for row in rows)
    assert [row[4] for row in rows] == sorted(row[4] for row in rows)
    one = lab.shape("llama-3.1-8b", "Q4_K_M")
    wait = recorded_rates().wait(one.file_bytes, one.n_vocab, recorded_places()[True])
    assert next(row for row in rows if "llama-3.1-8b" in row[0])[1] == ceil(wait)


def test_no_line_makes_a_default_shorter():
    """A short wait leaves the 90 s of systemd and the five minutes of Ollama; a long one replaces both."""
    assert all(line in study.program_lines(4.2) for line in ("TimeoutStartSec=90\n", "LOAD_TIMEOUT=300s", "--retry 5 "))
    assert all(line in study.program_lines(400.0) for line in ("TimeoutStartSec=400\n", "LOAD_TIMEOUT=400s"))


def test_residence_is_shown_in_mib_or_as_unknown():
    """A process whose memory the system does not report is unknown, never 0."""
    heads, rows = study.shared_table({"F16": (HERE, replace(HERE, file_share_bytes=25 * MIB)), "Q4_K_M": (None, None)})
    assert rows[0] == ("F16", "100", "100", "25", "30")
    assert rows[1] == ("Q4_K_M", *["unknown"] * (len(heads) - 1))


@pytest.mark.engine
def test_a_small_model_is_watched_in_every_mode():
    """Mapped weights are pages of the file; weights that were read are the process's own."""
    files = study.small_files()
    loaded = study.after_loading(files)
    if not loaded:
        assert isnan(study.residence_numbers(files, loaded, None)["f16_file"])
        pytest.skip("this system does not report the memory of a process")
    assert loaded["F16, mmap"].file_bytes > loaded["F16, none"].file_bytes
    assert loaded["F16, none"].own_bytes > loaded["F16, mmap"].own_bytes
    found = study.residence_numbers(files, loaded, study.beside_a_second(files)["F16"][0])
    assert 0.9 * found["f16_size"] < found["f16_file"]
    assert 0 <= found["copies_share"] <= 100


def test_two_equal_runs_have_no_gap():
    """The negative control compares decode rates only."""
    found = study.control_numbers(made_run(), made_run())
    assert found["control_gap"] == 0
    assert found["mapped_rate"] == found["read_rate"] > 0
