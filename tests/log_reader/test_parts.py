"""Pasted parts of logs: their program, what a few lines show, and what they do not."""

import pytest
from written_logs import ON_CPU
from written_parts import ENDED, IN_2023, LOGS_OF_PARTS, NO_VALUES, STAMP

import inferlab as lab

SIZE = "llama_kv_cache: size = 100.00 MiB ({:6} cells,  28 layers,  {} seqs), K (f16): 50.00 MiB, V (f16): 50.00 MiB"
"""src/llama-kv-cache.cpp:301"""


def ids(log):
    return [finding.id for finding in lab.explain(log).findings]


def fix(name):
    """What to do about the first finding of a log."""
    return " ".join(lab.explain(LOGS_OF_PARTS[name][0]).findings[0].fix)


def program(log):
    return lab.explain(log).program.name


@pytest.mark.parametrize("before", [STAMP, "ollama  | ", "docker-ollama-1  | "])
def test_ollama_is_known_by_its_service(before):
    """The lines of its runner are llama.cpp's, and docker compose or journalctl name Ollama before them."""
    assert program(f"{before}{NO_VALUES}") == "Ollama"
    assert "`OLLAMA_KV_CACHE_TYPE`" in " ".join(lab.explain(f"{before}{NO_VALUES}").findings[0].fix)


@pytest.mark.parametrize("before", ["", "ollama-webui  | ", "llama-server  | ", "Jan  2 03:04:05 host server[42]: "])
def test_another_service_is_not_ollama(before):
    assert program(f"{before}{NO_VALUES}") == "llama.cpp"


@pytest.mark.parametrize(
    ("log", "name"),
    [
        ("Load Embeddings Model OK: False\n", "koboldcpp"),
        ("panic: unable to load model: /x\n", "Ollama"),
        ("[DEBUG]\n 1.02.345.678 I slot launchslot: id  0 | task 7 | processing task\n", "LM Studio"),
        ("Processing Prompt (1 / 9 tokens)\n", "koboldcpp"),
        ("Output generated in 9.00 seconds (1.00 tokens/s, 9 tokens, context 9, seed 1)\n", "text-generation-webui"),
        ("[llama-cpp] Fails: could not load model: rpc error: code = Canceled desc =\n", "LocalAI"),
        ("======== Prompt cache: cache size: 0, n_keep: 0\nslot print_timing: id  0 | task 0 |\n", "ik_llama.cpp"),
        ("GGML_ASSERT: /x/llama-cpp-python/vendor/llama.cpp/ggml-cuda.cu:9: tensor != nullptr\n", "llama-cpp-python"),
        ("[DEBUG] <kestrel> Health check error on http://localhost:5800/health, status code: 503\nx\n", "llama-swap"),
    ],
)
def test_a_program_is_known_by_its_own_words(log, name):
    assert program(log) == name


def test_flash_attention_that_the_model_refuses_is_not_advised():
    assert "Turn flash attention on" not in fix("flash attention refused")
    assert "Turn flash attention on" in " ".join(lab.explain(NO_VALUES).findings[0].fix)


def test_the_fix_follows_what_the_log_shows():
    """A 32-bit build, a template of Ollama's, and a buffer in RAM have a fix of their own."""
    assert "64-bit" in fix("32-bit build")
    assert "Ollama's own language" in fix("template of Ollama")
    assert "leave more RAM" in fix("RAM for the computation")
    assert "-ngl" not in fix("RAM for the computation")


@pytest.mark.parametrize("name", ["model pulled after all", "model loaded after all"])
def test_what_worked_in_the_end_is_a_note(name):
    """An answer withdraws the fault, also without a new load."""
    log = LOGS_OF_PARTS[name][0]
    assert lab.explain(log).findings[0].severity == "note"
    assert lab.explain("\n".join([*log.splitlines()[:-1], ""])).findings[0].severity == "fault"


@pytest.mark.parametrize(
    "line",
    [
        SIZE.format(4096, "1/1"),
        SIZE.format(2048, "2/2"),
        SIZE.format(4096, "4/1"),
        "llama_kv_cache_init: kv_size = 4096, offload = 1, type_k = 'f16', type_v = 'f16', n_layer = 28",
    ],
)
def test_the_context_is_read_from_the_cache(line):
    """Where the lines of the settings are cut off, the cells of all parts of the cache are the context."""
    assert lab.explain(f"{line}\nllama_context: n_batch = 512\n").context.n_ctx == 4096


def test_a_buffer_on_a_device_names_a_gpu():
    """A log with a cache on a GPU is not said to name none."""
    log = "llama_kv_cache:    Vulkan0 KV buffer size =   200.00 MiB\n"
    assert not any("names no GPU" in sentence for sentence in lab.explain(log).unknown)


def test_the_sums_of_2023_are_buffers():
    """Before 2024 llama.cpp summed up all devices, and named their backend."""
    mib = 1024**2
    on_card = {"weights": 3800 * mib, "kv_cache": 2048 * mib, "compute": 300 * mib}
    assert lab.explain(IN_2023).table == {"CPU": {"weights": 88 * mib}, "ROCm0": on_card}
    unnamed = lab.explain(IN_2023.partition("acceleration\n")[2])
    assert list(unnamed.table) == ["CPU", "GPU"]
    assert not any("names no GPU" in sentence for sentence in unnamed.unknown)


def test_a_processor_alone_is_no_fault():
    """A load without a GPU is a note, only where the build has none to offer, and only of a whole load."""
    log = LOGS_OF_PARTS["build without GPUs"][0]
    assert lab.explain(log).findings[0].severity == "note"
    assert ids(log.partition("llama_context")[0]) == []
    assert ids(log.replace("CPU KV", "CUDA0 KV").replace("CPU_Mapped", "CUDA0")) == []
    assert "no-gpu-offered" not in ids(ON_CPU)


def test_many_weights_in_ram_are_experts_only_where_they_must_be():
    """A few GiB may be the tensors for the tokens, which never are on the GPU."""
    log = LOGS_OF_PARTS["half of the weights in RAM"][0]
    assert ids(log.replace("10000.00", " 4000.00").replace("12000.00", " 9000.00")) == []
    assert ids(log.replace(" SYCL_Host", "CPU_Mapped")) == []


def test_a_quotation_in_the_words_of_a_crash_stays_whole():
    line = 'GGML_ASSERT: llama.cpp:9881: false && "not implemented"\n'
    assert '"not implemented"`' in lab.explain(line).findings[0].what


def test_the_runtime_of_lm_studio_is_named():
    assert (
        "llama.cpp-win-x86_64-vulkan-avx2-9.9.9"
        in lab.explain(LOGS_OF_PARTS["runtime of LM Studio"][0]).findings[0].what
    )


def test_llama_swap_is_told_what_ended_its_server():
    """A signal is no crash; of another end it is not said."""
    stopped = lab.explain(LOGS_OF_PARTS["llama-swap stopped it"][0]).findings[0]
    assert "it did not crash" in stopped.what
    other = lab.explain(LOGS_OF_PARTS["llama-swap stopped it"][0].replace("<kestrel> cmd", "<other> cmd")).findings[0]
    assert "crash" not in other.what


def test_a_buffer_that_was_refused_has_its_device():
    """With a number above 0 there are several GPUs, and the full one may get less."""
    log = (
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 99.00 MiB on device 3: "
        "cudaMalloc failed: out of memory\n"
        "ggml_gallocr_reserve_n: failed to allocate CUDA3 buffer of size 103809024\n"
        "llama_new_context_with_model: failed to allocate compute buffers\n"
    )
    finding = lab.explain(log).findings[0]
    assert "99.00 MiB was refused on CUDA3." in finding.what
    assert any("With several GPUs" in sentence for sentence in finding.fix)
    first = lab.explain(log.replace("device 3", "device 0").replace("CUDA3", "CUDA0")).findings[0]
    assert not any("several GPUs" in sentence for sentence in first.fix)


def test_mapping_is_not_turned_off_twice():
    assert "-lm" not in fix("read from a disk")
    assert "-lm" in " ".join(lab.explain(LOGS_OF_PARTS["read from a disk"][0].partition("\n")[2]).findings[0].fix)


def test_no_layer_is_no_matter_where_the_log_shows_that_there_is_no_gpu():
    """A list of devices or of backends, or the processor's own buffer to compute, names a GPU if there is one."""
    log = LOGS_OF_PARTS["no layer for a GPU"][0]
    assert ids("load_backend: loaded CPU backend from /x/libggml-cpu.so\n" + log) == []
    assert ids(log + "llama_context:        CPU compute buffer size =   300.00 MiB\n") == []


def test_a_statement_in_a_traceback_is_no_message():
    assert "llama.dll" in lab.explain(LOGS_OF_PARTS["library in a traceback"][0]).findings[0].what


@pytest.mark.parametrize("code", [-40, 1320])
def test_another_code_is_no_illegal_instruction(code):
    assert "illegal-instruction" not in ids(ENDED.format(code))


@pytest.mark.parametrize(("code", "meaning"), [(-6, "ended itself"), (-11, "memory that is not its own")])
def test_a_signal_has_its_meaning(code, meaning):
    log = LOGS_OF_PARTS["signal 11"][0].replace("-11", str(code))
    assert meaning in lab.explain(log).findings[0].what


def test_a_projector_says_which_tensor_is_missing():
    assert (
        "ends before its tensor v.blk.7.attn_q.bias"
        in lab.explain(LOGS_OF_PARTS["projector cut off"][0]).findings[0].what
    )
    log = (
        "clip_init: failed to load model '/x/mmproj.gguf': operator(): unable to find tensor mm.model.fc.weight\n"
        "mtmd_init_from_file: error: Failed to load CLIP model from /x/mmproj.gguf\n"
    )
    what = lab.explain(log).findings[0].what
    assert "(mmproj /x/mmproj.gguf) could not be loaded: the file lacks the tensor mm.model.fc.weight" in what


@pytest.mark.parametrize(
    ("line", "rates"),
    [
        ("[01:02:03] CtxLimit:900/4096, Amt:90/99, Process:0.50s (800.00T/s), Generate:3.00s (30.00T/s)", (400, 90)),
        ("CtxLimit: 900/4096, Process:0.50s (1.25ms/T = 800.00T/s), Generate:3.00s (33.3ms/T = 30.00T/s)", (400, 90)),
        ("ContextLimit: 900/4096, Processing:0.50s (1.25ms/T), Generation:3.00s (33.333ms/T), Total:3.5s", (400, 90)),
    ],
)
def test_the_rates_of_koboldcpp_are_read(line, rates):
    """Its tokens follow from seconds and rate, in each of its spellings."""
    report = lab.explain(f"{line}\n")
    assert report.program.name == "koboldcpp"
    assert (report.prompt.n_tokens, report.answer.n_tokens) == rates
    assert (round(report.prompt.slowest), round(report.answer.slowest)) == (800, 30)
    assert report.findings == ()


def test_a_line_of_koboldcpp_without_rates_has_none():
    assert lab.explain("CtxLimit:900/4096, Process:0.00s (infT/s), Generate:0.00s (infT/s)\n").prompt is None


def test_the_rates_of_ollamas_command_are_read():
    log = (
        "total duration:       9.1s\nprompt eval count:    30 token(s)\nprompt eval duration: 300ms\n"
        "prompt eval rate:     100.00 tokens/s\neval count:           90 token(s)\neval duration:        9s\n"
        "eval rate:            10.00 tokens/s\n"
    )
    report = lab.explain(log)
    assert (report.program.name, report.prompt.n_tokens, report.answer.n_tokens) == ("Ollama", 30, 90)
    assert (report.prompt.slowest, report.answer.slowest) == (100, 10)


def test_a_refused_load_has_its_estimate():
    log = LOGS_OF_PARTS["LM Studio's guardrail"][0]
    assert "it would need 99.50 GB" in lab.explain(log).findings[0].what
    assert "would need" not in lab.explain(log.replace("99.50 GB", "NaN undefined")).findings[0].what


def test_a_part_of_a_load_says_what_is_well_so_far():
    """All layers on devices, or the cache there; nothing of a part with layers in RAM, or without any."""
    all_layers = (
        "load_tensors: offloaded 33/33 layers to GPU\nload_tensors:        CUDA0 model buffer size =  4095.05 MiB\n"
    )
    assert lab.explain(all_layers).nothing_found.startswith("Nothing is wrong so far: all 33 layers are on CUDA0. But")
    experts = all_layers + "load_tensors:   CPU_Mapped model buffer size =  9000.00 MiB\n"
    assert "so far" not in lab.explain(experts).nothing_found
    cache = "llama_kv_cache:    Vulkan1 KV buffer size =   512.00 MiB\n"
    assert "so far: the cache is on Vulkan1." in lab.explain(cache).nothing_found
    state = cache.replace("llama_kv_cache", "llama_memory_recurrent").replace("KV", "RS")
    assert "so far: the recurrent state is on Vulkan1." in lab.explain(state).nothing_found
    for other in (cache.replace("Vulkan1", "    CPU"), "llama_context: n_ctx         = 4096\n"):
        assert lab.explain(other).nothing_found.startswith("Nothing was found, but this part is too short to judge: ")
