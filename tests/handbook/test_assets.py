"""Each page loads the scripts that it uses, after it was read."""

from __future__ import annotations

import pytest
from sphinx.builders.html._assets import _JavaScript

from handbook.delivery import assets

WANTED = [
    _JavaScript("_static/documentation_options.js"),
    _JavaScript("_static/sphinx-thebe.js"),
    _JavaScript("", body="let toggleHintShow = 'Click to show';"),
    _JavaScript("", body="let toggleHintShow = 'Click to show';", priority=600),
    _JavaScript("", body="DOCUMENTATION_OPTIONS.pagename = 'index';"),
    _JavaScript("", body="const THEBE_JS_URL = '';"),
    _JavaScript("_static/design-tabs.js"),
    _JavaScript("_static/printing.js", defer="defer"),
]


def names(kept):
    return [str(script.filename).removeprefix("_static/") or "settings" for script in kept]


def test_unused_scripts_are_left_out_and_the_rest_runs_after_the_page():
    """Live kernels, tabs and repeated settings go; what is loaded does not hold up the page."""
    kept = assets.scripts(WANTED, tabs=False, search=False)
    assert names(kept) == ["documentation_options.js", "settings", "printing.js"]
    assert all(script.attributes.get("defer") for script in kept if script.filename)


@pytest.mark.parametrize("tabs", [True, False])
def test_tabs_come_with_their_script(tabs):
    """A page with tabs has the script that opens them."""
    assert ("design-tabs.js" in names(assets.scripts(WANTED, tabs=tabs, search=False))) is tabs


def test_the_search_page_has_its_options_at_once():
    """The search page's own scripts read the options while the page is read."""
    kept = {str(script.filename): script for script in assets.scripts(WANTED, tabs=False, search=True)}
    assert "defer" not in kept["_static/documentation_options.js"].attributes
    assert "defer" in kept["_static/printing.js"].attributes


def test_what_no_page_asks_for_is_left_out(tmp_path):
    """Icon scripts, folders of the theme and sheets that are part of the site's own go; what pages load stays."""
    gone = ("scripts/fontawesome.js", "scripts/bootstrap.js.map", "vendor/a/b.ttf", "basic.css", "mystnb.123.css")
    kept = ("scripts/bootstrap.js", "handbook.css", "sphinx-design.min.css", "figures/1.js", "favicon.svg")
    for name in (*gone, *kept):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assets.leave_out(tmp_path)
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert left == set(kept)
    assert not (tmp_path / "vendor").exists()
