"""The Sphinx extension of the book, and the functions that a page's cells call.

In a cell (`cells`): `number` and `numbers` make values available to the prose, `table` is a table of values, and
`build_facts` one about the book.
In the kernel that executes a page (`page_kernel`): `load_ipython_extension` shows figures as the page's own HTML.
In Sphinx: `setup` connects the parts.

- `execution_cache` executes a page (`page_execution`) unless its last results are still valid, and shows one of the
  `recorded_runs` where the machine is too busy; `incremental` selects the pages to read and write again.
- What a page shows: `drawings` draws figures as SVG, `formulas` typesets mathematics; `diagrams`, `trials`,
  `predictions`, `atlas_table`, `settings_table`, `engine_table` and `speculation_table` make diagrams, claims on trial,
  questions to the reader, and the tables of the hardware atlas, of the settings of five programs, of the engines and
  of the types of speculation; `syllabus` makes the blocks and plans of a workshop, with their minutes; `gallery` shows
  every diagram once, as files to take along; `key_facts` answers once what several pages tell; `repeat_directive` says
  how a study is measured again, and `study_use` which pages show it; `tables` numbers captioned tables, and
  `code_lines` makes the lines of code break well on a phone.
- How it reaches the reader: `assets` gives a page its fonts, scripts and the one `stylesheet`; `accessibility` mends
  what a screen reader or a keyboard would stumble over.
- What runs in it: `instruments` puts Python with the library, and llama.cpp, into the site, for a page's workers to
  load, and `instrument_directive` shows an instrument on a page.
- In other languages: `translation` extracts what translators need, and builds a site of what they wrote.
- Where a lab starts without an installation: `launch`, on a site whose repository is known.
- How it is found: `findable` describes the pages to search engines; `page_texts` keeps what each page says,
  `search_index` and `term_cards` write it for the search and for the cards of terms, and `social_card` draws the
  picture beside a shared link.

Apart from a build, `tested_labs` keeps what nbval executed, `serve` sends the `built_site` to a browser on this
machine, and `epub` and `pdf` bind it into one file.
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
    from handbook import (
        accessibility,
        assets,
        atlas_table,
        code_lines,
        diagrams,
        drawings,
        engine_table,
        findable,
        formulas,
        gallery,
        incremental,
        instrument_directive,
        instruments,
        key_facts,
        launch,
        page_kernel,
        predictions,
        recorded_runs,
        repeat_directive,
        settings_table,
        speculation_table,
        syllabus,
        tables,
        translation,
        trials,
    )

    tabled = (trials, predictions, atlas_table, settings_table, engine_table, speculation_table, tables, syllabus)
    content = (*tabled, key_facts, repeat_directive, diagrams, formulas, drawings, gallery, code_lines, translation)
    reaching = (page_kernel, assets, instruments, instrument_directive, findable, launch)
    for part in (accessibility, *content, *reaching, recorded_runs, incremental):
        part.setup(app)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
