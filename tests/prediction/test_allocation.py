"""Where the tensors of a batch lie, and how large the compute buffer becomes."""

from dataclasses import replace

import pytest
from marks import needs_rpc
from small_models import write_model

from inferlab.engine import dry_run
from inferlab.model.gguf import read_gguf
from inferlab.prediction.memory.allocation import Batch, GrowingBuffer, buffer_bytes
from inferlab.prediction.memory.compute import compute_bytes, outputs_reserved
from inferlab.settings import Settings
from inferlab.units import MIB

PRINTED = 0.0061 * MIB  # llama.cpp prints 0.01 MiB, and aligns each tensor to 32 bytes
SMOLLM2 = Batch(30, 576, 1536, 49152, 9, 576, 192, n_tokens=512, n_outputs=512, n_cells=2048, flash_attn=True)
# family: n_embd, n_head, n_head_kv, head_dim, n_ff, n_vocab
SHAPES = {
    "smollm2-135m": ("llama-tied", 576, 9, 3, 64, 1536, 49152),
    "narrow": ("llama", 512, 4, 4, 64, 512, 4096),
    "qwen3-0.6b": ("qwen3", 1024, 16, 8, 128, 3072, 151936),
    "gemma-2b": ("gemma", 2048, 8, 1, 256, 16384, 256000),
}


def test_a_tensor_takes_the_smallest_hole_that_holds_it():
    """Of equal holes the last; without one the tensor lies behind all others, and the buffer grows."""
    buffer = GrowingBuffer()
    a, _, c, _, e, _ = (buffer.allocate(n) for n in (96, 32, 64, 32, 64, 32))
    buffer.free(a, c, e)
    assert [buffer.allocate(n) for n in (64, 64, 128)] == [e, c, (320, 128)]
    assert buffer.size == 448


def test_neighbouring_holes_become_one():
    """What was freed beside a hole is one hole with it; what was freed last of all lets the next tensor begin there."""
    buffer = GrowingBuffer()
    a, b, c = (buffer.allocate(n) for n in (32, 64, 32))
    buffer.free(a)
    buffer.free(b)
    assert buffer.free_blocks[0] == (0, 96)
    buffer.free(c)
    assert buffer.allocate(1000) == (0, 1024)


def test_a_mask_can_leave_a_hole_that_makes_the_buffer_larger():
    """SmolLM2 135M needs more at n_ctx=2048 than at twice that: llama.cpp logs 102.51 and 98.25 MiB."""
    sizes = {n: round(buffer_bytes(replace(SMOLLM2, n_cells=n), on_device=False) / MIB, 2) for n in (1792, 2048, 4096)}
    assert sizes == {1792: 98.25, 2048: 102.51, 4096: 98.25}


def test_further_blocks_need_no_more():
    """Each block finds the holes that the one before it left."""
    assert buffer_bytes(SMOLLM2, on_device=True) == buffer_bytes(replace(SMOLLM2, n_layer=300), on_device=True)


@pytest.mark.engine
@needs_rpc
@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_the_buffer_is_what_llama_cpp_reserves(name, on_device, tmp_path):
    """At and around n_ubatch and n_batch, with one row of logits or one for each token, with and without scores."""
    family, d, n_head, n_head_kv, head_dim, n_ff, n_vocab = SHAPES[name]
    path = write_model(
        tmp_path / "m.gguf",
        family,
        n_embd=d,
        n_head=n_head,
        n_head_kv=n_head_kv,
        head_dim=head_dim,
        n_ff=n_ff,
        n_vocab=n_vocab,
    )
    model, ask = read_gguf(path), dry_run.simulate_stand_in if on_device else dry_run.simulate
    for n_ctx in (256, 511, 513, 1792, 2048, 2049, 2304):
        for flash_attn, n_outputs_max in (("on", 0), ("on", 1), ("off", 0)):
            settings = Settings(n_ctx=n_ctx, flash_attn=flash_attn, devices=None if on_device else ())
            planned = compute_bytes(model, settings, outputs_reserved(settings, bool(n_outputs_max)), on_device)
            assert planned == pytest.approx(ask(model, settings, n_outputs_max).compute_bytes, abs=PRINTED), settings
