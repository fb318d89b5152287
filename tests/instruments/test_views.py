"""Views: nested lists that become elements, and texts that stay texts."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from bs4 import BeautifulSoup

from inferlab.instruments import INSTRUMENTS, views
from inferlab.instruments.views import element, html_of, table

HOSTILE = '<img src=x onerror="alert(1)">&amp;</td><script>alert(2)</script>\u202e\0'


def test_a_text_is_never_markup():
    """What a name or a log contains stands in the page as it is, in a text as in an attribute."""
    soup = BeautifulSoup(html_of(element("p", {"class": HOSTILE}, HOSTILE, element("em", {}, HOSTILE))), "html.parser")
    assert [tag.name for tag in soup.find_all()] == ["p", "em"]
    assert soup.em.get_text() == HOSTILE
    assert soup.p["class"] == HOSTILE.split()


@pytest.mark.parametrize(
    ("tag", "attributes"),
    [
        ("script", {}),
        ("iframe", {}),
        ("img", {"src": "x"}),
        ("p", {"onclick": "alert(1)"}),
        ("p", {"style": "background: url(//x)"}),
        ("a", {"href": "javascript:alert(1)"}),
        ("a", {"href": " javascript:alert(1)"}),
        ("a", {"href": "//another.host/"}),
        ("a", {"href": "data:text/html,x"}),
    ],
)
def test_what_could_run_is_refused(tag, attributes):
    """No view has a script, a handler, a style or an address that leaves the page otherwise than as a link."""
    with pytest.raises(ValueError, match="not allowed"):
        element(tag, attributes)


def test_what_is_not_set_is_left_out():
    """None and False leave an attribute out, True writes it alone, and a child that is None is not there."""
    made = element("input", {"name": "n", "checked": True, "disabled": False, "class": None})
    assert html_of(made) == '<input name="n" checked=""/>'
    assert element("p", {}, "a", None, "b") == ["p", {}, "a", "b"]


def test_a_cell_knows_its_column():
    """In a narrow place each row is a block, and its cells begin with the names of their columns."""
    soup = BeautifulSoup(html_of(table(["what", "bytes"], [["weights", "4 GiB"]])), "html.parser")
    assert soup.tbody.td["data-label"] == "bytes"
    assert soup.tbody.th["data-label"] == "what"
    assert soup.tbody.th.get_text() == "weights"
    with pytest.raises(ValueError, match=r"shorter|longer"):
        table(["what", "bytes"], [["weights", "4 GiB", "more"]])


def test_browser_and_library_allow_the_same():
    """The front end makes the same tags and attributes as the HTML at build, and the same addresses."""
    script = (files("inferlab.instruments") / "instrument.js").read_text(encoding="utf-8")
    for name, allowed in (("TAGS", views.TAGS), ("ATTRIBUTES", views.ATTRIBUTES)):
        assert re.search(rf"const {name} = `(.*?)`", script, re.DOTALL)[1].split() == allowed.split()
    pattern = re.compile(re.search(r"const SAFE_ADDRESS = /(.*)/;", script)[1].replace(r"\/", "/"))
    for address in (*views.SAFE_ADDRESS, "javascript:", "//x", "data:", " ../", "http://x", "x"):
        assert bool(pattern.match(address)) is address.startswith(views.SAFE_ADDRESS)


@pytest.mark.parametrize("name", INSTRUMENTS)
def test_every_field_has_a_default_and_a_name(name):
    """The form holds each field of the default question once, with its value, below a label."""
    soup = BeautifulSoup(html_of(INSTRUMENTS[name].form()), "html.parser")
    controls = {control["name"]: control for control in soup.select("[name]")}
    assert set(controls) == set(INSTRUMENTS[name].DEFAULTS)
    for field, value in INSTRUMENTS[name].DEFAULTS.items():
        assert default_of(controls[field]) == value
        assert controls[field].get("type") == "hidden" or controls[field].find_parent("label").get_text(strip=True)


def default_of(control) -> str:
    """The value that a browser sends for an untouched control; of an unticked box none."""
    if control.name == "select":
        return control.select_one("option[selected]")["value"]
    if control.name == "textarea":
        return control.get_text()
    if control["type"] == "checkbox":
        return control["value"] if control.has_attr("checked") else ""
    return control.get("value", "")
