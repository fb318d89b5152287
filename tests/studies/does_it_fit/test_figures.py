"""Figures of planned memory: over one request, against the context, and less what was measured."""

import pytest
from fakes import made_plan, made_run

import inferlab as lab
from inferlab.errors import InvalidSettings
from inferlab.prediction.memory import DeviceBytes
from inferlab.units import GIB, bytes_text
from studies.does_it_fit import figures

SETTINGS = lab.Settings(n_ctx=8192, flash_attn="on")
FOUND = lab.fit(lab.shape("mistral-7b-v0.3", "Q4_K_M"), SETTINGS, vram="8GiB")
PARTS = {kind: n or 0 for kind, n in FOUND.plan.devices["gpu0"].parts.items()}
CAPACITY = FOUND.usable_bytes["gpu0"]
DRAWN = figures.request_memory(FOUND.plan, 2048, CAPACITY)
AREAS = {trace.name: list(zip(trace.x, trace.y, strict=True)) for trace in DRAWN.data}


def heights(name: str, x: float) -> list[float]:
    return [y for at, y in AREAS[name] if at == x]


def test_the_total_is_allocated_before_the_first_token_and_stays():
    """From 0 tokens to a full context the upper edge is the plan's total."""
    edge = [y for x, y in AREAS["KV cache, reserved"] if x >= 0]
    assert edge == pytest.approx([sum(PARTS.values()) / GIB] * len(edge))


@pytest.mark.parametrize("n_tokens", [0, 2048, 8192])
def test_the_cache_in_use_grows_by_the_same_bytes_for_each_token(n_tokens):
    """At n tokens the share n / n_ctx of the cache is in use, above weights and compute buffers."""
    below = PARTS["weights"] + PARTS["compute"] + PARTS["output"]
    expected = (below + PARTS["kv_cache"] * n_tokens / 8192) / GIB
    assert heights("KV cache, in use", n_tokens) == pytest.approx([expected])


def test_the_load_allocates_weights_first():
    """At the first step of the load the weights appear, and nothing else."""
    at = figures.load_steps(8192)[1]
    assert heights("KV cache, reserved", at) == pytest.approx([0, PARTS["weights"] / GIB])


def test_the_text_says_the_sizes_and_the_badge_that_nothing_ran():
    """What is drawn can be read."""
    alt = DRAWN.layout.meta["alt"]
    assert all(bytes_text(PARTS[kind]) in alt for kind in ("weights", "kv_cache"))
    assert any("nothing was loaded" in note.text.replace("<br>", " ") for note in DRAWN.layout.annotations)


@pytest.mark.parametrize("n_prompt", [0, 8192])
def test_a_prompt_that_leaves_no_answer_is_refused(n_prompt):
    """The message names both sizes."""
    with pytest.raises(InvalidSettings, match=f"prompt of {n_prompt} tokens.*n_ctx=8192"):
        figures.request_memory(FOUND.plan, n_prompt, CAPACITY)


def test_a_context_grows_towards_the_line_of_the_capacity():
    """The bytes of the whole device at each n_ctx, and the card's line at the height of its capacity."""
    shorter, longer = (
        made_plan(settings=lab.Settings(n_ctx=n_ctx), devices={"gpu0": DeviceBytes(GIB, cache, 0, 0)})
        for n_ctx, cache in ((256, GIB // 2), (512, GIB))
    )
    figure = figures.context_against_memory({"f16": [shorter, longer]}, 3 * GIB)
    assert (figure.data[0].x, figure.data[0].y) == ((256, 512), (1.5, 2))
    assert figure.layout.shapes[0].y0 == 3


def test_residuals_of_several_settings_stand_beside_the_logs_rounding():
    """Each kind's difference in MiB at each setting, and a band as wide as two printed decimals allow."""
    figure = figures.memory_residuals({"two layers": (made_plan(), made_run())})
    kinds = {trace.name: trace for trace in figure.data}
    assert (kinds["weights"].y, kinds["weights"].x) == (("two layers", "two layers"), (0, 0))
    assert (kinds["compute"].x, kinds["compute"].customdata) == ((0, -0.5), ("host", "gpu0"))
    band = figure.layout.shapes[0]
    assert (band.x0, band.x1) == (-0.005, 0.005)
