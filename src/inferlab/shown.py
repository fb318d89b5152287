"""How a result shows itself: a title on one line, and a title with a few rows as text and as a table."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import Field, fields
from typing import Any, ClassVar

CELL = "text-align:left;vertical-align:top;padding:0.2em 0.6em"
MOST_ROWS, MOST_LETTERS, LINE_LETTERS = 8, 60, 200
SCALARS = (str, int, float)


class Shown:
    """A dataclass with a `repr` of one line, a longer `str` and an HTML view, all made of `summary`."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls, **options: Any) -> None:
        """Give each class the short repr before @dataclass would write one of all its fields."""
        super().__init_subclass__(**options)
        if "__repr__" not in cls.__dict__:
            type.__setattr__(cls, "__repr__", Shown.__repr__)

    @property
    def summary(self) -> tuple[str, Sequence[tuple[str, str]]]:
        """A title, and rows of a name and a text: the short fields, and how many of everything else.

        A class whose reader wants to see something else has its own.
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        single = {name: value for name, value in values.items() if _is_short(value)}
        several = {name: value for name, value in values.items() if isinstance(value, (tuple, list, dict)) and value}
        name = getattr(getattr(self, "model", None), "name", "")
        title = f"{type(self).__name__} of {name}" if name else type(self).__name__
        rows = [
            ("values", ", ".join(f"{name}={_short(value)}" for name, value in single.items())),
            ("holds", ", ".join(f"{name}: {len(value)}" for name, value in several.items())),
            ("badge", getattr(self, "badge", "")),
        ]
        return title, [(name, text) for name, text in rows if text]

    def __repr__(self) -> str:
        return one_line(self, self.summary[0])

    def __str__(self) -> str:
        title, rows = self.summary
        return "\n".join([title, *(f"  {name}: {text}" for name, text in _kept(rows))])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What IPython and JupyterLab print of a cell's last value."""
        printer.text(str(self))

    def _repr_html_(self) -> str:
        title, rows = self.summary
        cells = [[html.escape(name), html.escape(text)] for name, text in _kept(rows)]
        return table_html(title, cells)


def one_line(thing: object, title: str) -> str:
    """`<MemoryPlan title>`, of at most LINE_LETTERS letters."""
    kind = type(thing).__name__
    text = title if title.startswith(kind) else f"{kind} {title}"
    return f"<{text}>" if len(text) <= LINE_LETTERS - 2 else f"<{text[: LINE_LETTERS - 3]}…>"


def table_html(title: str, rows: Iterable[Sequence[str]], heads: Sequence[str] = ()) -> str:
    """A table with a caption, for JupyterLab and the built book; the cells are HTML, the other texts are not."""
    body = "".join(f"<tr>{''.join(_cell('td', cell) for cell in row)}</tr>" for row in rows)
    head = f"<thead><tr>{''.join(_cell('th', name) for name in map(html.escape, heads))}</tr></thead>" if heads else ""
    caption = f"<caption style='caption-side:top;text-align:left'>{html.escape(title)}</caption>"
    return f"<table class='table'>{caption}{head}<tbody>{body}</tbody></table>"


def _cell(tag: str, inside: str) -> str:
    return f"<{tag} style='{CELL}'>{inside}</{tag}>"


def _kept(rows: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The first rows, and how many more there are."""
    more = [("…", f"{len(rows) - MOST_ROWS} more")] if len(rows) > MOST_ROWS else []
    return [*rows[:MOST_ROWS], *more]


def _is_short(value: Any) -> bool:
    return isinstance(value, SCALARS) and value != "" and len(str(value)) <= MOST_LETTERS


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
