"""One stylesheet for the site, `_static/handbook.css`, made of those that the theme and the extensions bring.

A page then waits for one request before it is painted. On the way are left out the icons that no page shows and the
icon fonts: the ones that are shown come with the stylesheet, in a font of only these. A second sheet, for readers
without JavaScript, repeats the rules of each theme for the scheme that the reader's system asks for.
"""

from __future__ import annotations

import base64
import hashlib
import io
import posixpath
import re
from collections.abc import Iterable
from pathlib import Path

import tinycss2

SHEET, WITHOUT_JAVASCRIPT = "handbook.css", "handbook-without-javascript.css"
FIRST = ("basic.css", "styles/pydata-sphinx-theme.css")
"""The sheets that the theme's template loads before all others."""
ICONS = (
    *("angle-left", "angle-right", "arrow-up", "bars", "chevron-down", "circle-half-stroke", "download", "file"),
    *("file-pdf", "list", "magnifying-glass", "moon", "sun"),
)
"""The icons that pages name in a class, `fa-…`; those that a stylesheet writes are found there."""
ICON_FONTS = (("Font Awesome 6 Free", 900, "fa-solid-900.woff2"), ("Font Awesome 6 Brands", 400, "fa-brands-400.woff2"))
"""Family, weight and file of the theme's fonts whose icons a sheet writes."""
ICON_FOLDER = "vendor/fontawesome/webfonts"
MEDIA = {
    "light": "print, (prefers-color-scheme: light)",
    "dark": "screen and (prefers-color-scheme: dark)",
}
"""Where each theme's rules hold without JavaScript: paper is always light."""
_THEME = re.compile(r"html\[data-theme=\"?(light|dark)\"?\]")
_NAMES_ICON = re.compile(r"\.fa-([a-z0-9-]+)::?before$")
_ICON = re.compile(r"[\ue000-\uf8ff]")


def write(static: Path, sheets: Iterable[str]) -> None:
    """Write both sheets into the folder `_static` from the named ones in it, unless these are unchanged."""
    parts = [(name, (static / name).read_text(encoding="utf-8")) for name in (*FIRST, *sheets)]
    digest = hashlib.sha256(repr([parts, ICONS, Path(__file__).read_bytes()]).encode()).hexdigest()
    stamp = f"/* {digest} */\n"
    target = static / SHEET
    if target.exists() and target.read_text(encoding="utf-8").startswith(stamp):
        return
    sheet = joined(parts)
    faces = [_font_face(*font, static / ICON_FOLDER, icons_of(sheet)) for font in ICON_FONTS]
    target.write_text("".join([stamp, *faces, sheet]), encoding="utf-8")
    (static / WITHOUT_JAVASCRIPT).write_text(without_javascript(sheet), encoding="utf-8")


def joined(parts: Iterable[tuple[str, str]], icons: Iterable[str] = ICONS) -> str:
    """The rules of several sheets in their order, addresses relative to the common folder, without unused icons."""
    kept = set(icons)
    rules = []
    for name, text in parts:
        folder = posixpath.dirname(name)
        for rule in tinycss2.parse_stylesheet(text, skip_comments=True, skip_whitespace=True):
            if not (_is_icon_face(rule) or _is_unused_icon(rule, kept)):
                rules.append(_readdressed(rule.serialize(), folder))
    return "\n".join(rules)


def _is_icon_face(rule) -> bool:
    return rule.type == "at-rule" and rule.lower_at_keyword == "font-face" and "Awesome" in rule.serialize()


def _is_unused_icon(rule, icons: set[str]) -> bool:
    """Whether all that a rule does is to name icons that no page shows."""
    if rule.type != "qualified-rule" or "content" not in tinycss2.serialize(rule.content):
        return False
    named = [_NAMES_ICON.search(selector.strip()) for selector in tinycss2.serialize(rule.prelude).split(",")]
    return all(named) and not icons & {icon[1] for icon in named if icon}


def _readdressed(text: str, folder: str) -> str:
    def address(url: re.Match) -> str:
        return f'url("{posixpath.normpath(posixpath.join(folder, url[1]))}")'

    return re.sub(r"""url\(["']?(?!data:|#|/|[a-z]+:)([^"')]+)["']?\)""", address, text)


def icons_of(sheet: str) -> set[str]:
    """The characters of icons that a sheet writes."""
    written = re.sub(r"\\([ef][0-9a-f]{3})\b ?", lambda code: chr(int(code[1], 16)), sheet)
    return set(_ICON.findall(written))


def icon_font(source: Path, icons: Iterable[str]) -> bytes:
    """A font, in WOFF2, of only these icons, as far as the source has them."""
    from fontTools import subset
    from fontTools.ttLib import TTFont

    with TTFont(source, recalcTimestamp=False) as font:
        selection = subset.Subsetter(subset.Options(layout_features=[], notdef_outline=True))
        selection.populate(text="".join(icons))
        selection.subset(font)
        font.flavor = "woff2"
        written = io.BytesIO()
        font.save(written)
    return written.getvalue()


def _font_face(family: str, weight: int, file: str, folder: Path, icons: Iterable[str]) -> str:
    data = base64.b64encode(icon_font(folder / file, icons)).decode()
    return (
        f'@font-face {{ font-family: "{family}"; font-style: normal; font-weight: {weight}; font-display: block; '
        f'src: url("data:font/woff2;base64,{data}") format("woff2"); }}\n'
    )


def without_javascript(sheet: str) -> str:
    """The rules that name a theme, each for the scheme of the system, for pages on which no script chose a theme."""
    schemes: dict[str, list[str]] = {"light": [], "dark": []}
    for rule in tinycss2.parse_stylesheet(sheet, skip_comments=True, skip_whitespace=True):
        if rule.type == "qualified-rule":
            _sort_by_scheme(rule, schemes)
    blocks = [(MEDIA[name], "\n".join(rules)) for name, rules in schemes.items()]
    return "\n".join(f"@media {media} {{\n{rules}\n}}" for media, rules in blocks)


def _sort_by_scheme(rule, schemes: dict[str, list[str]]) -> None:
    selectors = [selector.strip() for selector in _split_selectors(tinycss2.serialize(rule.prelude))]
    for scheme, rules in schemes.items():
        of_scheme = [text for text in selectors if (theme := _THEME.search(text)) and theme[1] == scheme]
        if of_scheme:
            chosen = ", ".join(_THEME.sub('html[data-theme="auto"]', selector) for selector in of_scheme)
            rules.append(f"{chosen} {{{tinycss2.serialize(rule.content)}}}")


def _split_selectors(prelude: str) -> list[str]:
    """The selectors of a rule, divided at the commas outside parentheses."""
    return re.split(r",(?![^()]*\))", prelude)
