"""The badge on a built page: one line under the figure that unfolds, and no text inside the drawing."""

import html
import json
import re

from inferlab import figures
from inferlab.figures.provenance import badge_in_short, without_badge
from inferlab.figures.style import badge_lines, blank, write_badge

MEASURED = (
    "measured: Intel(R) Xeon(R) Processor, 2026-11-22, synthetic weights, "
    "llama.cpp 0.5.0-dev 0c1e570 (llama-cpp-python 0.3.36); kernels: F16 plain"
)


def drawing(page):
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)[1])


def test_a_page_says_the_origin_in_one_line_and_unfolds_the_rest():
    """The line names how, on which processor and with which llama.cpp; inside is the whole badge."""
    page = figures.page_html(blank(MEASURED, "Nothing."))
    assert "<summary>measured · Intel Xeon · llama.cpp 0c1e570</summary>" in page
    assert f"<p>{html.escape(MEASURED)}</p>" in page
    assert page.index("</script></div>") < page.index('<details class="provenance">')


def test_the_drawing_of_a_page_has_no_badge_and_no_room_for_it():
    """The badge goes and the margin below with it, so that axes keep the height they had."""
    figure = blank(MEASURED, "Nothing.")
    layout = drawing(figures.page_html(figure))["layout"]
    assert layout["annotations"] == []
    assert figure.layout.height - layout["height"] == figure.layout.margin.b - layout["margin"]["b"] > 0


def test_a_longer_badge_leaves_the_same_drawing():
    """On a page its length changes nothing, because it stands below."""
    short, long = blank("computed", "Nothing."), blank(None, "Nothing.")
    write_badge(long, " ".join([MEASURED] * 3))
    assert len(badge_lines(" ".join([MEASURED] * 3))) > 5
    assert drawing(figures.page_html(short)) == drawing(figures.page_html(long))


def test_a_figure_elsewhere_keeps_its_badge():
    """JupyterLab shows the figure itself, whose annotation stays."""
    figure = blank(MEASURED, "Nothing.")
    figures.page_html(figure)
    assert [note.name for note in figure.layout.annotations] == ["badge"]


def test_every_position_of_a_slider_gives_its_badge():
    """Different badges stand below each other; those of the positions leave the drawing too."""
    figure = figures.slider(lambda n: blank(f"computed for {n}", "Nothing."), {"n": (1, 2)})
    drawn, badges = without_badge(figure.to_dict())
    assert badges == ["computed for 1", "computed for 2"]
    assert "computed for" not in json.dumps(drawn["layout"], default=str)


def test_a_short_badge_is_a_line_without_a_fold():
    """Nothing unfolds where nothing more would be said; without a badge there is no line."""
    assert figures.page_html(blank("read from a file", "x")).endswith('<p class="provenance">read from a file</p>')
    assert figures.page_html(blank(None, "x")).endswith("</div>")


def test_the_line_names_every_origin_once():
    """A figure of computed and measured values says both; one without a machine says its first clause."""
    both = f"computed (oracle): Mistral 7B v0.3 shape; nothing was loaded; {MEASURED}"
    assert badge_in_short(both) == "computed and measured · Intel Xeon · llama.cpp 0c1e570"
    assert badge_in_short(f"loss: {MEASURED}. Speed: {MEASURED}").startswith("measured · Intel Xeon")
    plan = "computed (closed form): Mistral 7B v0.3 shape, n_ctx=8192, n_gpu_layers=-1, K f16; nothing was loaded"
    assert badge_in_short(plan) == "computed (closed form): Mistral 7B v0.3 shape"
