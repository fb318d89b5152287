"""Figures: what is drawn from a run, read off the figure itself."""

import json
import pkgutil
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from fakes import BUFFERS, WITH_GPU, BatchEngine, made_plan, made_run, scripted_pass

from inferlab import figures
from inferlab.engine.log import Buffer
from inferlab.figures import style
from inferlab.measurement.depth import decode_at_depths
from inferlab.model.find import tiny_model
from inferlab.model.gguf import read_gguf
from inferlab.prediction import cost
from inferlab.prediction.memory import DeviceBytes
from inferlab.prediction.predict import predict_memory
from inferlab.settings import Settings
from inferlab.units import GIB, MIB
from studies.does_it_fit import figures as does_it_fit

HEX = re.compile(r"#[0-9a-f]{6}")

RUN = made_run()
SHORT, LONG = made_run(n_prompt=8), made_run(n_prompt=16, passes=(scripted_pass(1.5), scripted_pass(0.9)))
LONGER = made_plan(settings=Settings(n_ctx=512), devices={"gpu0": DeviceBytes(GIB, GIB, 0, 0)})
SHORTER = made_plan(settings=Settings(n_ctx=256), devices={"gpu0": DeviceBytes(GIB, GIB // 2, 0, 0)})
PLAN, TINY = made_plan(), read_gguf(tiny_model())


def a_run(n_prompt, seconds):
    """A run whose decoded tokens take so many seconds of the engine, with a cache of 8 MiB."""
    cache = (*(b for b in BUFFERS if b.kind != "kv_cache"), Buffer("CPU", "kv_cache", 8 * MIB))
    passes = (scripted_pass(gaps=[seconds] * 3, share=1.0),)
    return made_run(n_prompt=n_prompt, n_gen=4, settings=Settings(n_ctx=1024), passes=passes, buffers=cache)


RUNS = [a_run(250, 0.2), a_run(300, 0.3), a_run(600, 0.4)]
MEASURED = {
    "timeline": figures.timeline(RUN),
    "ttft_against_prompt": figures.ttft_against_prompt([SHORT, LONG]),
    "token_times": figures.token_times(RUN),
    "buffers": figures.buffers(RUN),
    "requests": figures.requests([SHORT, LONG]),
    "token_against_cells": figures.token_against_cells({"here": RUNS, "there": RUNS[:2]}),
    "cache_runs": figures.cache_runs(RUNS),
}
PLANNED = {
    "memory_breakdown": figures.memory_breakdown(PLAN, {"gpu0": 8 * GIB, "host": None}),
    "layer_bytes": figures.layer_bytes(PLAN),
    "context_against_memory": does_it_fit.context_against_memory({"f16": [SHORTER, LONGER]}, 3 * GIB),
    "memory_residuals": does_it_fit.memory_residuals({"two layers": (PLAN, RUN)}),
}
PARTS = {"cost_by_part": figures.cost_by_part(TINY, 512), "tensor_bytes": figures.tensor_bytes(TINY)}
EVERY = MEASURED | PLANNED | PARTS


def badge(figure):
    return " ".join(note.text for note in figure.layout.annotations).replace("<br>", " ")


@pytest.mark.parametrize("name", EVERY)
def test_every_figure_has_a_text_alternative(name):
    """Whoever cannot see the figure reads a sentence with its numbers."""
    alt = EVERY[name].layout.meta["alt"]
    assert re.search(r"\d", alt)
    assert len(alt) > 40


@pytest.mark.parametrize("name", [*MEASURED, "memory_residuals"])
def test_every_figure_carries_its_badge(name):
    """Below the axes stands who measured, when and with what, where long names at the left take no room from it."""
    assert RUN.badge in badge(EVERY[name])
    assert next(note for note in EVERY[name].layout.annotations if "measured" in note.text).xanchor == "right"


@pytest.mark.parametrize("name", PLANNED)
def test_what_was_computed_is_never_called_measured(name):
    """A planned figure names its method and its model, and says that nothing was loaded."""
    assert badge(EVERY[name]).count("computed (closed form): example") == 1
    assert "nothing was loaded" in badge(EVERY[name])
    assert ("measured" in badge(EVERY[name])) == (name == "memory_residuals")


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
    assert any(re.search(r"millisecond|ms|MiB|GiB|%", title or "") for title in titles)


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


def test_a_plan_stacks_by_kind_with_the_capacity_of_each_device():
    """The buffers' colours and order, in GiB, and a line across the bar of a device that tells its capacity."""
    bars = {bar.name: bar for bar in EVERY["memory_breakdown"].data}
    assert bars["weights"].y == ("host", "gpu0")
    assert [x * GIB for x in bars["weights"].x] == [2 * MIB, 10 * MIB]
    assert bars["KV cache"].marker.color == next(b for b in EVERY["buffers"].data if b.name == "KV cache").marker.color
    (line,) = EVERY["memory_breakdown"].layout.shapes
    assert (line.x0, round(line.y0)) == (8, 1)
    assert "room 8.00 GiB" in [note.text for note in EVERY["memory_breakdown"].layout.annotations]


def test_a_small_plan_has_a_small_unit():
    """Without a capacity in GiB, the bars of a model of some MiB are in MiB."""
    figure = figures.memory_breakdown(PLAN)
    assert (figure.data[0].x, figure.layout.xaxis.title.text) == ((2, 10), "MiB")


def test_layers_stand_in_the_models_order_and_show_where_they_lie():
    """Each layer's weights and cache once, hatched where the host holds them: a layer's two parts can part."""
    bars = {bar.name: bar for bar in EVERY["layer_bytes"].data}
    assert list(bars) == ["weights, device", "weights, host", "KV cache, host"]
    assert bars["weights, host"].x == ("input", "0", "1", "output")
    assert (bars["weights, host"].y, bars["weights, device"].y) == ((1, 1, 0, 0), (0, 0, 4, 6))
    assert bars["KV cache, host"].y == (0, 2, 1, 0)
    assert bars["KV cache, host"].marker.pattern.shape == "/"


def test_moved_experts_are_drawn_where_they_are():
    """Hatched as what else is on the host, on top of the layer's own; the text names both places."""
    plan = predict_memory("qwen3-30b-a3b", Settings(n_ctx=512, n_cpu_moe=2), WITH_GPU, simulate=False)
    figure = figures.layer_bytes(plan)
    on_host = next(bar for bar in figure.data if bar.name == "weights, host")
    assert [round(n * MIB) for n in on_host.y[1:4]] == [row.moved_bytes.get("host", 0) for row in plan.layers[1:4]]
    assert on_host.y[1] > 0 == on_host.y[3]
    assert re.search(r"block 0 to block 1 on gpu0 \S+ MiB and \S+ MiB on host", figure.layout.meta["alt"])


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


def test_blue_and_orange_are_named_in_one_place():
    """No figure takes the colours of prefill and decode for something else by writing them out."""
    phases = {figures.PREFILL, figures.DECODE}
    files = Path(figures.__file__).parent.glob("*.py")
    assert [file.name for file in files if phases & set(HEX.findall(file.read_text()))] == ["style.py"]
    assert not phases & set(style.SERIES_COLOURS)


def test_each_case_is_a_line_through_its_256_cell_steps():
    """Three steps lie on the line that was put in: 0.1 s for each 256 cells."""
    drawn, steps = EVERY["token_against_cells"].data[:2]
    assert list(steps.x) == [256, 512, 768]
    assert steps.y == pytest.approx((200, 300, 400))
    assert drawn.y == pytest.approx((200, 400))


def test_a_line_for_each_model_over_its_cells():
    """Milliseconds of a token by the cells in use."""
    depths = decode_at_depths(cells=(256, 512), n_gen=2, engine=BatchEngine())
    figure = figures.token_against_depth({"MHA": depths, "MQA": depths})
    lines = {trace.name: trace for trace in figure.data}
    assert list(lines["MQA"].x) == [256, 512]
    assert list(lines["MHA"].y) == [1250, 1250]


def test_bars_of_measured_caches():
    """Reserved and in use in MiB, and the time of a token in words; before the first press nothing is drawn."""
    reserved, used = EVERY["cache_runs"].data
    assert reserved.x == (8.0, 8.0, 8.0)
    assert used.x[0] == pytest.approx(8 * 254 / 1024)
    assert reserved.text[0] == "200.00 ms a token"
    assert figures.cache_runs([]).layout.meta["alt"] == "Measured caches: none yet."


def test_shares_of_a_token_add_up_to_a_hundred():
    """Of the bytes, and of the operations."""
    for bars in EVERY["cost_by_part"].data:
        assert sum(bars.x) == pytest.approx(100)
    assert EVERY["cost_by_part"].data[0].y[-1] == cost.CACHE


def test_the_bars_of_a_file_are_its_bytes():
    """Each type is a colour; all bars together are all tensors."""
    bars = EVERY["tensor_bytes"].data
    assert [bar.name for bar in bars] == ["F16", "F32"]
    assert sum(sum(bar.x) for bar in bars) * MIB == pytest.approx(TINY.tensor_bytes)


# --- what holds for every figure ----------------------------------------------------------------------


@pytest.mark.parametrize("highest", [0, 0.003, 1, 7, 15, 15.1, 99.9, 102.4, 1_000_001])
@pytest.mark.parametrize("n_steps", [3, 5])
def test_an_axis_from_zero_has_a_tick_at_or_above_the_highest_value(highest, n_steps):
    """The highest value stands between two labels, which are at most one more than asked for, and never at the edge."""
    axis = style.from_zero(highest, n_steps=n_steps)
    ticks = [axis["dtick"] * n for n in range(n_steps + 1) if axis["dtick"] * n <= axis["range"][1]]
    assert len(ticks) >= 2
    assert ticks[-1] >= highest
    assert axis["range"][1] > highest


def test_an_axis_from_zero_goes_below_it_for_what_is_negative():
    """A loss is not cut away."""
    figure = style.blank(None, "about 1")
    style.line(figure, [(0, -3), (1, None), (2, 12)], "change", style.TEAL)
    style.y_from_zero(figure)
    low, high = figure.layout.yaxis.range
    assert low < -3
    assert high > 12


@pytest.mark.parametrize(
    "figure", [*(EVERY[name] for name in ("ttft_against_prompt", "context_against_memory"))], ids=["requests", "memory"]
)
def test_a_figure_from_zero_ends_on_a_tick_above_its_values(figure):
    """The last tick of the vertical axis is at least the highest value drawn, a line of a capacity too."""
    axis = figure.layout.yaxis
    highest = max([y for trace in figure.data for y in trace.y] + [shape.y1 for shape in figure.layout.shapes])
    assert axis.range[1] // axis.dtick * axis.dtick >= highest


def test_sizes_that_lie_close_have_no_labels_of_their_own():
    """The least size is named, then powers of two before the others; every label has space on a phone."""
    sizes = [1, 2, 3, 4, 5, 6, 7, 8, 12, 15, 16, 17, 32]
    assert style.tick_values(sizes) == [1, 4, 8, 12, 16, 32]
    assert style.tick_values(sizes, log=True) == [1, 2, 3, 4, 6, 8, 16, 32]
    for few in ([], [0], [64, 256, 512]):
        assert style.tick_values(few) == few


def test_a_heading_is_broken_where_a_phone_ends():
    """A long one has several lines, each of them short, and the figure grows by what the axes would lose."""
    figure = style.blank(None, "about 1")
    before = figure.layout.height - figure.layout.margin.t
    style.heading(figure, "No difference found: 1.09 times as fast in 10 pairs, confidence of a difference 89.1%")
    lines = figure.layout.annotations[0].text.split("<br>")
    assert len(lines) == 2
    assert max(map(len, lines)) <= style.HEADING_COLUMNS
    assert figure.layout.height - figure.layout.margin.t == before


def test_the_text_beside_the_longest_bar_ends_within_the_figure():
    """On a phone, bar and text together are no longer than the axis, whichever bar is the longest."""
    names, values, texts = ["gpu0: KV cache", "gpu0: output"], [37.8, 0.03], ["37.78 MiB, as planned", "0.03 MiB"]
    least, most = style.space_beside_bars(names, values, texts)
    axis = style.NARROW_WIDTH - style.NARROW_MARGINS - style.LETTER_PIXELS * len(names[0])
    assert least == 0
    for value, text in zip(values, texts, strict=True):
        assert axis * value / most + style.LETTER_PIXELS * len(text) <= axis


def test_every_figure_is_at_hand_whichever_modules_were_imported_before():
    """A module never hides a function that has its name."""
    for module in pkgutil.iter_modules(figures.__path__):
        import_module(f"inferlab.figures.{module.name}")
    assert [name for name in figures.__all__ if isinstance(getattr(figures, name), ModuleType)] == []
    with pytest.raises(AttributeError, match="has no 'pie'"):
        _ = figures.pie
