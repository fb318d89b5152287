"""The built page: what a page's cells call, and what Sphinx does around them.

In a cell: `number` hands a value to the prose; `on_page` tells a page from a lab.
In the kernel that executes a page (`data/kernels`, found before any other `python3` kernel):
`load_ipython_extension` makes figures appear as the page's own HTML.
In Sphinx: `setup` executes every page on every build, copies fonts and scripts out of installed packages so
that a page asks no other host for anything, puts the diagrams rendered ahead into the page, and draws the claims
on trial (`trials`) and the table of the hardware atlas (`hardware`).
"""

from __future__ import annotations

import html
import numbers
import os
import shutil
from datetime import date
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from handbook import diagrams
from inferlab import units
from inferlab.errors import StaleDiagram

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


def number(key: str, value: float | int | str) -> None:
    """Hand one value to the prose, which shows it as {glue:text}`key:.2f`.

    NumPy scalars become Python's own, because the prose formats only those.
    """
    from myst_nb import glue

    glue(key, _plain(value), display=False)


def _plain(value: float | int | str) -> float | int | str:
    if isinstance(value, str):
        return value
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def build_facts():
    """The machine and the software this page was executed with, as a table."""
    from IPython.display import Markdown

    import inferlab as lab

    rows = {**_machine_rows(lab.this_machine()), **_software_rows(), "executed": f"{date.today():%d %B %Y}"}
    return Markdown("\n".join(["| what | this build |", "|---|---|", *(f"| {k} | {v} |" for k, v in rows.items())]))


def _machine_rows(machine) -> dict[str, str]:
    gpus = ", ".join(f"{d.description} ({d.memory_text})" for d in machine.gpus)
    return {
        "processor": f"{machine.cpu}, {machine.n_cores} cores used",
        "memory": units.bytes_text(machine.ram_bytes),
        "GPU": gpus or "none",
        "system": machine.system,
        "engine": machine.llama_cpp_text,
        "Python": machine.python,
    }


def _software_rows() -> dict[str, str]:
    return {package: version(package) for package in ("inferlab", "jupyter-book", "sphinx", "myst-nb", "plotly")}


def claim_counts():
    """The claims by verdict and section, as a table."""
    from IPython.display import Markdown

    from handbook import claims

    found = [(one.verdict, one.section) for one in claims.claims()]
    head = f"| verdict | {' | '.join(claims.SECTIONS)} | all |\n|---|{'--:|' * (len(claims.SECTIONS) + 1)}"
    rows = {v: [found.count((v, s)) for s in claims.SECTIONS] for v in claims.VERDICTS}
    lines = [f"| {verdict} | {' | '.join(map(str, row))} | {sum(row)} |" for verdict, row in rows.items()]
    return Markdown("\n".join([head, *lines]))


def load_ipython_extension(ipython) -> None:
    """Called by IPython for `--ext=handbook`: figures are shown as the page's own HTML."""
    from inferlab import figures

    figures.register_page_renderer()


def setup(app) -> dict:
    """Called by Sphinx for `extra_extensions: [handbook]`."""
    from sphinxcontrib.mermaid import mermaid

    from handbook import atlas_table, trials

    trials.setup(app)
    atlas_table.setup(app)
    app.setup_extension("sphinxcontrib.mermaid")
    app.add_node(mermaid, override=True, html=(_visit_diagram, None))
    app.connect("builder-inited", _use_page_kernel)
    app.connect("builder-inited", _copy_packages)
    app.connect("env-get-outdated", _every_page)
    app.connect("html-page-context", _only_needed_scripts, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _use_page_kernel(app) -> None:
    """Make `python3` this interpreter with our extension, whatever kernels the reader has installed."""
    ours = str(files("handbook") / "data")
    others = os.environ.get("JUPYTER_PATH", "").split(os.pathsep)
    os.environ["JUPYTER_PATH"] = os.pathsep.join([ours, *(p for p in others if p and p != ours)])


def _copy_packages(app) -> None:
    """Copy fonts, MathJax and plotly from installed packages into the site."""
    static = Path(app.outdir) / "_static"
    for folder, (target, pattern) in PACKAGE_FILES.items():
        _copy(sorted(_npm_folder(app, folder).glob(pattern)), static / target)
    _copy([Path(find_spec("plotly").origin).parent / "package_data" / "plotly.min.js"], static)


def _npm_folder(app, folder: str) -> Path:
    from sphinx.errors import ExtensionError

    path = Path(app.srcdir) / "node_modules" / folder
    if not path.is_dir():
        raise ExtensionError(f"node_modules/{folder} is missing: run `make book`, which installs it with npm.")
    return path


def _copy(sources: list[Path], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for source in sources:
        shutil.copy2(source, folder / source.name)


def _every_page(app, env, added, changed, removed) -> list[str]:
    """Re-read every page: a page is out of date when the library changed, which Sphinx cannot see."""
    return sorted(env.found_docs)


def _only_needed_scripts(app, pagename, templatename, context, doctree) -> None:
    """Leave out thebe, which serves live kernels, and load plotly where there is a figure to draw."""
    from docutils import nodes

    context["script_files"][:] = [script for script in context["script_files"] if not _is_thebe(script)]
    raws = doctree.findall(nodes.raw) if doctree else ()
    if any('class="lab-figure"' in raw.astext() for raw in raws):
        app.add_js_file("plotly.min.js", loading_method="defer")


def _is_thebe(script) -> bool:
    return "thebe" in f"{script} {getattr(script, 'attributes', {}).get('body', '')}".lower()


def _visit_diagram(self, node) -> None:
    """Write the diagram rendered ahead into the page, as SVG that takes the page's colours."""
    from docutils.nodes import SkipNode
    from sphinx.util import logging

    try:
        svg = diagrams.rendered(node["code"], Path(self.builder.app.srcdir) / "book" / "diagrams")
    except StaleDiagram as stale:
        logging.getLogger(__name__).warning(str(stale), location=node)
        raise SkipNode from stale
    label = f' role="img" aria-label="{html.escape(node["alt"])}"' if node.get("alt") else ""
    self.body.append(f'<div class="diagram" tabindex="0"{label}>{svg}</div>')
    raise SkipNode
