"""Fonts and scripts from installed packages: a page requests nothing from other hosts, and no more than it needs.

The page's head itself is `book/_templates/layout.html`.
"""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from myst_nb.sphinx_ext import add_global_html_resources
from pydata_sphinx_theme.pygments import overwrite_pygments_css
from sphinx_exercise import copy_asset_files

from handbook.delivery import stylesheet

PACKAGE_FILES = {
    "@fontsource-variable/source-sans-3/files": (
        "fonts",
        "source-sans-3-latin-wght-*.woff2",
        "source-sans-3-latin-ext-wght-normal.woff2",
    ),
    "@fontsource-variable/source-code-pro/files": ("fonts", "source-code-pro-latin-wght-normal.woff2"),
    "@fontsource-variable/source-sans-3": ("fonts/source-sans-3", "LICENSE"),
    "@fontsource-variable/source-code-pro": ("fonts/source-code-pro", "LICENSE"),
    "plotly.js-cartesian-dist-min": (".", "plotly-cartesian.min.js"),
}
"""Folder in node_modules -> (folder in the site's _static, which files …)."""


THEME = "sphinx_book_theme"
TEXT_FONTS = {
    "normal": "fonts/source-sans-3-latin-wght-normal.woff2",
    "italic": "fonts/source-sans-3-latin-wght-italic.woff2",
}
"""The fonts of the text by their style; a page asks at once for those that it has words in."""
THEME_SCRIPTS = ("scripts/bootstrap.js", "scripts/pydata-sphinx-theme.js")
"""The scripts that the theme's template would load at the end of a page."""
SEARCH_NEEDS_NOW = ("documentation_options.js", "doctools.js", "sphinx_highlight.js")
"""What the search page's own scripts use while the page is read."""
TABS = ("sphinx-design.min.css", "design-tabs.js")
"""What only pages with tabs need."""
NEVER_ASKED_FOR = (
    *("images", "locales", "styles", "vendor", "*webpack-macros.html", "scripts/*.map"),
    *("scripts/fontawesome.js*", "sphinx-thebe.*", "copybutton_funcs.js", "searchtools.js", "language_data.js"),
    *("check-solid.svg", "copy-button.svg", "play-solid.svg", "screenshot.png"),
)
"""What theme and extensions put into _static for pages of another kind, and README's picture."""
KEPT_SHEETS = (stylesheet.SHEET, stylesheet.WITHOUT_JAVASCRIPT, TABS[0])
"""The sheets that a page loads; the others are in the first of these."""
ITALICS = re.compile(r"<(?:em|i|cite|dfn)\b")
VIEWPORT = re.compile(r'<meta name="viewport"[^>]*>\n?')


def setup(app) -> None:
    """Copy the files when a build starts, and load on each page the styles and scripts that it needs."""
    app.connect("builder-inited", _copy_packages)
    app.connect("html-page-context", _needed_files, priority=900)
    app.connect("build-finished", _leave_out, priority=1000)


def _copy_packages(app) -> None:
    """Copy fonts and plotly from installed packages into the site."""
    static = Path(app.outdir) / "_static"
    for folder, (target, *patterns) in PACKAGE_FILES.items():
        source = npm_folder(Path(app.srcdir), folder)
        _copy([file for pattern in patterns for file in sorted(source.glob(pattern))], static / target)


def npm_folder(root: Path, folder: str) -> Path:
    """A folder of an installed npm package. Raises Sphinx's ExtensionError when it is not installed."""
    from sphinx.errors import ExtensionError

    path = root / "node_modules" / folder
    if not path.is_dir():
        raise ExtensionError(f"node_modules/{folder} is missing: run `make book`, which installs it with npm.")
    return path


def _copy(sources: list[Path], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for source in sources:
        shutil.copy2(source, folder / source.name)


def _needed_files(app, pagename, templatename, context, doctree) -> None:
    """Give a page the site's stylesheet and the scripts that it uses, each run when the page was read."""
    if app.config.html_theme != THEME:
        return
    tabs = "sd-tab-set" in context.get("body", "")
    local = [PurePosixPath(sheet.filename).relative_to("_static").as_posix() for sheet in context["css_files"]]
    _write_stylesheet(app, tuple(name for name in local if not _is_left_out(name, tabs=False)))
    context["css_files"][:] = []
    for name in (stylesheet.SHEET, *[name for name in local if tabs and name in TABS]):
        app.builder.add_css_file(name)
    context["script_files"][:] = scripts(context["script_files"], tabs=tabs, search=pagename == "search")
    for name in THEME_SCRIPTS:
        app.builder.add_js_file(name, defer="defer")
    context["metatags"] = VIEWPORT.sub("", context.get("metatags", ""))
    used = TEXT_FONTS if ITALICS.search(context.get("body", "")) else {"normal": TEXT_FONTS["normal"]}
    context |= {"first_fonts": list(used.items()), "sheet_without_javascript": stylesheet.WITHOUT_JAVASCRIPT}


def _leave_out(app, exception: Exception | None) -> None:
    """At the end of a build, when every extension has put its files there."""
    if exception is None and app.builder.name == "html" and app.config.html_theme == THEME:
        leave_out(Path(app.outdir) / "_static")


def leave_out(static: Path) -> None:
    """Remove what no page, sheet or script of the site asks for."""
    unused = [path for pattern in NEVER_ASKED_FOR for path in static.glob(pattern)]
    for path in {*unused, *(sheet for sheet in static.glob("*.css") if sheet.name not in KEPT_SHEETS)}:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


@functools.cache
def _write_stylesheet(app, sheets: tuple[str, ...]) -> None:
    """Once a build, before its first page; three sheets come only when a build ends, so ask for them now."""
    overwrite_pygments_css(app)
    add_global_html_resources(app, None)
    copy_asset_files(app, None)
    stylesheet.write(Path(app.outdir) / "_static", sheets)


def scripts(wanted: Iterable[Any], *, tabs: bool, search: bool) -> list[Any]:
    """The scripts of a page, in their order: without those that it does not use, the rest deferred."""
    kept, lines = [], set()
    for script in wanted:
        name, body = PurePosixPath(script.filename or "").name, script.attributes.get("body", "")
        if not name and _is_for_a_kept_script(body) and body not in lines:
            kept.append(script)
            lines.add(body)
        elif name and not _is_left_out(name, tabs):
            deferred = {} if search and name in SEARCH_NEEDS_NOW else {"defer": "defer"}
            kept.append(type(script)(script.filename, priority=script.priority, **{**script.attributes, **deferred}))
    return kept


def _is_left_out(name: str, tabs: bool) -> bool:
    """Whether a page does without a file: thebe serves live kernels, and few pages have tabs."""
    return "thebe" in name or (name in TABS and not tabs)


def _is_for_a_kept_script(body: str) -> bool:
    """Whether a line in the page is a setting of the closed boxes: other lines serve thebe, or read what runs later."""
    return body.startswith(("let toggle", "var toggle"))
