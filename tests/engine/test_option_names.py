"""Names of one setting in five programs, and a request spelled for three; test_claims_decided asks for defaults."""

import pytest

from inferlab.engine.option_names import options, spellings
from inferlab.errors import InvalidSettings
from inferlab.settings import Settings


def test_an_option_has_the_name_of_its_setting():
    """Every field of Settings but the names of one machine's devices has its row; some rows are no fields."""
    fields = set(Settings().to_dict())
    assert fields - set(options()) == {"rpc_servers", "devices"}
    assert set(options()) - fields == {
        "mlock", "logits_all", "numa", "fit", "fit_target", "cpu_moe", "n_cpu_moe", "cache_prompt", "cache_ram",
        "keep_alive", "port",
    }  # fmt: skip


ASKED = Settings(
    n_ctx=4096, n_threads=2, n_ubatch=128, flash_attn="on", type_k="q8_0", load_mode="mmap_mlock", offload_kqv=False
)
NAMES = ("n_ctx", "n_threads", "n_batch", "n_ubatch", "flash_attn", "type_k", "load_mode", "offload_kqv", "op_offload")


def test_a_request_in_the_words_of_llama_cpp():
    """Flags, with the load mode as the server calls it, and a switch of its own for what is off."""
    assert spellings(ASKED, NAMES)["llama.cpp"] == (
        "llama-server -m model.gguf -c 4096 -t 2 -b 2048 -ub 128 -fa on -ctk q8_0 -lm mmap+mlock -nkvo --op-offload"
    )
    assert spellings(Settings(), ["n_gpu_layers", "op_offload"])["llama.cpp"].endswith("-ngl all --op-offload")
    kernels = Settings(use_extra_bufts=False, no_host=True), ["use_extra_bufts", "no_host"]
    assert spellings(*kernels)["llama.cpp"] == "llama-server -m model.gguf --no-repack --no-host"
    assert spellings(*kernels)["llama-cpp-python"] == "Llama('model.gguf')"
    assert spellings(Settings(), kernels[1])["llama.cpp"] == "llama-server -m model.gguf --repack"


@pytest.mark.engine
def test_a_request_in_the_words_of_llama_cpp_python():
    """Arguments that exist: types as numbers, flash attention as a bool, loading as two switches."""
    import llama_cpp

    found = spellings(ASKED, NAMES, "a.gguf")["llama-cpp-python"]
    assert found == (
        "Llama('a.gguf', n_ctx=4096, n_threads=2, n_batch=2048, n_ubatch=128, flash_attn=True, "
        f"type_k={llama_cpp.GGML_TYPE_Q8_0}, use_mmap=True, use_mlock=True, offload_kqv=False, op_offload=True)"
    )


def test_a_request_in_the_words_of_ollama():
    """Parameters and variables where there are any; otherwise a comment that says that there are none."""
    found = spellings(ASKED, NAMES)["Ollama"].splitlines()
    assert found == [
        "PARAMETER num_ctx 4096",
        "PARAMETER num_thread 2",
        "PARAMETER num_batch 128",
        "# in the server's environment: OLLAMA_FLASH_ATTENTION=1",
        "# in the server's environment: OLLAMA_KV_CACHE_TYPE=q8_0",
        "PARAMETER use_mmap true",
        "# Ollama has no offload_kqv of its own",
        "# Ollama has no op_offload of its own",
    ]
    assert spellings(Settings(), ["flash_attn"])["Ollama"] == "# leave OLLAMA_FLASH_ATTENTION unset"


def test_a_place_has_no_spelling():
    """Names of devices and servers belong to one machine."""
    with pytest.raises(InvalidSettings, match="devices belong to one machine"):
        spellings(Settings(devices=("CUDA0",)), ["devices"])


def test_what_is_left_open_is_not_spelled():
    """None leaves a setting to the program."""
    assert spellings(Settings(), ["n_threads"])["llama.cpp"] == "llama-server -m model.gguf"
