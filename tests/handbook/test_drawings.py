"""Figures drawn at build: colours of the page, ids of their own, drawings kept, and what happens without a browser."""

import json
import re
import sys
from pathlib import Path

import pytest
from sphinx.errors import ExtensionError

from handbook.chromium import NoBrowser, in_own_thread
from handbook.directives import drawings
from handbook.directives.drawings import SENTINELS, Drawings, page_colours, page_figure
from inferlab import figures
from inferlab.figures.style import blank, line

ROOT = Path(__file__).parents[2]
SVG = (
    '<svg viewBox="0 0 9 9"><clipPath id="a"></clipPath>'
    '<g clip-path="url(#a)"></g><g clip-path="url(&quot;#a&quot;)"></g></svg>'
)


def example(factor=1):
    """A line with a badge."""
    figure = blank("measured: example", f"A line of factor {factor}.", x="tokens")
    line(figure, [(0, 0), (1, factor)], "moving", "#000")
    return figure


def json_of(figure) -> str:
    """What the page's kernel leaves."""
    return drawings.FIGURE.search(figures.page_html(figure))[1]


@in_own_thread
def drawn(figure) -> dict[str, str]:
    """A figure's drawings, from a browser started for it."""
    with drawings.drawing_page(ROOT) as page:
        return drawings.draw(page, json_of(figure))


@pytest.fixture
def page(browser):
    """A page on which drawings are placed."""
    page = browser.new_page()
    yield page
    page.close()


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Drawing into an empty folder in a build that is not CI's; `says` has what the build tells the reader."""
    monkeypatch.delenv("CI", raising=False)
    says: list[str] = []
    monkeypatch.setattr(drawings.LOGGER, "info", lambda text, *words: says.append(text % words))
    kept = Drawings(tmp_path, "script")
    return kept, says


# --- on the page --------------------------------------------------------------------------------------


def test_a_figure_stands_on_the_page_with_its_text_alternative_once():
    """Two drawings for two widths, described together by one text."""
    placed = page_figure(json_of(example()), {"wide": SVG, "narrow": SVG}, "figure-1")
    assert placed.count("A line of factor 1.") == 1
    assert 'role="img" aria-label="A line of factor 1."' in placed
    assert re.findall(r'<svg class="is-(\w+)" aria-hidden="true"', placed) == ["wide", "narrow"]
    assert "<noscript>" not in placed


def test_ids_are_unique_on_the_page():
    """The same figure twice, each in two widths: four ids, and each reference means the one beside it."""
    placed = "".join(page_figure(json_of(example()), {"wide": SVG, "narrow": SVG}, f"figure-{n}") for n in (1, 2))
    ids = re.findall(r'\bid="([^"]+)"', placed)
    assert len(ids) == len(set(ids)) == 4
    assert re.findall(r"#([\w-]+)", placed) == [name for name in ids for _ in range(2)]


def test_a_figure_that_was_not_drawn_has_its_text_without_javascript():
    """Until the reader's browser draws it, its text stands there."""
    assert "<noscript>A line of factor 1.</noscript>" in page_figure(json_of(example()), None, "figure-1")


def test_a_setting_is_a_range_input_that_says_its_value():
    """One native input for each name, labelled, at the value that the drawing shows."""
    figure = figures.slider(lambda n_ctx, flash_attn: example(n_ctx), {"n_ctx": (1, 2), "flash_attn": ("on", "off")}, 2)
    placed = page_figure(json_of(figure), {"wide": SVG}, "figure-1")
    assert re.findall(r'aria-valuetext="([^"]+)"', placed) == ["2 tokens of context", "flash attention on"]
    assert re.findall(r'max="(\d)" value="(\d)"', placed) == [("1", "1"), ("1", "0")]
    assert all(f'for="{name}"' in placed for name in re.findall(r'<input type="range" id="([^"]+)"', placed))


def test_the_json_of_a_figure_is_not_on_the_page(tmp_path):
    """It is in a script of its own, which a page opened from disk may load, and an older one goes."""
    (tmp_path / "old.js").write_text("", encoding="utf-8")
    figure = json_of(example())
    drawings._write_scripts([figure], tmp_path)
    assert figure not in page_figure(figure, {"wide": SVG}, "figure-1")
    [script] = tmp_path.glob("*.js")
    assert figure in script.read_text(encoding="utf-8")
    assert f'data-figure="{script.stem}"' in page_figure(figure, None, "figure-1")


# --- drawing ------------------------------------------------------------------------------------------


def test_a_drawing_takes_the_colours_of_the_page():
    """Where the colour of text or of lines stood there is the page's variable; other colours stay."""
    svg = f'<path style="stroke:{SENTINELS["--book-figure-line"]};fill:rgb(217, 119, 6)"/>'
    assert page_colours(svg) == '<path style="stroke:var(--book-figure-line);fill:rgb(217, 119, 6)"/>'


def test_a_browser_draws_text_as_text_in_both_widths(page):
    """Titles and ticks are text in the page's colour; no colour of the drawing page is left."""
    svgs = drawn(example())
    assert svgs.keys() == drawings.WIDTHS.keys()
    for svg in svgs.values():
        page.set_content(svg)
        texts = page.locator("svg text").all_text_contents()
        assert "tokens" in texts
        assert "fill:var(--pst-color-text-base)" in svg
        assert not re.search(r"rgb\(1, 2, \d\)", svg)
        assert not page.locator("svg [class], svg g:empty").count()


def test_many_equal_dots_become_few_lines(page):
    """A figure of hundreds of points weighs little, and every point is still in it."""
    figure = blank(None, "Points.")
    figure.add_scatter(x=list(range(400)), y=[n % 7 for n in range(400)], mode="markers", marker={"opacity": 0.3})
    svg = drawn(figure)["wide"]
    dots = re.findall(r'd="((?:M[^h"]+h0)+)"', svg)
    assert sum(path.count("h0") for path in dots) == 400
    assert len(dots) == 8


# --- drawings kept ------------------------------------------------------------------------------------


def test_what_was_drawn_is_not_drawn_again(build):
    """A figure is found by its JSON; another figure, or another script that draws, finds nothing."""
    kept, _ = build
    kept.keep(json_of(example()), {"wide": SVG})
    assert kept.find(json_of(example())) == {"wide": SVG}
    assert kept.find(json_of(example(2))) is None
    assert Drawings(kept.folder, "another script").find(json_of(example())) is None


def test_drawings_of_figures_that_are_gone_are_removed(build):
    """The folder holds what the book shows and no more."""
    kept, _ = build
    for factor in (1, 2):
        kept.keep(json_of(example(factor)), {"wide": SVG})
    kept.keep_only([json_of(example(2))])
    assert (kept.find(json_of(example(1))), kept.find(json_of(example(2)))) == (None, {"wide": SVG})


def test_without_a_browser_the_build_says_what_is_missing(build, monkeypatch):
    """It goes on without a warning, and names the command that gives a browser."""
    kept, says = build
    monkeypatch.setenv("CHROMIUM", "/bin/false")
    drawings._draw_all([json_of(example())], kept, ROOT)
    assert kept.find(json_of(example())) is None
    assert len(says) == 1
    assert "apt-get install chromium" in says[0]


def test_under_ci_a_missing_drawing_fails_the_build(build, monkeypatch):
    """What is built for others has every figure as SVG."""
    kept, _ = build
    monkeypatch.setenv("CHROMIUM", "/bin/false")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(ExtensionError, match="No figure was drawn as SVG"):
        drawings._draw_all([json_of(example())], kept, ROOT)


def test_without_playwright_there_is_no_browser(monkeypatch):
    """The reason is the package that is missing."""
    monkeypatch.setitem(sys.modules, "playwright.sync_api", None)
    with pytest.raises(NoBrowser, match="playwright is missing"), drawings.drawing_page(ROOT):
        pass


def test_the_height_of_a_figure_is_that_of_its_layout():
    """A page keeps the space, so that nothing moves when a figure is drawn anew."""
    height = json.loads(json_of(example()))["layout"]["height"]
    assert f'style="height: {height}px"' in page_figure(json_of(example()), None, "figure-1")
