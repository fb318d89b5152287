"""How the records of a study are measured again: `python -m studies.<study>.measure`.

A study's `measure` declares RECIPES: name of a record, without its machine -> a `partial` of the call that made it, or
why it cannot be repeated. Called without names it lists them; with names it measures and writes records to a folder.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path

from inferlab.records import save, studies

MOST_LETTERS = 80


class NotRepeatable(str):
    """Why a record cannot be measured again: the end of a sentence that begins with "not repeatable, because"."""

    __slots__ = ()


Recipe = partial | NotRepeatable


def recipes(study: str) -> Mapping[str, Recipe]:
    """The recipes of one study, by the names of its records."""
    return import_module(f"studies.{study}.measure").RECIPES


def how_to_repeat(record: str) -> str:
    """The command that measures a record again, or "not repeatable, because …". Raises KeyError without a recipe.

    record  its name with its machine, e.g. "epyc-2c/waiting-tiny"
    """
    name = record.partition("/")[2]
    for study in with_records():
        if recipe := recipes(study).get(name):
            repeatable = not isinstance(recipe, NotRepeatable)
            return f"python -m studies.{study}.measure {name}" if repeatable else call_text(recipe)
    raise KeyError(record)


def with_records() -> list[str]:
    """The studies that have recipes."""
    return [folder.name for folder in studies() if (folder / "measure.py").is_file()]


def call_text(recipe: Recipe) -> str:
    """A recipe as a line of Python, or its reason."""
    if isinstance(recipe, NotRepeatable):
        return f"not repeatable, because {recipe}"
    words = [*map(_word, recipe.args), *(f"{name}={_word(value)}" for name, value in recipe.keywords.items())]
    return f"{recipe.func.__name__}({', '.join(words)})"


def _word(value: object) -> str:
    """An argument as code; where that is long, what a list holds and how often: `[[16 HttpRequest]]`."""
    text = repr(value)
    if len(text) <= MOST_LETTERS:
        return text
    if not isinstance(value, (list, tuple)):
        return f"{type(value).__name__}(…)"
    if isinstance(value[0], (list, tuple)):
        return f"[{', '.join(map(_word, value))}]"
    return f"[{len(value)} {type(value[0]).__name__}]"


def main(recipes: Mapping[str, Recipe]) -> None:
    """Measure the named records again, one file each; without a name list what can be measured.

    A record that is not repeatable ends the program with its reason, before anything is measured.
    """
    parser = argparse.ArgumentParser(description="Measure records of this study again; without a name, list them.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="records, without their machine")
    parser.add_argument("--to", type=Path, default=Path(), metavar="FOLDER", help="where to write (default: here)")
    asked, calls = parser.parse_args(), dict[str, partial]()
    for name in asked.names:
        if name not in recipes:
            parser.error(f"there is no recipe {name!r}, only {', '.join(recipes)}")
        recipe = recipes[name]
        if isinstance(recipe, NotRepeatable):
            parser.error(f"{name} is {call_text(recipe)}")
        calls[name] = recipe
    for name, call in calls.items():
        began = time.monotonic()
        path = save(call(), asked.to / f"{name}.json")
        print(f"{path}  ({time.monotonic() - began:.0f} s)")
    for name, recipe in {} if asked.names else recipes.items():
        print(f"{name}: {call_text(recipe)}")
