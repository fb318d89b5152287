"""The live labs as a reader drives them: JupyterLab in a headless browser, by keyboard, to the end of every process."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Error, Locator, Page, expect
from servers import STARTING_MS, jupyterlab
from small_models import write_model

LABS = Path(__file__).parents[2] / "labs"
LIVE = """
import inferlab as lab
from inferlab import widgets
path = lab.make_shape("llama-3.2-1b", "Q4_K_M", n_layer=4, n_vocab=4096)
widgets.split_lab(path, n_prompt=64, n_gen=9, repeats=2)
"""
ASKED = """
widgets.ask("Which values leave the smaller error?", [
    "the best 16 values for each 512 weights, found by k-means",
    "16 evenly spaced values for each 32 weights, as in Q4_K",
])
"""
INSTRUMENT = """
from inferlab.widgets.instrument import planner
planner()
"""
MEASURING_MS = 60_000

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Lab 6a without its own measurements: its live cell on a shape of half the layers, a question, the planner."""
    folder = tmp_path_factory.mktemp("labs")
    notebook = json.loads((LABS / "06a-split-the-model.ipynb").read_text(encoding="utf-8"))
    live = next(cell for cell in notebook["cells"] if "split_lab" in "".join(cell["source"]))
    notebook["cells"] = [{**live, "source": source.strip()} for source in (LIVE, ASKED, INSTRUMENT)]
    (folder / "split.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> Path:
    """What JupyterLab and its kernel write."""
    return tmp_path_factory.mktemp("jupyterlab") / "server.log"


@pytest.fixture(scope="module")
def jupyter(folder, log) -> Iterator[tuple[str, psutil.Process]]:
    """Address of a JupyterLab over that folder, with its process."""
    command = [str(Path(sys.executable).with_name("jupyter-lab")), f"--ServerApp.root_dir={folder}"]
    with jupyterlab(command, log) as (address, pid):
        yield f"{address}/lab", psutil.Process(pid)


@pytest.fixture(scope="module")
def notebook(jupyter, log, browser) -> Iterator[Page]:
    """The notebook, opened and run to its end; where that fails, what it shows and what JupyterLab wrote."""
    address, _ = jupyter
    page = browser.new_page(viewport={"width": 1280, "height": 1400})
    page.set_default_timeout(STARTING_MS)
    try:
        page.goto(f"{address}/tree/split.ipynb")
        run_all(page)
        page.get_by_role("button", name="Measure").wait_for()
    except Error as failed:
        shown = page.locator("body").inner_text()
        told = [str(failed), "The page shows:", shown, "JupyterLab wrote:", log.read_text(errors="replace")]
        pytest.fail("\n".join(told), pytrace=False)
    yield page
    page.close()


def run_all(page: Page) -> None:
    """Run every cell from the menu once the kernel is idle, and again if its prompt stays empty.

    What is run before the kernel is ready JupyterLab drops.
    """
    page.get_by_text("| Idle").wait_for()
    prompt = page.locator(".jp-CodeCell .jp-InputPrompt").first
    for _ in range(3):
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        with suppress(AssertionError):
            expect(prompt).to_have_text(re.compile(r"\[[*\d]"), timeout=15_000)
            return
    raise Error("The kernel took no cell.")


def points(page: Page) -> Locator:
    """Numbered points of what was measured, in the figure."""
    return page.locator(".js-plotly-plot .textpoint, .js-plotly-plot .scatterlayer text")


def prediction(page: Page) -> str:
    return page.locator(".widget-html", has_text="Predicted.").inner_text()


@pytest.fixture(params=[1280, 800])
def width(request, notebook) -> Iterator[int]:
    """The width of the window."""
    size = notebook.viewport_size
    notebook.set_viewport_size({**size, "width": request.param})
    yield request.param
    notebook.set_viewport_size(size)


@pytest.mark.usefixtures("width")
def test_every_button_shows_its_whole_text(notebook):
    """None is cut, and those of one row stand on one line."""
    buttons = [
        button for button in notebook.locator(".jp-OutputArea button.widget-button").all() if button.is_visible()
    ]
    cut = [button.inner_text() for button in buttons if button.evaluate("e => e.scrollWidth > e.clientWidth")]
    tops = [button.bounding_box()["y"] for button in buttons]
    assert len(buttons) >= 4
    assert cut == []
    assert all(abs(top - other) < 1 or abs(top - other) > 20 for top in tops for other in tops)


def test_choices_stand_one_below_the_other(notebook, width):
    """Each with its button beside its first line, also where its text takes two."""
    choices = notebook.locator(".widget-radio-box label")
    choices.last.scroll_into_view_if_needed()
    boxes = choices.evaluate_all("""all => all.map(one => {
      const words = document.createRange(), button = one.querySelector("input").getBoundingClientRect();
      words.selectNodeContents(one.firstChild);
      const text = words.getBoundingClientRect();
      return { lines: words.getClientRects().length, top: text.top, bottom: text.bottom, left: text.left,
               right_of_button: button.right, middle_of_button: (button.top + button.bottom) / 2 };
    })""")
    first, second = boxes
    assert (first["lines"] > 1) == (width == 800)
    assert first["bottom"] <= second["top"] + 1
    for box in boxes:
        assert box["right_of_button"] <= box["left"]
        assert box["top"] < box["middle_of_button"] < box["top"] + (box["bottom"] - box["top"]) / box["lines"]


@pytest.mark.usefixtures("width")
def test_the_figure_is_as_wide_as_its_place(notebook):
    """Nothing of it is cut at the right, whatever the width of the window."""
    space = """() => {
      const drawn = document.querySelector(".js-plotly-plot .main-svg").getBoundingClientRect();
      return document.querySelector(".jp-OutputArea-output").getBoundingClientRect().right - drawn.right;
    }"""
    notebook.wait_for_function(f"() => Math.abs(({space})()) < 20", timeout=20_000)


def test_the_link_shows_its_rate(notebook):
    """A control shows its value before anything is chosen."""
    shown = notebook.get_by_label("link to the device").evaluate("e => e.selectedOptions[0].text")
    assert shown.replace("\xa0", " ") == "as fast as it goes"


def test_the_prediction_follows_a_slider_moved_by_keyboard(notebook):
    """An arrow key on the focused handle moves a layer to the device, and the bytes with it."""
    before = prediction(notebook)
    notebook.locator(".noUi-handle").first.focus()
    notebook.keyboard.press("ArrowRight")
    expect(notebook.locator(".widget-html", has_text="Predicted.")).not_to_have_text(before, timeout=5000)
    assert re.search(r"gpu0 [\d,]+ MiB", prediction(notebook))


def test_a_measured_point_appears(notebook):
    """Measure, pressed by keyboard, runs the engine; its point and its row of the table appear."""
    notebook.get_by_role("button", name="Measure").focus()
    notebook.keyboard.press("Enter")
    notebook.locator(".widget-html", has_text="TTFT ").wait_for(timeout=MEASURING_MS)
    assert "loopback device" in notebook.locator(".widget-html", has_text="TTFT ").inner_text()
    expect(notebook.locator(".widget-html table tr")).to_have_count(2)
    points(notebook).nth(1).wait_for(state="attached", timeout=10_000)


def test_a_measurement_can_be_cancelled(notebook):
    """Cancel ends it at once; the point before it stays, and Measure can be pressed again."""
    notebook.get_by_role("button", name="Measure").click()
    notebook.get_by_role("button", name="Cancel").click(timeout=5000)
    notebook.locator(".widget-html", has_text="Cancelled. 1 measured points are kept.").wait_for(timeout=20_000)
    expect(notebook.get_by_role("button", name="Measure")).to_be_enabled()
    expect(notebook.locator(".widget-html table tr")).to_have_count(2)


def test_the_figure_can_be_saved_as_a_picture(notebook):
    """The button downloads a PNG that the browser itself drew."""
    with notebook.expect_download(timeout=20_000) as saved:
        notebook.get_by_role("button", name="Save picture (PNG)").click()
    assert Path(saved.value.path()).read_bytes().startswith(b"\x89PNG")


def test_the_points_can_be_saved_as_json(notebook, folder):
    """Beside the notebook, with every raw sample."""
    notebook.get_by_role("button", name="Save as JSON").click()
    notebook.locator(".widget-html", has_text="points are written to").wait_for(timeout=10_000)
    saved = json.loads(next(folder.glob("split-*.json")).read_text(encoding="utf-8"))
    assert saved["points"][0]["run"]["passes"]


def test_an_instrument_answers_in_jupyterlab(notebook, tmp_path):
    """The planner has the form and the answers of its page: a changed choice, and the header of a file."""
    shown = notebook.locator(".instrument")
    expect(shown.locator(".instrument-status")).to_contain_text("8,192 tokens of context fits")
    shown.locator("[name=n_ctx]").fill("4096")
    expect(shown.locator(".instrument-status")).to_contain_text("4,096 tokens of context fits")
    path = write_model(tmp_path / "own.gguf", "qwen3moe")
    shown.locator("[name=model]").select_option("file")
    shown.locator("[type=file]").set_input_files([path])
    expect(shown.locator(".instrument-status")).to_contain_text("qwen3moe with 4,096 tokens of context fits")


def test_no_process_is_left_when_jupyter_ends(jupyter, notebook):
    """Kernel, worker and device end with their server."""
    _, server = jupyter
    family = server.children(recursive=True)
    told = [" ".join(process.cmdline()) for process in family]
    assert any("inferlab.engine.loopback.server" in line for line in told)
    os.killpg(server.pid, signal.SIGTERM)
    _, alive = psutil.wait_procs([server, *family], timeout=20)
    assert [process.pid for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []
