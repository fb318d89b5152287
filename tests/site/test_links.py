"""Every address on the pages of the built site, read without a network.

Whether an external address answers is not asked: only that it has the form of its kind.
"""

from __future__ import annotations

import os
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pytest
import yaml

from handbook.directives import launch

ROOT = Path(__file__).parents[2]

NAMING = {"href", "src", "xlink:href", "action"}
"""Attributes that hold an address."""
ONLY_HTTP = {"www.cdrlabs.com": "the source is cited by the address at which it was found"}
"""Hosts that may be linked by http, and why."""
LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
HOST = re.compile(rf"(?:{LABEL}\.)+[a-z]{{2,}}")
WITHOUT_SPACE = re.compile(r"[!#$%&'()*+,/:;=?@\[\]~\w.-]*", re.ASCII)
FORMS = {
    "arxiv.org": r"/abs/\d{4}\.\d{4,5}(v\d+)?",
    "doi.org": r"/10\.\d{4,9}/\S+",
    "github.com": r"/[A-Za-z0-9][A-Za-z0-9-]*/[\w.-]+"
    r"(/blob/[\w.-]+(/[^/]+)+|/tree/[\w.-]+(/[^/]+)*|/(issues|pull|discussions)/\d+|/commit/[0-9a-f]{7,40})?",
}
"""The paths that an address of a host may have."""


class Addresses(HTMLParser):
    """The ids of a page, and the addresses that it names, in order."""

    def __init__(self, html: str):
        super().__init__()
        self.ids: set[str] = set()
        self.named: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.ids |= {value or "" for name, value in attributes if name == "id"}
        if tag != "base":
            self.named += [value or "" for name, value in attributes if name in NAMING]


@pytest.fixture(scope="module")
def addresses(built_book) -> dict[str, Addresses]:
    """What each page names, by the page's path from the site's root."""
    paths = [path for path in built_book.rglob("*.html") if path.relative_to(built_book).parts[0] != "_static"]
    return {path.relative_to(built_book).as_posix(): Addresses(path.read_text(encoding="utf-8")) for path in paths}


def is_external(address: str) -> bool:
    return bool(urlsplit(address).scheme or urlsplit(address).netloc)


def test_every_internal_link_leads_somewhere(built_book, addresses):
    """Each link, picture, script and sheet names a file that exists, and each fragment an id on that page."""
    pages = {page: parsed.ids for page, parsed in addresses.items()}
    broken = [
        (page, address)
        for page, parsed in addresses.items()
        for address in parsed.named
        if not is_external(address) and not leads_somewhere(built_book, page, address, pages)
    ]
    assert sum(len(parsed.named) for parsed in addresses.values()) > 1000
    assert broken == []


def leads_somewhere(root: Path, page: str, address: str, pages: dict[str, set[str]]) -> bool:
    """Whether an address on a page is that of a file, and of an id there; a fragment of another file is let pass."""
    target, fragment = urldefrag(urljoin(page, address))
    target = unquote(urlsplit(target).path) or page
    return (root / target).is_file() and (not fragment or target not in pages or unquote(fragment) in pages[target])


def test_an_old_address_leads_to_the_page_that_has_its_text(built_book, addresses):
    """Each page that moved or was merged is still an address: of a page that leads on to one of the contents."""
    old = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["sphinx"]["config"]["redirects"]
    contents = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    pages = {f"{name}.html" for name in re.findall(r"(?:file|root): (\S+)", contents)}
    targets = {name: urljoin(f"{name}.html", target) for name, target in old.items()}
    assert {name: target for name, target in targets.items() if target not in pages} == {}
    assert [name for name, target in old.items() if target not in addresses[f"{name}.html"].named] == []
    assert [name for name in old if f"{name}.html" in pages] == []


def test_an_old_address_keeps_its_place_on_the_page(built_book, open_page):
    """A bookmark of a section opens the section, on the page that has it now, also from disk and without JavaScript."""
    page = open_page(f"{(built_book / 'book/workflow/memory-terms.html').as_uri()}#what-to-do")
    page.wait_for_url("**/does-it-fit.html#what-to-do")
    plain = open_page("book/workflow/memory-terms.html", java_script_enabled=False)
    plain.wait_for_url("**/does-it-fit.html")


def test_every_external_address_is_well_formed(addresses):
    """https to a named host, or http where a reason is written; arXiv, DOI and GitHub in the forms they have."""
    external = {
        address
        for parsed in addresses.values()
        for address in parsed.named
        if is_external(address) and not address.startswith("data:")
    }
    assert external
    assert {address: fault for address in sorted(external) if (fault := fault_of(address))} == {}


def test_a_host_of_http_is_still_linked(addresses):
    """A reason for http goes when the last address with it goes."""
    named = {address for parsed in addresses.values() for address in parsed.named}
    assert set(ONLY_HTTP) == {urlsplit(address).netloc for address in named if address.startswith("http:")}


def test_services_are_linked_where_the_repository_is_known(addresses):
    """A site that cannot start a lab on Binder or Colab neither links them nor says what works there."""
    launched = bool(os.environ.get("BOOK_REPOSITORY"))
    hosts = {urlsplit(address).netloc for parsed in addresses.values() for address in parsed.named}
    assert ({"mybinder.org", "colab.research.google.com", "mybinder.readthedocs.io"} <= hosts) is launched
    assert any("mybinder" in host or "colab" in host for host in hosts) is launched
    assert (launch.WHAT_WORKS in addresses["book/labs.html"].ids) is launched


def fault_of(address: str) -> str:
    """What is wrong with an external address; empty if nothing is."""
    parts = urlsplit(address)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.netloc in ONLY_HTTP):
        return f"{parts.scheme or 'no scheme'} instead of https"
    if not HOST.fullmatch(parts.netloc):
        return f"{parts.netloc!r} is no host"
    if not WITHOUT_SPACE.fullmatch(address):
        return "a character that an address must escape"
    form = FORMS.get(parts.netloc)
    return f"not of the form {form}" if form and not re.fullmatch(form, parts.path) else ""


@pytest.mark.parametrize(
    ("address", "fault"),
    [
        ("https://arxiv.org/abs/2205.14135v2", ""),
        ("https://arxiv.org/abs/22051.4135", "not of the form"),
        ("https://arxiv.org/pdf/2205.14135", "not of the form"),
        ("https://doi.org/10.1145/1498765.1498785", ""),
        ("https://doi.org/doi:10.1145/1498765", "not of the form"),
        ("https://github.com/ggml-org/llama.cpp", ""),
        ("https://github.com/ggml-org/llama.cpp/blob/0c1e57098/src/llama.cpp#L10-L20", ""),
        ("https://github.com/ggml-org/llama.cpp/issue/12", "not of the form"),
        ("https://github.com/ggml-org", "not of the form"),
        ("https://github.com//llama.cpp", "not of the form"),
        ("http://example.org/", "http instead of https"),
        ("//example.org/", "no scheme instead of https"),
        ("https://example/", "no host"),
        ("https://example.org/a b", "must escape"),
    ],
)
def test_a_malformed_address_is_noticed(address, fault):
    """The check above can fail, each of its ways."""
    assert (fault in fault_of(address)) if fault else fault_of(address) == ""


def test_a_broken_link_is_noticed(tmp_path):
    """A file that is not there, and an id that is not on the page, its own or another."""
    (tmp_path / "part").mkdir()
    for name in ("index.html", "part/chapter.html"):
        (tmp_path / name).touch()
    pages = {"index.html": {"top"}, "part/chapter.html": {"here", "näher"}}

    def lead(address: str) -> bool:
        return leads_somewhere(tmp_path, "part/chapter.html", address, pages)

    assert all(map(lead, ["#here", "", "../index.html#top", "chapter.html?q=1#n%C3%A4her"]))
    assert not any(map(lead, ["#top", "../index.html#here", "index.html", "../gone.svg", "../part"]))
