"""A few settings as lines to paste; test_paste has those of whole plans."""

from typing import Any

import pytest

from inferlab.errors import InvalidSettings
from inferlab.options.lines import option_lines


def lines(program: str, **values: Any) -> list[str]:
    """Every line of all parts, for a model of three layers."""
    return [line for part in option_lines(values, program, "m.gguf", 3) for line in part.text.splitlines()]


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
