"""The figure of one card's memory over one request."""

import pytest

import inferlab as lab
from inferlab import figures
from inferlab.errors import InvalidSettings
from inferlab.figures.request_memory import load_steps
from inferlab.units import GIB, bytes_text

SETTINGS = lab.Settings(n_ctx=8192, flash_attn="on")
FOUND = lab.fit(lab.shape("mistral-7b-v0.3", "Q4_K_M"), SETTINGS, vram="8GiB")
PARTS = {kind: n or 0 for kind, n in FOUND.plan.devices["gpu0"].parts.items()}
ROOM = FOUND.room_bytes["gpu0"]
DRAWN = figures.request_memory(FOUND.plan, 2048, ROOM)
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
    assert heights("KV cache, in use", n_tokens) == pytest.approx([expected] * 2)


def test_the_load_allocates_weights_first():
    """At the first step of the load the weights appear, and nothing else."""
    at = load_steps(8192)[1]
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
        figures.request_memory(FOUND.plan, n_prompt, ROOM)
