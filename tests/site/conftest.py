"""Addresses of the built site, and first visits to each of its pages, made once for all gates that read them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from first_visit import PHONE, WIDE, FirstVisit, compressing_server, first_visit, pages_of
from servers import serving


@pytest.fixture(scope="session")
def server(built_book) -> Iterator[str]:
    """Address of a local server of the site."""
    with serving(built_book) as home:
        yield home


@pytest.fixture(scope="session", params=["from disk", "from a server"])
def home(request, built_book) -> str:
    """Address of the site's root, ending in a slash."""
    return request.getfixturevalue("server") if request.param == "from a server" else f"{built_book.as_uri()}/"


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
