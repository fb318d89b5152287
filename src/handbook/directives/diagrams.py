"""Renders Mermaid diagrams before a build: `book/diagrams/x.mmd` to `x.svg` beside it, which the page includes.

    python -m handbook.directives.diagrams render     draw what is missing or out of date (needs Chromium and mermaid)
    python -m handbook.directives.diagrams check      list what is out of date, draw nothing

An SVG contains the digest of its source and of `settings.json`, so that a build without a browser recognizes a
stale picture. The colours in `settings.json`'s palette become CSS variables
(`--diagram-ink`, …) with the light colour as fallback: the page sets them for its dark theme. `--width`
is the width the diagram was drawn for, so that the page can keep its text readable on a small screen.
"""

from __future__ import annotations

import argparse
import hashlib
import html
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from handbook.chromium import blank_page, in_own_thread
from handbook.delivery.assets import npm_folder
from handbook.directives.drawings import font_face
from inferlab.errors import StaleDiagram

_DRAW = """
async ([name, source, settings]) => {
  mermaid.initialize({...settings, startOnLoad: false, deterministicIds: true});
  await document.fonts.load("16px 'Source Sans 3 Variable'");
  const { svg } = await mermaid.render("diagram-" + name, source);
  const box = document.createElement("div");
  box.innerHTML = svg;
  return new XMLSerializer().serializeToString(box.firstElementChild);
}
"""


def digest(source: str, settings: str) -> str:
    """The digest in an SVG: a hash of the diagram's source and of the settings it was drawn with."""
    lines = [line.rstrip() for line in f"{source.strip()}\n{settings.strip()}".splitlines()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:20]


def rendered(source: str, folder: Path) -> str:
    """The SVG in `folder` drawn from `source`; StaleDiagram when there is none."""
    mark = f'data-digest="{digest(source, _settings_text(folder))}"'
    for svg in sorted(folder.glob("*.svg")):
        text = svg.read_text(encoding="utf-8")
        if mark in text[:4000]:
            return text
    title = source.strip().splitlines()[0]
    raise StaleDiagram(
        f"No SVG in {folder.name}/ was drawn from this source ({title} …). Run `make diagrams` and commit the SVG."
    )


def stale(folder: Path) -> list[Path]:
    """The sources in `folder` whose SVG is missing or was drawn from something else."""
    return [source for source in sorted(folder.glob("*.mmd")) if not _is_current(source)]


@in_own_thread
def render(sources: list[Path], root: Path) -> None:
    """Draw each source and write its SVG beside it; needs Chromium and an installed npm package mermaid."""
    if not sources:
        return
    with _drawing_page(root) as page:
        for source in sources:
            source.with_suffix(".svg").write_text(_draw(page, source), encoding="utf-8")


def setup(app) -> None:
    """Let Sphinx put the diagrams rendered ahead into the page."""
    from sphinxcontrib.mermaid import mermaid

    app.setup_extension("sphinxcontrib.mermaid")
    app.add_node(mermaid, override=True, html=(_visit_diagram, None))


def _visit_diagram(self, node) -> None:
    """Write the diagram rendered ahead into the page, as SVG that takes the page's colours."""
    from docutils.nodes import SkipNode
    from sphinx.util import logging

    try:
        svg = rendered(node["code"], Path(self.builder.app.srcdir) / "book" / "diagrams")
    except StaleDiagram as stale:
        logging.getLogger(__name__).warning(str(stale), location=node)
        raise SkipNode from stale
    label = f' role="img" aria-label="{html.escape(node["alt"])}"' if node.get("alt") else ""
    self.body.append(f'<div class="diagram" tabindex="0"{label}>{svg}</div>')
    raise SkipNode


def _is_current(source: Path) -> bool:
    try:
        current = rendered(source.read_text(encoding="utf-8"), source.parent)
        return current == source.with_suffix(".svg").read_text(encoding="utf-8")
    except (StaleDiagram, FileNotFoundError):
        return False


def _settings_text(folder: Path) -> str:
    return (folder / "settings.json").read_text(encoding="utf-8")


@contextmanager
def _drawing_page(root: Path) -> Iterator:
    with blank_page() as page:
        page.add_style_tag(content=font_face(root))
        page.add_script_tag(path=npm_folder(root, "mermaid") / "dist" / "mermaid.min.js")
        yield page


def _draw(page, source: Path) -> str:
    text = source.read_text(encoding="utf-8")
    settings_text = _settings_text(source.parent)
    settings = json.loads(settings_text)
    palette = settings.pop("palette")
    svg = page.evaluate(_DRAW, [source.stem, text, settings])
    for name, colour in palette.items():
        svg = svg.replace(colour, f"var(--diagram-{name}, {colour})")
    svg = re.sub(r"max-width: ([\d.]+px);", r"max-width: \1; --width: \1;", svg, count=1)
    return svg.replace("<svg ", f'<svg data-digest="{digest(text, settings_text)}" ', 1) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Command line of this module; returns 1 when `check` finds a stale diagram."""
    parser = argparse.ArgumentParser(prog="python -m handbook.directives.diagrams", description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["render", "check"])
    parser.add_argument("--folder", type=Path, default=Path("book/diagrams"))
    parser.add_argument("--all", action="store_true", help="draw the current ones again too")
    options = parser.parse_args(arguments)
    sources = sorted(options.folder.glob("*.mmd")) if options.all else stale(options.folder)
    if options.what == "render":
        render(sources, Path())
    for source in sources:
        print(f"{'drawn' if options.what == 'render' else 'stale'}: {source}")
    return int(options.what == "check" and bool(sources))


if __name__ == "__main__":
    sys.exit(main())
