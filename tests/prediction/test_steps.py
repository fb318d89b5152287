"""One step of each setting: what it would cost or free, and the same figures in JSON."""

import json

import pytest

import inferlab as lab
from inferlab.errors import InvalidSettings
from inferlab.model.catalog import known_models
from inferlab.model.quant_mixes import MIXES
from inferlab.prediction.decode_bound import decode_bound
from inferlab.prediction.fit_fields import plan_fields
from inferlab.prediction.steps import NATIVE, WEIGHT_TYPES, neighbouring_types
from inferlab.settings import Settings
from inferlab.units import GIB

CARD = {"vram": "8GiB", "simulate": False}


def stepped(name="mistral-7b", **asked):
    """A fit with its steps, by setting and value."""
    fitted = lab.fit(name, Settings(**asked), with_steps=True, **CARD)
    return fitted, {(step.setting, step.value): step for step in fitted.steps}


def test_each_step_is_the_difference_of_two_plans():
    """Every difference is what planning those settings gives, on the card; so is the verdict."""
    fitted, steps = stepped(n_ctx=8192)
    settings = [step for step in fitted.steps if step.setting != "type"]
    assert {step.setting for step in settings} >= {"n_ctx", "flash_attn", "n_ubatch", "n_seq_max"}
    for step in settings:
        other = lab.fit("mistral-7b", step.settings, **CARD)
        assert step.difference_bytes == other.plan.most_bytes("gpu0") - fitted.plan.most_bytes("gpu0") != 0
        assert step.fits == other.fits
    assert steps["n_ctx", 16384].difference_bytes == pytest.approx(GIB, rel=0.02)


def test_whether_a_step_fits_is_what_its_plan_says():
    """Also where work is shared, and quick plans are wider than the plan's own range."""
    beside = {**CARD, "ram": "32GiB"}
    for name, n_cpu_moe in (("gpt-oss-20b", 13), ("granite-4.0-h-tiny", 12)):
        fitted = lab.fit(name, Settings(n_ctx=8192, n_cpu_moe=n_cpu_moe), with_steps=True, **beside)
        settings = [step for step in fitted.steps if step.setting != "type"]
        assert {"n_ctx", "n_cpu_moe"} <= {step.setting for step in settings}
        assert [step.fits for step in settings] == [lab.fit(name, step.settings, **beside).fits for step in settings]


def test_a_step_to_a_bound_has_both_ends():
    """A quantized cache leaves the compute buffer in a range: the difference lies between both of its ends."""
    fitted, steps = stepped(n_ctx=8192, flash_attn="on")
    exact, bound = steps["n_ctx", 16384], steps["cache_type", "q8_0"]
    assert exact.least_bytes == exact.most_bytes == exact.difference_bytes
    other = lab.fit("mistral-7b", bound.settings, **CARD)
    needed = fitted.plan.most_bytes("gpu0")
    assert fitted.plan.least_bytes("gpu0") == needed
    ends = other.plan.least_bytes("gpu0") - needed, other.plan.most_bytes("gpu0") - needed
    assert (bound.least_bytes, bound.most_bytes) == ends
    assert bound.least_bytes < bound.most_bytes == bound.difference_bytes


def test_weights_step_to_the_neighbouring_types():
    """A known model can be had in another type: the difference is that of its tensors on the card."""
    fitted, steps = stepped()
    larger = lab.fit(lab.shape("mistral-7b", "Q5_K_M"), fitted.plan.settings, **CARD)
    difference = larger.plan.most_bytes("gpu0") - fitted.plan.most_bytes("gpu0")
    assert steps["type", "Q5_K_M"].difference_bytes == difference > 0 > steps["type", "Q3_K_M"].difference_bytes
    assert not any(step.setting == "type" for step in lab.fit("tiny", with_steps=True, **CARD).steps)


def test_every_type_of_weights_has_neighbours():
    """One larger and one smaller of those offered, fewer only at the ends."""
    assert neighbouring_types("Q4_K_M") == ("Q5_K_M", "Q3_K_M")
    assert neighbouring_types("Q5_0") == ("Q5_K_M", "Q4_K_M")
    assert [len(neighbouring_types(type)) for type in MIXES if type in WEIGHT_TYPES] == [1, 2, 2, 2, 2, 2, 1]
    assert all(type not in neighbouring_types(type) for type in MIXES)


@pytest.mark.parametrize("name", [name for name, known in known_models().items() if known.usual_type == NATIVE])
def test_no_other_type_is_much_smaller_than_the_one_of_training(name):
    """By a hundredth at most, which is why no step leaves it."""
    native = lab.shape(name, NATIVE).tensor_bytes
    assert min(lab.shape(name, type).tensor_bytes for type in WEIGHT_TYPES) > 0.99 * native
    assert lab.shape(name, "F16").tensor_bytes > 3 * native


def test_steps_that_cannot_be_are_left_out():
    """No quantized values without flash attention, no flash attention turned off under them, no eighth of a layer."""
    _, without = stepped(n_ctx=8192, flash_attn="off")
    assert not any(setting == "cache_type" for setting, _ in without)
    assert ("flash_attn", "on") in without
    _, quantized = stepped("gemma-3-4b", n_ctx=8192, type_k="q8_0", type_v="q8_0")
    assert {value for setting, value in quantized if setting == "cache_type"} == {"f16", "q4_0"}
    assert not any(setting == "flash_attn" for setting, _ in quantized)
    _, fewer = stepped("gemma-3-4b", n_ctx=8192, n_gpu_layers=20)
    assert {value for setting, value in fewer if setting == "n_gpu_layers"} == {19, 21}


def test_a_context_steps_in_whole_cells_and_ends_at_a_million():
    """Half of 768 cells are 256; twice a million is not offered, and every sequence keeps whole cells."""
    _, steps = stepped(n_ctx=700)
    assert {value for setting, value in steps if setting == "n_ctx"} == {256, 1536}
    _, steps = stepped("gemma-3-4b", n_ctx=2**20)
    assert {value for setting, value in steps if setting == "n_ctx"} == {2**19}
    _, steps = stepped(n_ctx=3000, n_seq_max=3)
    assert {value for setting, value in steps if setting == "n_ctx"} == {1536, 6144}


def test_json_has_what_a_fit_found():
    """Every figure of the fit, in JSON's kinds; a room has what is free, what may be used, and what is left."""
    fitted, _ = stepped(n_ctx=8192, n_gpu_layers=20)
    fields = json.loads(json.dumps(plan_fields(fitted)))
    least, most = fitted.plan.compute_range["gpu0"]
    assert fields["compute_range"]["gpu0"] == {"least": least, "most": most}
    room = fields["rooms"]["gpu0"]
    assert (room["free_bytes"], room["room_bytes"]) == (8 * GIB, 7 * GIB)
    assert room["margin_bytes"] == fields["margin_bytes"] == fitted.margin_bytes == 7 * GIB - room["most_bytes"]
    assert room["least_bytes"] == fitted.plan.least_bytes("gpu0")
    assert fields["notes"] == list(fitted.plan.notes)
    assert fields["answers"]["largest_n_ctx"]["value"] == fitted.largest_n_ctx.value
    assert fields["answers"]["weights_type"]["value"] == fitted.weights_type.value
    assert [step["value"] for step in fields["steps"]] == [step.value for step in fitted.steps]
    assert fields["steps"][0]["difference_range"]["most"] == fitted.steps[0].most_bytes
    assert Settings.from_dict(fields["settings"]) == fitted.plan.settings


# --- tokens per second --------------------------------------------------------------------------


def test_the_bound_on_tokens_is_bandwidth_over_bytes():
    """All weights but the embedding, of which one row is read, and the keys and values of every token before."""
    model = lab.shape("mistral-7b")
    fitted = lab.fit(model, **CARD)
    embedding = next(tensor for tensor in model.tensors if tensor.name == "token_embd.weight")
    weights, cache = model.tensor_bytes - embedding.n_bytes, 1000 * 32 * 2 * 8 * 128 * 2
    assert decode_bound(fitted, model, 448e9, 999) == pytest.approx(448e9 / (weights + cache), rel=1e-9)


def test_experts_that_are_not_used_are_not_read():
    """Of 128 experts 8: a model of 18 GB reads less than 2 GB for a token."""
    model = lab.shape("qwen3-30b-a3b")
    fitted = lab.fit(model, vram="24GiB", simulate=False)
    assert 1.5e9 < 1 / decode_bound(fitted, model, 1.0) < 2e9


def test_the_bound_stays_above_what_part_of_the_model_allows():
    """Layers on the host only take time: their bytes are left out, so the bound rises; without any there is none."""
    model = lab.shape("mistral-7b")
    bounds = [decode_bound(lab.fit(model, Settings(n_gpu_layers=n), **CARD), model, 448e9, 99) for n in (0, 1, 20, 33)]
    assert bounds[0] is None
    assert bounds[1:] == sorted(bounds[1:], reverse=True)


def test_cards_of_one_model_add_up_and_shared_memory_has_all_of_it():
    """Two cards read one after the other, so the bound is that of one; an embedding that is tied is read whole once."""
    model = lab.shape("mistral-7b")
    one, two, shared, alone = (
        decode_bound(lab.fit(model, settings, simulate=False, **room), model, 448e9, 99)
        for settings, room in (
            (None, {"vram": "24GiB"}),
            (None, {"vram": ["8GiB", "8GiB"]}),
            (Settings(n_gpu_layers=9), {"unified": "24GiB"}),
            (Settings(devices=()), {"vram": "24GiB"}),
        )
    )
    assert one == two == pytest.approx(shared, rel=1e-6) == alone
    tied = lab.shape("llama-3.2-1b")
    needed = 448e9 / decode_bound(lab.fit(tied, **CARD), tied, 448e9)
    assert needed == pytest.approx(tied.tensor_bytes, rel=1e-3)


def test_a_window_bounds_what_is_read_of_the_cache():
    """Gemma 3 looks back 1,024 tokens in five layers of six: twice the depth is less than twice the cache."""
    model = lab.shape("gemma-3-4b")
    fitted = lab.fit(model, Settings(n_ctx=32768), **CARD)
    read = [1 / decode_bound(fitted, model, 1.0, depth) for depth in (0, 1023, 2047)]
    assert (read[2] - read[1]) / 1024 == pytest.approx((read[1] - read[0]) / 1023 * 5 / 34, rel=0.01)


def test_steps_and_rooms_refuse_what_a_plan_refuses():
    """A setting that is invalid as asked is an error, not a list without it."""
    with pytest.raises(InvalidSettings):
        stepped(n_ctx=8192, flash_attn="off", type_k="q8_0", type_v="q8_0")
