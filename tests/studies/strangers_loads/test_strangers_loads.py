"""Strangers' loads beside their plans: sources, verdicts, and what must not become worse."""

import re
from dataclasses import replace

import pytest

from inferlab.model.catalog import known_models
from inferlab.prediction.memory.simulated import simulate_on_stand_in
from inferlab.units import MIB
from studies.strangers_loads import study
from studies.strangers_loads.loads import (
    CACHE,
    COMPUTE,
    EXACT,
    INSIDE,
    KINDS,
    OFF,
    OUTPUT,
    VERDICTS,
    WEIGHTS,
    Compared,
    first_counts,
    loads,
    reserves,
)


def test_every_load_has_its_source():
    """Repository, path and commit, a known model, a line of the log for each buffer, and at most one host."""
    for load in loads():
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", load.repo)
        assert re.fullmatch(r"[0-9a-f]{40}", load.commit)
        assert load.path
        assert load.nth >= 1
        assert load.model in known_models()
        assert {line.kind for line in load.lines} <= set(KINDS)
        assert [line.number for line in load.lines] == sorted({line.number for line in load.lines})
        assert len({device for device, _ in load.logged if device != "host"}) == load.n_cards


def test_every_compute_buffer_has_its_source():
    """A commit, and a known model or none."""
    assert all(re.fullmatch(r"[0-9a-f]{40}", one.commit) for one in reserves())
    assert {one.model for one in reserves()} <= {"", *known_models()}


@pytest.mark.parametrize(
    ("logged", "n_lines", "least", "most", "verdict"),
    [
        (100.01, 1, 100.0, 100.0, EXACT),
        (100.02, 2, 100.0, 100.0, EXACT),
        (100.02, 1, 100.0, 100.0, OFF),
        (99.98, 1, 100.0, 100.0, OFF),
        (150.0, 1, 100.0, 200.0, INSIDE),
        (200.02, 1, 100.0, 200.0, OFF),
    ],
)
def test_a_buffer_is_exact_inside_or_off(logged, n_lines, least, most, verdict):
    """Exact means the number that the log prints, to 0.01 MiB a line; a range that holds it is less than that."""
    assert Compared("gpu0", COMPUTE, logged, n_lines, least, most).verdict == verdict


def test_cache_and_output_are_exact_on_every_backend():
    """Cells and recurrent states of 98 loads, and the logits; one log lacks the line of the cache."""
    for kind in (CACHE, OUTPUT):
        counted = study.count(loads(), kind)
        assert counted == {EXACT: 98}
    assert {load.backend for load in loads() if load.verdict(CACHE)} == {"CUDA", "Metal", "Vulkan", "ROCm", "SYCL"}


def test_weights_differ_where_the_page_says_so():
    """Eight cards, where one layer has its neighbour's types; and Gemma 4 E4B, with more in F32 than its mix has."""
    differ = [load for load in loads() if load.verdict(WEIGHTS) == OFF]
    assert sorted((load.n_cards, load.model) for load in differ) == [(1, "gemma-4-e4b"), (8, "llama-3-8b")]
    eight = next(load for load in differ if load.n_cards == 8)
    weights = [one for one in eight.compared if one.kind == WEIGHTS]
    assert sum(one.logged for one in weights) == pytest.approx(sum(one.most for one in weights), abs=0.09)


def test_the_first_comparison_has_the_groups_of_this_one():
    """The same groups of the same sizes; and what agreed at first of the newest build agrees now."""
    now, first = study.counts(), first_counts()
    assert {group: sum(counted.values()) for group, counted in now.items()} == {
        group: sum(counted.values()) for group, counted in first.items()
    }
    newest = [group for group in first if group[0].startswith("b10909")]
    assert len(newest) == 2
    for group in newest:
        assert now[group][OFF] <= first[group][OFF], group


def test_the_mask_explains_the_hosts_buffer_to_the_hundredth():
    """Of newer builds with flash attention on one card, all but one differ by the mask's 2 bytes a cell and token."""
    some = [load for load in loads() if load.is_near and load.n_cards == 1 and load.settings.flash_attn != "off"]
    causes = [study.cause_of(load, COMPUTE, study.CAUSES) for load in some if load.flash_attn_set != "off"]
    assert causes.count("mask") == len(causes) - 1 == 45


def test_the_rows_add_up():
    """The last row of the table counts all loads, and each load whose compute buffers differ has one cause."""
    *backends, everything = study.rows()
    assert sum(row[1] for row in backends) == everything[1] == study.numbers()["n_stranger_loads"]
    differ = sum(load.verdict(COMPUTE) == OFF for load in loads())
    assert sum(n for name, _, n in study.cause_rows() if name.startswith("compute")) == differ
    assert all(row[4] == sum(row[5:8]) for row in study.reserve_rows())
    assert len(VERDICTS) == 3


@pytest.mark.engine
def test_llama_cpps_own_simulation_has_the_plans_numbers_where_these_are_off():
    """So a build, or what a real card does, differs; the formulas are those of the pinned version."""
    for one in reserves():
        type = one.cache or study.LIKELY_CACHE
        found = one.compared(type)
        if found and found.verdict == OFF:
            request = replace(one.request(type), simulate=True)
            simulated = simulate_on_stand_in(request).compute_bytes["gpu0"] / MIB
            assert simulated == pytest.approx(found.least, abs=0.02), one.file
