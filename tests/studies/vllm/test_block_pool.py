"""A cache in blocks beside llama.cpp's cells, and the share of a card that vLLM takes."""

import pytest

import inferlab as lab
from inferlab.errors import InvalidSettings
from inferlab.prediction import memory
from inferlab.prediction.decode_bound import most_token_bytes
from inferlab.settings import Settings
from inferlab.units import GB, GIB
from studies.vllm import block_pool
from studies.vllm.weight_formats import weights_bytes

LENGTHS = (300, 700, 1500, 4000)


def test_slots_hold_what_llama_cpp_would_allocate():
    """Cells in slots times the bytes of a cell are the cache that a plan of llama.cpp reserves."""
    mistral = lab.known_model("mistral-7b")
    settings = Settings(n_ctx=4 * 4096, n_seq_max=4)
    held = block_pool.cells_in_slots(LENGTHS, 4096) * memory.kv_cache_bytes_per_token(mistral)
    assert held == memory.kv_cache_bytes(mistral, settings)


@pytest.mark.parametrize("n_ctx", [4000, 4001, 4096])
def test_a_slot_is_rounded_up_to_256_cells(n_ctx):
    """Slots of 4,000 to 4,096 tokens all reserve 4,096 cells."""
    assert block_pool.cells_in_slots(LENGTHS, n_ctx) == 4 * 4096


def test_a_block_wastes_less_than_itself_for_each_conversation():
    """Blocks hold every token, and fewer than 16 empty cells for each conversation; blocks of one hold none."""
    empty = block_pool.cells_in_blocks(LENGTHS) - sum(LENGTHS)
    assert 0 < empty < 16 * len(LENGTHS)
    assert block_pool.cells_in_blocks(LENGTHS, 1) == sum(LENGTHS)


def test_full_slots_leave_blocks_nothing_to_save():
    """Where every conversation fills its slot, slots and blocks hold the same cells."""
    full = (4096,) * 4
    assert block_pool.cells_in_slots(full, 4096) == block_pool.cells_in_blocks(full) == 4 * 4096


def test_no_conversation_holds_no_cell():
    """An empty server has no slots to reserve here, and no blocks."""
    assert block_pool.cells_in_slots((), 4096) == block_pool.cells_in_blocks(()) == 0


def test_a_share_is_what_weights_and_pool_divide():
    """Weights and pool add up to the share of the card, whatever the model."""
    shares = [block_pool.memory_share(24 * GIB, n) for n in (GIB, 14 * GIB)]
    assert {one.weights_bytes + one.pool_bytes for one in shares} == {round(0.92 * 24 * GIB)}
    assert shares[0].factor > shares[1].factor


def test_weights_above_the_share_leave_no_pool():
    """A card that the weights exceed has room for no token."""
    one = block_pool.memory_share(8 * GIB, 14 * GIB)
    assert (one.fits, one.pool_bytes, one.tokens(2**17)) == (False, 0, 0)


def test_tokens_come_in_whole_blocks():
    """A pool of one byte less than a block holds nothing."""
    block = 16 * 2**17
    held = [block_pool.MemoryShare(10 * GIB, 10 * GIB - n, 1.0).tokens(2**17) for n in (block - 1, block, 3 * block)]
    assert held == [0, 16, 48]


def test_a_published_log_of_vllm_has_the_computed_number_of_tokens():
    """The tokens in vLLM's log of Qwen3 1.7B lie within what the logged GiB, rounded to two decimals, can hold.

    Its cache has the dimensions of Qwen3 0.6B: 28 layers, 8 heads of 128 for keys and values.
    """
    per_token = memory.kv_cache_bytes_per_token(lab.known_model("qwen3-0.6b"))
    logged = block_pool.default("logged-pool")
    least, most = (
        block_pool.MemoryShare(round((logged + off) * GIB), 0, 1.0).tokens(per_token) for off in (-0.005, 0.005)
    )
    assert least <= block_pool.default("logged-tokens") <= most
    assert most / least < 1.001


@pytest.mark.parametrize(("n_running", "steps"), [(0, 3), (32, 3), (1548, 12)])
def test_running_answers_take_their_part_of_a_step(n_running, steps):
    """6,000 tokens of prompt need three steps of 2,048, and more where many answers run."""
    assert block_pool.steps_of_prompt(6000, 2048, n_running) == steps


def test_a_known_size_of_an_awq_file_is_computed():
    """Mistral 7B in groups of 128 has the published size of its file, within a hundredth."""
    known = lab.known_model("mistral-7b")
    assert weights_bytes(known, "awq") == pytest.approx(block_pool.default("mistral-7b-awq") * GB, rel=0.01)


def test_a_rate_and_a_bandwidth_bound_the_bytes_of_a_token():
    """At 100 GB/s and 20 tokens per second no token can have read more than 5 GB."""
    assert most_token_bytes(100 * GB, 20) == 5 * GB


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: block_pool.cells_in_slots((5000,), 4096), "5000 tokens does not fit a slot of 4096"),
        (lambda: block_pool.cells_in_blocks((5,), 0), "holds no token"),
        (lambda: block_pool.memory_share(GIB, GIB, 92), "share=92 is no share"),
        (lambda: block_pool.steps_of_prompt(10, 256, 256), "leave nothing of 256"),
        (lambda: most_token_bytes(GB, 0), "is no rate"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong, says):
    """The error names the value and what would be one."""
    with pytest.raises(InvalidSettings, match=says):
        wrong()
