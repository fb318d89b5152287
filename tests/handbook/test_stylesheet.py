"""The site's stylesheet: many sheets in one, only the icons that are shown, both themes without JavaScript."""

from __future__ import annotations

import io
from pathlib import Path

from fontTools.ttLib import TTFont

from handbook.delivery import stylesheet

SHEETS = {
    "styles/theme.css": """
        @font-face { font-family: Font Awesome\\ 6 Free; src: url(../vendor/fa-solid-900.woff2) }
        .fa-sun:before { content: "\\f185" }
        .fa-anchor:before, .fa-ship:before { content: "\\f13d" }
        .note::after { background: url(../picture.png); content: "\\f05a" }
        .data { background: url(data:image/svg+xml,%3csvg/%3e) }
    """,
    "own.css": 'html[data-theme="dark"] p, html[data-theme="light"] h1 { color: red } p { margin: 0 }',
}


def test_sheets_become_one_in_their_order():
    """Later rules still win, and what a rule of a deeper folder names is found from the common one."""
    sheet = stylesheet.joined(SHEETS.items())
    assert sheet.index(".note") < sheet.index("p { margin")
    assert 'url("picture.png")' in sheet
    assert "url(data:image/svg+xml,%3csvg/%3e)" in sheet


def test_icons_that_no_page_shows_are_left_out():
    """The rule of an icon stays when a page names the icon, the theme's own font of icons goes."""
    sheet = stylesheet.joined(SHEETS.items(), icons=["sun"])
    assert ".fa-sun" in sheet
    assert "fa-anchor" not in sheet
    assert "@font-face" not in sheet


def test_the_font_of_icons_holds_those_that_a_sheet_writes():
    """An icon is found whether a sheet writes it as a character or by its number."""
    icons = stylesheet.icons_of(".a { content: '\uf185' } .b { content: '\\f05a' } .c { content: 'text' }")
    assert icons == {"\uf185", "\uf05a"}
    import pydata_sphinx_theme

    theme = Path(pydata_sphinx_theme.__file__).parent / "theme" / "pydata_sphinx_theme" / "static"
    font = stylesheet.icon_font(theme / stylesheet.ICON_FOLDER / "fa-solid-900.woff2", icons)
    assert set(TTFont(io.BytesIO(font)).getBestCmap()) == {0xF185, 0xF05A}
    assert len(font) < 3000


def test_without_javascript_each_theme_follows_the_system():
    """The rules of a theme are repeated for the scheme that the system asks for; other rules are not."""
    sheet = stylesheet.without_javascript(SHEETS["own.css"])
    light, dark = sheet.split("@media screen and (prefers-color-scheme: dark)")
    assert 'html[data-theme="auto"] h1 { color: red }' in light
    assert 'html[data-theme="auto"] p { color: red }' in dark
    assert "margin" not in light + dark
