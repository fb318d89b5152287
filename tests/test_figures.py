"""Figures: what is drawn from a run, read off the figure itself."""

import json
import re

import pytest
from fakes import WITH_GPU, made_run, scripted_pass

from inferlab import figures
from inferlab.settings import Settings
from inferlab.units import MIB

RUN = made_run()
SHORT, LONG = made_run(n_prompt=8), made_run(n_prompt=16, passes=(scripted_pass(1.5), scripted_pass(0.9)))
EVERY = {
    "timeline": figures.timeline(RUN),
    "ttft_against_prompt": figures.ttft_against_prompt([SHORT, LONG]),
    "token_times": figures.token_times(RUN),
    "buffers": figures.buffers(RUN),
    "requests": figures.requests([SHORT, LONG]),
}


def badge(figure):
    return " ".join(note.text for note in figure.layout.annotations).replace("<br>", " ")


@pytest.mark.parametrize("name", EVERY)
def test_every_figure_has_a_text_alternative(name):
    """Whoever cannot see the figure reads a sentence with its numbers."""
    alt = EVERY[name].layout.meta["alt"]
    assert re.search(r"\d", alt)
    assert len(alt) > 40


@pytest.mark.parametrize("name", EVERY)
def test_every_figure_carries_its_badge(name):
    """Below the axes stands who measured, when and with what."""
    assert RUN.badge in badge(EVERY[name])


@pytest.mark.parametrize("name", EVERY)
def test_text_has_no_colour_of_its_own(name):
    """Text takes the page's colour in its light and dark theme, and the background stays transparent."""
    layout = EVERY[name].to_plotly_json()["layout"]
    assert layout["paper_bgcolor"] == layout["plot_bgcolor"] == "rgba(0,0,0,0)"
    fonts = re.findall(r'"font": ({[^{}]*})', json.dumps(layout))
    assert fonts
    assert not [font for font in fonts if "color" in font]


@pytest.mark.parametrize("name", EVERY)
def test_every_axis_that_measures_names_its_unit(name):
    """A number on an axis is never without a unit."""
    titles = [EVERY[name].layout[axis].title.text for axis in ("xaxis", "yaxis")]
    assert any(re.search(r"millisecond|ms|MiB", title or "") for title in titles)


def test_the_timeline_is_one_real_pass():
    """The middle pass is drawn: the prefill until the first token, then a bar for each later one."""
    passes = (scripted_pass(9, (9.0,)), scripted_pass(0.5, (0.25, 0.125)), scripted_pass(0.1, ()))
    prefill, decode = figures.timeline(made_run(passes=passes)).data
    assert (prefill.x, prefill.marker.color) == ((500,), figures.PREFILL)
    assert (decode.base, decode.x) == ((500, 750), (250, 125))
    assert decode.marker.color == figures.DECODE


def test_ttft_shows_every_pass_and_joins_the_medians():
    """All points are kept; the line goes through each length's median, from zero."""
    points, line = EVERY["ttft_against_prompt"].data
    assert sorted(zip(points.x, points.y, strict=True)) == [(8, 500), (8, 700), (16, 900), (16, 1500)]
    assert (line.x, line.y) == ((8, 16), (600, 1200))
    assert EVERY["ttft_against_prompt"].layout.yaxis.rangemode == "tozero"


def test_token_times_begin_with_the_second_token():
    """The first token belongs to the prefill; each later one has its engine time and their median."""
    points, line = EVERY["token_times"].data
    assert line.x == (2, 3)
    assert line.y == pytest.approx([120, 120])
    assert sorted(points.y) == pytest.approx([80, 80, 160, 160])


def test_a_run_of_one_token_draws_without_decoding():
    """A figure of nothing decoded is empty and says unknown, instead of failing."""
    run = made_run(passes=(scripted_pass(gaps=()),), n_gen=1)
    assert "unknown" in figures.token_times(run).layout.meta["alt"]
    assert figures.timeline(run).data[1].x in ((), None)
    assert figures.requests([run]).data[1].x == (0,)


def test_buffers_stack_by_kind_for_each_device():
    """Each device has a bar, each kind a colour, sizes in MiB; a kind that nobody has is left out."""
    bars = {bar.name: bar for bar in EVERY["buffers"].data}
    assert list(bars) == ["weights", "KV cache", "compute"]
    assert (bars["weights"].y, bars["weights"].x) == (("CUDA0", "CPU"), (10, 2))
    assert bars["KV cache"].x == (0, 3)
    assert sum(sum(bar.x) for bar in bars.values()) * MIB == sum(b.n_bytes for b in RUN.buffers)


def test_requests_add_up_to_the_last_token():
    """Prefill and decode of a request end where its last token was known."""
    prefill, decode = EVERY["requests"].data
    assert prefill.x == pytest.approx([600, 1200])
    assert decode.x == pytest.approx([300, 200])
    assert prefill.y == ("1: 8 → 3", "2: 16 → 3")


def test_requests_before_the_first_measurement():
    """The empty figure says so, and has no badge to show."""
    figure = figures.requests([])
    assert "none yet" in figure.layout.meta["alt"]
    assert not figure.layout.annotations


def test_layers_are_told_only_where_there_is_a_gpu():
    """n_gpu_layers means nothing on a machine without one."""
    with_gpu = made_run(machine=WITH_GPU, settings=Settings(n_gpu_layers=4))
    assert figures.requests([with_gpu]).data[0].y == ("1: 8 → 3, 4 layers on the GPU",)


def test_a_summary_is_one_line_of_four_numbers():
    """TTFT, both rates and the time between tokens, each with its unit."""
    assert figures.summary(RUN) == "TTFT 600 ms · prefill 18 tokens/s · decode 9.37 tokens/s · 150 ms per token"


def test_a_figure_goes_on_in_place():
    """A live figure takes over another one's traces and layout."""
    shown = figures.live(figures.requests([]))
    figures.redraw(shown, EVERY["requests"])
    assert [trace.x for trace in shown.data] == [trace.x for trace in EVERY["requests"].data]
    assert shown.layout.meta["alt"] == EVERY["requests"].layout.meta["alt"]
