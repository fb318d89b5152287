"""A conversation's bounds and predictions: sums of bytes over rates, and of calibrated steps."""

from functools import cache

import pytest

import inferlab as lab
from inferlab.errors import InvalidSettings
from inferlab.prediction import fit
from inferlab.prediction.calibration import Calibration
from inferlab.prediction.decode_bound import token_bytes
from inferlab.prediction.link_rates import Rung
from studies.journey import chain as journey
from studies.journey.cold_start import Rate, recorded_rates

PLACES = journey.Places(Rung("disk", "disk", 1e9), Rung("bus", "bus", 2e9), Rung("ram", "host RAM", 4e9),
                        Rung("card", "VRAM", 8e9))  # fmt: skip
N_CTX = 4096
MODEL = lab.shape("mistral-7b-v0.3", "Q4_K_M")


@cache
def plan(**changes):
    settings = lab.Settings(n_ctx=N_CTX, flash_attn="on").but(**changes)
    return lab.predict_memory(MODEL, settings, fit.machine_for(vram="8GiB"), simulate=False)


def test_with_all_on_the_card_a_token_needs_its_bytes_once():
    """The card reads nearly all bytes of a token; the row of the embedding comes from RAM."""
    assert journey.least_token(plan(), MODEL, 100, PLACES) == pytest.approx(
        token_bytes(MODEL, depth=100) / 8e9, rel=1e-4
    )


def test_a_cache_in_ram_adds_its_cells_over_the_bus():
    """Each further cell takes its bytes over the slower of bus and RAM."""
    here = plan(offload_kqv=False)
    more = journey.least_token(here, MODEL, 1000, PLACES) - journey.least_token(here, MODEL, 0, PLACES)
    assert more == pytest.approx(1000 * 32 * 8 * (128 + 128) * 2 / 2e9)


def test_layers_in_ram_are_read_at_its_rate():
    """With layers in RAM the bound is longer, by their bytes at RAM's rate instead of the card's."""
    fewer = journey.least_token(plan(n_gpu_layers=17), MODEL, 0, PLACES)
    assert journey.least_token(plan(), MODEL, 0, PLACES) < fewer < 2 * journey.least_token(plan(), MODEL, 0, PLACES)


def test_an_answer_is_the_sum_of_its_tokens():
    """The mean of first and last token counts for all."""
    each = sum(journey.least_token(plan(), MODEL, depth, PLACES) for depth in range(50, 60))
    assert journey.least_answer(plan(), MODEL, 50, 10, PLACES) == pytest.approx(each)


def test_a_prompt_reads_the_weights_once_for_each_ubatch():
    """A token more than a ubatch doubles the bound."""
    one, two = (journey.least_prompt(plan(), MODEL, n, PLACES) for n in (512, 513))
    assert two == pytest.approx(2 * one)


def test_a_prompt_with_blocks_in_ram_has_no_such_bound():
    """The bound counts the card alone, so it is refused with blocks on the host."""
    with pytest.raises(InvalidSettings, match="Blocks lie on the host"):
        journey.least_prompt(plan(n_gpu_layers=17), MODEL, 512, PLACES)


def test_the_clock_has_whole_turns_and_never_goes_back():
    """It begins with the load and ends where the context has no room for another turn."""
    points = journey.least_clock(plan(), MODEL, 1500, 500, PLACES)
    assert points[0] == (sum(journey.least_start(plan(), MODEL, PLACES).values()), 0)
    assert [n for _, n in points] == [0, 1500, 2000, 3500, 4000]
    assert points == sorted(points)


def test_a_link_adds_only_to_the_start_where_a_device_holds_weights():
    """The predicted start has the device's bytes over the calibrated link."""
    model = lab.shape("llama-3.2-1b", "Q4_K_M", n_layer=5, n_vocab=32_768)
    calibration, place = Calibration.load("epyc-2c"), Rate(1e9, "given")
    alone, there = lab.Settings(devices=(), n_gpu_layers=0), lab.Settings(rpc_servers=("127.0.0.1:50052",))
    found = [
        journey.predicted_phases(model, one.but(n_ctx=1024, n_threads=1), calibration, recorded_rates(), place, 100, 33)
        for one in (alone, there)
    ]
    sent = lab.predict_memory(model, there.but(n_ctx=1024), simulate=False).devices["gpu0"].weights_bytes
    rate = calibration.links["loopback/1"].bytes_per_second
    assert found[1]["start"] - found[0]["start"] == pytest.approx(sent / rate)
    assert set(found[0]) == {"start", "prefill", "decode"}
