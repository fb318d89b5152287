"""What a page shows: the Sphinx directives and roles, and how figures, formulas, diagrams and code are drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def load_script(app: Any, script: str, is_needed: Callable[[Any], bool], priority: int = 900) -> None:
    """Load a script at the end of the pages whose doctree needs it."""

    def load(app: Any, pagename: str, templatename: str, context: dict, doctree: Any) -> None:
        if doctree is not None and is_needed(doctree):
            app.add_js_file(script, loading_method="defer")

    app.connect("html-page-context", load, priority=priority)
