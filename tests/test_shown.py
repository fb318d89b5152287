"""What a notebook shows of a result: one line, a few lines of text, and a table with the same."""

import pickle
from dataclasses import replace
from functools import cache

import pytest
from fakes import made_run, scripted_pass

import inferlab as lab
from inferlab.measurement.sweep import Point, Sweep
from inferlab.records import RECORDED
from inferlab.shown import Shown

CARD = {"vram": "8GiB", "simulate": False}
MISTRAL, HOST_ONLY = lab.shape("mistral-7b"), lab.Settings(n_ctx=512, n_threads=2)


def whole_fit():
    return lab.fit(MISTRAL, lab.Settings(n_ctx=8192), with_steps=True, **CARD)


@cache
def smallest_records():
    """Of every kind of record, the path of the smallest one."""
    found = {}
    for path in sorted(RECORDED.rglob("*.json"), key=lambda path: path.stat().st_size):
        with path.open(encoding="utf-8") as file:
            start = file.read(200)
        found.setdefault(start.partition('"record": ')[2].partition(",")[0], path)
    return [path for kind, path in found.items() if kind.startswith('"')]


def lines_of(thing):
    """The lines of a result's text, after its length was judged."""
    assert len(str(thing)) < 1500
    lines = str(thing).splitlines()
    assert len(lines) <= 10
    return lines


@pytest.mark.parametrize("path", smallest_records(), ids=lambda path: path.stem)
def test_every_recorded_result_has_a_short_text_and_a_table(path):
    """Thousands of samples make neither of them long, the table says what the text says, and `repr` has the title."""
    loaded = lab.load(path)
    for result in loaded if isinstance(loaded, tuple) else (loaded,):
        assert isinstance(result, Shown)
        title, *rows = lines_of(result)
        assert result._repr_html_().count("<tr>") == len(rows)
        assert title in repr(result)
        assert len(repr(result)) <= 200


LONG_NAME = replace(MISTRAL, metadata={**MISTRAL.metadata, "general.name": "long " * 100})
SAID = (
    (whole_fit, "<Fit Mistral 7B v0.2 shape with n_ctx=8192 fits: gpu0 8.00 GiB free, of which 1.00 GiB stay"),
    (lambda: whole_fit().plan, "<MemoryPlan Mistral 7B v0.2 shape with n_ctx=8192: 5.20 GiB in all (closed form)>"),
    (lambda: MISTRAL, "<Model Mistral 7B v0.2 shape: 4.07 GiB in mistral-7b-Q4_K_M.gguf>"),
    (lambda: lab.predict_speed(MISTRAL, HOST_ONLY, lab.load("epyc-2c/calibration")), "<SpeedPlan Mistral 7B v0.2"),
    (lambda: LONG_NAME, "<Model long long"),
    (lambda: lab.predict_memory(LONG_NAME, HOST_ONLY), "<MemoryPlan long long"),
)


@pytest.mark.parametrize(("make", "said"), SAID)
def test_a_result_is_one_short_line(make, said):
    """At most 200 letters name its kind and say what it is of; a name that is too long is cut."""
    line = repr(make())
    assert line.startswith(said)
    assert line.endswith(">")
    assert len(line) <= 200
    assert len(line.splitlines()) == 1


def test_a_fit_says_whether_it_fits_and_what_would():
    """The verdict comes first; each device and each answer has a row."""
    found = lab.fit(MISTRAL, lab.Settings(n_ctx=8192), **CARD)
    title, *rows = lines_of(found)
    assert "n_ctx=8192 fits: gpu0 8.00 GiB free" in title
    assert [row.split(":")[0].strip() for row in rows[:2]] == ["host", "gpu0"]
    assert rows[2].strip() == "planned for: CUDA0 (a card with 8.00 GiB) beside any processor"
    assert f"the largest n_ctx with these layers: {found.largest_n_ctx.value:,}" in rows[3]


def test_a_plan_says_how_much_goes_where():
    """Its total and method in the title, and the bytes of each kind for each device; a bound has both ends."""
    plan = lab.fit(MISTRAL, lab.Settings(n_ctx=8192), **CARD).plan
    title, _, gpu, place = lines_of(plan)
    assert place.strip().startswith("planned for: CUDA0 ")
    assert title.endswith("5.20 GiB in all (closed form)")
    assert gpu.strip() == "gpu0: weights 4.00 GiB, kv cache 1.00 GiB, compute 116.01 MiB, output 0 B"
    bound = replace(plan, compute_range={"gpu0": (2**20, 2**21)})
    assert "compute 1.00 MiB to 2.00 MiB" in str(bound)


def test_a_speed_plan_and_its_calibration_are_short():
    """Rates with their band and what limits them; the devices and the bands of a calibration."""
    calibration = lab.load("epyc-2c/calibration")
    _, devices, *_, bands = lines_of(calibration)
    assert devices == f"  devices: {', '.join(calibration.devices)}"
    assert bands == f"  a plan may be off by: prefill {100 * calibration.bands['prefill']:.0f} %, decode " + (
        f"{100 * calibration.bands['decode']:.0f} %"
    )
    plan = lab.predict_speed("mistral-7b", lab.Settings(n_ctx=4096, n_threads=2), calibration)
    title, prefill, decode, *_ = lines_of(plan)
    assert title.endswith("prompt of 512 tokens, answer of 128")
    assert (prefill, decode) == (f"  prefill: {plan.prefill.text}", f"  decode: {plan.decode.text}")
    assert plan.decode.text.endswith(", mostly weights on host")


def test_a_run_shows_medians_and_ranges():
    """One row for each quantity; a single pass has no range."""
    run = made_run(passes=(scripted_pass(0.7), scripted_pass(0.5)))
    assert "  TTFT: 600 ms (500 ms to 700 ms)" in lines_of(run)
    assert "  TTFT: 500 ms" in lines_of(made_run(passes=(scripted_pass(0.5),)))
    assert run.badge in str(run)


def test_a_sweep_shows_its_first_points_and_counts_the_others():
    """A point that failed says why."""
    failed = Point({"n_ubatch": 0}, error="InvalidSettings: n_ubatch=0")
    points = (failed, *(Point({"n_ubatch": n}, made_run()) for n in range(1, 12)))
    title, first, second, *_, last = lines_of(Sweep({"n_ubatch": tuple(range(12))}, points))
    assert title == "Sweep over n_ubatch (12 values): 11 of 12 points measured, 1 failed"
    assert first == "  n_ubatch=0: InvalidSettings: n_ubatch=0"
    assert second.startswith("  n_ubatch=1: prefill ")
    assert last == "  …: 4 more"


def test_a_name_is_text_in_the_table():
    """Markup in the name of a model stays text."""
    plan = lab.fit(MISTRAL, **CARD).plan
    named = replace(plan, model=replace(plan.model, name="<script>"))
    assert "<script>" not in named._repr_html_()
    assert "&lt;script&gt;" in named._repr_html_()


def test_what_is_shown_changes_nothing_else():
    """Equality and pickles have every field, also those that are not shown."""
    plan = lab.fit(MISTRAL, **CARD).plan
    assert pickle.loads(pickle.dumps(plan)) == plan
    other = replace(plan, moved={"token_embd.weight": "host"})
    assert str(other) == str(plan)
    assert other != plan
