"""Addresses of the built site: from disk, and from servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from first_visit import compressing_server
from servers import serving

from handbook.serve import Handler


@pytest.fixture(scope="session")
def server(built_book) -> Iterator[str]:
    """Address of a local server of the site."""
    with serving(built_book) as home:
        yield home


@pytest.fixture(scope="session")
def site(built_book) -> Iterator[str]:
    """Address of the site as `make serve` sends it."""
    with serving(built_book, Handler) as home:
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
