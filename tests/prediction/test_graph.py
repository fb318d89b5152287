"""Where the tensors of a batch lie, and how large the compute buffer becomes."""

import pytest
from marks import needs_rpc
from small_models import FAMILIES, write_model

from inferlab.engine import dry_run
from inferlab.errors import EngineError
from inferlab.facts import read_table
from inferlab.model.architecture_table import architectures
from inferlab.model.gguf import read_gguf
from inferlab.model.synthetic_model import shape
from inferlab.prediction.memory import compute
from inferlab.prediction.memory.compute import compute_bytes, compute_range, is_exact, outputs_reserved
from inferlab.prediction.memory.graph import CACHE, Graph, GrowingBuffer, host_bytes, in_place, operation, store, view
from inferlab.settings import Settings
from inferlab.units import MIB

PRINTED = 0.0061 * MIB  # llama.cpp prints 0.01 MiB, and aligns each tensor to 32 bytes
# family: n_embd, n_head, n_head_kv, head_dim, n_ff, n_vocab
SHAPES = {
    "smollm2-135m": ("llama-tied", 576, 9, 3, 64, 1536, 49152),
    "narrow": ("llama", 512, 4, 4, 64, 512, 4096),
    "qwen3-0.6b": ("qwen3", 1024, 16, 8, 128, 3072, 151936),
    "gemma-2b": ("gemma", 2048, 8, 1, 256, 16384, 256000),
}


def written(tmp_path, name, n_layer=4):
    family, d, n_head, n_head_kv, head_dim, n_ff, n_vocab = SHAPES[name]
    dimensions = {"n_embd": d, "n_head": n_head, "n_head_kv": n_head_kv, "head_dim": head_dim, "n_ff": n_ff}
    return read_gguf(write_model(tmp_path / "m.gguf", family, n_layer=n_layer, n_vocab=n_vocab, **dimensions))


# --- one tensor after the other -----------------------------------------------------------------


def test_a_tensor_takes_the_smallest_hole_that_holds_it():
    """Of equal holes the last; without one the tensor lies behind all others, and the buffer grows."""
    buffer = GrowingBuffer()
    sizes = (96, 32, 64, 32, 64, 32)
    offsets = [buffer.allocate(n) for n in sizes]
    for i in (0, 2, 4):
        buffer.free(offsets[i], sizes[i])
    assert [buffer.allocate(n) for n in (64, 64, 128)] == [offsets[4], offsets[2], 320]
    assert buffer.size == 448


def test_neighbouring_holes_become_one():
    """What was freed beside a hole is one hole with it; what was freed last of all lets the next tensor begin there."""
    buffer = GrowingBuffer()
    for n in (32, 64, 32):
        buffer.allocate(n)
    buffer.free(0, 32)
    buffer.free(32, 64)
    assert buffer.blocks[0] == [0, 96]
    buffer.free(96, 32)
    assert (buffer.allocate(1000), buffer.size) == (0, 1024)


def test_an_empty_hole_keeps_two_apart():
    """ggml lets the first block that touches it grow, and forgets the empty one between (ggml-alloc.c:312)."""
    buffer = GrowingBuffer()
    for n in (32, 0, 64, 32):
        buffer.allocate(n)
    buffer.free(32, 0)
    buffer.free(0, 32)
    assert buffer.blocks[0] == [0, 32]


def bytes_of(*tensors, kept=()):
    graph = Graph(kept=list(kept))
    graph.expand(*tensors)
    return host_bytes(graph)


def test_an_operation_writes_over_what_nothing_else_reads():
    """A view of it counts as a reader, and so does a second use."""
    x = operation(1024)
    assert bytes_of(in_place(x)) == 1024
    assert bytes_of(in_place(view(x))) == 2048
    assert bytes_of(in_place(in_place(x), x)) == 2048
    assert bytes_of(in_place(x), kept=[x]) == 2048


def test_a_tensor_is_freed_after_its_last_view():
    """The values that go to the cache are gone then; the cache itself takes nothing."""
    x = operation(1024)
    stored = store(view(x))
    assert stored.base is CACHE
    assert bytes_of(stored, operation(512)) == 1024


# --- a whole batch ------------------------------------------------------------------------------


def test_a_mask_can_leave_a_hole_that_makes_the_buffer_larger(tmp_path):
    """SmolLM2 135M needs more at n_ctx=2048 than at twice that: llama.cpp logs 102.51 and 98.25 MiB."""
    model = written(tmp_path, "smollm2-135m", n_layer=30)
    sizes = {n: compute_bytes(model, Settings(n_ctx=n), 512, on_device=False)["host"] for n in (1792, 2048, 4096)}
    assert {n: round(size / MIB, 2) for n, size in sizes.items()} == {1792: 98.25, 2048: 102.51, 4096: 98.25}


def test_layers_that_repeat_others_are_left_out_only_where_they_change_nothing(tmp_path, monkeypatch):
    """As many rounds of equal layers as settle have the size of all of them."""
    for name in SHAPES:
        model = written(tmp_path, name, n_layer=24)
        for n_ctx in (512, 2048, 8192):
            asked = model, Settings(n_ctx=n_ctx), 512, True
            few = compute_bytes(*asked)
            with monkeypatch.context() as patch:
                patch.setattr(compute, "ROUNDS", ())
                assert few == compute_bytes(*asked)


@pytest.mark.engine
@needs_rpc
@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_the_buffer_is_what_llama_cpp_reserves(name, on_device, tmp_path):
    """At and around n_ubatch and n_batch, with one row of logits or one for each token, with and without scores."""
    model, ask = written(tmp_path, name), dry_run.simulate_stand_in if on_device else dry_run.simulate
    for n_ctx in (256, 511, 513, 1792, 2048, 2049, 2304):
        for flash_attn, n_outputs_max in (("on", 0), ("on", 1), ("off", 0)):
            settings = Settings(n_ctx=n_ctx, flash_attn=flash_attn, devices=None if on_device else ())
            planned = compute_bytes(model, settings, outputs_reserved(settings, bool(n_outputs_max)), on_device)
            assert planned == pytest.approx(ask(model, settings, n_outputs_max).compute_bytes, abs=PRINTED), settings


def test_every_graph_that_was_followed_is_of_an_architecture_with_a_cache():
    """Its entry names the source; a cache without a formula could not be planned."""
    for name, entry in read_table("graphs").items():
        assert architectures()[name].is_known
        assert entry["source"].endswith(".cpp")


ASKED = [
    {},
    {"type_k": "q8_0", "type_v": "q8_0", "swa_full": False},
    {"flash_attn": "off", "n_seq_max": 4, "n_ubatch": 128},
    {"n_seq_max": 2, "kv_unified": True, "swa_full": False},
]


@pytest.mark.engine
@needs_rpc
@pytest.mark.parametrize("family", FAMILIES)
def test_a_small_model_of_every_family_has_the_buffers_that_llama_cpp_reserves(family, tmp_path):
    """Experts, latent keys, windows, states: exact where the graph was followed, else in the range."""
    model, answered = read_gguf(write_model(tmp_path / "m.gguf", family)), 0
    for asked in ASKED:
        settings = Settings(**{"n_ctx": 1024, "flash_attn": "on"} | asked)
        for on_device in (False, True):
            try:
                ask = dry_run.simulate_stand_in if on_device else dry_run.simulate
                told = ask(model, settings if on_device else settings.but(devices=())).compute_bytes
            except EngineError:  # llama.cpp refuses some combinations
                continue
            ends = compute_range(model, settings, outputs_reserved(settings, per_sequence=False), on_device)
            answered += 1
            for device, n_bytes in told.items():
                least, most = ends[device]
                assert least - PRINTED <= n_bytes <= most + PRINTED, (device, settings)
                assert least == most or not is_exact(model, settings)
    assert answered >= 4


@pytest.mark.engine
@needs_rpc
@pytest.mark.parametrize(
    "name", ["minimax-m3", "deepseek-v4-flash", "llama-3.3-nemotron-super-49b", "kimi-linear-48b-a3b"]
)
@pytest.mark.parametrize("asked", [{}, {"n_ctx": 65536, "n_ubatch": 1024}, {"flash_attn": "off"}])
def test_a_graph_unlike_llamas_has_a_range(name, asked):
    """An indexer, compressed cells, layers without attention: in real proportions, with and without scores."""
    model, settings = shape(name), Settings(**{"n_ctx": 4096} | asked)
    told = dry_run.simulate_stand_in(model, settings).compute_bytes
    ends = compute_range(model, settings, outputs_reserved(settings, per_sequence=False), on_device=True)
    for device, n_bytes in told.items():
        least, most = ends[device]
        assert least - PRINTED <= n_bytes <= most + PRINTED, (device, ends, told)
