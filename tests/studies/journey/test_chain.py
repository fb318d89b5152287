"""A conversation's bounds and predictions: sums of bytes over rates, and of calibrated steps."""

from functools import cache

import pytest

import inferlab as lab
from inferlab.prediction.calibration import Calibration
from inferlab.prediction.decode_bound import token_bytes
from inferlab.prediction.free_memory import machine_for
from inferlab.prediction.link_rates import Rung
from studies.journey import chain

PLACES = chain.Places(
    Rung("disk", "disk", 1e9), Rung("bus", "bus", 2e9), Rung("ram", "host RAM", 4e9), Rung("card", "VRAM", 8e9)
)
MODEL = lab.shape("mistral-7b-v0.3", "Q4_K_M")


@cache
def plan(**changes):
    settings = lab.Settings(n_ctx=4096, flash_attn="on").but(**changes)
    return lab.predict_memory(MODEL, settings, machine_for(vram="8GiB"), simulate=False)


def least_token(depth=0, **changes):
    return chain.least_token(plan(**changes), MODEL, depth, PLACES)


def test_with_all_on_the_card_a_token_needs_its_bytes_once():
    """The card reads nearly all bytes of a token; the row of the embedding comes from RAM."""
    assert least_token(100) == pytest.approx(token_bytes(MODEL, depth=100) / 8e9, rel=1e-4)


def test_a_cache_in_ram_adds_its_cells_over_the_bus():
    """Each further cell takes its bytes over the slower of bus and RAM."""
    more = least_token(1000, offload_kqv=False) - least_token(0, offload_kqv=False)
    assert more == pytest.approx(1000 * 32 * 8 * (128 + 128) * 2 / 2e9)


def test_layers_in_ram_are_read_at_its_rate():
    """With layers in RAM the bound is longer, by their bytes at RAM's rate instead of the card's."""
    assert least_token() < least_token(n_gpu_layers=17) < 2 * least_token()


def test_an_answer_is_the_sum_of_its_tokens():
    """The mean of first and last token counts for all."""
    each = sum(least_token(depth) for depth in range(50, 60))
    assert chain.least_answer(plan(), MODEL, 50, 10, PLACES) == pytest.approx(each)


def test_a_prompt_reads_the_weights_once_for_each_ubatch():
    """A token more than a ubatch doubles the bound."""
    one, two = (chain.least_prompt(plan(), MODEL, n, PLACES) for n in (512, 513))
    assert two == pytest.approx(2 * one)


def test_the_clock_has_whole_turns_and_never_goes_back():
    """It begins with the load and ends where the context has no room for another turn."""
    points = chain.least_clock(plan(), MODEL, 1500, 500, PLACES)
    assert points[0] == (sum(chain.least_start(plan(), MODEL, PLACES).values()), 0)
    assert [n for _, n in points] == [0, 1500, 2000, 3500, 4000]
    assert points == sorted(points)


def test_a_link_adds_only_to_the_start_where_a_device_holds_weights():
    """The predicted start has the device's bytes over the calibrated link; the whole is the sum."""
    model = lab.shape("llama-3.2-1b", "Q4_K_M", n_layer=5, n_vocab=32_768)
    calibration = Calibration.load("epyc-2c")
    alone, there = lab.Settings(devices=(), n_gpu_layers=0), lab.Settings(rpc_servers=("127.0.0.1:50052",))
    found = [
        chain.predicted_phases(model, one.but(n_ctx=1024, n_threads=1), calibration, 0.5, 100, 33)
        for one in (alone, there)
    ]
    sent = lab.predict_memory(model, there.but(n_ctx=1024), simulate=False).devices["gpu0"].weights_bytes
    assert found[0]["start"] == 0.5
    assert found[1]["start"] == pytest.approx(0.5 + sent / calibration.links["loopback/1"].bytes_per_second)
    assert all(one["whole"] == pytest.approx(one["start"] + one["prefill"] + one["decode"]) for one in found)
