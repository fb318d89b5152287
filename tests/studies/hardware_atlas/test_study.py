"""The atlas in numbers: plans of bytes and rates beside what was measured, and requests that were measured twice."""

from dataclasses import replace

import pytest

from inferlab.atlas.entries import AtlasEntry, Bytes, RecordFile, record_files
from inferlab.prediction.validation import Checked
from studies.hardware_atlas import study
from studies.hardware_atlas.study import MIB

FILES = [RecordFile("box-4c", "one", "run", 1, (), ())]


def an_entry(measured=10 * MIB, predicted=10 * MIB, rate=20.0, **changes):
    """An entry whose prefill came out as planned, and whose decode was planned at 20."""
    checked = {
        phase: (speed, Checked(phase, phase, plan, speed, (plan / 1.2, plan * 1.2)))
        for phase, speed, plan in (("prefill", 100.0, 100.0), ("decode", rate, 20.0))
    }
    facts = {
        "machine": "box-4c",
        "record": "one",
        "processor": "A CPU",
        "device": "host",
        "model": "a shape",
        "type": "F16",
        "settings": "defaults",
        "n_prompt": 8,
        "n_gen": 8,
        "date": "2026-01-31",
        "build": "a build",
        "memory": Bytes(predicted, measured),
        "rates": checked,
    }
    return AtlasEntry(**(facts | changes))


def test_bytes_are_held_to_the_rounding_of_the_log():
    """Four buffers are each printed to 0.01 MiB: 0.03 MiB is rounding, and a whole MiB is not."""
    found = study.numbers([an_entry(), an_entry(measured=10 * MIB + 30_000), an_entry(measured=11 * MIB)], FILES)
    assert (found["n_memory"], found["n_as_printed"], found["n_files"]) == (3, 2, 1)
    assert found["memory_rest"] == "1 differ by more; the table says by how much"
    assert found["memory_worst"] == pytest.approx(100 / 11)
    assert study.numbers([an_entry()], FILES)["memory_rest"] == "No measurement differs by more"


def test_a_range_is_no_exact_plan():
    """A plan with a least and a most is counted on its own."""
    ranged = an_entry(memory=Bytes(None, 10 * MIB, 9 * MIB, 12 * MIB))
    assert study.numbers([an_entry(), ranged], FILES)["n_ranges"] == 1


def test_rates_are_compared_where_nothing_was_injected():
    """A disturbed run has no error here; a rate of twice the plan lies outside its band."""
    found = study.numbers([an_entry(), an_entry(rate=40.0), an_entry(rate=1.0, disturbed=True)], FILES)
    assert (found["n_measurements"], found["decode_count"], found["decode_inside"]) == (3, 2, 50)
    assert (found["decode_percent"], found["decode_worst"], found["prefill_worst"]) == (25, 50, 0)


def test_a_request_counts_as_repeated_with_the_same_plan():
    """The same request twice, at rates a quarter apart; another prompt is another request."""
    found = study.numbers([an_entry(), an_entry(rate=25.0), an_entry(n_prompt=9)], FILES)
    assert (found["n_twice"], found["n_same"], found["apart"]) == (1, 1, "by up to 25 %")
    without = replace(an_entry(), rates={})
    assert study._repeated_numbers([without, without])["apart"] == "by an amount that no record shows"


def test_the_records_that_the_page_names_are_there():
    """Each is an example of why a run differs from its plan."""
    found = {file.record for file in record_files()}
    assert {"roof-F16", "faults/1-healthy", "tune-kv_types", "tune-n_threads_batch"} <= found
