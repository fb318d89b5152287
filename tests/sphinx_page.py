"""A page built by Sphinx with an extension of the handbook."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup
from sphinx.testing.util import SphinxTestApp
from sphinx.util.docutils import docutils_namespace


def built(
    folder: Path, page: str, *extensions: str, prepare: Callable[[Any], Any] = lambda app: None, **settings: Any
) -> tuple[BeautifulSoup, str]:
    """The page, and the warnings of the build. `prepare` is called with the application before."""
    (folder / "index.md").write_text(page, encoding="utf-8")
    (folder / "conf.py").touch()
    # Sphinx keeps the suffixes of an earlier build in the same process.
    suffixes = {"source_suffix": {".md": "markdown"}}
    with docutils_namespace():
        changed = {"extensions": ["myst_parser", *extensions], **suffixes, **settings}
        app = SphinxTestApp(srcdir=folder, freshenv=True, confoverrides=changed)
        prepare(app)
        app.build()
        warnings = app.warning.getvalue()
        app.cleanup()
    return BeautifulSoup((Path(app.outdir) / "index.html").read_text(encoding="utf-8"), "html.parser"), warnings
