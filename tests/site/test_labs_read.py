"""What `make lab` shows before anything is run: the list of labs, then a lab that reads like its page."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect
from servers import STARTING_MS, jupyterlab

from handbook import lab_room

ROOT = Path(__file__).parents[2]
LAB = "06a-split-the-model.ipynb"
OPEN = """
import sys
from pathlib import Path
from handbook.lab_room import open_labs
open_labs(Path(sys.argv[1]), sys.argv[2:])
"""

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> Iterator[str]:
    """Address of the JupyterLab of `make lab`, over a copy, for a reader who has no settings yet."""
    root, home = tmp_path_factory.mktemp("handbook"), tmp_path_factory.mktemp("home")
    for folder in ("labs", "book"):
        shutil.copytree(ROOT / folder, root / folder)
    environment = {**os.environ, "JUPYTER_CONFIG_DIR": str(home), "JUPYTER_DATA_DIR": str(home)}
    with jupyterlab([sys.executable, "-c", OPEN, str(root)], home / "server.log", environment) as (address, _):
        yield address


@pytest.fixture
def page(browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1280, "height": 12_000})
    page.set_default_timeout(STARTING_MS)
    expect.set_options(timeout=STARTING_MS)
    page.hosts = set()
    page.on("request", lambda request: page.hosts.add(request.url.split("/")[2]))
    yield page
    expect.set_options(timeout=5000)
    page.close()


def test_it_opens_on_the_list_of_the_labs(address, page):
    """Each is a link that opens its notebook; no question about news is asked, and no other host either."""
    page.goto(address)
    links = page.locator(".jp-MarkdownViewer table a")
    expect(links).to_have_count(len(lab_room.labs(ROOT)))
    assert links.all_inner_texts() == [lab.title for lab in lab_room.labs(ROOT)]
    page.wait_for_timeout(3000)
    assert page.locator(".Toastify__toast").count() == 0
    links.first.click()
    expect(page.locator(".jp-Notebook")).to_be_visible()
    assert {host for host in page.hosts if not host.startswith("127.0.0.1")} == set()


def test_a_lab_reads_like_its_page(address, page):
    """No directive stands there as text, no source tells a question, and answers are closed until pressed."""
    page.goto(f"{address}/lab/tree/labs/{LAB}?reset")
    notebook = page.locator(".jp-Notebook")
    expect(notebook.get_by_role("heading", name="Clean up")).to_be_visible()
    expect(notebook.get_by_text("widgets.ask(")).to_have_count(4)
    folded = notebook.locator(".jp-InputPlaceholder")
    assert [said for said in folded.all_inner_texts() if said.strip()] == []
    text = notebook.inner_text()
    assert not [raw for raw in (":::", "```", "{ref}", "{glue", "**1.", "</details>") if raw in text]
    assert "which part of the model is there?" not in text
    answer = notebook.locator("p", has_text="The 13 layers on the host cost most of the time")
    expect(answer).to_be_hidden()
    fold = notebook.get_by_text("Answers", exact=True)
    assert shown(fold, "display", "listStyleType") == ["list-item", "disclosure-closed"]
    fold.click()
    expect(answer).to_be_visible()
    assert shown(notebook.locator(".in-short"), "borderTopStyle", "borderLeftStyle") == ["solid", "solid"]


def shown(element: Locator, *properties: str) -> list[str]:
    """Computed style of an element."""
    return element.evaluate("(one, names) => names.map(name => getComputedStyle(one)[name])", list(properties))


def test_a_figure_is_readable_in_the_dark_theme(address, page):
    """Words of a figure, which plotly draws for white paper, take the colour of the text around them."""
    page.goto(f"{address}/lab/tree/labs/{LAB}?reset")
    expect(page.locator(".jp-Notebook")).to_be_visible()
    colours = """light => {
      document.body.dataset.jpThemeLight = light;
      const host = document.querySelector(".jp-Notebook");
      host.insertAdjacentHTML("beforeend", `<div class="js-plotly-plot"><svg>
        <g class="x2tick"><text style="fill: rgb(68, 68, 68)">1</text></g>
        <g class="infolayer"><text style="fill: rgb(68, 68, 68)">MiB</text></g></svg></div>`);
      const probe = document.createElement("span");
      probe.style.color = "var(--jp-content-font-color1)";
      host.append(probe);
      const fills = [...host.querySelectorAll("svg text")].map(one => getComputedStyle(one).fill);
      return [getComputedStyle(probe).color, ...fills.slice(-2)];
    }"""
    text, *words = page.evaluate(colours, "false")
    assert words == [text, text]
    _, *words = page.evaluate(colours, "true")
    assert set(words) == {"rgb(68, 68, 68)"}
