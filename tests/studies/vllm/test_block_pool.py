"""A cache in blocks beside llama.cpp's cells, and the share of a card that vLLM takes."""

import pytest

from inferlab.model.catalog import known_model
from inferlab.prediction import memory
from inferlab.settings import Settings
from inferlab.units import GIB
from studies.vllm.block_pool import MemoryShare, cells_in_blocks, cells_in_slots, steps_of_prompt, tokens_in

LENGTHS = (300, 700, 1500, 4000)


def test_slots_hold_what_llama_cpp_would_allocate():
    """Cells in slots times the bytes of a cell are the cache that a plan of llama.cpp reserves."""
    mistral = known_model("mistral-7b")
    settings = Settings(n_ctx=4 * 4096, n_seq_max=4)
    held = cells_in_slots(LENGTHS, 4096) * memory.kv_cache_bytes_per_token(mistral)
    assert held == memory.kv_cache_bytes(mistral, settings)


def test_slots_are_rounded_up_to_256_cells_and_blocks_to_16():
    """4,000 and 4,096 tokens reserve one slot; a block wastes less than itself; full slots leave nothing to save."""
    assert {cells_in_slots(LENGTHS, n_ctx) for n_ctx in (4000, 4001, 4096)} == {4 * 4096}
    assert 0 < cells_in_blocks(LENGTHS) - sum(LENGTHS) < 16 * len(LENGTHS)
    assert cells_in_slots((4096,) * 4, 4096) == cells_in_blocks((4096,) * 4) == 4 * 4096


def test_a_share_is_what_weights_and_pool_divide():
    """They add up to the share of the card, whatever the model; a card that the weights exceed holds no token."""
    shares = [MemoryShare(24 * GIB, n) for n in (GIB, 14 * GIB)]
    assert {share.weights_bytes + share.pool_bytes for share in shares} == {round(0.92 * 24 * GIB)}
    assert shares[0].factor > shares[1].factor
    small = MemoryShare(8 * GIB, 14 * GIB)
    assert (small.fits, small.pool_bytes, small.tokens(2**17)) == (False, 0, 0)


def test_tokens_come_in_whole_blocks():
    """A pool of one byte less than a block holds nothing."""
    block = 16 * 2**17
    assert [tokens_in(n, 2**17) for n in (block - 1, block, 3 * block)] == [0, 16, 48]


@pytest.mark.parametrize(("n_running", "steps"), [(0, 3), (32, 3), (1548, 12)])
def test_running_answers_take_their_part_of_a_step(n_running, steps):
    """6,000 tokens of prompt need three steps of 2,048, and more where many answers run."""
    assert steps_of_prompt(6000, 2048, n_running) == steps
