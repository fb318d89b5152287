"""One recorded answer by the formulas of several programs."""

import pytest
from measurement_http import a_serving, a_stream

import inferlab as lab
from inferlab.engine.llama_server import Launch
from studies.serving import formulas


def test_programs_divide_the_same_times_differently():
    """guidellm's TPOT is above vLLM's by (TTFT - TPOT) / n, the page's equation."""
    reply = a_serving([a_stream(n_done=(1, 2, 3, 4))], [Launch(10.2, 0)]).replies[0]
    assert formulas.guidellm_tpot_ms(reply) == pytest.approx(1e3 * 0.8 / 4)
    assert formulas.vllm_tpot_ms(reply) == pytest.approx(1e3 * 0.3 / 3)
    difference = formulas.guidellm_tpot_ms(reply) - formulas.vllm_tpot_ms(reply)
    assert difference == pytest.approx((formulas.ttft_ms(reply) - formulas.vllm_tpot_ms(reply)) / reply.n_tokens)
    assert formulas.tpot_factor(reply) == pytest.approx(2)


def test_first_and_waiting_are_the_halves_of_eight():
    """Those that waited got their slot later than all that came first in their wave."""
    found = formulas.groups()
    assert len(found["first"]) == len(found["waited"]) == len(found["eight"]) / 2
    assert max(r.queue_seconds for r in found["first"]) < min(r.queue_seconds for r in found["waited"])


def test_the_queue_shows_in_ttft_and_in_one_tpot():
    """For answers that waited; vLLM's number hides it."""
    found = formulas.numbers()
    assert found["ttft_first_s"] < found["ttft_waited_s"]
    assert found["factor_one"] < found["factor_waited"]
    assert found["gap_p99"] < found["gap_most"]


def test_the_table_has_the_numbers_of_the_text():
    """A column for each group; the longest gap of eight users and both TTFT are those that the page names."""
    heads, rows = formulas.formulas_table()
    cells, found = {row[0]: dict(zip(heads, row, strict=True)) for row in rows}, formulas.numbers()
    assert cells["gap, longest, ms"]["8 users"] == found["gap_most"]
    assert cells["TTFT at the client, ms"]["last 4"] == pytest.approx(1e3 * found["ttft_waited_s"])
    whole = cells["whole run, tokens/s"]
    assert whole["first 4"] == whole["8 users"] == pytest.approx(whole["1 user"] * (1 + found["whole_gain"] / 100))


def test_benchmark_programs_agree_where_their_caches_do():
    """With equal tokens in the cache they differ less than from an empty one."""
    found = formulas.program_numbers(lab.load("epyc-2c/benchmark-programs"))
    assert 0 < found["bench_off"] < found["empty_gain"]
