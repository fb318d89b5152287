"""Does it fit: verdicts against a room, searches for what would, and the register's figures."""

from dataclasses import replace

import pytest
from fakes import CPU_ONLY, WITH_GPU, made_plan

import inferlab as lab
from inferlab.errors import EngineRefused, InvalidSettings, ModelNotFound
from inferlab.prediction import fit
from inferlab.prediction.fit import machine_for
from inferlab.prediction.memory import DeviceBytes
from inferlab.prediction.search import Search, largest_fitting
from inferlab.units import GIB, MIB

SCENARIO = {"vram": "8GiB", "reserve_bytes": 650 * MIB}
"""The 8 GB card of the scenario, with what its desktop and the CUDA context were found to take."""
BOUND = made_plan(
    method="bound",
    devices={"host": DeviceBytes(MIB, 0, MIB, 0), "gpu0": DeviceBytes(10 * MIB, 0, None, 0)},
    compute_range={"gpu0": (2 * MIB, 5 * MIB)},
)


@pytest.mark.parametrize(("room", "fits"), [(15, "yes"), (14, "unsure"), (12, "unsure"), (11, "no")])
def test_a_bound_that_straddles_the_room_leaves_it_open(room, fits):
    """Yes from the safe end upwards, no below the least, unsure between: never a guess."""
    assert BOUND.fits({"gpu0": room * MIB}) == fits


def test_every_device_must_fit():
    """One room that is too small is enough for no, whatever the others have."""
    assert made_plan().fits({"gpu0": GIB, "host": 5 * MIB}) == "no"
    assert made_plan().fits({"gpu0": GIB, "host": 6 * MIB}) == "yes"


def test_what_is_not_told_is_not_assumed():
    """A device that does not tell its memory, or a part without a range, makes a yes impossible; a no stays a no."""
    part_open = made_plan(devices={"gpu0": DeviceBytes(10 * MIB, 0, None, 0)})
    assert made_plan().fits({"gpu0": None}) == "unsure"
    assert part_open.fits({"gpu0": GIB}) == "unsure"
    assert part_open.fits({"gpu0": MIB}) == "no"


def test_a_device_that_holds_nothing_fits():
    """A card that a plan leaves empty needs no room."""
    assert made_plan(devices={"host": DeviceBytes(MIB)}).fits({"gpu0": MIB}) == "yes"


def test_a_card_of_the_readers_choice_stands_in_for_the_machine():
    """`vram` as a text or in bytes makes one CUDA card, and says nothing about RAM."""
    assert machine_for(WITH_GPU, "8GiB").gpus[0].free_bytes == machine_for(None, 8 * GIB).gpus[0].free_bytes == 8 * GIB
    machine = machine_for(WITH_GPU, "8GiB")
    assert fit.free_bytes(machine, machine.gpus) == {"gpu0": 8 * GIB}
    with pytest.raises(InvalidSettings, match="vram=0 leaves no card"):
        machine_for(CPU_ONLY, 0)


def test_a_machine_is_compared_by_what_is_free_on_it():
    """Devices by their free memory, by all of it where free memory is unknown; the host by its RAM."""
    busy = replace(WITH_GPU.gpus[0], free_bytes=GIB)
    assert fit.free_bytes(replace(WITH_GPU, devices=(busy,)), [busy]) == {"gpu0": GIB, "host": 8 * GIB}
    assert fit.free_bytes(CPU_ONLY, ()) == {"host": 8 * GIB}
    assert fit.free_bytes(replace(CPU_ONLY, devices=(), ram_bytes=None), ()) == {"host": None}


def test_a_model_is_a_file_or_a_known_name():
    """A known name has a shape in any type; a file has its own types, and an unknown name is no file."""
    assert fit.model_named("mistral-7b").tensor_bytes == 4_367_704_064
    assert fit.model_named("tiny").path == lab.tiny_model()
    with pytest.raises(InvalidSettings, match="a file, which has its types"):
        fit.model_named("tiny", "Q8_0")
    with pytest.raises(ModelNotFound):
        fit.model_named("mistral-9b")


@pytest.mark.parametrize("last", [0, 1, 2, 3, 100, 127, 128])
def test_the_last_that_fits_is_found(last):
    """Doubling and halving end at the last one, at the ends of the range too, without trying them all."""
    tried = []
    assert largest_fitting(lambda n: tried.append(n) or n <= last, 128) == last
    assert len(tried) <= 16


@pytest.mark.engine
@pytest.mark.parametrize(
    ("name", "mix", "flash_attn", "tokens"),
    [
        ("mistral-7b-v0.3", "F16", "on", None),
        ("mistral-7b-v0.3", "Q8_0", "on", 1536),
        ("mistral-7b-v0.3", "Q6_K", "on", 14_592),
        ("mistral-7b-v0.3", "Q5_K_M", "on", 20_736),
        ("mistral-7b-v0.3", "Q4_K_M", "on", 26_368),
        ("mistral-7b", "Q4_K_M", "on", 26_368),
        ("mistral-7b", "Q4_K_M", "off", 17_920),
        ("llama-2-7b", "Q4_K_M", "on", 7168),
    ],
)
def test_the_longest_context_on_a_card_of_8_gib(name, mix, flash_attn, tokens):
    """With 650 MiB set aside, the wall of a 7B model lies far beyond 4,000 tokens, unless its weights fill the card."""
    fitted = lab.fit(lab.shape(name, mix), lab.Settings(flash_attn=flash_attn), **SCENARIO)
    assert (fitted.plan.method, fitted.largest_n_ctx.value) == ("closed form", tokens)
    assert fitted.fits == ("yes" if tokens and tokens >= 4096 else "no")


def test_the_longest_context_ends_where_training_ended():
    """For each slot, if that is asked for: memory then decides only below, and the reason says which of the two did."""
    plain, trained = (
        fit.fit("llama-2-7b", vram="24GiB", simulate=False, within_trained=within).largest_n_ctx
        for within in (False, True)
    )
    assert plain.value > trained.value == 4096
    assert trained.reason == "The model was trained for 4,096 tokens; memory would allow more."
    assert trained.margin_bytes > plain.margin_bytes
    slots = lab.Settings(n_ctx=4096, n_seq_max=3)
    fitted = fit.fit("llama-2-7b", slots, vram="24GiB", simulate=False, within_trained=True)
    assert fitted.largest_n_ctx.value == 3 * 4096
    small = fit.fit("llama-2-7b", vram="6GiB", simulate=False, within_trained=True).largest_n_ctx
    assert small.value < 4096
    assert " is too much: gpu0 would hold" in small.reason


def test_a_search_without_a_trained_end_stops_at_a_million():
    """With three slots, too, whose steps do not divide a million: what was not tried is not called too much."""
    for n_seq_max in (1, 3):
        fitted = fit.fit("qwen2.5-0.5b", lab.Settings(n_seq_max=n_seq_max), vram="80GiB", simulate=False)
        assert fitted.largest_n_ctx.value == 2**20 // (256 * n_seq_max) * 256 * n_seq_max
        assert fitted.largest_n_ctx.reason == "No longer context was tried; memory would allow more."


def test_the_largest_weights_that_fit_are_named():
    """The first of the list that fits whole with this context, whatever type and layers were asked for."""
    asked = lab.Settings(n_ctx=8192, n_gpu_layers=5, flash_attn="on")
    fitted = lab.fit(lab.shape("mistral-7b", "F16"), asked, vram="8GiB", simulate=False, with_steps=True)
    largest, whole = fitted.weights_type, asked.but(n_gpu_layers=-1)
    assert largest.value == "Q6_K"
    fits = {
        type: lab.fit(lab.shape("mistral-7b", type), whole, vram="8GiB", simulate=False) for type in ("Q8_0", "Q6_K")
    }
    assert [fitted.fits for fitted in fits.values()] == ["no", "yes"]
    assert largest.margin_bytes == fits["Q6_K"].margin_bytes
    assert largest.reason.startswith("Q8_0 is too much: gpu0 would hold")


def test_where_no_weights_fit_the_smallest_is_named():
    """And a file, which has its types, has no such answer."""
    none = lab.fit("mistral-7b", vram="2GiB", simulate=False, with_steps=True).weights_type
    assert none.value is None
    assert none.reason.startswith("Not even Q2_K: gpu0 would hold")
    most = lab.fit("mistral-7b", vram="80GiB", simulate=False, with_steps=True).weights_type
    assert (most.value, most.reason) == ("F16", "It is the largest type of the list.")
    assert lab.fit("tiny", vram="8GiB", simulate=False, with_steps=True).weights_type is None


@pytest.mark.engine
def test_a_quantized_cache_nearly_doubles_the_context():
    """Claim A05: about 49,000 tokens with q8_0, and what CUDA adds for it is counted within a range."""
    settings = lab.Settings(flash_attn="on", type_k="q8_0", type_v="q8_0")
    fitted = lab.fit("mistral-7b", settings, **SCENARIO)
    assert fitted.plan.method == "bound"
    assert fitted.largest_n_ctx.value == pytest.approx(49_000, rel=0.1)
    answers = [lab.fit("mistral-7b", settings.but(n_ctx=n), **SCENARIO).fits for n in (47_104, 49_152)]
    assert answers == ["yes", "no"]


@pytest.mark.engine
def test_every_answer_is_the_last_one_and_says_why():
    """What it names fits with the margin it names, and one step more does not fit; the reason names what is missing."""
    fitted = lab.fit("mistral-7b", lab.Settings(n_ctx=20_000, flash_attn="on"), **SCENARIO)
    longest = fitted.largest_n_ctx
    assert lab.fit("mistral-7b", longest.settings, **SCENARIO).margin_bytes == longest.margin_bytes >= 0
    beyond = lab.fit("mistral-7b", longest.settings.but(n_ctx=longest.value + 1), **SCENARIO)
    assert (beyond.fits, beyond.margin_bytes < 0) == ("no", True)
    assert "n_ctx=26,624 is too much: gpu0 would hold 4.00 GiB of weights, 3.25 GiB of KV cache" in longest.reason


@pytest.mark.engine
def test_all_layers_and_full_precision_are_the_ends_of_their_searches():
    """Where everything fits, all layers do, keys and values keep 16 bits, and the reasons say that no more exists."""
    fitted = lab.fit("mistral-7b", lab.Settings(flash_attn="on"), **SCENARIO)
    assert (fitted.most_layers.value, fitted.cache_type.value) == (33, "f16")
    assert "These are all layers of the model" in fitted.most_layers.reason
    assert "nothing needs to be quantized" in fitted.cache_type.reason
    assert {answer.margin_bytes for answer in (fitted.most_layers, fitted.cache_type)} == {fitted.margin_bytes}


@pytest.mark.engine
def test_a_cache_type_makes_both_possible():
    """A context that f16 has no room for is had with q8_0; without flash attention there is no such way out."""
    wanted = lab.Settings(n_ctx=40_960, flash_attn="on")
    fitted = lab.fit("mistral-7b", wanted, **SCENARIO)
    assert (fitted.fits, fitted.cache_type.value, fitted.cache_type.settings.type_v) == ("no", "q8_0", "q8_0")
    assert fitted.cache_type.reason.startswith("f16 is too much: gpu0 would hold")
    without = lab.fit("mistral-7b", wanted.but(flash_attn="off"), **SCENARIO)
    assert without.cache_type.value is None
    assert "Quantized values need flash attention" in without.cache_type.reason


@pytest.mark.engine
def test_layers_are_counted_until_the_card_is_full():
    """A model of 13 GiB leaves some layers on the host; one more would be too much."""
    fitted = lab.fit(lab.shape("mistral-7b", "F16"), lab.Settings(flash_attn="on"), **SCENARIO)
    most = fitted.most_layers
    assert 10 < most.value < 20
    assert lab.fit(lab.shape("mistral-7b", "F16"), most.settings, **SCENARIO).fits == "yes"
    assert most.settings.n_gpu_layers == most.value


@pytest.mark.engine
def test_nothing_fits_in_no_room():
    """A card smaller than the weights has no context to offer; the reason says what is missing."""
    fitted = lab.fit("mistral-7b", vram="4GiB")
    assert (fitted.fits, fitted.largest_n_ctx.value) == ("no", None)
    assert "Not even n_ctx=256" in fitted.largest_n_ctx.reason


@pytest.mark.engine
def test_a_machine_without_devices_is_held_against_its_memory():
    """The host's RAM is the room, and layers are nobody's to take."""
    fitted = lab.fit("tiny", machine=CPU_ONLY)
    assert (fitted.fits, fitted.usable_bytes) == ("yes", {"host": 8 * GIB - fit.RESERVE_BYTES})
    assert (fitted.most_layers.value, fitted.most_layers.reason) == (None, "There is no device here to put a layer on.")


def test_experts_leave_the_card_layer_by_layer():
    """The fewest layers with which all layers fit: with one less, something is missing."""
    fitted = lab.fit("qwen3-30b-a3b", lab.Settings(n_ctx=8192), vram="8GiB", simulate=False)
    answer = fitted.expert_layers
    assert fitted.most_layers.value < answer.value < 48
    assert (answer.settings.n_gpu_layers, answer.settings.n_cpu_moe) == (-1, answer.value)
    fitting, fewer = (
        lab.fit("qwen3-30b-a3b", answer.settings.but(n_cpu_moe=n), vram="8GiB", simulate=False).fits
        for n in (answer.value, answer.value - 1)
    )
    assert fitting == "yes" != fewer


def test_a_small_card_has_fewer_layers_and_no_experts():
    """Where all layers are too many even without experts, the answer has the settings that do fit, and no value."""
    fitted = lab.fit("qwen3-30b-a3b", lab.Settings(n_ctx=32768), vram="5GiB", simulate=False)
    answer = fitted.expert_layers
    assert answer.value is None
    assert answer.settings.cpu_moe
    assert f"{answer.settings.n_gpu_layers} layers fit on the card" in answer.reason


def test_only_a_mixture_of_experts_has_that_answer():
    """And on a card that holds all, no layer's experts need to leave."""
    assert lab.fit("llama-3.1-8b", vram="8GiB", simulate=False).expert_layers is None
    assert lab.fit("qwen3-30b-a3b", vram="24GiB", simulate=False).expert_layers.value == 0
    shared = lab.fit("qwen3-30b-a3b", unified="16GiB", simulate=False).expert_layers
    assert (shared.value, shared.settings) == (None, None)


def test_layers_are_searched_with_experts_in_ram():
    """Experts that are in RAM with their whole layer are not named again, so no such settings are refused."""
    fitted = lab.fit("qwen3-30b-a3b", lab.Settings(n_ctx=32768, cpu_moe=True), vram="5GiB", simulate=False)
    assert 1 < fitted.most_layers.value < 49
    assert fitted.most_layers.settings.cpu_moe


def test_a_simulation_that_stops_leaves_the_other_answers():
    """Where llama.cpp stops itself at the plan of a smaller cache, the answer about that says so in one line."""

    def plan_for(settings):
        if settings.type_k != "f16":
            raise EngineRefused("llama.cpp stopped itself\nat a line of its own")
        return made_plan(settings=settings)

    asked = lab.Settings(n_ctx=256)
    search = Search(plan_for, asked, plan_for(asked), {"gpu0": MIB})
    answer = search.cache_type()
    assert (answer.value, answer.reason) == (None, "llama.cpp stopped itself")


def test_the_longest_context_is_no_shorter_than_one_that_fits():
    """The search begins at what is asked for: bytes need not grow with each step."""

    def plan_for(settings):
        n_bytes = 20 * MIB if settings.n_ctx == 1024 else MIB
        return made_plan(settings=settings, devices={"host": DeviceBytes(), "gpu0": DeviceBytes(n_bytes)})

    asked = lab.Settings(n_ctx=4096)
    search = Search(plan_for, asked, plan_for(asked), {"gpu0": 2 * MIB}, 8192)
    assert search.largest_n_ctx().value == 8192
