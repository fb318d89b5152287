"""Waits and rates: a request, a crowd at one card, and a wish."""

import pytest
from fakes import made_run, scripted_pass

from studies.metrics import study
from studies.metrics.study import Published, Wish


def test_a_request_has_two_waits_and_three_rates():
    """Two passes with a first token after half a second, a prefill of 0.4 and gaps of a tenth, by hand."""
    run = made_run(passes=(scripted_pass(),) * 2)
    found = study.request_numbers(run, start=type("Start", (), {"wall_seconds": 2.0}))
    assert (found["ttft_ms"], found["tpot_ms"]) == pytest.approx((500, 100))
    assert (found["prefill_rate"], found["request_rate"]) == pytest.approx((8 / 0.4, 3 / 0.7))
    assert (found["start_ms"], found["load_ms"]) == (2000, 1250)
    assert found["footprint_mib"] >= found["weights_mib"] + found["kv_mib"] + found["compute_mib"]


def test_a_second_measurement_differs_and_a_crowd_loses_each():
    """Twice the wait is 100 per cent off; four at once with twice the tokens have half as many for each."""
    run, again = made_run(passes=(scripted_pass(),) * 2), made_run(passes=(scripted_pass(1.0, (0.05, 0.05)),) * 2)
    assert study.change_numbers(run, again) == pytest.approx({"ttft_change": 100, "tpot_change": 50})
    found = study.crowd_numbers(Published(1, 0.1, 50), Published(4, 0.5, 100))
    assert (found["throughput_gain"], found["tpot_loss"], found["ttft_loss"]) == (2, 2, 5)
    assert (found["each_of_many"], found["tpot_of_many"]) == (25, 40)


def test_assistants_finish_together_where_their_waits_are_equal():
    """TTFT and the later tokens of both at that length."""
    n = study.break_even()
    assert 0.2 + (n - 1) / 20 == pytest.approx(1.5 + (n - 1) / 60)


def test_a_wish_is_bytes_over_bandwidth_and_operations_over_time():
    """Twice the bandwidth is twice the rate; a prompt costs two operations for each weight and token."""
    wish = Wish(bandwidth=100e9, ttft_seconds=1, tokens_per_second=10, n_cells=2000, n_prompt=1000)
    found = study.wish_numbers("mistral-7b-v0.3", wish)
    assert found["decode_estimate"] == pytest.approx(100 / (found["weights_gb"] + found["kv_gb"]))
    assert found["share_needed"] == pytest.approx(1000 / found["decode_estimate"])
    assert found["needed_tflops"] == pytest.approx(2 * found["mistral_billions"])
    assert found["bits_per_weight"] == pytest.approx(8 * found["weights_gb"] / found["mistral_billions"])
