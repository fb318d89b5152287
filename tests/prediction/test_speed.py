"""The arithmetic of speed: what a step reads, looks at and sends, and what each costs."""

from dataclasses import replace

import pytest
from speed_machine import LINK, TRUTH, device_rates

from inferlab.errors import InvalidSettings, UnsupportedArchitecture
from inferlab.machine import HOST_DEVICE
from inferlab.model.synthetic_model import shape
from inferlab.prediction.memory import kv_cache_bytes
from inferlab.prediction.rates import attended_cells, unmasked_cells
from inferlab.prediction.speed import (
    PlacedModel,
    StepPlan,
    Term,
    intensity,
    merged_terms,
    share_drawn,
    weight_limits,
)
from inferlab.settings import Settings

MODEL = shape("llama-3.2-1b", "Q8_0", n_layer=4, n_vocab=2048)
FAR = Settings(n_ctx=4096, rpc_servers=("127.0.0.1:1",), n_threads=1)


def placed(layers=("gpu0",) * 5, settings=FAR, **rates):
    known = {HOST_DEVICE: TRUTH["host/1"], "gpu0": TRUTH["loopback/1"]} | rates
    return PlacedModel(MODEL, settings, layers, known, {"gpu0": LINK})


def on_host(model, settings=FAR):
    """A model on the host alone."""
    return PlacedModel(model, settings, (HOST_DEVICE,) * (model.n_layer + 1), {HOST_DEVICE: TRUTH["host/1"]}, {})


def sent(step):
    """Bytes that cross a link."""
    return sum(term.n_bytes for term in step if term.kind == "link")


def seconds(terms, kind, device=None):
    return StepPlan(1, tuple(terms), 0.1).seconds_of(kind, device)


def one_token_seconds(device, *names):
    """Seconds of one token's products with the matrices whose names begin so."""
    rates = TRUTH[device].matrices["Q8_0"]
    matrices = [t for t in MODEL.tensors if t.name.startswith(names) and len(t.shape) > 1]
    return sum(rates.one_token(t.n_bytes, t.shape[1]) for t in matrices)


def test_one_token_reads_every_matrix_once():
    """All matrices of blocks and output, on their devices, at their type's rate."""
    terms = placed((HOST_DEVICE, HOST_DEVICE, "gpu0", "gpu0", "gpu0")).decode(100)
    matrices = sum(t.n_bytes for t in MODEL.tensors if len(t.shape) > 1)
    assert sum(term.n_bytes for term in terms if term.kind == "weights") == matrices
    host = next(term for term in terms if term.kind == "weights" and term.device == HOST_DEVICE)
    assert host.seconds == pytest.approx(one_token_seconds("host/1", "blk.0.", "blk.1."))


def test_a_prompt_computes_on_every_token_and_the_end_on_the_last():
    """Twice the tokens take twice the time on weights, but for what one token of a call needs: the output matrix, and
    the last block behind its attention.
    """
    short, long = (seconds(placed().prefill(n), "weights") for n in (512, 1024))
    end = one_token_seconds("loopback/1", "token_embd.weight", "blk.3.ffn_")
    assert long - end == pytest.approx(2 * (short - end))


def test_host_and_loopback_device_share_a_long_prompt_at_the_same_time():
    """While the device works on one ubatch the host works on the next; not in a single one, and not on one device."""
    shared = placed((HOST_DEVICE, HOST_DEVICE, "gpu0", "gpu0", "gpu0"))
    first, second = (shared.step(*step) for step in shared.steps(1024))
    far = sum(term.seconds for term in first if term.device != HOST_DEVICE)
    near = sum(term.seconds for term in second if term.device == HOST_DEVICE)
    assert shared.overlap(1024) == pytest.approx(min(near, far))
    assert shared.overlap(512) == placed().overlap(1024) == 0


def test_a_processor_skips_masked_cells_with_flash_attention_alone():
    """Cells in use count one by one there, and in steps of 256 without flash attention."""
    flash = [seconds(placed().decode(depth), "attention") for depth in (300, 400)]
    off = placed(settings=FAR.but(flash_attn="off"))
    plain = [seconds(off.decode(depth), "attention") for depth in (300, 400, 600)]
    assert flash[1] / flash[0] == pytest.approx(401 / 301)
    assert plain[0] == plain[1] < plain[2] == pytest.approx(1.5 * plain[0])


def test_heads_that_share_keys_and_values_read_them_once():
    """One token pays arithmetic for each query head, and bytes for each head of the cache."""
    rates, each = TRUTH["loopback/1"].attention["f16/flash/64"], 2 * 2 * 64 * MODEL.n_head_kv
    arithmetic = MODEL.n_head * 256 * rates.seconds_per_head_cell
    expected = MODEL.n_layer * (arithmetic + 256 * each * rates.seconds_per_byte)
    assert seconds(placed().decode(255), "attention") == pytest.approx(expected)


def test_heads_of_a_size_between_two_measured_ones():
    """96 values take the mean of 64 and 128; 512 take twice the arithmetic of 256."""
    of = TRUTH["host/1"].attention_of
    between = [of("f16", "flash", size).seconds_per_head_cell for size in (64, 96, 128)]
    beyond = [of("f16", "flash", size).seconds_per_head_cell for size in (256, 512)]
    assert between[1] == pytest.approx((between[0] + between[2]) / 2)
    assert beyond[1] == pytest.approx(2 * beyond[0])
    assert of("q5_0", "flash", 64) is None


def test_threads_wait_for_the_one_with_the_fullest_part_of_the_view():
    """Two threads share 1,024 cells; with 600 unmasked the first has 512 of them. A quantized cache is not shared."""
    request = {"n_tokens": 1, "depth": 599, "n_cells": 1024, "skips_masked": True, "n_threads": 2}
    assert attended_cells(**request, tiled=True) == 1024
    assert attended_cells(**request, tiled=False) == 600


def test_a_batch_computes_whole_tiles():
    """64 queries on an empty cache compute 64 cells each, masked or not; 32 queries fill no tile."""
    request = {"depth": 0, "n_cells": 256, "skips_masked": True, "tiled": True}
    assert attended_cells(64, **request) == pytest.approx(64 * 64)
    assert attended_cells(32, **request) == 32 * 33 / 2


def test_a_repacked_matrix_takes_what_is_left_of_four_tokens_one_by_one():
    """97 tokens are 96 together and one alone; in the file's own layout all go together."""
    model = shape("llama-3.2-1b", "Q4_0", n_layer=4, n_vocab=2048)
    here = on_host(model, Settings(n_ctx=512))
    tensor = next(t for t in model.tensors if t.name == "blk.0.ffn_up.weight")
    rates = TRUTH["host/1"].matrices["Q4_0/CPU_REPACK"]
    batch, alone = rates.batch(*tensor.shape[1::-1], 96), rates.one_token(tensor.n_bytes, tensor.shape[1])
    assert here.matrix_seconds(tensor, HOST_DEVICE, 97) == pytest.approx(batch + alone)
    own = replace(here, settings=here.settings.but(use_extra_bufts=False))
    assert own.matrix_seconds(tensor, HOST_DEVICE, 97) == TRUTH["host/1"].matrices["Q4_0"].batch(
        *tensor.shape[1::-1], 97
    )


def test_a_matrix_in_the_matrix_units_buffer_leaves_no_token_over():
    """AMX's last block of tokens may be partial, so that 97 tokens go together."""
    model = shape("llama-3.2-1b", "Q8_0", n_layer=4, n_vocab=2048)
    tensor = next(t for t in model.tensors if t.name == "blk.0.ffn_up.weight")
    rates = TRUTH["host/1"].matrices["Q8_0"]
    tiles = replace(TRUTH["host/1"], matrices={**TRUTH["host/1"].matrices, "Q8_0/AMX": rates})
    here = replace(on_host(model, Settings(n_ctx=512)), rates={HOST_DEVICE: tiles})
    assert here.is_repacked(tensor, HOST_DEVICE)
    assert here.matrix_seconds(tensor, HOST_DEVICE, 97) == rates.batch(*tensor.shape[1::-1], 97)


def test_beside_a_card_host_weights_are_repacked_only_without_its_host_buffer():
    """make_cpu_buft_list: the card's host buffer comes before the extra buffers, unless no_host."""
    card = replace(TRUTH["loopback/1"], on_cpu=False)
    model = shape("llama-3.2-1b", "Q4_0", n_layer=4, n_vocab=2048)
    tensor = next(t for t in model.tensors if t.name == "blk.0.ffn_up.weight")
    for no_host in (False, True):
        settings = Settings(n_ctx=512, no_host=no_host)
        half = PlacedModel(
            model, settings, (HOST_DEVICE,) * 3 + ("gpu0",) * 2, {HOST_DEVICE: TRUTH["host/1"], "gpu0": card}, {}
        )
        assert half.is_repacked(tensor, HOST_DEVICE) == no_host


def test_without_offload_kqv_the_two_paths_differ():
    """With flash attention the device attends and the cache in use crosses; without it the host attends."""
    flash, plain = (placed(settings=FAR.but(offload_kqv=False, flash_attn=way)) for way in ("on", "off"))
    assert seconds(flash.decode(1000), "attention", HOST_DEVICE) == 0 < seconds(flash.decode(1000), "attention", "gpu0")
    assert seconds(plain.decode(1000), "attention", "gpu0") == 0 < seconds(plain.decode(1000), "attention", HOST_DEVICE)
    grown = [sent(step.decode(3000)) - sent(step.decode(1000)) for step in (flash, plain)]
    cells = 2048 * 4 * 2 * 2 * MODEL.n_head_kv * MODEL.head_dim_k  # tokens, blocks, keys and values, two bytes
    assert grown[0] == pytest.approx(cells, rel=0.01)
    assert grown[1] < cells / 100


def test_a_quantized_cache_sends_fewer_bytes():
    """What crosses is the cache in its own type."""
    whole, quantized = (
        placed(settings=FAR.but(offload_kqv=False, type_k=type, type_v=type)).decode(2000) for type in ("f16", "q8_0")
    )
    assert 1.7 < sent(whole) / sent(quantized) < 1.9


@pytest.mark.parametrize("changes", [{}, {"swa_full": False}, {"type_k": "q8_0", "type_v": "q4_0"}])
@pytest.mark.parametrize("name", ["llama-3.2-1b", "gemma-2-2b", "gemma-3-1b"])
def test_a_full_cache_is_read_whole(name, changes):
    """With n_ctx tokens in it, attention reads the bytes that the memory plan reserves, windows included."""
    model, settings = shape(name, "Q8_0", n_vocab=2048), Settings(n_ctx=8192, **changes)
    step = on_host(model, settings).decode(8191)
    assert sum(term.n_bytes for term in step if term.kind == "attention") == kv_cache_bytes(model, settings)


def test_a_latent_cache_is_read_without_values():
    """Multi-head latent attention keeps one vector a cell: keys of 576, no values beside them."""
    keys = {
        "deepseek2.attention.key_length": 576,
        "deepseek2.attention.value_length": 512,
        "deepseek2.attention.head_count_kv": 1,
        "deepseek2.attention.key_length_mla": 192,
    }
    named = {key.replace("llama.", "deepseek2."): value for key, value in MODEL.metadata.items()}
    model = replace(MODEL, metadata={**named, **keys, "general.architecture": "deepseek2"})
    whole = on_host(model)
    read = sum(term.n_bytes for term in whole.decode(255) if term.kind == "attention")
    assert read == 4 * 256 * 576 * 2


@pytest.mark.parametrize(("n_tokens", "depth", "window"), [(1, 9, 0), (7, 0, 0), (7, 2, 5), (4, 9, 5), (3, 1, 5)])
def test_unmasked_cells_are_those_of_each_query(n_tokens, depth, window):
    """The closed form equals the sum over queries: all cells before each, itself included, at most the window."""
    each = [min(depth + i, window or depth + i) for i in range(1, n_tokens + 1)]
    assert unmasked_cells(n_tokens, depth, window) == sum(each)


def test_a_cache_without_a_formula_is_refused():
    """An architecture whose cache is not known gets no speed either, rather than a guess."""
    keys = {key.replace("llama.", "mamba."): value for key, value in MODEL.metadata.items()}
    model = replace(MODEL, metadata={**keys, "general.architecture": "mamba"})
    with pytest.raises(UnsupportedArchitecture, match="mamba"):
        on_host(model).decode(1)


def test_a_card_copies_host_weights_for_a_prompt_only():
    """op_offload: with 32 tokens or more the host's weights cross a card's bus; an RPC device never gets them."""
    card = replace(TRUTH["loopback/1"], on_cpu=False)
    half = (HOST_DEVICE, HOST_DEVICE, "gpu0", "gpu0", "gpu0")
    host = sum(t.n_bytes for t in MODEL.tensors if t.name.startswith(("blk.0", "blk.1")) and len(t.shape) > 1)
    assert sent(placed(half, gpu0=card).prefill(512)) - sent(placed(half).prefill(512)) == host
    assert sent(placed(half, gpu0=card).decode(512)) == sent(placed(half).decode(512))
    assert sent(placed(half, FAR.but(op_offload=False), gpu0=card).prefill(512)) == sent(placed(half).prefill(512))


def test_a_step_names_its_largest_part():
    """bound_by is the kind and device that take longest, and the range is the rate with its band."""
    step = StepPlan(10, (Term("weights", "host", 1.0), Term("link", "gpu0", 3.0)), 0.25)
    assert step.bound_by == "link"
    assert step.tokens_per_second == 2.5
    assert step.rate_range == (2.0, 3.125)
    assert merged_terms([*step.terms, *step.terms])[0].seconds == 2.0


def test_what_limits_weights_is_told_by_the_memorys_rate():
    """Near the memory's own rate it is bandwidth, far below it is compute."""
    terms = placed().decode(10)
    near = StepPlan(1, terms, 0.1)
    weights = next(t for t in terms if t.kind == "weights")
    rate = weights.n_bytes / weights.seconds
    for bandwidth, limit in ((rate, "bandwidth"), (3 * rate, "compute")):
        known = {"gpu0": replace(TRUTH["loopback/1"], bandwidth_bytes_per_second=bandwidth)}
        assert weight_limits(known, near) == {"gpu0": limit}


def test_a_device_without_rates_is_refused():
    """Nothing is predicted for what was not calibrated."""
    with pytest.raises(InvalidSettings, match="gpu1"):
        placed(("gpu1",) * 5)


def test_an_uncalibrated_type_takes_the_nearest_in_size():
    """A type between two known ones is taken for the nearer."""
    few = device_rates("host", 1, 2.0, 0.0)
    known = {kind: few.matrices[kind] for kind in ("F16", "Q4_K")}
    whole = placed((HOST_DEVICE,) * 5, host=replace(few, matrices=known))
    spent = seconds(whole.decode(1), "weights")
    assert spent == pytest.approx(sum(known["Q4_K"].one_token(t.n_bytes, t.shape[1]) for t, _ in whole.tensors()))


def test_intensity_grows_with_the_tokens_that_pass_together():
    """A token of Q8_0 does just under two FLOP a byte; 512 together do 512 times that, less the end's."""
    assert intensity(MODEL, 1) == pytest.approx(2 * 32 / 34, rel=0.01)
    ends = [t for t in MODEL.tensors if t.name == "token_embd.weight" or t.name.startswith("blk.3.ffn_")]
    share = sum(t.n_elements for t in ends if len(t.shape) > 1) / sum(
        t.n_elements for t in MODEL.tensors if len(t.shape) > 1
    )
    assert intensity(MODEL, 512) / intensity(MODEL, 1) == pytest.approx(512 * (1 - share) + share)


MIXTURE = shape("qwen3-30b-a3b", "Q4_0", n_layer=4, n_vocab=2048)
EXPERT = next(t for t in MIXTURE.tensors if t.name == "blk.0.ffn_up_exps.weight")


def with_experts_on_host(n_layers: int = 2, **changes) -> PlacedModel:
    """Four layers on the loopback device, the experts of the first of them on the host."""
    moved = {t.name: HOST_DEVICE for t in MIXTURE.tensors if "_exps" in t.name and int(t.name.split(".")[1]) < n_layers}
    rates = {HOST_DEVICE: TRUTH["host/1"], "gpu0": TRUTH["loopback/1"]}
    return PlacedModel(MIXTURE, FAR.but(**changes), ("gpu0",) * 5, rates, {"gpu0": LINK}, moved)


def test_a_batch_reads_the_experts_that_its_tokens_draw():
    """Eight of 128 for a token, nearly all for a long prompt, as if they were drawn at random."""
    assert share_drawn(EXPERT, MIXTURE, 1) == pytest.approx(8 / 128)
    assert share_drawn(EXPERT, MIXTURE, 2) == pytest.approx(1 - (120 / 128) ** 2)
    assert share_drawn(EXPERT, MIXTURE, 512) > 0.999
    dense = next(t for t in MIXTURE.tensors if t.name == "blk.0.attn_q.weight")
    assert share_drawn(dense, MIXTURE, 1) == 1


def test_moved_experts_are_read_by_the_host_and_their_values_cross():
    """The host reads a sixteenth of their bytes for a token; each such block goes to the host and back."""
    whole, half = with_experts_on_host(0), with_experts_on_host(2)
    moved = 3 * 2 * EXPERT.n_bytes / 16
    read = {
        device: next(t.n_bytes for t in half.decode(100) if (t.kind, t.device) == ("weights", device))
        for device in (HOST_DEVICE, "gpu0")
    }
    assert read[HOST_DEVICE] == pytest.approx(moved)
    assert sum(read.values()) == pytest.approx(sum(t.n_bytes for t in whole.decode(100) if t.kind == "weights"))
    crossing = [seconds(step.decode(100), "link", "gpu0") for step in (whole, half)]
    values = 2 * (2 * MIXTURE.n_embd + 2 * 8) * 4
    assert crossing[1] - crossing[0] == pytest.approx(2 * LINK.crossing_seconds + values / LINK.bytes_per_second)


def test_repacked_experts_multiply_one_token_at_a_time():
    """A prompt takes as long as its tokens one by one; in the file's own layout those of an expert go together."""
    here = on_host(MIXTURE, Settings(n_ctx=512))
    assert here.matrix_seconds(EXPERT, HOST_DEVICE, 256) == pytest.approx(
        256 * here.matrix_seconds(EXPERT, HOST_DEVICE, 1)
    )
    own = replace(here, settings=here.settings.but(use_extra_bufts=False))
    n_drawn = 128 * share_drawn(EXPERT, MIXTURE, 256)
    each = TRUTH["host/1"].matrices["Q4_0"].batch(*EXPERT.shape[1::-1], 256 * 8 / n_drawn)
    assert own.matrix_seconds(EXPERT, HOST_DEVICE, 256) == pytest.approx(n_drawn * each)


def test_a_card_copies_the_experts_that_a_batch_needs():
    """For a large batch, of experts those in use; never for one token, or without op offload."""
    step = with_experts_on_host(2)
    on_card = replace(step, rates={**step.rates, "gpu0": replace(step.rates["gpu0"], on_cpu=False)})
    assert sum(t.n_bytes for t in on_card.weight_uploads("gpu0", 1)) == 0
    copied = sum(t.n_bytes for t in on_card.weight_uploads("gpu0", 64))
    assert copied == pytest.approx(6 * EXPERT.n_bytes * (1 - (120 / 128) ** 64))
    off = replace(on_card, settings=on_card.settings.but(op_offload=False))
    assert list(off.weight_uploads("gpu0", 64)) == []
