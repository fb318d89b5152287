"""Pasted parts of logs: their program, what a few lines show, and what they do not."""

import pytest
from written_logs import ON_CPU
from written_parts import IN_2023, LOGS_OF_PARTS, NO_VALUES, STAMP

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
