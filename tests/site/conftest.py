"""First visits to each page of the built site, made once for all gates that read them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from first_visit import PHONE, WIDE, FirstVisit, compressing_server, first_visit, pages_of


@pytest.fixture(scope="session")
def compressed(built_book) -> Iterator[str]:
    """Address of a server of the site that compresses, ending in a slash."""
    with compressing_server(built_book) as home:
        yield home


@pytest.fixture(scope="session")
def first_visits(built_book, compressed, browser) -> dict[str, list[FirstVisit]]:
    """Two first visits to each page: in light on a wide screen, in dark on a phone."""
    screens = [("light", WIDE), ("dark", PHONE)]
    return {
        page: [first_visit(browser, compressed, page, scheme=scheme, size=size) for scheme, size in screens]
        for page in pages_of(built_book)
    }
