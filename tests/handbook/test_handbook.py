"""What a page's cells call, and what the Sphinx extension does around them."""

import json
import subprocess
import sys
from importlib.resources import files

import myst_nb
import numpy as np
import pytest
from docutils import nodes
from docutils.utils import new_document
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import handbook
from handbook.delivery import assets
from handbook.directives import tables
from handbook.execution import page_kernel
from inferlab import figures


@pytest.fixture
def published():
    """What reached the page, in turn."""
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    shell.display_pub = CapturingDisplayPublisher()
    yield shell.display_pub.outputs
    InteractiveShell.clear_instance()


@pytest.mark.parametrize(
    ("value", "plain"),
    [(np.float32(0.5), 0.5), (np.float64(2.0), 2.0), (np.int64(512), 512), (3, 3), (1.25, 1.25), ("F16", "F16")],
)
def test_a_number_reaches_the_prose_as_a_plain_python_value(published, value, plain):
    """The prose formats Python's own numbers only, so NumPy scalars are converted; MyST-NB's `glue` does the same."""
    handbook.number("key", value)
    myst_nb.glue("key", plain, display=False)
    assert published[0] == published[1]
    assert published[0]["data"] == {"application/papermill.record/text/plain": repr(plain)}


def test_an_unknown_value_cannot_become_a_number_in_the_prose(published):
    """None is refused: a page never shows `None` where a measurement should stand."""
    with pytest.raises(TypeError):
        handbook.number("power_watts", None)
    assert published == []


def test_only_the_kernel_of_a_page_is_on_a_page(monkeypatch):
    """Labs, tests and scripts are not on a page; the kernel in `data/kernels` is."""
    monkeypatch.delenv("INFERLAB_PAGE", raising=False)
    assert not figures.on_page()
    kernel = json.loads((files("handbook") / "data/kernels/python3/kernel.json").read_text())
    for name, value in kernel["env"].items():
        monkeypatch.setenv(name, value)
    assert figures.on_page()


def test_pages_run_in_the_interpreter_that_builds_the_book(monkeypatch):
    """Whatever `python3` kernel a reader has installed, a page is executed by the book's own environment."""
    from jupyter_client import KernelManager

    monkeypatch.setenv("JUPYTER_PATH", "/somewhere/else")
    page_kernel.choose()
    command = KernelManager(kernel_name="python3").format_kernel_cmd()
    assert command[0] == sys.executable
    assert "--ext=handbook" in command


def test_a_missing_front_end_package_names_the_command_that_installs_it(tmp_path):
    """Without node_modules the build stops at once and says what to run."""
    from sphinx.errors import ExtensionError

    with pytest.raises(ExtensionError, match=r"node_modules/mathjax.*make book"):
        assets.npm_folder(tmp_path, "mathjax/es5")


def test_the_library_imports_no_book_tools_until_a_page_asks():
    """`import handbook` in a lab starts neither Sphinx nor plotly."""
    code = "import sys; import handbook; print([m for m in ('sphinx', 'plotly', 'myst_nb') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_table_writes_three_digits_and_aligns_numbers():
    """A reader sees no float of seventeen digits, whatever a cell computed."""
    rows = [["F16", np.float32(1 / 3), np.int64(33362)], ["Q8_0", 1234567.8, 2]]
    assert handbook.table(["type", "MiB", "tokens"], rows).data.splitlines() == [
        "| type | MiB | tokens |",
        "| --- | --: | --: |",
        "| F16 | 0.333 | 33,362 |",
        "| Q8_0 | 1,230,000 | 2 |",
    ]


def test_a_table_may_be_left_out_of_the_search():
    """Where another page has its text, or it is an example, the table stands in a box that the search does not read."""
    table = handbook.table(("a",), [("b",)]).data
    assert handbook.table(("a",), [("b",)], searched=False).data == f":::{{container}} not-searched\n{table}\n:::"


def test_a_table_with_a_missing_value_is_refused():
    """A row that would shift its values under the wrong heads stops the page."""
    with pytest.raises(ValueError, match=r"A row has 1 values and the table 2 heads: \['F16'\]"):
        handbook.table(["type", "MiB"], [["F16"]])


def test_a_captioned_table_is_numbered_as_a_table():
    """A cell can caption figures only; a table in one gets its caption and its name, and what follows it stays."""
    document = new_document("page")
    figure, output = nodes.figure(ids=["tab-x"], names=["tab-x"]), nodes.container()
    document += figure
    figure += [output, nodes.caption("", "What fits.")]
    output += [nodes.table(), nodes.paragraph("", "A note.")]
    document.note_explicit_target(figure)
    tables.CaptionedTables(document).apply()
    table, note = document.children
    assert isinstance(table, nodes.table)
    assert (table[0].astext(), table["names"], note.astext()) == ("What fits.", ["tab-x"], "A note.")
    assert document.ids["tab-x"] is table


def test_a_cell_of_a_stacked_table_begins_with_its_head():
    """On a phone the line of heads is gone; the first cell and an empty one need none, another table is left alone."""
    plain, stacked = a_table(), a_table("stack")
    document = new_document("page")
    document += [plain, stacked]
    tables.StackedTables(document).apply()
    assert [cell.astext() for cell in plain.findall(nodes.entry)][3:] == ["vLLM", "first chunk", ""]
    assert [cell.astext() for cell in stacked.findall(nodes.entry)][3:] == ["vLLM", "TTFT first chunk", ""]


def a_table(*classes):
    """Three columns, one row, the last cell of it empty."""
    heads, cells = (
        [nodes.entry("", nodes.paragraph("", *map(nodes.Text, filter(None, [text])))) for text in row]
        for row in (["", "TTFT", "TPS"], ["vLLM", "first chunk", ""])
    )
    group = nodes.tgroup("", nodes.thead("", nodes.row("", *heads)), nodes.tbody("", nodes.row("", *cells)), cols=3)
    return nodes.table("", group, classes=list(classes))
