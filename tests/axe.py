"""What axe-core finds in open pages, light and dark."""

from __future__ import annotations

from pathlib import Path

AXE = Path(__file__).parents[1] / "node_modules" / "axe-core" / "axe.min.js"
STILL = "* { transition: none !important; animation: none !important; }"
UNFOLD = """() => {
  for (const fold of document.querySelectorAll("article details")) fold.open = true;
  for (const fold of document.querySelectorAll(".toggle-hidden")) fold.classList.remove("toggle-hidden");
}"""
START = """([scheme, rules]) => {
  document.documentElement.dataset.theme = scheme;
  const line = (each) => `${each.id} (${each.nodes.length}): ${each.nodes[0].html.slice(0, 160)}`;
  const run = axe.run(document, { resultTypes: ["violations"], preload: false, ...(rules && { runOnly: rules }) });
  window.violations = run.then((found) => found.violations.map(line));
}"""
SCHEMES = {"light": None, "dark": ["color-contrast"]}
"""Which rules each scheme is checked for, None for all: in dark only colours can differ."""


def violations(tabs: list) -> list[str]:
    """What axe-core finds in tabs with every fold open, in both schemes."""
    for tab in tabs:
        tab.add_style_tag(content=STILL)
        tab.add_script_tag(path=str(AXE))
        tab.evaluate(UNFOLD)
    found = []
    for scheme, rules in SCHEMES.items():
        for tab in tabs:
            tab.evaluate(START, [scheme, rules])
        for tab in tabs:
            where = f"{scheme}, {tab.viewport_size['width']}"
            found += [f"{where}: {each}" for each in tab.evaluate("window.violations")]
    return found
