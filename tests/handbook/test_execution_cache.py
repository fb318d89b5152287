"""When the results of an execution are kept, and when they are used again."""

import json

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from handbook.execution import fingerprints, study_use
from handbook.execution.execution_cache import Executions, is_ci, is_clean, page_key, restore_outputs
from handbook.execution.page_execution import Execution

RESULT = {"succeeded": True, "runtime": 1.5, "mtime": 1e9, "method": "force", "error": None, "traceback": None}
PAGE = {"page": "page", "studies": "none"}
CONTEXT = {"library": "as it is", "machine": "this one"}


@pytest.fixture(autouse=True)
def same_library(monkeypatch):
    """The library and the studies stay as they are while a page is executed."""
    monkeypatch.setattr(fingerprints, "library_digest", lambda: CONTEXT["library"])
    monkeypatch.setattr(study_use, "studies_digest", lambda text: PAGE["studies"])


def executions(folder, context=CONTEXT):
    return Executions(folder, folder / ".executed", context)


def notebook(*outputs, source="1 + 1", prose="As text", **metadata):
    cells = [new_markdown_cell(prose), new_code_cell(source, execution_count=1, outputs=list(outputs))]
    return new_notebook(cells=cells, metadata={"source_map": [1, 2], "language_info": {"name": "python"}, **metadata})


def kept(folder, *outputs, result=RESULT):
    """Whether a page with these outputs is kept."""
    build = executions(folder)
    build.keep("book/page", PAGE, notebook(*outputs), Execution(result))
    assert build.executed == {"book/page": 1.5}
    return build.has("book/page")


def test_results_are_used_with_the_same_page_and_context(tmp_path):
    """A later build finds outputs, glued values, and the time and duration of the execution."""
    glued = new_output("display_data", {"text/plain": "3"}, metadata={"scrapbook": {"name": "three"}})
    assert kept(tmp_path, glued, new_output("stream", name="stdout", text="hello\n"))
    later = executions(tmp_path)
    run = later.find("book/page", PAGE)
    assert run["result"] == RESULT
    page = notebook()
    restore_outputs(page, run)
    assert page.cells[1].outputs[0].metadata.scrapbook.name == "three"
    assert page.cells[1].outputs[1].text == "hello\n"
    assert page.metadata.source_map == [1, 2]
    nbformat.validate(page)
    assert later.executed == {}


@pytest.mark.parametrize(
    ("context", "page", "reason"),
    [
        ({**CONTEXT, "library": "edited"}, PAGE, "changed: library"),
        ({**CONTEXT, "machine": "another"}, PAGE, "changed: machine"),
        ({**CONTEXT, "new part": "anything"}, PAGE, "changed: new part"),
        (CONTEXT, {**PAGE, "page": "edited"}, "changed: page"),
        (CONTEXT, {**PAGE, "studies": "edited"}, "changed: studies"),
    ],
)
def test_results_of_anything_else_are_refused(tmp_path, context, page, reason):
    """Any difference executes the page, and the build says which."""
    assert kept(tmp_path)
    build = executions(tmp_path, context)
    assert build.find("book/page", page) is None
    assert build.because == {"book/page": reason}


@pytest.mark.parametrize(
    ("environment", "for_others"),
    [({}, False), ({"CI": ""}, False), ({"CI": "false"}, False), ({"CI": "true"}, True), ({"CI": "1"}, True)],
)
def test_ci_is_told_from_its_variable(environment, for_others):
    """`CI=true` is what continuous integration sets; a build for others may lack nothing."""
    assert is_ci(environment) is for_others


def test_failed_and_noisy_executions_are_not_kept(tmp_path):
    """An error, a tolerated error and a word on standard error each leave nothing, not even older results."""
    for bad in (new_output("error", ename="E", evalue="", traceback=[]), new_output("stream", name="stderr", text="!")):
        assert kept(tmp_path)
        assert not kept(tmp_path, bad)
    assert kept(tmp_path)
    assert not kept(tmp_path, result={**RESULT, "succeeded": False})


def test_results_of_a_library_edited_meanwhile_are_not_kept(tmp_path, monkeypatch):
    """A page that ran while its library or its study was edited may have used either."""
    with monkeypatch.context() as patched:
        patched.setattr(study_use, "studies_digest", lambda text: "edited")
        assert not kept(tmp_path)
    monkeypatch.setattr(fingerprints, "library_digest", lambda: "edited")
    assert not kept(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", json.dumps({"made_with": {}}), "null", "3"])
def test_a_damaged_file_counts_as_none(tmp_path, text):
    """What cannot be read is executed again."""
    assert kept(tmp_path)
    (tmp_path / ".executed/book/page.json").write_text(text)
    assert executions(tmp_path).find("book/page", PAGE) is None


def test_a_page_is_what_its_kernel_gets():
    """Code, tags and the page's settings count; prose, line numbers and earlier outputs do not."""
    tagged = notebook()
    tagged.cells[1].metadata.tags = ["raises-exception"]
    same = [notebook(prose="Other text"), notebook(new_output("stream", text="old")), notebook(source_map=[5, 9])]
    other = [notebook(source="1 + 2"), tagged, notebook(execution={"allow_errors": True})]
    assert {page_key(page) for page in same} == {page_key(notebook())}
    assert len({page_key(page) for page in [notebook(), *other]}) == 4
    assert page_key(notebook(), in_temp=True) != page_key(notebook())


def test_standard_output_is_clean():
    """Printing is no reason to execute again."""
    assert is_clean(notebook(new_output("stream", name="stdout", text="1")), RESULT)
