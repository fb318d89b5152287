"""What costs speed: devices, attention, reuse and drafts; and what looks so and does not."""

import pytest
from written_logs import LOGS, MODEL, OLLAMA_START, SERVER, START, card, context, runner, weights
from written_speed import (
    DENSE,
    GPU_LOAD,
    IN_RAM,
    LOGS_OF_SPEED,
    SOFTWARE,
    VULKAN_2024,
    answer,
    cache_state,
    checkpoint,
    device_info,
    drafted,
    found_none,
    load_of,
    on_vulkan,
    request,
    slot,
    splits,
    splits_2025,
    vulkan,
)

import inferlab as lab


def ids(log):
    return [finding.id for finding in lab.explain(log).findings]


def finding(name):
    """The first finding of a written log."""
    return lab.explain(LOGS_OF_SPEED[name][0]).findings[0]


@pytest.mark.parametrize("name", [name for name in LOGS_OF_SPEED if name.startswith("Ollama, ")])
def test_a_search_that_failed_is_no_matter_where_a_gpu_was_found(name):
    """A driver that could not be started costs nothing where Ollama uses another GPU."""
    log, expected = LOGS_OF_SPEED[name]
    found = lab.explain(log + LOGS["Ollama with a GPU"][0]).findings
    assert not set(expected) & {one.id for one in found} or name == "Ollama, little GPU memory"


def test_a_log_that_names_a_gpu_is_not_said_to_have_none():
    """Whatever form names the GPU, nobody is sent to take another build."""
    for named in (
        vulkan(0, "AMD Radeon RX 6700", 0),
        VULKAN_2024,
        "  Device 0: NVIDIA GeForce RTX 3060, compute capability 8.6, VMM: yes, VRAM: 12000 MiB\n",
        "device_info:\n  - CUDA0   : NVIDIA GeForce RTX 3060 (12000 MiB, 11000 MiB free)\n",
    ):
        assert not {"no-usable-gpu", "no-gpu-seen", "ollama-found-no-gpu"} & set(ids(START + named + MODEL + IN_RAM))


def test_a_software_driver_is_no_gpu():
    """llvmpipe beside a GPU that holds the weights is none's concern."""
    assert ids(START + vulkan(0, "AMD Radeon RX 6700", 0) + vulkan(1, "llvmpipe (LLVM 20)", 0) + on_vulkan()) == []
    assert ids(START + SOFTWARE + MODEL + IN_RAM) == ["software-gpu"]


@pytest.mark.parametrize(
    ("gpu", "line"),
    [
        ("AMD Radeon 890M Graphics", ""),
        ("Intel(R) UHD Graphics 770", ""),
        ("NVIDIA GB10", ""),
        ("AMD Radeon Graphics", "  Device 0: AMD Radeon Graphics, gfx1151 (0x1151), VMM: no, Wave Size: 32\n"),
        ("AMD Radeon RX 6700", vulkan(0, "AMD Radeon RX 6700", 1)),
    ],
)
def test_a_gpu_that_shares_the_memory_moves_nothing(gpu, line):
    """Free memory of an integrated GPU is an estimate, and what lies beyond it is in the same RAM."""
    assert "more-than-free" not in ids(START + line + on_vulkan(name=gpu, free=2000))
    assert "more-than-free" in ids(START + on_vulkan(name="AMD Radeon RX 6700", free=2000))


def test_a_property_says_more_than_a_name():
    """A card whose driver names it only by its maker is no integrated GPU where a line says so."""
    card_by_vulkan = START + vulkan(0, "AMD Radeon Graphics", 0) + on_vulkan(name="AMD Radeon Graphics", free=2000)
    assert ids(card_by_vulkan) == ["more-than-free"]
    named = START + on_vulkan(name="AMD Radeon Graphics (RADV GFX1201)", free=2000)
    assert ids(named) == ["more-than-free"]
    assert ids(named.replace("GFX1201", "GFX1151")) == []
    rocm = "  Device 0: AMD Radeon Graphics, gfx1201 (0x1201), VMM: no, Wave Size: 32\n"
    assert ids(START + rocm + on_vulkan("ROCm0", "AMD Radeon Graphics", 2000)) == ["more-than-free"]


def test_more_than_free_and_more_than_there_is_are_told_apart():
    """Only what exceeds the card's whole memory is surely in RAM on every system."""
    assert finding("more than the card has").what.endswith(
        "The rest lies in RAM, and each token crosses the bus for it."
    )
    assert (
        "On Windows, with unified memory"
        in lab.explain(START + card(free=3000) + MODEL + weights() + context()).findings[0].what
    )


@pytest.mark.parametrize("form", [splits, splits_2025])
@pytest.mark.parametrize("n", [2, 3, 6, 9])
def test_few_splits_are_no_sign(form, n):
    """Embeddings, an output and an operation or two leave the GPU in healthy loads, in every form of the line."""
    assert "attention-on-cpu" not in ids(GPU_LOAD + context() + form(2 * n, n))


@pytest.mark.parametrize("form", [splits, splits_2025])
def test_a_split_at_every_fourth_layer_is_found(form):
    """A hybrid with an operation of one layer in four on the CPU has half as many extra splits as layers."""
    assert ids(GPU_LOAD + context() + form(18, 18)) == ["attention-on-cpu"]


def test_splits_of_weights_and_caches_in_ram_are_not_judged():
    """Layers, experts or a cache in RAM explain splits by themselves, and so do devices on another machine."""
    some = START + card() + DENSE + weights(2000.0, 2167.0, "17/33") + context() + splits(60, 60)
    cache = GPU_LOAD + context().replace("     CUDA0 KV", "       CPU KV") + splits(66, 66)
    tensors = START + card() + DENSE + weights(3000.0, 1167.0) + context() + splits(66, 66)
    without_sizes = START + card() + MODEL + weights() + context() + splits(66, 66)
    for log in (some, cache, tensors, without_sizes):
        assert "attention-on-cpu" not in ids(log)


def test_the_splits_of_a_projector_are_not_the_models():
    """`alloc_compute_meta: graph splits` is of the image encoder."""
    assert ids(GPU_LOAD + context() + splits(2, 2) + "alloc_compute_meta: graph splits = 90, nodes = 766\n") == []


def test_mixed_types_that_stay_on_the_gpu_are_no_fault():
    """Where the splits show that nothing leaves the GPU, this build has the kernels."""
    assert ids(GPU_LOAD + context(k="q8_0", v="q4_0") + splits(2, 2)) == []
    assert ids(GPU_LOAD + context(k="q8_0", v="q4_0")) == ["cache-types-on-cuda"]


def test_a_gpu_that_is_only_listed_is_no_place_for_the_model():
    """An integrated GPU with much shared memory is no card on which all would fit, nor one that holds layers."""
    both = weights().replace("CUDA0 model buffer size =  4095.05", "CUDA0 model buffer size =  2047.50")
    both += "load_tensors:        CUDA1 model buffer size =  2047.55 MiB\n"
    cards = card(free=3000) + card("CUDA1", 3000)
    listed = "device_info:\n  - Vulkan2 : AMD Radeon 780M Graphics (48000 MiB, 47000 MiB free)\n"
    assert ids(START + listed + cards + MODEL + both + context()) == []
    half = lab.explain(START + listed + card(free=3000) + MODEL + weights(2000.0, 2167.0, "17/33") + context())
    assert half.findings[0].what.startswith("17 of 33 layers are on CUDA0;")
    assert any("Make room" in sentence for sentence in half.findings[0].fix)


def test_what_is_likely_follows_from_the_cache_types():
    """Mixed types point to attention; with f16 the operation is not named, and no type is advised."""
    assert "most likely attention" in finding("attention of mixed types on the CPU").what
    plain = finding("an operation on the CPU")
    assert "an operation of this model" in plain.what
    assert not any("-ctk" in sentence for sentence in plain.fix)
    assert any("without flash attention (`-fa`)" in sentence for sentence in plain.fix)


def test_flash_attention_is_told_with_its_reason():
    """A cache in RAM, a cache type and a model's heads are different reasons, with different advice."""
    types = finding("flash attention without a kernel")
    assert "CUDA0 has no kernel for this model with keys in q8_0" in types.what
    assert len(types.lines) == 2
    in_ram = finding("flash attention and a cache in RAM")
    assert in_ram.fix == ("Keep the cache on the GPU (`-kvo`).",)
    assert "requires n_embd_head_k" in finding("flash attention forced off, 2025").what


def test_slots_are_named_where_they_may_be_the_cause():
    """One slot is advised where prompts went to several, and not to who has one."""
    several = finding("one client on two slots")
    assert "never two were answered at once" in several.what
    assert any("One client needs one slot" in sentence for sentence in several.fix)
    ready = "srv    load_model: initializing, n_slots = 1, n_ctx_slot = 8192, kv_unified = 'false'\n"
    one = lab.explain(SERVER + ready + "".join(request(0, n, 2000 + n) for n in range(5))).findings[0]
    assert "slot" not in one.what
    assert not any("slot" in sentence for sentence in one.fix)


def test_prompts_of_two_slots_are_not_mixed_up():
    """What was reused belongs to its own slot and task, where two prompts begin at once."""
    begin = "new prompt, n_ctx_slot = 8192, n_keep = 0, task.n_tokens = 4000"
    turns = ""
    for n in range(5):
        turns += "".join(slot(number, 3 * n + number, begin) for number in (0, 1, 2))
        turns += "".join(
            slot(number, 3 * n + number, f"cached n_tokens = {kept}, memory_seq_rm [{kept}, end)")
            for number, kept in ((2, 0), (1, 0), (0, 3900))
        )
    found = lab.explain(SERVER + turns).findings
    assert [one.id for one in found] == ["prompt-read-again"]
    assert {line.text.split(" | ")[0][-1] for line in found[0].lines} == {"1", "2"}
    assert "answered at once" not in found[0].what


def test_a_model_that_is_changed_for_another_is_no_model_in_turn():
    """Trying one model after the other is no swapping, and one model alone is loaded again for other reasons."""
    assert ids(OLLAMA_START + "".join(load_of(name) for name in ("sha256-1", "sha256-2", "sha256-3"))) == []
    assert ids(OLLAMA_START + runner() * 3) == ["loaded-again-alike"]


def test_models_that_are_used_hours_apart_are_not_swapped():
    """Ollama unloads what nobody uses; only a return within minutes is a model that had to go."""
    names = ("sha256-1", "sha256-2") * 2
    hours = "".join(load_of(name).replace("T03:", f"T{hour:02}:") for hour, name in enumerate(names))
    assert "models-in-turn" not in ids(OLLAMA_START + hours)
    minutes = "".join(load_of(name).replace("T03:04", f"T03:{n:02}") for n, name in enumerate(names))
    assert "models-in-turn" in ids(OLLAMA_START + minutes)


def test_slots_of_ollama_are_named_where_their_memory_holds_a_layer():
    """A small cache gains no layer."""
    log, _ = LOGS_OF_SPEED["Ollama with four requests at once"]
    assert "384.00 MiB of it" in next(one.what for one in lab.explain(log).findings if one.id == "parallel-cache")
    assert "parallel-cache" not in ids(log.replace("KV buffer size =   512.00", "KV buffer size =    16.00"))


def test_drafts_are_judged_by_the_times_of_the_log():
    """A pass that checks a draft takes no less than one without; what drafting takes is then lost or gained."""
    assert (
        "each pass gives 3.0 tokens, and drafting takes 73 % of the time"
        in finding("drafts accepted without gain").what
    )
    assert "drafting takes 10 % of the time" in finding("drafts to measure").what
    assert ids(SERVER + answer(150, 3.0) + drafted(20, 150)) == ["draft-to-measure"]


def test_statistics_of_requests_that_the_log_lacks_prove_nothing():
    """llama.cpp counts since its start; where the log begins later, the times do not belong together."""
    assert ids(SERVER + answer(150, 3.0) + drafted(100, 150, 2.2, calls=7)) == ["draft-to-measure"]


def test_the_cache_of_prompts_is_a_risk_only_where_the_log_shows_it():
    """Without a limit, or with too little free RAM, it is a risk; with room for its limit it is a note."""
    assert ids(SERVER + cache_state(3, 500, 8192)) == []
    assert ids(SERVER + cache_state(3, 1500, 8192)) == ["prompt-cache-in-ram"]
    assert ids(device_info(6000) + SERVER + cache_state(3, 1500, 8192)) == ["prompt-cache-at-risk"]
    assert ids(device_info(6000) + SERVER + cache_state(1, 100, 8192)) == []
    assert "33,152 tokens and 8 checkpoints" in finding("cache of prompts within RAM").what


def test_checkpoints_are_counted_for_all_slots():
    """Each slot keeps its own."""
    ready = "srv    load_model: initializing, n_slots = 4, n_ctx_slot = 8192, kv_unified = 'true'\n"
    what = lab.explain(SERVER + ready + checkpoint(64.0)).findings[0].what
    assert "2.00 GiB for one slot, 8.00 GiB for all 4" in what


def test_experts_are_not_called_tensors_in_ram():
    """An override of experts is what the settings for mixtures do."""
    log, _ = LOGS_OF_SPEED["tensors in RAM"]
    with_experts = log.replace("n_expert              = 0", "n_expert              = 8")
    assert "tensors-in-ram" not in ids(with_experts)


def test_the_gpu_of_amd_is_named_by_its_architecture():
    """The line has the number that decides about the override."""
    assert "(gfx1031)" in finding("Ollama, an AMD GPU without code").what
    assert "error 3: not initialized" in finding("Ollama, driver not started").what
    assert ids(found_none()) == ["ollama-found-no-gpu"]
