"""Two devices that share every matrix: parts are whole heads and blocks, and loads agree to the byte."""

from dataclasses import replace

import pytest
from marks import needs_rpc
from small_models import write_model

from inferlab.engine.loopback import loopback_device
from inferlab.errors import InvalidSettings, UnsupportedArchitecture
from inferlab.machine import Device, Machine
from inferlab.model.architecture_table import architecture
from inferlab.model.find import tiny_model
from inferlab.model.gguf import read_gguf
from inferlab.model.synthetic_model import shape
from inferlab.prediction.memory.cache import cache_layers, cells_bytes, state_bytes
from inferlab.prediction.memory.tensor_split import TensorSplit
from inferlab.prediction.predict import predict_memory, predict_speed
from inferlab.settings import Settings
from inferlab.units import GIB, MIB
from studies.several_cards.measure import pair_of_devices

LLAMA, QWEN, TINY = shape("llama-3.1-8b"), shape("qwen3-30b-a3b"), shape("qwen2.5-0.5b")
TWO = Machine(
    "a processor",
    8,
    64 * GIB,
    "Linux",
    "3.11",
    None,
    devices=tuple(
        Device(f"CUDA{i}", "a card", "gpu", size * GIB, size * GIB, "CUDA") for i, size in enumerate((24, 8))
    ),
)
BOTH = ("127.0.0.1:1", "127.0.0.1:2")
PRINTED = 0.0051 * MIB  # llama.cpp prints a buffer to 0.01 MiB


def tensor(model, name):
    return next(one for one in model.tensors if one.name == name)


def test_a_matrix_is_divided_and_a_norm_is_on_both():
    """Three quarters of a matrix; all of a vector that every device needs."""
    split = TensorSplit(LLAMA, 2, (3.0, 1.0))
    for name in ("blk.0.ffn_up.weight", "blk.0.attn_output.weight", "output.weight"):
        one = tensor(LLAMA, name)
        assert split.weights(one) == (one.n_bytes * 3 // 4, one.n_bytes // 4)
    norm = tensor(LLAMA, "blk.0.attn_norm.weight")
    assert split.weights(norm) == (norm.n_bytes,) * 2


def test_parts_are_whole_blocks_and_the_rest_changes_sides():
    """768 rows of an expert are three blocks of 256: one device has two of them, in the next layer the other."""
    split = TensorSplit(QWEN, 2)
    first, second = (tensor(QWEN, f"blk.{i}.ffn_down_exps.weight") for i in (0, 1))
    assert split.weights(first) == (first.n_bytes // 3, first.n_bytes * 2 // 3)
    assert split.weights(second) == (second.n_bytes * 2 // 3, second.n_bytes // 3)


def test_heads_that_cannot_be_divided_lie_on_one_device_at_a_time():
    """Seven query heads share each of two KV heads, and their values fill blocks only together."""
    split, settings = TensorSplit(TINY, 2, (3.0, 1.0)), Settings(n_ctx=512)
    caches = [split.cache(layer, settings) for layer in range(4)]
    assert [min(parts) for parts in caches] == [0] * 4
    assert caches[0] == caches[1][::-1] == caches[2]


def test_a_tied_embedding_is_whole_on_every_device():
    """It has the embedding's name, for which llama.cpp has no rule; an output matrix of its own is divided."""
    model = shape("llama-3.2-1b")
    plan = predict_memory(model, Settings(n_ctx=512, split_mode="tensor", flash_attn="on"), TWO, simulate=False)
    table = tensor(model, "token_embd.weight").n_bytes
    assert all(plan.layers[-1].weights_on(card) > table for card in ("gpu0", "gpu1"))


def test_parts_do_not_follow_the_free_memory():
    """Without shares a card of 8 GiB gets as much as one of 24; with whole layers it gets a quarter."""
    settings = Settings(n_ctx=512, flash_attn="on")
    even = predict_memory(LLAMA, settings.but(split_mode="tensor"), TWO, simulate=False)
    layers = predict_memory(LLAMA, settings, TWO, simulate=False)
    assert even.devices["gpu0"].weights_bytes == even.devices["gpu1"].weights_bytes
    assert sum(row.device == "gpu1" for row in layers.layers) == 8


def test_the_plan_tells_of_the_buffers_for_sums():
    """They are in no log; the bound for a card that is not here has room for them."""
    plan = predict_memory(LLAMA, Settings(n_ctx=512, split_mode="tensor", flash_attn="on"), TWO, simulate=False)
    assert any("partial sums meet" in note for note in plan.notes)
    assert TensorSplit(LLAMA, 2).sum_buffer_bytes(512) == 512 * 4096 * 4
    assert TensorSplit(QWEN, 4).sum_buffer_bytes(512) == 2 * 8 * 512 * 2048 * 4
    assert plan.compute_range["gpu0"] == plan.compute_range["gpu1"]


def test_a_short_convolution_and_its_states_are_on_every_device():
    """LFM2: each card has all matrices and states of the layers without attention, and half of the cells."""
    model, settings = shape("lfm2-350m"), Settings(n_ctx=512, split_mode="tensor", flash_attn="on")
    plan = predict_memory(model, settings, TWO, simulate=False)
    layers = cache_layers(model)
    states = sum(state_bytes(layer, settings) for layer in layers)
    cells = sum(cells_bytes(layer, settings) for layer in layers)
    assert states
    assert plan.devices["gpu0"].kv_cache_bytes == plan.devices["gpu1"].kv_cache_bytes == states + cells // 2
    mixer = tensor(model, "blk.0.shortconv.in_proj.weight")
    assert TensorSplit(model, 2).weights(mixer) == (mixer.n_bytes,) * 2


def test_what_llama_cpp_cannot_divide_is_refused():
    """An architecture without a rule; and no rate is predicted for sums that nobody measured."""
    with pytest.raises(UnsupportedArchitecture, match="How devices share the states"):
        TensorSplit(replace(LLAMA, metadata=LLAMA.metadata | {"general.architecture": "qwen35"}), 2)
    olmo = shape("olmo-2-7b")
    assert not architecture(olmo.architecture).tensor_split
    with pytest.raises(InvalidSettings, match="no rule for dividing the matrices"):
        predict_memory(olmo, Settings(n_ctx=512, split_mode="tensor", rpc_servers=BOTH))
    with pytest.raises(InvalidSettings, match="cannot be timed"):
        predict_speed(LLAMA, Settings(n_ctx=512, split_mode="tensor", rpc_servers=BOTH), object())


@pytest.mark.engine
@needs_rpc
def test_two_devices_hold_what_was_planned(tmp_path):
    """Fused matrices, windows, biases and experts: weights and cache to the byte, compute as the log prints it."""
    shared = Settings(n_ctx=512, n_batch=64, n_ubatch=64, flash_attn="on", split_mode="tensor", tensor_split=(3, 1))
    layers = shared.but(split_mode="layer", tensor_split=(1, 1))
    asked = [
        ("phi3", shared),
        ("gemma3", shared),
        ("qwen2", shared),
        ("lfm2", shared),
        ("llama-moe", shared.but(n_cpu_moe=2)),
        ("llama", layers),
        ("gemma2", layers.but(offload_kqv=False)),
    ]
    with loopback_device(n_threads=1) as one, loopback_device(n_threads=1) as other, pair_of_devices() as pair:
        for family, settings in asked:
            path = write_model(tmp_path / f"{family}.gguf", family)
            plan = predict_memory(read_gguf(path), settings.but(rpc_servers=(one.endpoint, other.endpoint)))
            for card, held in zip(("gpu0", "gpu1"), pair.use(path, settings).devices, strict=True):
                planned = plan.devices[card]
                assert (held.weights_bytes, held.kv_cache_bytes) == (planned.weights_bytes, planned.kv_cache_bytes)
                least, most = plan.compute_range.get(card) or (planned.compute_bytes,) * 2
                assert least - PRINTED <= held.compute_bytes <= most + PRINTED, (family, card)


@pytest.mark.engine
@needs_rpc
def test_shared_matrices_give_the_answer_of_one_device():
    """Also with a quantized cache, which llama.cpp's guide excludes: the same tokens with real weights."""
    one = Settings(n_ctx=256, flash_attn="on", split_mode="none")
    shared = one.but(split_mode="tensor", tensor_split=(3, 1))
    answers = []
    with pair_of_devices() as pair:
        servers = tuple(seen.endpoint for seen in pair.seen)
        for settings in (one, shared, shared.but(type_k="q8_0", type_v="q8_0"), shared.but(n_gpu_layers=4)):
            pair.engine.open(tiny_model(), settings.but(rpc_servers=servers))
            prompt = pair.engine.tokenize("Once upon a time there was a little girl who lived near the forest.")
            answers.append(pair.engine.generate(prompt, 16).tokens)
    assert answers == answers[:1] * 4
