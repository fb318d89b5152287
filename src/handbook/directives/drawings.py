"""Draws each figure at build as SVG, so that it is there without JavaScript and before any script has loaded.

A page's kernel leaves a figure as JSON (`inferlab.figures.page_html`). When all pages are read, one browser draws
the new ones with plotly, in the colours and with the font of `figures.js`, once for a page of reading and once for a
phone. A drawing's colours are the page's CSS variables. The JSON goes to `_static/figures/`, for the reader who
asks for the interactive figure.

Drawings are kept in `_build/.drawn`, each by a digest of all that it depends on. Where no browser starts, figures are
drawn in the reader's browser when they come into view, and the build says what is missing; under CI it fails.
"""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.errors import ExtensionError
from sphinx.util import logging

from handbook.chromium import NoBrowser, blank_page, in_own_thread
from handbook.delivery.assets import npm_folder
from handbook.directives import load_script
from handbook.directives.tables import has_raw
from handbook.execution.execution_cache import is_ci
from inferlab.records import write_whole

LOGGER = logging.getLogger(__name__)
WIDTHS = {"wide": 688, "narrow": 346}
"""Pixels of a figure beside the contents at 1280 pixels, and on a phone, where a box can be narrower still."""
HEIGHT = 400
SENTINELS = {
    "--pst-color-text-base": "rgb(1, 2, 3)",
    "--book-figure-line": "rgb(1, 2, 4)",
    "--pst-color-surface": "rgb(1, 2, 5)",
    "--pst-color-text-muted": "rgb(1, 2, 6)",
}
"""The page's colours while a figure is drawn: no figure has these, so each can be found again."""
FIGURE = re.compile(r'<div class="lab-figure".*?<script type="application/json">(.*?)</script>.*?</div>', re.DOTALL)
PLOTLY = "plotly.js-cartesian-dist-min"
FONT = "@fontsource-variable/source-sans-3/files", "source-sans-3-latin-wght-normal.woff2"


def setup(app: Any) -> None:
    """Collect figures while pages are read, draw them before the first is written, and put them into the pages."""
    app.connect("env-purge-doc", lambda app, env, name: _figures_of(env).pop(name, None))
    app.connect("doctree-read", _collect)
    app.connect("env-updated", _draw_new)
    app.connect("doctree-resolved", _place)
    load_script(app, "figures.js", lambda doctree: has_raw(doctree, 'class="lab-figure"'), priority=500)


# --- figures of the pages -----------------------------------------------------------------------------


def _figures_of(env: Any) -> dict[str, list[str]]:
    """The JSON of each page's figures."""
    return vars(env).setdefault("handbook_figures", {})


def _raw_with_figures(doctree: nodes.document) -> list[nodes.raw]:
    return [raw for raw in doctree.findall(nodes.raw) if FIGURE.search(raw.astext())]


def _collect(app: Any, doctree: nodes.document) -> None:
    figures = [figure for raw in _raw_with_figures(doctree) for figure in FIGURE.findall(raw.astext())]
    if figures:
        _figures_of(app.env)[app.env.docname] = figures


def _place(app: Any, doctree: nodes.document, docname: str) -> None:
    """Put the drawings into one page."""
    raws = _raw_with_figures(doctree)
    if app.builder.format != "html" or not raws:
        return
    drawings, n_figures = _drawings(app), 0
    for raw in raws:
        parts = FIGURE.split(raw.astext())
        for i in range(1, len(parts), 2):
            n_figures += 1
            parts[i] = page_figure(parts[i], drawings.find(parts[i]), f"figure-{n_figures}")
        raw[:] = [nodes.Text("".join(parts))]


def page_figure(figure: str, drawn: Mapping[str, str] | None, name: str) -> str:
    """A figure as it stands on the page: its controls, the drawings if there are any, its text alternative.

    `name` is different for each figure of a page, and with it every id of a drawing.
    """
    layout = json.loads(figure)["layout"]
    alt = html.escape(_alt(layout))
    svgs = "".join(_named(svg, f"{name}-{size}", size) for size, svg in (drawn or {}).items())
    box = (
        f'<div class="lab-figure" data-figure="{digest(figure)}" style="height: {_height(layout)}px">'
        f'<div class="figure-drawing" role="img" aria-label="{alt}">{svgs}</div>'
        f"{'' if drawn else f'<noscript>{alt}</noscript>'}</div>"
    )
    controls = "".join(_control(each, name) for each in (layout.get("meta") or {}).get("controls", ()))
    return f'<div class="lab-controlled"><div class="figure-controls">{controls}</div>{box}</div>' if controls else box


def _named(svg: str, name: str, size: str) -> str:
    """One drawing with ids of its own."""
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(url\(|href=")(&quot;)?#', rf"\1\2#{name}-", svg)
    return svg.replace("<svg ", f'<svg class="is-{size}" aria-hidden="true" ', 1)


def _control(control: Mapping[str, Any], figure: str) -> str:
    """A range input over one name's values."""
    name, values, start, said = (control[key] for key in ("name", "values", "start", "said"))
    told = html.escape(said.replace("{}", values[start]))
    return (
        f'<div class="figure-control"><label for="{figure}-{name}">{name}</label>'
        f'<input type="range" id="{figure}-{name}" name="{name}" min="0" max="{len(values) - 1}" value="{start}" '
        f'autocomplete="off" aria-valuetext="{told}" data-said="{html.escape(said)}" '
        f'data-values="{html.escape(json.dumps(values))}">'
        f'<output for="{figure}-{name}" aria-live="off">{html.escape(values[start])}</output></div>'
    )


def _alt(layout: Mapping[str, Any]) -> str:
    return (layout.get("meta") or {}).get("alt", "")


def _height(layout: Mapping[str, Any]) -> int:
    return layout.get("height") or HEIGHT


def first_drawing(app: Any, docname: str, size: str) -> str | None:
    """The drawing of a page's first figure in the book's light colours, where there is one."""
    figures = _figures_of(app.env).get(docname)
    drawn = _drawings(app).find(figures[0]) if figures else None
    return in_light(drawn[size], Path(app.srcdir)) if drawn else None


def first_text(app: Any, docname: str) -> str:
    """The text alternative of a page's first figure; empty where there is none."""
    figures = _figures_of(app.env).get(docname)
    return _alt(json.loads(figures[0])["layout"]) if figures else ""


def in_light(svg: str, root: Path) -> str:
    """Drawings with light colours instead of CSS variables, for what has no such stylesheet.

    A variable has the light colour of book.css, or else the one that stands beside it.
    """
    sheet = (root / "book" / "_static" / "book.css").read_text(encoding="utf-8")
    light = re.findall(r'html\[data-theme="light"\] \{(.*?)\}', sheet, re.DOTALL)[0]
    colours = dict(re.findall(r"(--[\w-]+): ([^;]+);", light))
    return re.sub(r"var\((--[\w-]+)(?:, *([^()]+))?\)", lambda variable: colours.get(variable[1]) or variable[2], svg)


def digest(*parts: str) -> str:
    """A short name for some text."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


# --- drawings -----------------------------------------------------------------------------------------


@dataclass
class Drawings:
    """Drawings kept by earlier builds: a file for each figure with its SVG by size.

    drawn_by  digest of what every drawing depends on: scripts, plotly, font and widths
    """

    folder: Path
    drawn_by: str

    def file(self, figure: str) -> Path:
        return self.folder / f"{digest(self.drawn_by, figure)}.json"

    def find(self, figure: str) -> dict[str, str] | None:
        """The drawings of a figure by size, None where there are none."""
        try:
            return json.loads(self.file(figure).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def keep(self, figure: str, drawn: Mapping[str, str]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.file(figure), json.dumps(drawn))

    def keep_only(self, figures: Iterable[str]) -> None:
        """Remove the drawings of all other figures."""
        needed = {self.file(figure) for figure in figures}
        for file in set(self.folder.glob("*.json")) - needed:
            file.unlink()


def _drawings(app: Any) -> Drawings:
    root = Path(app.srcdir)
    plotly = (npm_folder(root, PLOTLY) / "package.json").read_text(encoding="utf-8")
    drawn_by = digest(_draw_script(), _page_script(root), plotly, _page_style(root), json.dumps(WIDTHS))
    return Drawings(Path(app.doctreedir).parent / ".drawn", drawn_by)


def _draw_new(app: Any, env: Any) -> list[str]:
    """Draw the figures that no earlier build has drawn, and write the JSON of all of them; the pages to write again."""
    pages = _figures_of(env)
    figures = list(dict.fromkeys(figure for figures in pages.values() for figure in figures))
    if app.builder.format != "html" or not figures:
        return []
    drawings = _drawings(app)
    new = [figure for figure in figures if drawings.find(figure) is None]
    if new:
        _draw_all(new, drawings, Path(app.srcdir))
    drawings.keep_only(figures)
    _write_scripts(figures, Path(app.outdir) / "_static" / "figures")
    return sorted(name for name, figures in pages.items() if not set(new).isdisjoint(figures))


@in_own_thread
def _draw_all(new: Iterable[str], drawings: Drawings, root: Path) -> None:
    """Draw these figures and keep the drawings; where no browser starts say so, and fail under CI."""
    try:
        with drawing_page(root) as page:
            for figure in new:
                drawings.keep(figure, draw(page, figure))
    except NoBrowser as missing:
        not_drawn(missing, "No figure was drawn as SVG.", "Until then the reader's browser draws the figures.")


def not_drawn(missing: NoBrowser, what: str, until_then: str) -> None:
    """Say that there is no browser. Raises ExtensionError under CI, since what is built for others lacks nothing."""
    if is_ci(os.environ):
        raise ExtensionError(f"{what} {missing}") from missing
    LOGGER.info("%s %s %s", what, missing, until_then)


@contextmanager
def drawing_page(root: Path) -> Iterator:
    """A page with plotly and the book's own script, whose colours are the SENTINELS. Raises NoBrowser."""
    with blank_page() as page:
        page.add_style_tag(content=_page_style(root))
        page.add_script_tag(path=npm_folder(root, PLOTLY) / "plotly-cartesian.min.js")
        page.add_script_tag(content=_page_script(root))
        yield page


def draw(page: Any, figure: str) -> dict[str, str]:
    """The SVG of a figure by size, in the page's colours."""
    drawn = json.loads(figure)
    height = _height(drawn["layout"])
    return {size: page_colours(page.evaluate(_draw_script(), [drawn, width, height])) for size, width in WIDTHS.items()}


def page_colours(svg: str) -> str:
    """A drawing with CSS variables where the SENTINELS stood."""
    for variable, colour in SENTINELS.items():
        svg = svg.replace(colour, f"var({variable})")
    return svg


def _page_style(root: Path) -> str:
    colours = "; ".join(f"{variable}: {colour}" for variable, colour in SENTINELS.items())
    return f'{font_face(root)} :root {{ {colours}; }} body {{ font-family: "Source Sans 3 Variable"; }}'


def font_face(root: Path) -> str:
    """The @font-face rule of the text's font, with the font in it."""
    data = b64encode(font(root).read_bytes()).decode()
    source = f'src: url("data:font/woff2;base64,{data}")'
    return f'@font-face {{ font-family: "Source Sans 3 Variable"; font-weight: 200 900; {source}; }}'


def font(root: Path) -> Path:
    """The file of the font in which figures are drawn."""
    return npm_folder(root, FONT[0]) / FONT[1]


def _page_script(root: Path) -> str:
    return (root / "book" / "_static" / "figures.js").read_text(encoding="utf-8")


def _draw_script() -> str:
    return (files("handbook") / "data" / "draw-figure.js").read_text(encoding="utf-8")


def _write_scripts(figures: Iterable[str], folder: Path) -> None:
    """The JSON of each figure as a script, because a page opened from disk may load no other file."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {folder / f"{digest(figure)}.js": figure for figure in figures}
    for file in set(folder.glob("*.js")) - set(wanted):
        file.unlink()
    for file, figure in wanted.items():
        file.write_text(f'handbookFigures.add("{digest(figure)}", {figure});\n', encoding="utf-8")
