"""The controls of an instrument's form as views, and the values that come back as texts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any
from urllib.parse import urlencode

from inferlab.errors import InvalidSettings
from inferlab.instruments.views import element


def form(*groups: Any) -> list[Any]:
    """All groups of controls."""
    return element("form", {"class": "instrument-form pst-js-only", "novalidate": True}, *groups)


def group(title: str, *controls: Any) -> list[Any]:
    """Controls with a common title; disabled until a script can answer."""
    return element("fieldset", {"disabled": True}, element("legend", {}, title), *controls)


def more(title: str, *groups: Any) -> list[Any]:
    """Groups that are folded until a reader opens them, or a link has another value for one of them."""
    return element("details", {"class": "instrument-more"}, element("summary", {}, title), *groups)


def field(label: str, control: Any, only: str | None = None, but: str | None = None, help: str = "") -> list[Any]:
    """A control below its label, and a sentence of help.

    It is shown only for, or for all but, a value of another field, "model=file", or several: "card=a|b".
    """
    shown = {"data-only": only, "data-but": but, "hidden": bool(only)}
    if not help:
        return element("label", {"class": "instrument-field", **shown}, element("span", {}, label), control)
    return _helped(shown, element("label", {"class": "instrument-field"}, element("span", {}, label), control), help)


def _helped(shown: dict[str, Any], labelled: list[Any], help: str) -> list[Any]:
    """A control with its label and a sentence, which a screen reader reads after its name."""
    own = _control(labelled)
    own["aria-describedby"] = f"help-{own.get('name') or own.get('data-file')}"
    said = element("span", {"class": "instrument-help", "id": own["aria-describedby"]}, help)
    return element("div", shown, labelled, said)


def _control(view: list[Any]) -> dict[str, str]:
    """The attributes of the first control within a view."""
    if view[0] in ("input", "select", "textarea"):
        return view[1]
    inner = (_control(child) for child in view[2:] if isinstance(child, list))
    return next((found for found in inner if found), {})


def asking(label: str, **values: str) -> list[Any]:
    """A button that puts values into the form, in its own controls or in hidden ones, and asks."""
    return element("button", {"type": "button", "data-ask": urlencode(values)}, label)


def file_field(label: str, name: str, only: str | None = None) -> list[Any]:
    """A choice of .gguf files, which are dropped anywhere on the instrument, too; `name` gets the first one's name."""
    chooser = element("input", {"type": "file", "data-file": name, "multiple": True})  # Ollama's have no ending
    kept = element("input", {"type": "hidden", "name": name})
    return element("div", {"data-only": only, "hidden": bool(only)}, field(label, chooser), kept)


def small_files_field(what: str, name: str, accept: str) -> list[Any]:
    """A place for small files, which may be dropped anywhere on the instrument, too, and stay beside those before.

    `what` says which files; `name` gets the list of their names as JSON, which is never part of a link.
    """
    chooser = element("input", {"type": "file", "data-whole": name, "accept": accept, "multiple": True})
    kept = element("input", {"type": "hidden", "name": name, "data-private": True})
    button = element("button", {"type": "button", "data-clear": name}, "Remove all files")
    return element(
        "div",
        {"class": "instrument-drop"},
        element("strong", {}, "Drop files here"),
        element("span", {}, what),
        field("Or choose them", chooser),
        kept,
        button,
    )


def text_area(name: str, placeholder: str, rows: int) -> list[Any]:
    """A place for a long text, which is never part of a link."""
    return element(
        "textarea",
        {
            "name": name,
            "rows": rows,
            "placeholder": placeholder,
            "data-private": True,
            "spellcheck": "false",
            "autocomplete": "off",
        },
    )


def text_field(label: str, name: str, placeholder: str, accept: str) -> list[Any]:
    """A place for a long text, and a choice of a file that fills it; the text is never part of a link.

    accept  kinds of files to choose from; a file that is dropped anywhere on the instrument fills it, too
    """
    entry = text_area(name, placeholder, rows=10)
    chooser = element("input", {"type": "file", "data-text": name, "accept": accept})
    return [field(label, entry), field("Or a file", chooser)]


def select(
    name: str,
    options: Iterable[tuple[str, str] | tuple[str, list[tuple[str, str]]]],
    chosen: str,
    identifier: str | None = None,
) -> list[Any]:
    """A choice of (value, text); a list in place of the text makes a group with the value as its title."""
    listed = (_option(value, text, chosen) for value, text in options)
    return element("select", {"name": name, "id": identifier}, *listed)


def _option(value: str, text: str | list[tuple[str, str]], chosen: str) -> list[Any]:
    if isinstance(text, list):
        return element("optgroup", {"label": value}, *(_option(*one, chosen) for one in text))
    return element("option", {"value": value, "selected": value == chosen}, text)


def number(name: str, value: str, unit: str = "", placeholder: str = "", step: str = "1") -> list[Any]:
    """A number, with its unit behind it."""
    entry = element(
        "input",
        {
            "name": name,
            "type": "number",
            "value": value,
            "min": "0",
            "step": step,
            "placeholder": placeholder or None,
            "inputmode": "decimal",
        },
    )
    return element("span", {"class": "instrument-number"}, entry, unit) if unit else entry


def line(name: str, value: str, placeholder: str = "", more: Mapping[str, Any] | None = None) -> list[Any]:
    """A line of text; `more` are further attributes of it."""
    entry = {"name": name, "type": "text", "value": value, "autocomplete": "off", "placeholder": placeholder or None}
    return element("input", {**entry, **(more or {})})


def measured(name: str, label: str) -> list[Any]:
    """A button that starts a measurement in the browser, and the place for its results; no link holds them."""
    button = element("button", {"type": "button", "data-run": True}, label)
    kept = element("input", {"type": "hidden", "name": name, "data-measured": True, "data-private": True})
    return element("div", {"class": "instrument-start"}, button, kept)


def hidden(name: str, value: str, until: str | None = None) -> list[Any]:
    """A value that a button, or a control of its name in the answer, changes.

    until  names of controls: a change of one of them empties it
    """
    return element("input", {"type": "hidden", "name": name, "value": value, "data-until": until})


def radio(name: str, value: str, label: str, on: bool, told: str) -> list[Any]:
    """One of several values of a name; `told` is what a screen reader says of it."""
    button = element(
        "input",
        {"type": "radio", "name": name, "value": value, "checked": on, "aria-label": told, "id": f"{name}-{value}"},
    )
    return element("label", {}, button, label)


def switch(name: str, label: str, on: bool, only: str | None = None, help: str = "") -> list[Any]:
    """A box to tick; its value is "on", and it has none while it is not ticked."""
    box = element("input", {"name": name, "type": "checkbox", "value": "on", "checked": on})
    shown = {"data-only": only, "hidden": bool(only)}
    if not help:
        return element("label", {"class": "instrument-switch", **shown}, box, label)
    return _helped(shown, element("label", {"class": "instrument-switch"}, box, label), help)


def whole(question: Mapping[str, str], name: str, label: str, empty: int | None = None, such_as: str = "4096") -> int:
    """A whole number of a question; `empty` stands for no text. Raises InvalidSettings, which names the field.

    such_as  the example in the error's text
    """
    text = question.get(name, "").strip().replace(",", "")
    if not text and empty is not None:
        return empty
    if not text.isascii() or not text.removeprefix("-").isdigit() or len(text) > 12:
        found = f"{text!r} is no whole number" if text else "nothing is there"
        raise InvalidSettings(f"{label}: {found}. Write digits, such as {such_as}.")
    return int(text)


def amount(question: Mapping[str, str], name: str, label: str) -> float:
    """A positive number of a question, with or without a fraction. Raises InvalidSettings, which names the field."""
    text = question.get(name, "").strip().replace(",", "")
    if not text:
        raise InvalidSettings(f"{label}: nothing is there. Write a number such as 8 or 7.5.")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1e9:
        raise InvalidSettings(f"{label}: {text!r} is no number of at least 0. Write one such as 8 or 7.5.")
    return value


def one_of(question: Mapping[str, str], name: str, label: str, allowed: Iterable[str]) -> str:
    """A value that must be among those allowed. Raises InvalidSettings, which names the field."""
    value, allowed = question.get(name, ""), list(allowed)
    if value not in allowed:
        near = get_close_matches(value, allowed, n=3, cutoff=0.4)
        hint = f" Did you mean {', '.join(near)}?" if near else ""
        raise InvalidSettings(f"{label}: {value!r} is not in the list.{hint}")
    return value
