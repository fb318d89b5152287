"""Prints the built site as one PDF, `_build/handbook.pdf`, or one page of it, `_build/pipeline.pdf`.

    python -m handbook.delivery.pdf [book/workflow/pipeline]

Chromium lays out all articles, one after the other, by the site's own rules for paper. Links lead to their place in
the file, headings are its outline, and the answers of a page stand at its end. A link to a page that is not in the
file leads to the site where that was built with BOOK_URL, and is plain text otherwise.
"""

from __future__ import annotations

import sys
from pathlib import Path, PurePosixPath
from typing import Any

from handbook.chromium import blank_page, in_own_thread
from handbook.delivery.built_site import Site, bind, page_script

FILE = "handbook.pdf"
FOOTER = '<div style="width: 100%; font: 8pt sans-serif; text-align: center"><span class="pageNumber"></span></div>'
MINUTES = 10
"""How long Chromium may take for the whole book on a slow machine."""
SHEET_SECONDS = 10
"""How long it may take for the sheets that only some pages have."""


@in_own_thread
def write(site: Site, target: Path) -> None:
    """Print the site into a file. Raises NoBrowser."""
    with blank_page(java_script_enabled=False) as page:
        page.set_default_timeout(MINUTES * 60_000)
        lay_out(page, site)
        page.pdf(
            path=target,
            format="A4",
            print_background=True,
            outline=True,
            tagged=True,
            display_header_footer=True,
            header_template="<span></span>",
            footer_template=FOOTER,
        )


def lay_out(page: Any, site: Site) -> None:
    """Open the front page and put the articles of all pages into it."""
    script = page_script("pdf-page.js")
    page.goto((site.folder / site.front_page).as_uri())
    for path in site.pages:
        page.evaluate(script, [path, site.html(path), site.pages])
    page.evaluate("() => Promise.all([...document.querySelectorAll('article img')].map((image) => image.decode()))")
    for _ in range(SHEET_SECONDS * 20):  # no event of the page tells when: its scripts are off
        if page.evaluate("() => [...document.querySelectorAll('link[rel=stylesheet]')].every((link) => link.sheet)"):
            break
        page.wait_for_timeout(50)


def main(page: str = "") -> int:
    """Command line of this module: all pages, or the one that is named."""
    return bind(write, f"{PurePosixPath(page).stem}.pdf" if page else FILE, "PDF", page)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
