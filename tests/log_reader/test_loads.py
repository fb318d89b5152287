"""Loads of several models, runs that went on after an error, and what is said of them."""

import pytest
from written_loads import BENCH, CUT_ASSERTION, FIT, GAVE_UP, LOGS_OF_LOADS, NO_ROOM, answer
from written_logs import MODEL, SERVER, START, card, context, weights

import inferlab as lab


def first(name):
    return lab.explain(LOGS_OF_LOADS[name][0]).findings[0]


def text(finding):
    return " ".join([finding.what, *finding.fix])


@pytest.mark.parametrize("name", LOGS_OF_LOADS)
def test_a_log_of_loads_shows_what_it_should(name):
    log, expected = LOGS_OF_LOADS[name]
    assert [finding.id for finding in lab.explain(log).findings] == expected


def test_another_model_is_named_with_its_own_lines():
    """What is slow or failed in the load before is told of its model, with the lines as the whole log numbers them."""
    log = LOGS_OF_LOADS["another model in part on the GPU"][0]
    found = first("another model in part on the GPU")
    assert found.what.startswith("Another model of this log, Large 32B: 20 of 33 layers")
    for line in found.lines:
        assert line.text in log.split("\n")[line.number - 1]
    assert first("another model failed").severity == "fault"
    assert lab.explain(log).model.name == "Small 3B"


def test_a_load_that_was_refused_before_another_is_a_note():
    assert first("too large, and another load after it").severity == "note"
    assert first("too large, cut by a pager").severity == "fault"


def test_a_load_after_idle_time_asks_for_no_other_context():
    found = first("loaded after it was idle")
    assert found.severity == "note"
    assert "15 to 30 minutes" in found.what
    assert "num_ctx" not in text(found)
    log = LOGS_OF_LOADS["loaded after it was idle"][0]
    longer = lab.explain(log.replace("(version 0.33.0)", "(version 0.33.0) OLLAMA_KEEP_ALIVE:30m0s ")).findings[0]
    assert longer.id == "loaded-again-alike"
    assert "for 30 minutes" in longer.what
    assert "4,096, 8,192" in first("loaded again with other contexts").what


def test_an_ollama_that_keeps_one_model_is_to_be_updated():
    found = text(first("two models in turn, 0.1.30"))
    assert "Update Ollama" in found
    assert "OLLAMA_MAX_LOADED_MODELS" not in found


def test_a_benchmark_that_ended_is_no_crash():
    """A row of the table is a test that was finished; a crash after the rows stays one."""
    assert lab.explain(BENCH).findings[0].severity == "note"
    assert not any("timings" in sentence for sentence in lab.explain(BENCH).unknown)
    crash = BENCH + "rocBLAS error: Could not initialize Tensile host\n"
    assert lab.explain(crash).findings[0].severity == "fault"


def test_an_assertion_is_told_with_its_place():
    found = lab.explain(CUT_ASSERTION).findings[0]
    assert "ggml-vulkan.cpp:5932" in found.what
    assert any("another backend" in sentence for sentence in found.fix)
    assert not any("names no GPU" in sentence for sentence in lab.explain(CUT_ASSERTION).unknown)


def test_what_was_projected_is_told():
    """The simulation of `-fit` says what was asked for, and what was free."""
    assert "projected 9.00 GiB for the GPU, of which 8.00 GiB were free" in first("no fit, and it did not fit").what
    ended = SERVER + START + FIT + GAVE_UP + MODEL + NO_ROOM.replace("unable to allocate CUDA0 buffer", "other")
    assert not any("projected" in finding.what for finding in lab.explain(SERVER + START + MODEL + NO_ROOM).findings)
    assert lab.explain(ended).findings


def test_a_context_is_read_from_the_warning_that_compares_it():
    log = "llama_context: n_ctx_per_seq (12000) < n_ctx_train (131072) -- the full capacity will not be utilized\n"
    report = lab.explain(log + "ggml_metal_init: skipping kernel_get_rows_bf16 (not supported)\n")
    assert (report.context.n_ctx_slot, report.model.n_ctx_train) == (12000, 131072)
    assert not any("names no GPU" in sentence for sentence in report.unknown)


def test_a_gpu_of_metal_is_one_device():
    """Its own lines and the load's name it by two names."""
    log = "ggml_metal_device_init: GPU name:   Apple M4\n" + card("MTL0").replace("NVIDIA GeForce RTX 3060", "Apple M4")
    assert [device.name for device in lab.explain(START + log + MODEL).devices] == ["MTL0"]


def test_a_prompt_without_new_tokens_has_no_rate():
    """A prompt that was in the cache whole is no slow prompt."""
    lines = (
        "prompt eval time =      99.72 ms /     0 tokens (     inf ms per token,     0.00 tokens per second)\n"
        "prompt eval time =     100.00 ms /    50 tokens (    2.00 ms per token,   500.00 tokens per second)\n"
        "       eval time =     200.00 ms /    10 tokens (   20.00 ms per token,    50.00 tokens per second)\n"
    )
    assert lab.explain(SERVER + START + lines).prompt.slowest == 500


def test_short_prompts_are_not_to_be_shortened():
    found = text(first("an answer that fills all of the training"))
    assert "horten the prompt" not in found
    assert "another model" in found
    assert "`max_tokens`" in found


def test_experts_that_fit_are_not_to_be_kept_in_ram():
    found = first("experts in RAM although all fit")
    assert found.fix[0].startswith("Keep no experts in RAM (`-ncmoe`)")
    assert len(found.fix) == 1
    log = LOGS_OF_LOADS["experts in RAM although all fit"][0].replace(
        "CUDA0 (NVIDIA GeForce RTX 3060)", "MTL0 (Apple M4)"
    )
    shared = lab.explain(log.replace("CUDA0", "MTL0").replace("20000 MiB free", "6000 MiB free")).findings
    found = next(finding for finding in shared if finding.id == "experts-on-cpu")
    assert not any("bus" in sentence or "where memory is short" in sentence for sentence in found.fix)


def amd(platform, gfx, types):
    line = f'level=WARN source=amd_{platform}.go:138 msg="amdgpu is not supported (supported types:[{types}])" '
    return text(lab.explain(f"time=2026-01-02T03:04:05.678Z {line}gpu_type={gfx}\n").findings[0])


def test_a_relative_is_named_only_where_one_is_known():
    """Windows takes no override, few GPUs have a relative, and a library with one type is not Ollama's."""
    many = "gfx1030 gfx1100 gfx906"
    assert "HSA_OVERRIDE" in amd("linux", "gfx1031", many)
    assert "HSA_OVERRIDE" not in amd("windows", "gfx1031", many)
    assert "HSA_OVERRIDE" not in amd("linux", "gfx1150", many)
    assert "put there in place" in amd("windows", "gfx1150", "gfx1103")
    assert "put there in place" not in amd("windows", "gfx1150", many)


def test_a_layer_of_an_older_build_is_the_output():
    """Builds before 2026 count blocks first; the plan of the same load then has the log's bytes."""
    log = START + card() + MODEL + weights(layers="32/33") + context()
    said = log.replace(
        "load_tensors: offloaded", "load_tensors: offloading 32 repeating layers to GPU\nload_tensors: offloaded"
    )
    assert "the output layer among them" in lab.explain(said).findings[0].what
    assert "output" not in lab.explain(log).findings[0].what


def test_a_word_of_python_names_its_program():
    assert lab.explain(NO_ROOM + "ValueError: Failed to create llama_context\n").program.key == "python"
    assert answer()


def test_the_table_at_the_end_of_a_run_tells_what_was_allocated():
    """It stands for the buffers where the load is missing; the context is that of the answer."""
    report = lab.explain(LOGS_OF_LOADS["a table after a slow answer"][0])
    assert report.table["Vulkan0"] == {"weights": 1100 << 20, "kv_cache": 1200 << 20, "compute": 100 << 20}
    assert report.context.n_ctx == 16384
    assert "LM Studio stopped computing" in report.findings[1].what


def test_a_log_that_ends_where_a_load_begins_is_about_the_load_before():
    report = lab.explain(LOGS_OF_LOADS["the log ends where another load begins"][0])
    assert (report.model.name, report.n_loads) == ("Small 3B", 1)
    assert any("first lines of another load" in sentence for sentence in report.unknown)


def test_ollama_moves_layers_to_the_gpu_by_itself():
    """No number of layers is advised where it counts them, and none of GPUs."""
    log = LOGS_OF_LOADS["the log ends where another load begins"][0].replace("11000 MiB free", "4000 MiB free")
    tight = lab.explain(log).findings[0]
    assert tight.id == "layers-on-cpu"
    assert "num_gpu" not in text(tight)
    assert "Leave `num_gpu` out" in text(first("fewer layers were asked for"))
