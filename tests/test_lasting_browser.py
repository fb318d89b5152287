"""A browser that stalls is ended, and the one after it works."""

import pytest
from lasting_browser import browsers_ended_after
from playwright.sync_api import Error

NEVER = "() => new Promise(() => null)"


def test_a_script_without_end_fails_and_the_next_test_has_a_browser(browser, capsys):
    """The failure names the test, and comes from the line that waits."""
    page = browser.new_page()
    with pytest.raises(Error, match="closed"), browsers_ended_after(1, "tests/test_x.py::test_y"):
        page.evaluate(NEVER)
    assert capsys.readouterr().err == "tests/test_x.py::test_y: the browser was ended after 1 s.\n"
    page = browser.new_page()
    assert page.evaluate("1 + 1") == 2
    page.close()
