"""The Sphinx extension of the book, and the functions that a page's cells call.

In a cell (`cells`): `number` and `numbers` make values available to the prose, `table` is a table of values, and
`build_facts` one about the book.
In the kernel that executes a page (`page_kernel`): `load_ipython_extension` shows figures as the page's own HTML.
In Sphinx: `setup` connects the parts.

- `execution/` has the kernel of the pages and takes results from nbval. `execution_cache` executes a page
  (`page_execution`) unless its last results are still valid, and shows one of the `recorded_runs` where the machine is
  too busy; `incremental` selects the pages to read and write again.
- `directives/` has what a page shows: claims on trial, questions, tables, diagrams, figures, formulas, instruments, the
  blocks of a workshop. `key_facts` answers once what several pages tell.
- `delivery/` has how it reaches a reader: styles, scripts, the search, descriptions, what instruments load, other
  languages, and apart from a build the server and the book as one file.
"""

from __future__ import annotations

from handbook.cells import build_facts, number, numbers, table

__all__ = ["build_facts", "load_ipython_extension", "number", "numbers", "setup", "table"]


def load_ipython_extension(ipython) -> None:
    """Called by IPython for `--ext=handbook`: figures are shown as the page's own HTML, not by plotly's renderers."""
    shown = ipython.display_formatter.ipython_display_formatter
    shown.for_type_by_name("plotly.basedatatypes", "BaseFigure", _show_on_page)


def _show_on_page(figure) -> None:
    from IPython.display import publish_display_data

    from inferlab import figures

    publish_display_data({"text/html": figures.page_html(figure)})


def setup(app) -> dict:
    """Called by Sphinx for `extra_extensions: [handbook]`.

    Pages are never read in parallel, because their measurements would disturb each other.
    """
    from handbook import atlas_table, key_facts
    from handbook.delivery import accessibility, assets, findable, instruments, translation
    from handbook.directives import (
        code_lines,
        diagrams,
        drawings,
        facts_tables,
        formulas,
        gallery,
        instrument_directive,
        launch,
        predictions,
        repeat_directive,
        settings_table,
        syllabus,
        tables,
        trials,
    )
    from handbook.execution import incremental, page_kernel, recorded_runs

    tabled = (trials, predictions, atlas_table, settings_table, facts_tables, tables, syllabus)
    content = (*tabled, key_facts, repeat_directive, diagrams, formulas, drawings, gallery, code_lines, translation)
    reaching = (page_kernel, assets, instruments, instrument_directive, findable, launch)
    for part in (accessibility, *content, *reaching, recorded_runs, incremental):
        part.setup(app)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
