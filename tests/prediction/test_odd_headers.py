"""Plans of headers with numbers that cannot be: each has its answer or its error, and none hangs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from inferlab.errors import UnsupportedArchitecture
from inferlab.model.synthetic_model import shape
from inferlab.prediction.fit import fit
from inferlab.prediction.free_memory import machine_for
from inferlab.prediction.memory.assembly import NO_FLASH_NOTE
from inferlab.prediction.memory.compute import n_vocab, near_bytes
from inferlab.prediction.memory.graph import Graph, in_place, operation
from inferlab.prediction.predict import predict_memory
from inferlab.settings import Settings

ASKED = Settings(n_ctx=4096)
PACKED = ASKED.but(type_k="q8_0", type_v="q8_0")


def odd(name, **numbers):
    """A known model with other numbers in its header."""
    model = shape(name)
    return replace(model, metadata=model.metadata | {f"{model.architecture}.{key}": n for key, n in numbers.items()})


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("llama-3.2-1b", {"attention.head_count": 0}),
        ("gemma-3-4b", {"attention.key_length_swa": 0}),
        ("qwen3-30b-a3b", {"expert_used_count": 10**9}),
        ("qwen3-30b-a3b", {"expert_used_count": -1}),
        ("gemma-3n-e4b", {"altup.num_inputs": 10**9}),
    ],
)
def test_numbers_that_cannot_be_end_in_an_answer(name, numbers):
    """Soon: what is repeated so often as the header says is first held against the tensors."""
    try:
        plan = predict_memory(odd(name, **numbers), PACKED, simulate=False)
    except UnsupportedArchitecture:
        return
    assert plan.bytes_of("weights")


@pytest.mark.parametrize(
    "numbers",
    [
        {"attention.head_count_kv": -8},
        {"attention.head_count_kv": (8, -8)},
        {"attention.head_count": ("a", "b")},
        {"attention.head_count": (1.5,) * 16},
        {"attention.key_length": -64},
        {"embedding_length": 0},
        {"nextn_predict_layers": -1},
        {"nextn_predict_layers": 17},
    ],
)
def test_a_count_below_zero_or_of_words_is_refused(numbers):
    """No cache is smaller than nothing."""
    with pytest.raises(UnsupportedArchitecture, match="no closed form for its KV cache"):
        predict_memory(odd("llama-3.2-1b", **numbers), ASKED, simulate=False)


def test_a_file_of_further_tokens_alone_is_planned():
    """A draft has no other layers; its weights and its cache are known."""
    plan = predict_memory(odd("llama-3.2-1b", nextn_predict_layers=16), ASKED, simulate=False)
    assert plan.bytes_of("weights")
    assert plan.bytes_of("kv_cache")


@pytest.mark.parametrize(
    ("name", "tensor", "dimensions"),
    [
        ("llama-3.2-1b", "blk.3.ffn_down.weight", ()),
        ("qwen3-30b-a3b", "blk.3.ffn_down_exps.weight", (768, 2048)),
    ],
)
def test_a_tensor_of_no_use_leaves_the_compute_buffer_unknown(name, tensor, dimensions):
    """With fewer dimensions than the graph reads: where layers are shared out there is no more than a range."""
    model = shape(name)
    tensors = tuple(replace(one, shape=dimensions) if one.name == tensor else one for one in model.tensors)
    damaged = replace(model, tensors=tensors)
    assert near_bytes(damaged, ASKED, 512, on_device=True) is None
    shared = predict_memory(damaged, ASKED.but(n_gpu_layers=4), machine_for(None, "80GiB"), simulate=False)
    assert all(held.compute_bytes is None for held in shared.devices.values())


def test_a_vocabulary_of_one_dimension_is_told_by_the_header():
    """The table of embeddings has no rows then."""
    model = shape("llama-3.2-1b")
    tensors = tuple(replace(t, shape=t.shape[:1]) if t.name == "token_embd.weight" else t for t in model.tensors)
    assert n_vocab(replace(model, tensors=tensors)) == n_vocab(model)


def test_a_long_chain_of_operations_is_ordered():
    """Of ten thousand, each on the one before: longer than Python's calls may be deep."""
    graph, x = Graph(), operation(32)
    for _ in range(10_000):
        x = in_place(x)
    graph.expand(x)
    assert len(graph.nodes) == 10_001
    assert all(after.sources == (before,) for before, after in pairwise(graph.nodes))


def test_a_latent_cache_is_read_as_wide_as_its_rank():
    """The header's values are of another width; cards have a kernel for keys of 576 and values of 512."""
    planned = fit("kimi-linear-48b-a3b", ASKED, vram="80GiB", simulate=False).plan
    assert planned.devices["gpu0"].kv_cache_bytes
    assert NO_FLASH_NOTE not in planned.notes


def test_heads_that_no_kernel_takes_are_planned_without_flash_attention():
    """So llama.cpp does where it may; where it must not, the error says what to ask for."""
    model = odd("llama-3.2-1b", **{"attention.key_length": 160, "attention.value_length": 160})
    planned = fit(model, ASKED, vram="80GiB", simulate=False).plan
    off = fit(model, ASKED.but(flash_attn="off"), vram="80GiB", simulate=False).plan
    assert planned.devices == off.devices
    assert NO_FLASH_NOTE in planned.notes
    assert NO_FLASH_NOTE not in off.notes
    with pytest.raises(UnsupportedArchitecture, match="keys of 160 and values of 160"):
        fit(model, PACKED, vram="80GiB", simulate=False)
