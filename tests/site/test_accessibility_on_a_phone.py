"""The same for axe-core in a narrow window; a module of its own, so that another process opens these pages."""

from __future__ import annotations

import pytest
from crawl import N_PARTS


@pytest.mark.parametrize("part", range(N_PARTS))
def test_axe_finds_no_violation_on_a_phone(crawl, part):
    """The rules hold on every page in the window of a phone, light and dark."""
    assert crawl.barriers("phone", part) == {}
