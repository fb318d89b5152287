"""A few settings as lines to paste; test_paste has those of whole plans."""

from typing import Any

import pytest

from inferlab.errors import InvalidSettings
from inferlab.options.lines import option_lines


def lines(program: str, path: str = "m.gguf", **values: Any) -> list[str]:
    """Every line of all parts, for a model of three layers."""
    return [line for part in option_lines(values, program, path, 3) for line in part.text.splitlines()]


@pytest.mark.parametrize(
    ("values", "flags"),
    [
        ({"n_ctx": 4096, "n_threads": 2, "flash_attn": "on"}, "-c 4096 -t 2 -fa on"),
        ({"n_gpu_layers": -1, "op_offload": True}, "-ngl all"),
        ({"op_offload": False, "offload_kqv": False}, "--no-op-offload -nkvo"),
        ({"use_extra_bufts": False, "no_host": True}, "--no-repack --no-host"),
        ({"load_mode": "mmap_mlock"}, "-lm mmap+mlock"),
        ({"load_mode": "direct_io", "kv_unified": False}, "-lm dio --no-kv-unified"),
        ({"devices": (), "n_ubatch": 512}, "-dev none"),
    ],
)
def test_flags_of_llama_server(values, flags):
    """Switches for what is on or off, load modes as it calls them, and nothing for its own defaults."""
    assert lines("llama-server", **values) == [f"llama-server -m m.gguf {flags} --port 8080"]


def test_only_what_is_named_is_written():
    """No batch size, cache type or context is added to one option."""
    assert lines("llama-cpp-python", n_threads=2)[2:] == [
        "llm = Llama(",
        "    model_path='m.gguf',",
        "    n_threads=2,",
        ")",
    ]
    assert lines("ollama", n_threads=2)[:2] == ["FROM ./m.gguf", "PARAMETER num_thread 2"]
    assert lines("ollama", n_threads=2)[2].startswith("ollama create")
    assert lines("lmstudio", n_threads=2)[-1] == "lms load MODEL_KEY"


FILE, IN_FOLDER = "hf:owner/repo/m-Q8_0.gguf", "hf:owner/repo/sub/my m.gguf"
SPLIT = "hf:owner/repo/m-Q8_0-00001-of-00003.gguf"
BRANCH, ELSEWHERE = "https://huggingface.co/owner/repo/resolve/dev/m.gguf", "https://example.org/m.gguf?a=1&b=2"
LATER = "m-Q8_0-00002-of-00003.gguf', 'm-Q8_0-00003-of-00003.gguf"


@pytest.mark.parametrize(
    ("program", "path", "written"),
    [
        ("llama-server", FILE, "llama-server -hf owner/repo -hff m-Q8_0.gguf --port 8080"),
        ("llama-server", "hf:owner/repo:Q8_0", "llama-server -hf owner/repo:Q8_0 --port 8080"),
        ("llama-cli", IN_FOLDER, "llama-cli -hf owner/repo -hff 'sub/my m.gguf'"),
        ("llama-cli", SPLIT, "llama-cli -hf owner/repo -hff m-Q8_0-00001-of-00003.gguf"),
        ("llama-cli", BRANCH, f"llama-cli -mu {BRANCH}"),
        ("llama-cli", ELSEWHERE, f"llama-cli -mu '{ELSEWHERE}'"),
        ("llama-cpp-python", FILE, "    filename='m-Q8_0.gguf',"),
        ("llama-cpp-python", "hf:owner/repo/m[1].gguf", "    filename='m[[]1].gguf',"),
        ("llama-cpp-python", SPLIT, f"    additional_files=['{LATER}'],"),
        ("llama-cpp-python", BRANCH, f"    # model.gguf stands for the file of {BRANCH}: download it first"),
        ("ollama", FILE, "FROM hf.co/owner/repo:m-Q8_0.gguf"),
        ("ollama", "ollama:qwen3:8b", "FROM qwen3:8b"),
        ("ollama", "my:m.gguf", "FROM ./my:m.gguf"),
        ("lmstudio", SPLIT, "lms get https://huggingface.co/owner/repo@Q8_0"),
        ("lmstudio", IN_FOLDER, "lms get https://huggingface.co/owner/repo --always-show-download-options"),
    ],
)
def test_a_model_at_an_address_is_fetched_by_the_program(program, path, written):
    """A file of the Hub by repository and file, also one in a folder or in parts; any other by its address."""
    assert written in lines(program, path)


@pytest.mark.parametrize(
    ("program", "path", "last"),
    [
        ("llama-cpp-python", ELSEWHERE, "    model_path='model.gguf',"),
        ("lmstudio", BRANCH, "lms import --copy model.gguf"),
        ("ollama", IN_FOLDER, "FROM ./model.gguf"),
        ("ollama", SPLIT, "FROM ./model.gguf"),
        ("ollama", f"hf:owner/repo/{'m' * 80}.gguf", "FROM ./model.gguf"),
    ],
)
def test_what_a_program_cannot_fetch_has_to_be_downloaded(program, path, last):
    """Its lines have a placeholder, and say above for which file it stands, without what may be a secret."""
    written = lines(program, path)
    shown = path.partition("?")[0]
    assert written[written.index(last) - 1].strip() == f"# model.gguf stands for the file of {shown}: download it first"


def test_all_layers_are_counted_where_a_program_counts_them():
    """-1 would leave the number to Ollama."""
    assert "PARAMETER num_gpu 3" in lines("ollama", n_gpu_layers=-1)
    assert lines("lmstudio", n_gpu_layers=-1)[-1].endswith(" --gpu max")


def test_one_type_or_batch_alone_stands_for_ollamas_one():
    """The other one is llama.cpp's default."""
    assert "export OLLAMA_KV_CACHE_TYPE=q8_0" in lines("ollama", type_k="q8_0", type_v="q8_0")
    assert "export OLLAMA_FLASH_ATTENTION=1" in lines("ollama", type_v="q8_0")
    assert "PARAMETER num_batch 128" in lines("ollama", n_batch=128)


def test_a_program_without_lines_is_refused():
    """Before anything is written."""
    with pytest.raises(InvalidSettings, match=r"No lines can be written for .vllm."):
        option_lines({}, "vllm", "m.gguf", 3)
