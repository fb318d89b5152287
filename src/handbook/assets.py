"""Copies fonts and scripts from installed packages, so that a page requests nothing from other hosts."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

PACKAGE_FILES = {
    "@fontsource-variable/source-sans-3/files": ("fonts", "source-sans-3-latin*-wght-*.woff2"),
    "@fontsource-variable/source-code-pro/files": ("fonts", "source-code-pro-latin*-wght-normal.woff2"),
    "@fontsource-variable/source-sans-3": ("fonts/source-sans-3", "LICENSE"),
    "@fontsource-variable/source-code-pro": ("fonts/source-code-pro", "LICENSE"),
    "mathjax": ("mathjax", "LICENSE"),
    "mathjax/es5": ("mathjax", "tex-svg.js"),
    "mathjax/es5/input/tex/extensions": ("mathjax/input/tex/extensions", "*.js"),
}
"""Folder in node_modules -> (folder in the site's _static, which files)."""


def setup(app) -> None:
    """Copy the files when a build starts, and load on each page the scripts that it needs."""
    app.connect("builder-inited", _copy_packages)
    app.connect("html-page-context", _only_needed_scripts, priority=900)


def _copy_packages(app) -> None:
    """Copy fonts, MathJax and plotly from installed packages into the site."""
    static = Path(app.outdir) / "_static"
    for folder, (target, pattern) in PACKAGE_FILES.items():
        _copy(sorted(npm_folder(Path(app.srcdir), folder).glob(pattern)), static / target)
    _copy([Path(find_spec("plotly").origin).parent / "package_data" / "plotly.min.js"], static)


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


def _only_needed_scripts(app, pagename, templatename, context, doctree) -> None:
    """Leave out thebe, which serves live kernels, and load plotly where there is a figure to draw."""
    from docutils import nodes

    context["script_files"][:] = [script for script in context["script_files"] if not _is_thebe(script)]
    raws = doctree.findall(nodes.raw) if doctree else ()
    if any('class="lab-figure"' in raw.astext() for raw in raws):
        app.add_js_file("plotly.min.js", loading_method="defer")


def _is_thebe(script) -> bool:
    return "thebe" in f"{script} {getattr(script, 'attributes', {}).get('body', '')}".lower()
