"""Functions for the cells of a page: values for the prose, and tables about the book."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from importlib.metadata import version
from numbers import Integral

from inferlab import units

Value = str | int | float

GLUED = "application/papermill.record/"
"""MyST-NB's mark of an output for the prose alone."""

NOT_SEARCHED = "not-searched"
"""Class of a container that a search does not read: another page has its text, or it is no text of the page."""


FILTER_WORDS = (
    '<label>Words <input type="search" name="words" autocomplete="off"></label>'
    '<button type="reset">Show all</button><output role="status"></output>'
)
"""The end of a form that filters a table."""


def number(key: str, value: float | int | str) -> None:
    """Make a value available to the prose as {glue:text}`key:.2f`.

    NumPy scalars become Python's own, because only those can be formatted there.
    It publishes what `myst_nb.glue` would, whose import takes a second of each page: it loads the checker of notebooks.
    """
    from IPython.display import publish_display_data

    text = repr(_as_python(value))
    publish_display_data({f"{GLUED}text/plain": text}, {"scrapbook": {"name": key, "mime_prefix": GLUED}})


def numbers(values: Mapping[str, float | int | str]) -> None:
    """Make every value of a mapping available under its name: what the `numbers` of a study returns."""
    for key, value in values.items():
        number(key, value)


def _as_python(value: float | int | str) -> float | int | str:
    if isinstance(value, str):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def table(heads: Sequence[str], rows: Iterable[Sequence[Value]], searched: bool = True):
    """A Markdown table for a cell with `mystnb: {markdown_format: myst}`.

    Columns of numbers are aligned to the right; a float is written with three significant digits.
    The search leaves a table out that is not `searched`: another page has its text, or it is an example.
    Raises ValueError for a row that has more or fewer values than there are heads.
    """
    from IPython.display import Markdown

    text = markdown_table(heads, [list(map(_as_python, row)) for row in rows])
    return Markdown(text if searched else f":::{{container}} {NOT_SEARCHED}\n{text}\n:::")


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[Value]]) -> str:
    """The text of such a table, from Python's own values."""
    for row in rows:
        if len(row) != len(heads):
            raise ValueError(f"A row has {len(row)} values and the table {len(heads)} heads: {list(row)}.")
    numeric = [bool(rows) and all(not isinstance(row[i], str) for row in rows) for i in range(len(heads))]
    rule = ["--:" if right else "---" for right in numeric]
    return "\n".join(f"| {' | '.join(map(_cell, row))} |" for row in (heads, rule, *rows))


def _cell(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:,}" if isinstance(value, int) else value.replace("|", "\\|")


def build_facts():
    """The machine and the software this page was executed with, as a table."""
    import inferlab as lab

    machine = lab.this_machine()
    gpus = ", ".join(f"{gpu.description} ({gpu.memory_text})" for gpu in machine.gpus)
    software = {package: version(package) for package in ("inferlab", "jupyter-book", "sphinx", "myst-nb", "plotly")}
    rows = {
        "processor": f"{machine.cpu}, {machine.n_cores} cores used",
        "memory": units.bytes_text(machine.ram_bytes),
        "GPU": gpus or "none",
        "system": machine.system,
        "engine": machine.llama_cpp_text,
        "Python": machine.python,
        **software,
        "this page executed": f"{date.today():%d %B %Y}",
    }
    return table(("what", "this build"), list(rows.items()))
