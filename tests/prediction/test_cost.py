"""What a model is made of: parts, operations, growth, and the formulas of the KV cache."""

from math import prod
from pathlib import Path

import pytest

import inferlab as lab
from inferlab.engine.client import LlamaEngine
from inferlab.errors import UnsupportedArchitecture
from inferlab.model.gguf import Model, Tensor
from inferlab.prediction import cost, memory
from inferlab.units import MIB


@pytest.fixture(scope="module")
def tiny():
    return lab.read_gguf(lab.tiny_model())


def test_the_parts_are_the_whole_file(tiny):
    """Every tensor belongs to exactly one part; none is counted twice or left out."""
    parts = cost.parts(tiny)
    assert sum(part.n_bytes for part in parts) == tiny.tensor_bytes
    assert sum(part.n_weights for part in parts) == tiny.n_params
    assert sum(sum(types.values()) for types in cost.type_bytes(tiny.tensors).values()) == tiny.tensor_bytes


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("blk.31.attn_q.weight", "attention: queries"),
        ("blk.0.attn_q.bias", "attention: queries"),
        ("blk.7.ffn_down_exps.weight", "experts: down"),
        ("blk.7.attn_q_norm.weight", "norms"),
        ("output_norm.weight", "norms"),
        ("output.weight", "output layer"),
        ("rope_freqs.weight", "other"),
    ],
)
def test_a_tensor_is_known_by_its_name(name, part):
    """llama.cpp's names say what a tensor is for, whatever layer it is in."""
    assert cost.part_of(name) == part


def test_a_token_costs_two_operations_a_matrix_weight(tiny):
    """One multiplication and one addition; norms and the cache apart."""
    matrices, _ = cost.operations(tiny, 1)
    assert matrices == 2 * (tiny.n_params - norms(tiny))


def norms(model):
    return sum(tensor.n_elements for tensor in model.tensors if len(tensor.shape) == 1)


def test_attention_over_the_cells_grows_with_them(tiny):
    """Bytes are the KV cache in use; operations are four for each query head, value and cell."""
    single, thousand = (cost.parts(tiny, n)[-1] for n in (1, 1000))
    assert thousand.read_bytes == 1000 * memory.kv_cache_bytes_per_token(tiny) == 1000 * single.read_bytes
    assert single.operations == 4 * tiny.n_layer * tiny.n_head * tiny.head_dim_k


def made(tensors, **metadata):
    """A model of these tensors, in memory."""
    told = {"general.architecture": "llama", **{f"llama.{key}": value for key, value in metadata.items()}}
    halves = tuple(Tensor(name, shape, "F16", 2 * prod(shape), 0) for name, shape in tensors)
    return Model(Path("made.gguf"), 0, 3, told, halves)


@pytest.mark.parametrize(("name", "attending"), [("granite-4.0-h-350m", 4), ("lfm2-350m", 6), ("llama-3.2-1b", 16)])
def test_only_layers_with_attention_compute_over_the_cells(name, attending):
    """Layers that keep a recurrent state have no cells."""
    model = lab.shape(name)
    computed = {part.name: part.operations for part in cost.parts(model, 100)}[cost.CACHE]
    assert computed == 2 * 100 * attending * model.n_head * (model.head_dim_k + model.head_dim_v)


def test_of_an_embedding_table_one_row_is_read():
    """Where the output layer has its own matrix, the table costs a row and no operation; tied, it is that matrix."""
    table, head = ("token_embd.weight", (64, 1000)), ("output.weight", (64, 1000))
    own, tied = cost.parts(made([table, head]))[0], cost.parts(made([table]))[0]
    assert (own.read_bytes, own.operations) == (128, 0)
    assert (tied.read_bytes, tied.operations) == (128_000, 128_000)


@pytest.mark.parametrize("name", ["position_embd.weight", "per_layer_token_embd.weight"])
def test_of_every_table_that_is_looked_up_in_one_row_is_read(name):
    """Tables of positions and of single layers are never a matrix of the output, also beside tied embeddings."""
    model = made([("token_embd.weight", (64, 1000)), (name, (64, 1000))])
    assert cost.bytes_read(model)[name] == 128
    assert sum(part.operations for part in cost.parts(model)) == 128_000


def test_only_the_experts_in_use_are_read():
    """Two experts of eight cost a quarter of their bytes; a header that does not say how many is refused."""
    experts = [("blk.0.ffn_up_exps.weight", (64, 128 * 8))]
    part = cost.parts(made(experts, expert_count=8, expert_used_count=2))[0]
    assert (part.read_bytes, part.operations) == (part.n_bytes // 4, 2 * part.n_weights // 4)
    with pytest.raises(UnsupportedArchitecture, match="how many are used"):
        cost.parts(made(experts))


@pytest.mark.parametrize("n_tokens", [1, 2, 50])
def test_growth_is_the_sum_over_the_tokens(tiny, n_tokens):
    """The closed forms are what adding up token by token gives."""
    step = [sum(cost.operations(tiny, n)) for n in range(1, n_tokens + 1)]
    again = [sum(step[:n]) for n in range(1, n_tokens + 1)]
    assert cost.total_operations(tiny, n_tokens) == sum(step)
    assert cost.total_operations(tiny, n_tokens, cached=False) == sum(again)


@pytest.mark.engine
@pytest.mark.parametrize("settings", [{"n_ctx": 1000}, {"n_ctx": 1000, "type_k": "q8_0", "type_v": "q8_0"}])
def test_only_one_formula_is_what_the_engine_reserves(tiny, settings):
    """The right one meets llama.cpp's log to the 0.01 MiB it prints; each of the others misses it or is excused."""
    engine, settings = LlamaEngine(), lab.Settings(**settings)
    buffers = engine.open(tiny.path, settings).buffers
    engine.close()
    reserved = sum(buffer.n_bytes for buffer in buffers if buffer.kind == "kv_cache")
    readings = cost.kv_readings(tiny, settings)
    hit = [name for name, n_bytes in readings.items() if abs(n_bytes - reserved) <= 0.0051 * MIB]
    assert hit == (["right"] if settings.type_k == "q8_0" else ["right", "whole bytes"])


def test_query_heads_are_four_times_too_much_for_mistral():
    """32 query heads share 8 heads of keys and values."""
    readings = cost.kv_readings(lab.known_model("mistral-7b"), lab.Settings(n_ctx=4096))
    assert readings["query heads"] == 4 * readings["right"]


def test_the_cache_weighs_as_much_as_the_weights_at_the_break_even(tiny):
    """Below it the weights are the larger part, above it the cache."""
    cells = cost.break_even_cells(tiny.tensor_bytes, tiny)
    assert cells * memory.kv_cache_bytes_per_token(tiny) == tiny.tensor_bytes
