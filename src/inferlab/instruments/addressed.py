"""A model at an address that a reader types: the controls, and what the front end asks the Hub for, step by step.

Nothing is asked before the reader presses the button, and nobody but the Hub and the hosts that it sends on to. The
front end asks, in `addressed.js`; here its answers are read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from shlex import join
from typing import Any

from inferlab.errors import InferlabError, ModelNotFound, NotReached
from inferlab.instruments import forms
from inferlab.instruments.dropped import DroppedFiles
from inferlab.instruments.views import element, paragraph
from inferlab.model.hub import FORMS, HOSTS, HUB, HubAddress, advice, files_of, hub_address, next_page, repository

NAME = "address"
BUTTON = "data-read"
"""The attribute of the button: a page that has one may ask SOURCES."""
SOURCES = (f"https://{HOSTS[0]}", f"https://*.{HOSTS[1]}")
"""Whom such a page may ask, in words of its policy."""
ASKED = (
    f"The button asks {HOSTS[0]} for the list of files and a few MB of this one, which come from a host of "
    f"*.{HOSTS[1]}. Both learn your network address, this site's and the file's name. Before it is pressed nobody is "
    "asked."
)
STORES = {
    "macOS, Linux without a service": "~/.ollama/models/blobs",
    "Linux": "/usr/share/ollama/.ollama/models/blobs",
    "Windows": r"C:\Users\NAME\.ollama\models\blobs",
}
"""Where Ollama's files lie (docs/faq.mdx of its sources)."""


def controls(file: str, only: str) -> list[Any]:
    """The choice of a file, where Ollama's lie, and the address, shown for one value of another field.

    file  the field that gets the name of the first file
    """
    chosen = element("div", {}, forms.file_field("A .gguf file, or all parts of a split one", file), _ollama())
    return element("div", {"class": "instrument-own", "data-only": only, "hidden": True}, chosen, _address())


def _ollama() -> list[Any]:
    places = [element("li", {}, f"{system}: ", element("code", {}, place)) for system, place in STORES.items()]
    shown = element("code", {}, "ollama show --modelfile NAME")
    told = paragraph("A model is a file sha256-… without an ending; ", shown, " names it after FROM.")
    return element("details", {}, element("summary", {}, "Where Ollama's files are"), element("ul", {}, *places), told)


def _address() -> list[Any]:
    line = forms.line(NAME, "", "hf:owner/repo:Q4_K_M", {"data-address": True, "spellcheck": "false"})
    choice = element("select", {"data-choices": NAME, "aria-label": "Files of the repository", "hidden": True})
    button = element("button", {"type": "button", BUTTON: NAME}, f"Ask {HOSTS[0]}")
    typed = forms.field("Or an address on the Hugging Face Hub", line)
    return element("div", {"class": "instrument-address"}, typed, choice, button, paragraph(ASKED))


def heard(files: DroppedFiles, message: Mapping[str, Any]) -> dict[str, Any]:
    """What the front end does next for an address: ask for a page of a list, read files, or say why not.

    text    the address, as it was typed
    pages   the answers so far, as texts; `url`, `status` and `link` are of the last one
    press   the number of the reader's press, which goes back: the front end hears only of the last one
    """
    try:
        told = _next(files, hub_address(_checked(message["text"])), message)
    except InferlabError as refusal:
        told = {"kind": "unread", "text": str(refusal)}
    return {**told, "press": message.get("press")}


def _checked(text: str) -> str:
    """The address. Raises ModelNotFound, with a command, for one that the page may not ask for."""
    name = text.strip()
    if not name:
        raise ModelNotFound(f"There is no address. Write {FORMS}.")
    if hub_address(name):
        return name
    if name.lower().startswith(("https://", "http://")):
        raise ModelNotFound(
            f"This page may ask {HOSTS[0]} alone, and {name} is elsewhere. Nobody was asked. "
            f"In a terminal: {_command(name)}"
        )
    raise ModelNotFound(f"{name!r} is no address. Write {FORMS}. Nobody was asked.")


def _next(files: DroppedFiles, address: HubAddress | None, message: Mapping[str, Any]) -> dict[str, Any]:
    assert address is not None
    pages = message.get("pages", [])
    again = {"address": message["text"], "command": _command(str(address))}
    if not pages:
        return {"kind": "fetch", "url": address.list_url(HUB), **again}
    url, status = message["url"], message["status"]
    if status != 200:
        raise NotReached(
            f"{url} was answered {status}. {advice(status, hub=True, has_token=False)} "
            f"A page sends no token; a terminal can: {again['command']}"
        )
    if following := next_page(url, message.get("link")):
        return {"kind": "fetch", "url": following, **again}
    listed = [file for page in pages for file in files_of(_parsed(page, url), url)]
    return _to_read(files, address, listed)


def _parsed(page: str, url: str) -> Any:
    try:
        return json.loads(page)
    except (ValueError, RecursionError) as wrong:
        raise NotReached(f"{url} was answered with no JSON: {page[:40]!r}. Try again later.") from wrong


def _to_read(files: DroppedFiles, address: HubAddress, listed: list[Any]) -> dict[str, Any]:
    found = repository(address, listed)
    model = found.chosen()
    source = str(found.address_of(model))
    files.beside[source] = found.beside(model)
    choices = [
        [str(found.address_of(one)), one.label] for one in sorted({*found.models, model}, key=lambda one: one.n_bytes)
    ]
    parts = [
        {"name": one.path.rpartition("/")[2], "size": one.n_bytes, "url": address.file_url(one.path, HUB)}
        for one in model.files
    ]
    return {"kind": "files", "source": source, "command": _command(source), "files": parts, "choices": choices}


def _command(address: str) -> str:
    """What to type in a terminal, as its shell takes it."""
    return join(["inferlab", "plan", address])
