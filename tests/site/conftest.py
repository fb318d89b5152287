"""Addresses of the built site, from disk and from servers; what was read on its pages, by browser and by parser."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from bs4 import BeautifulSoup
from crawl import UNSCRIPTED, Crawl, html_of, visit
from first_visit import compressing_server
from playwright.sync_api import Page
from servers import serving

from handbook.delivery.serve import Handler


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


@pytest.fixture
def open_page(built_book, browser) -> Iterator[Callable[..., Page]]:
    """A function: an address, or a page of the site from disk, opened in a profile of its own; no script may fail."""
    failures: list[str] = []
    with ExitStack() as opened:

        def open_page(address: str, **options: Any) -> Page:
            context = browser.new_context(**options)
            opened.callback(context.close)
            page = context.new_page()
            page.on("pageerror", lambda error: failures.append(str(error)))
            page.goto(address if "://" in address else (built_book / address).as_uri())
            return page

        yield open_page
    assert failures == []


@pytest.fixture(scope="session")
def crawl(built_book, site, browser, tmp_path_factory) -> Crawl:
    """The visits to the pages of the site as `make serve` sends it, shared by the processes of this run."""
    folder = tmp_path_factory.getbasetemp()
    shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    return Crawl(built_book, shared / "crawl", partial(visit, browser, site))


@pytest.fixture(scope="session")
def wide(crawl) -> dict[str, dict]:
    """What was read on each page in a wide window."""
    return crawl.visited("wide")


@pytest.fixture(scope="session")
def phone(crawl) -> dict[str, dict]:
    """What was read on each page in the window of a phone."""
    return crawl.visited("phone")


@pytest.fixture(params=["wide", "phone"])
def seen(request, crawl) -> dict[str, dict]:
    """What was read on each page, in either window."""
    return crawl.visited(request.param)


@pytest.fixture(scope="session")
def unscripted(built_book, crawl) -> dict[str, dict]:
    """What a reader without JavaScript sees on each page that has a figure or a diagram."""
    drawn = re.compile('class="(lab-figure"|diagram)')
    texts = {page: (built_book / page).read_text(encoding="utf-8") for page in crawl.pages}
    return crawl.visited(UNSCRIPTED, [page for page, text in texts.items() if drawn.search(text)])


@pytest.fixture(scope="session")
def parsed(built_book) -> dict[str, BeautifulSoup]:
    """Every page by its path from the site's root, parsed; to be read only."""
    pages = html_of(built_book)
    return {page: BeautifulSoup((built_book / page).read_text(encoding="utf-8"), "html.parser") for page in pages}


@pytest.fixture(scope="session")
def soups(parsed) -> dict[str, BeautifulSoup]:
    """The same for the pages and labs of the book."""
    return {page: soup for page, soup in parsed.items() if page.startswith(("book/", "labs/"))}
