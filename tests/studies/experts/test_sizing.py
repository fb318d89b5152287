"""Where a model lies on given parts, the bound that follows, and what another part gains."""

from dataclasses import replace

import pytest

import inferlab as lab
from inferlab.prediction.decode_bound import active_text, token_bytes
from inferlab.units import GIB, bytes_text
from studies.experts.sizing import Parts, place, placings

PARTS = Parts(vram_bytes=32 * GIB, vram_rate=1792e9, ram_bytes=120 * GIB, ram_rate=89.6e9)
DENSE, MIXTURE = lab.shape("llama-3.1-70b", "Q4_K_M"), lab.shape("qwen3-235b-a22b", "Q3_K_M")


def test_a_model_that_fits_reads_nothing_from_ram():
    """But for a row of the embedding; the bound is then bandwidth over the bytes of a token."""
    model = lab.shape("llama-3.1-8b", "Q8_0")
    found = place(model, PARTS, 8192)
    assert (found.in_ram, found.n_moved) == ("nothing", 0)
    assert found.ram_read < 10_000
    assert found.tokens_per_second(PARTS) == pytest.approx(PARTS.vram_rate / token_bytes(model), rel=1e-4)


@pytest.mark.parametrize(("model", "moved"), [(DENSE, "layers"), (MIXTURE, "experts")])
def test_the_card_is_filled_and_no_byte_is_lost(model, moved):
    """Less is left on the card than one more layer needs; both memories together read what a token needs."""
    found = place(model, PARTS, 8192)
    assert found.in_ram == moved
    assert found.vram_read + found.ram_read == pytest.approx(token_bytes(model), rel=1e-6)
    left = PARTS.vram_bytes - GIB - found.vram_bytes
    assert 0 <= left < 2 * model.tensor_bytes / model.n_layer


def test_experts_in_ram_cost_less_time_than_their_bytes():
    """A token reads 8 of 128 experts, so of the bytes in RAM a sixteenth, but for the embedding."""
    found = place(MIXTURE, PARTS, 8192)
    experts = [t.n_bytes for t in MIXTURE.tensors if "_exps" in t.name and int(t.name.split(".")[1]) < found.n_moved]
    assert found.ram_read == pytest.approx(sum(experts) / 16, rel=0.01)


def test_active_bytes_are_told_apart_from_all():
    """Of a mixture of experts both; a dense model's token reads all, so nothing is said."""
    read, every = bytes_text(token_bytes(MIXTURE, depth=-1)), bytes_text(MIXTURE.tensor_bytes)
    assert active_text(MIXTURE).endswith(f"8 of 128 experts in each layer: it reads {read} of the {every} of weights.")
    assert active_text(DENSE) == ""


def test_ram_that_is_too_small_is_told():
    """What left the card must fit into RAM."""
    found = place(MIXTURE, PARTS, 8192)
    assert found.fits(PARTS)
    assert not found.fits(replace(PARTS, ram_bytes=32 * GIB))


@pytest.mark.parametrize("in_ram", ["layers", "experts"])
def test_every_placing_contains_the_one_that_fits(in_ram):
    """One for each number of layers; the card holds less with each layer that leaves, and a token reads more in RAM."""
    model = lab.shape("qwen3-30b-a3b", "Q4_K_M")
    small = replace(PARTS, vram_bytes=8 * GIB)
    every = placings(model, small, 8192, 100, in_ram)
    found = place(model, small, 8192, 100, whole_layers=in_ram == "layers")
    assert every[found.n_moved] == found
    assert every[0].in_ram == "nothing"
    assert len(every) == model.n_layer + (2 if in_ram == "layers" else 1)
    assert [one.ram_read for one in every] == sorted(one.ram_read for one in every)
    assert every[-1].vram_bytes < every[found.n_moved].vram_bytes < every[0].vram_bytes
