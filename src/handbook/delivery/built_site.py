"""The built site as one file: its pages in the order of its contents, and the command that binds them."""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path

import yaml
from bs4 import BeautifulSoup, Tag

from handbook.chromium import NoBrowser


class NotBuilt(Exception):
    """There is no built site, or not that page in it; the message says what to do."""


@dataclass(frozen=True)
class Entry:
    """A line of the table of contents.

    level  1 for the front page and for a part, one more for what is below
    path   of the page in the site; None for a part, which has no page
    """

    level: int
    title: str
    path: str | None


@dataclass(frozen=True)
class Site:
    """A built site: the folder of its book, its front page and its contents."""

    root: Path
    front_page: str
    contents: list[Entry]

    @property
    def folder(self) -> Path:
        """Where its pages lie."""
        return self.root / "_build" / "html"

    @property
    def title(self) -> str:
        """The book's title, which is that of its front page."""
        return self.contents[0].title

    @property
    def pages(self) -> list[str]:
        """Paths of all pages in reading order."""
        return [entry.path for entry in self.contents if entry.path]

    def html(self, path: str) -> str:
        """The text of a page."""
        return (self.folder / path).read_text(encoding="utf-8")

    def only(self, page: str) -> Site:
        """The same site with one page, named as in `_toc.yml`. Raises NotBuilt."""
        name = re.sub(r"\.(html|md|ipynb)$", "", page)
        path = f"{name}.html"
        if path not in self.pages:
            near = " or ".join(get_close_matches(name, [known.removesuffix(".html") for known in self.pages]))
            hint = f"Did you mean {near}?" if near else "Name it as in _toc.yml."
            raise NotBuilt(f"The built site has no page {page!r}. {hint}")
        return Site(self.root, path, [entry for entry in self.contents if entry.path == path])


def built_site(root: Path) -> Site:
    """The site that was built in a folder of the book. Raises NotBuilt."""
    site = Site(root, yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))["root"] + ".html", [])
    if not (site.folder / site.front_page).is_file():
        raise NotBuilt(f"{site.folder / site.front_page} is missing: run `make book` first.")
    site.contents.extend(_contents(BeautifulSoup(site.html(site.front_page), "html.parser"), site.front_page))
    return site


def page_script(name: str) -> str:
    """JavaScript that makes the article of a page one of a file: a script of `data`, and what all of them share."""
    shared, own = ((files("handbook") / "data" / file).read_text(encoding="utf-8") for file in ("bound-page.js", name))
    return f"(given) => {{\n{shared}\nreturn (\n{own})(given);\n}}"


def bind(write: Callable[[Site, Path], None], file: str, kind: str, page: str = "") -> int:
    """Command line of a module that writes the site built in this folder, or a page of it, into a file of `_build`.

    Returns the exit status.
    """
    target = Path("_build") / file
    try:
        site = built_site(Path.cwd())
        write(site.only(page) if page else site, target)
    except (NotBuilt, NoBrowser) as missing:
        print(f"No {kind} was made. {missing}", file=sys.stderr)
        return 1
    print(f"Written: {target.resolve()}")
    return 0


def _contents(soup: BeautifulSoup, front: str) -> Iterator[Entry]:
    """The lines of the sidebar."""
    parts = 0
    for line in soup.select("nav.bd-links p.caption, nav.bd-links li > a.internal"):
        title = " ".join(line.get_text().split())
        if line.name == "p":
            parts += 1
            yield Entry(1, title, None)
        else:
            yield Entry(_depth(line) + bool(parts), title, _path(line, front))


def _depth(link: Tag) -> int:
    return len(link.find_parents("ul"))


def _path(link: Tag, front: str) -> str:
    target = str(link["href"]).partition("#")[0]
    return posixpath.normpath(posixpath.join(posixpath.dirname(front), target)) if target else front
