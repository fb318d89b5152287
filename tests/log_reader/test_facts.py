"""What a log states, in the forms of all programs and versions: program, devices, load, layers, settings."""

import pytest
from written_facts import (
    ASKED,
    DEVICES,
    FRAGMENTS,
    HYBRID_ON_ONE,
    HYBRID_ON_TWO,
    LISTED,
    OLD_VULKAN,
    ON_A_MAC,
    OWN_ENGINE,
    PLANNED,
    PROJECTOR,
    READ_AGAIN,
    SEARCHED,
    STARTED,
    TABLE,
    plan,
)
from written_logs import HEALTHY, MODEL, OLLAMA_START, START, TIMINGS, card, context, runner, weights

import inferlab as lab
from inferlab.units import GIB, MIB

PARTS = [(program, line) for program, lines in FRAGMENTS.items() for line in lines]


@pytest.mark.parametrize(("program", "part"), PARTS, ids=[part[:60].strip() for _, part in PARTS])
def test_any_line_names_its_program(program, part):
    """One line from the middle of a log names the program that wrote it, and is never called healthy."""
    report = lab.explain(part)
    assert report.program.name == program
    assert not report.enough
    assert "too short to judge" in report.nothing_found


def test_a_model_below_the_folder_of_another_program_changes_nothing():
    """A path in a line does not say which program wrote it."""
    for folder in (
        "/home/me/.lmstudio/models",
        "/srv/koboldcpp",
        "/root/.ollama/models/blobs",
        "text-generation-webui",
    ):
        assert lab.explain(HEALTHY.replace("model.gguf", f"{folder}/model.gguf")).program.name == "llama.cpp"


def test_a_short_part_says_where_the_whole_log_is():
    """Users of LM Studio and Ollama are told where their log lies."""
    assert "lms log stream" in lab.explain(FRAGMENTS["LM Studio"][0]).nothing_found
    assert "journalctl -u ollama" in lab.explain(FRAGMENTS["Ollama"][0]).nothing_found
    assert "first line" in lab.explain(FRAGMENTS["llama.cpp"][0]).nothing_found


def test_a_load_up_to_its_last_buffers_or_a_request_is_enough():
    """A load that ends before its compute buffers may have failed."""
    load = START + card() + MODEL + weights()
    assert not lab.explain(load).enough
    assert lab.explain(load + context()).enough
    assert lab.explain(TIMINGS).enough
    assert lab.explain(load + context()).to_dict()["enough"] is True


def test_programs_around_llama_cpp_have_names_of_their_own():
    """The options of koboldcpp, Jan and LocalAI are not llama.cpp's."""
    report = lab.explain(FRAGMENTS["koboldcpp"][0] + HEALTHY)
    assert (report.program.name, report.program.version, report.program.key) == ("koboldcpp", "1.108", "cli")
    assert "koboldcpp has names of its own" in " ".join(report.unknown)


@pytest.mark.parametrize("form", DEVICES)
def test_every_form_of_naming_a_device(form):
    """Name, description and memory; listed or used, on the processor or in its memory; a processor is no GPU."""
    lines, expected = DEVICES[form]
    devices = lab.explain(lines).devices
    seen = [(one.name, one.description, one.used, one.is_software, one.shares_ram) for one in devices]
    assert seen == [(name, text, used, software, shared) for name, text, _, used, software, shared in expected]
    for device, (_, _, gib, *_) in zip(devices, expected, strict=True):
        assert device.total_bytes == (None if gib is None else pytest.approx(gib * GIB, rel=1e-6))


def test_a_device_that_is_only_listed_is_told_apart():
    """Of two listed GPUs the one with the model is used, and stands first."""
    swapped = LISTED.replace("CUDA0  ", "CUDA7  ")
    report = lab.explain(swapped + START + card("CUDA7", 10000) + MODEL + weights().replace("CUDA0", "CUDA7"))
    assert [(device.name, device.used) for device in report.devices] == [("CUDA7", True), ("Vulkan0", False)]
    assert (report.devices[0].free_bytes, report.devices[0].total_bytes) == (10000 * MIB, 12036 * MIB)
    assert report.program.backends == ("CUDA", "Vulkan", "CPU")


def test_devices_that_share_each_tensor():
    """In split mode tensor llama.cpp makes one device of several."""
    both = "Meta(CUDA0,CUDA1)"
    second = LISTED.replace("Vulkan0 : AMD Radeon Graphics (RADV X)", "CUDA1   : NVIDIA GeForce RTX 3060")
    line = "load_tensors: layer   0 assigned to device Meta(CUDA0,CUDA1), is_swa = 0\n"
    report = lab.explain(second + START + card(both) + MODEL + line + weights().replace("CUDA0", both))
    assert {device.name for device in report.devices if device.used} == {both, "CUDA0", "CUDA1"}
    assert (report.table[both]["weights"], report.layers.by_device) == (round(4095.05 * MIB), {both: 1})
    assert report.program.backends == ("CUDA", "CPU")


def test_free_memory_of_ollamas_gpu_is_that_at_the_load():
    """Ollama says what was free before each load; what was free when its server started is old."""
    line = 'level=INFO source=sched.go:450 msg="gpu memory" id=GPU-0 library=CUDA available="6.0 GiB" free="6.5 GiB"\n'
    assert lab.explain(SEARCHED).devices[0].free_bytes is None
    assert lab.explain(SEARCHED + STARTED + line).devices[0].free_bytes == round(6.5 * GIB)


def test_the_plan_of_ollama_is_not_added_to_the_buffers():
    """Where llama.cpp's buffers stand, the plan before them is left out; Metal_Mapped is Metal."""
    table = lab.explain(PLANNED).table
    assert table["CUDA0"] == {"weights": round(4095.05 * MIB), "kv_cache": 512 * MIB, "compute": 104 * MIB}
    table = lab.explain(ON_A_MAC).table
    assert table["Metal"] == {"weights": round(4095.05 * MIB), "kv_cache": 512 * MIB, "compute": 104 * MIB}
    assert lab.explain(STARTED + plan("CUDA0")).table["CUDA0"]["weights"] == 4 * GIB


def test_ollamas_runners_that_look_for_gpus_load_nothing():
    """Ollama starts runners without a model to ask for GPUs; the last one with a model counts."""
    search = STARTED.replace("--model blobs/sha256-0000 ", "")
    report = lab.explain(OLLAMA_START + STARTED + ASKED + plan("CUDA0") + search)
    assert report.n_loads == 1
    assert report.context.n_ctx == 8192
    assert report.table["CUDA0"]["weights"] == 4 * GIB


def test_ollamas_own_engine_after_a_load_of_llama_cpp():
    """The last load is the one that began last, whichever engine it has."""
    report = lab.explain(OLLAMA_START + runner() + HEALTHY + STARTED + ASKED + plan("CUDA0", 9.0))
    assert report.n_loads == 2
    assert report.table["CUDA0"]["weights"] == 9 * GIB


def test_ollamas_ggml_lines_are_enough():
    """Buffers and layers of Ollama's own engine without the lines before them."""
    report = lab.explain(OWN_ENGINE)
    assert report.table["CUDA0"] == {"weights": round(17.5 * GIB), "compute": 300 * MIB}
    assert report.layers.by_device == {"CUDA0": 30, "CPU": 11}
    assert (report.model.architecture, report.model.file_type) == ("gemma3", "Q8_0")


def test_what_ollama_asked_of_its_runner():
    """Settings of its request or of its command, where no line of llama.cpp says them."""
    context = lab.explain(OLLAMA_START + STARTED + ASKED).context
    assert (context.n_ctx, context.n_slots, context.n_batch, context.n_threads) == (8192, 2, 512, 6)
    assert (context.type_k, context.type_v, context.flash_attn, context.n_gpu_layers) == ("q8_0", "q8_0", "on", 33)
    command = STARTED.replace("--port", "--ctx-size 2048 --batch-size 256 --flash-attn --parallel 1 --port")
    context = lab.explain(OLLAMA_START + command.replace("starting runner", "starting llama server")).context
    assert (context.n_ctx, context.n_batch, context.flash_attn, context.n_slots) == (2048, 256, "on", 1)
    unset = lab.explain(OLLAMA_START + STARTED.replace("--port", "--ctx-size 0 --port")).context
    assert unset.n_ctx is None


def test_a_vocabulary_read_again_hides_no_load():
    """Ollama reads the vocabulary after the load; the buffers stay those of the load, and there is no draft model."""
    load = OLLAMA_START + STARTED + card() + MODEL + weights() + context()
    report = lab.explain(load + READ_AGAIN)
    assert (report.n_loads, report.has_draft) == (1, False)
    assert report.table == lab.explain(load).table
    assert lab.explain(load + READ_AGAIN + load + READ_AGAIN).n_loads == 2
    assert lab.explain(READ_AGAIN + load).n_loads == 1


def test_a_projector_may_be_measured_before_its_model_is_loaded():
    """Between the line that announces a model and its loader stand the buffers of a projector; that is one load."""
    load = "srv    load_model: loading model 'model.gguf'\n" + PROJECTOR + card() + MODEL + weights() + context()
    assert lab.explain(load + TIMINGS).n_loads == 1
    assert lab.explain(load + TIMINGS + load).n_loads == 2
    refused = "srv    load_model: loading model 'other.gguf'\nsrv    load_model: failed to load model, 'other.gguf'\n"
    assert lab.explain(refused + MODEL).n_loads == 2


def test_a_draft_model_may_come_some_lines_after_its_announcement():
    """Devices are listed between the line that names a draft model and its loader."""
    draft = "srv    load_model: loading draft model 'draft.gguf'\n" + card() + MODEL + weights(100, 0)
    report = lab.explain(HEALTHY + draft)
    assert (report.n_loads, report.has_draft) == (1, True)
    assert report.table["CUDA0"]["weights"] == round(4095.05 * MIB)


def test_device_names_with_blanks():
    """In 2024 a buffer of Vulkan had its GPU's description for a name; it is that GPU's."""
    report = lab.explain(OLD_VULKAN)
    assert report.table["Vulkan0"] == {
        "weights": round(6615.77 * MIB),
        "kv_cache": 224 * MIB,
        "compute": 304 * MIB,
    }
    assert (report.devices[0].name, report.devices[0].used) == ("Vulkan0", True)
    assert report.layers.by_device == {"Vulkan0": 29}
    assert report.findings == ()


def test_layers_of_a_hybrid_model():
    """A cache of ten layers says nothing of the other thirty; recurrent state is no KV cache."""
    one, two = lab.explain(HYBRID_ON_ONE), lab.explain(HYBRID_ON_TWO)
    assert (one.layers.by_device, one.layers.basis) == ({"CUDA0": 41}, "offloaded")
    assert (one.table["CUDA0"]["kv_cache"], one.table["CUDA0"]["recurrent"]) == (512 * MIB, 62.5 * MIB)
    assert (two.layers.by_device, two.layers.basis) == ({"CUDA0 and CUDA1": 41}, "offloaded")
    two = lab.explain(HYBRID_ON_TWO.replace("offloaded 41/41", "41 of 41"))
    assert (two.layers.by_device, two.layers.basis) == ({"CUDA0": 7, "CUDA1": 3}, "cached layers")
    assert "only those of the layers with a KV cache" in " ".join(two.unknown)


def test_layer_lines_without_a_comma():
    """Before May 2025 a layer's line ended with its device."""
    lines = "".join(f"load_tensors: layer {layer:3} assigned to device CPU\n" for layer in range(33))
    report = lab.explain(START + MODEL + lines + weights(0, 4167.0, "0/33"))
    assert (report.layers.by_device, report.layers.basis) == ({"CPU": 33}, "lines")


def test_a_context_that_is_reserved_again_counts_once():
    """llama.cpp writes the compute buffers of each reservation; those of a second context are added."""
    again = "sched_reserve:      CUDA0 compute buffer size =   200.00 MiB\n"
    assert lab.explain(HEALTHY + again).table["CUDA0"]["compute"] == 200 * MIB
    second = "llama_context: constructing llama_context\n" + again
    assert lab.explain(HEALTHY + second).table["CUDA0"]["compute"] == 304 * MIB


def test_a_projector_is_no_part_of_the_model():
    """The compute buffer of a projector is kept apart from the model's."""
    report = lab.explain(HEALTHY + PROJECTOR)
    assert report.table["CUDA0"]["compute"] == 104 * MIB
    assert report.table["CUDA0"]["projector"] == 240 * MIB


def test_the_spelling_of_early_2025():
    """For some weeks llama_init_from_model wrote the context's settings."""
    lines = """\
llama_init_from_model: n_seq_max     = 2
llama_init_from_model: n_ctx         = 8192
llama_init_from_model: n_ctx_per_seq = 4096
llama_init_from_model: flash_attn    = 1
llama_kv_cache_init: kv_size = 8192, offload = 1, type_k = 'q8_0', type_v = 'q8_0', n_layer = 24, can_shift = 1
"""
    context = lab.explain(lines).context
    assert (context.n_ctx, context.n_ctx_slot, context.n_slots, context.flash_attn) == (8192, 4096, 2, "on")
    assert (context.type_k, context.type_v, context.offload_kqv) == ("q8_0", "q8_0", True)


SLOTS = {
    # lines: (cells, cells of a slot, slots, one cache for all)
    "slot   load_model: id  0 | task -1 | new slot, n_ctx = 32768\n": (None, 32768, None, None),
    "srv    load_model: initializing slots, n_slots = 1\nslot load_model: new slot, n_ctx = 4096\n": (
        4096,
        4096,
        1,
        None,
    ),
    "srv init: using 4 slots (auto), kv_unified = true\nslot load_model: new slot, n_ctx = 4096\n": (
        4096,
        4096,
        4,
        True,
    ),
    "srv  load_model: initializing, n_slots = 2, n_ctx_slot = 4096, kv_unified = 'false'\n": (8192, 4096, 2, False),
    "srv  llama_server: n_parallel is set to auto, using n_parallel = 4 and kv_unified = true\n": (None, None, 4, True),
    context(8192, slots=2).replace("false", "true"): (8192, 8192, 2, True),
    context(8192, slots=2): (8192, 4096, 2, False),
    # tools/server/server-context.cpp:1193: a slot has no more than the model was trained for
    context(8192).replace("false", "true")
    + "srv  load_model: initializing, n_slots = 2, n_ctx_slot = 2048, kv_unified = 'true'\n": (8192, 2048, 2, True),
    context().replace("llama_context: n_ctx_seq", "llama_context: n_ctx_per_seq"): (4096, 4096, 1, False),
}


@pytest.mark.parametrize("lines", SLOTS, ids=[lines[:70].strip() for lines in SLOTS])
def test_the_context_in_every_versions_words(lines):
    """With one cache for all, a slot can use the whole; where the log does not say it, nothing is computed."""
    context = lab.explain(lines).context
    assert (context.n_ctx, context.n_ctx_slot, context.n_slots, context.kv_unified) == SLOTS[lines]


def test_settings_that_memory_follows_from():
    """Where the cache lies, whether sliding windows are kept whole, and how many outputs are reserved."""
    settings = lab.explain(HEALTHY + "llama_kv_cache_iswa: using full-size SWA cache (ref: x)\n").context
    assert (settings.offload_kqv, settings.swa_full, settings.n_seq_max) == (True, True, 1)
    in_ram = lab.explain(START + card() + MODEL + weights() + context(device="CPU")).context
    assert (in_ram.offload_kqv, in_ram.swa_full) == (False, None)
    line = "llama_kv_cache_init: kv_size = 4096, offload = 0, type_k = 'f16', type_v = 'f16', n_layer = 32\n"
    assert lab.explain(line).context.offload_kqv is False
    assert lab.explain("llama_context: n_outputs_max         = 4\n").context.n_outputs_max == 4


def test_the_table_of_memory_is_read():
    """llama.cpp's own table, with what was free; RAM has neither."""
    card, host = lab.explain(HEALTHY + TABLE).breakdown
    assert (card.device, card.total_bytes, card.free_bytes) == ("CUDA0", 12036 * MIB, 5000 * MIB)
    assert (card.weights_bytes, card.context_bytes, card.compute_bytes) == (4095 * MIB, 2037 * MIB, 104 * MIB)
    assert (host.device, host.total_bytes, host.weights_bytes) == ("Host", None, 72 * MIB)
