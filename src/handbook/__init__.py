"""The Sphinx extension of the book, and the functions that a page's cells call.

In a cell (`cells`): `number` makes a value available to the prose, `table` is a table of values; `build_facts` and
`claim_counts` are tables about the book.
In the kernel that executes a page (`page_kernel`): `load_ipython_extension` shows figures as the page's own HTML.
In Sphinx: `setup` connects the parts. `execution_cache` executes a page unless its last results are still valid, and
`incremental` selects the pages to read and write again; `assets` gives a page its fonts, scripts and the one
`stylesheet`; `formulas` typesets mathematics; `diagrams`, `trials` and `atlas_table` make diagrams, claims on trial and
the tables of the hardware atlas; `tables` numbers captioned tables, `spellings` lets the search find either spelling of
a word, and `settings_table` shows the settings of five programs.
"""

from __future__ import annotations

from handbook.cells import build_facts, claim_counts, number, table

__all__ = ["build_facts", "claim_counts", "load_ipython_extension", "number", "setup", "table"]


def load_ipython_extension(ipython) -> None:
    """Called by IPython for `--ext=handbook`: figures are shown as the page's own HTML."""
    from inferlab import figures

    figures.register_page_renderer()


def setup(app) -> dict:
    """Called by Sphinx for `extra_extensions: [handbook]`.

    Pages are never read in parallel, because their measurements would disturb each other.
    """
    from handbook import assets, atlas_table, diagrams, drawings, formulas, incremental, page_kernel, spellings, tables, trials
    from handbook import settings_table as settings

    content = (trials, atlas_table, settings, tables, spellings, diagrams, formulas, drawings)
    for part in (*content, page_kernel, assets, incremental):
        part.setup(app)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
