"""Twenty thousand mutated headers and files of results: each is read, or refused in words, and none is slow."""

from __future__ import annotations

import time
from random import Random

from bench_rows import fuzz_results
from mutated_headers import fuzz_headers

N = 20_000


def test_no_header_breaks_the_planner(tmp_path):
    """Nothing is raised, whatever a file holds."""
    started = time.perf_counter()
    n_read = fuzz_headers(tmp_path, Random(20261125), N)
    print(f"{N:,} headers in {time.perf_counter() - started:.0f} s, {n_read:,} of them read")
    assert 0 < n_read < N


def test_no_file_breaks_your_numbers(tmp_path):
    """Nothing else is raised, and none takes two seconds."""
    started = time.perf_counter()
    n_read = fuzz_results(tmp_path, Random(20261126), N)
    print(f"{N:,} files of results in {time.perf_counter() - started:.0f} s, {n_read:,} of them read")
    assert 0 < n_read < N
