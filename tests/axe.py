"""What axe-core finds in an open page, light and dark."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

AXE = Path(__file__).parents[1] / "node_modules" / "axe-core" / "axe.min.js"
STILL = "* { transition: none !important; animation: none !important; }"
PREPARE = """() => {
  axe.configure({ noHtml: true });
  for (const fold of document.querySelectorAll("article details")) fold.open = true;
  for (const fold of document.querySelectorAll(".toggle-hidden")) fold.classList.remove("toggle-hidden");
  for (const drawing of document.querySelectorAll(
    "svg[aria-hidden=true]:not(:has(a, [tabindex], foreignObject))")) drawing.replaceChildren();
  for (const code of document.querySelectorAll("pre")) {
    const looks = new Set();
    for (const span of code.querySelectorAll("span:not(:has(*))")) {
      const look = `${span.parentElement.className}/${span.className}`;
      if (span.getAttributeNames().some((name) => name !== "class") || !looks.has(look)) looks.add(look);
      else span.replaceWith(span.textContent);
    }
  }
}"""
"""Opens what is folded, and empties what axe-core would walk through without a rule for it: formulas and ornaments.
Of the words of one piece of code that look alike, the first stays an element."""
RUN = """async ([scheme, rules]) => {
  document.documentElement.dataset.theme = scheme;
  const line = (each) => `${each.id} (${each.nodes.length}): ${each.nodes[0].element.outerHTML.slice(0, 160)}`;
  const quick = { resultTypes: ["violations"], preload: false, elementRef: true };
  const found = await axe.run({ ...quick, ...(rules && { runOnly: rules }) });
  return found.violations.map(line);
}"""
SCHEMES = {"light": None, "dark": ["color-contrast"]}
"""Which rules each scheme is checked for, None for all: in dark only colours can differ."""


def violations(tab: Page) -> list[str]:
    """What axe-core finds in a tab with every fold open, in both schemes; also where no script may be added."""
    tab.add_style_tag(content=STILL)
    tab.evaluate(AXE.read_text(encoding="utf-8"))
    tab.evaluate(PREPARE)
    lines = []
    for scheme, rules in SCHEMES.items():
        tab.emulate_media(color_scheme=scheme)
        where = f"{scheme}, {tab.viewport_size['width']}"
        lines += [f"{where}: {each}" for each in tab.evaluate(RUN, [scheme, rules])]
    return lines
