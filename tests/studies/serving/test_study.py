"""Requests over HTTP: their times, and what the pages say of the recorded ones."""

import json
from dataclasses import replace
from statistics import median

import pytest
from measurement_http import a_serving, a_stream, watched

from inferlab.engine.llama_server import Launch
from inferlab.records import shipped
from studies.serving import measure, study
from studies.serving.over_http import beside_long_prompt, one_after_another
from studies.serving.study import QUERIES, WINDOW_SECONDS, Series, longest_pause, scraping


def test_a_request_has_three_parts():
    """Queue, prefill and decode follow each other from sending to the last text."""
    reply = a_serving([a_stream()], [Launch(10.2, 0)]).replies[0]
    parts = reply.queue_seconds, reply.prefill_seconds, reply.decode_seconds
    assert parts == pytest.approx((0.2, 0.3, 0.2))
    assert sum(parts[:2]) == pytest.approx(reply.ttft_seconds)
    assert reply.pauses == pytest.approx((0.1, 0.1))


def test_events_are_not_tokens():
    """An event with two tokens counts twice; the rate leaves out the first event, whose time is not decode."""
    reply = a_serving([a_stream(n_done=(1, 2, 4))], [Launch(10.2, 0)]).replies[0]
    assert (reply.event_tokens, reply.n_tokens) == ((1, 1, 2), 4)
    assert reply.tokens_per_second == pytest.approx(3 / 0.2)
    assert a_serving([a_stream(n_done=(3,))], []).replies[0].tokens_per_second is None


def test_waiting_counts_for_the_total_rate():
    """Tokens of all answers over the time from the first sending to the last text."""
    both = [a_stream(), a_stream(sent=10.1, first=11.5)]
    assert a_serving(both, []).tokens_per_second == pytest.approx(8 / 1.7)


def test_the_longest_pause_is_that_of_the_others():
    """The long prompt itself, which is sent last, does not count."""
    streams = [a_stream(step=0.1), a_stream(step=0.2, slot=1), a_stream(sent=10.4, first=11, step=5.0)]
    assert longest_pause(a_serving(streams, [])) == pytest.approx(0.2)


def test_clients_saw_the_tokens_of_the_window():
    """Four tokens in the first second; a window later there is none."""
    one = watched()
    assert one.tokens_seen([0.4, 1.0, 1.0 + WINDOW_SECONDS]) == (0.0, 4 / WINDOW_SECONDS, 0.0)


def test_series_are_found_by_name():
    """In the order of the queries."""
    assert watched().series_of("waiting").query == QUERIES["waiting"]


def test_values_between_two_times():
    """Both ends are part of it."""
    assert Series("x", (1.0, 2.0, 3.0), (4.0, 5.0, 6.0)).between(2.0, 3.0) == (5.0, 6.0)


def test_the_cost_of_reading_is_a_ratio_of_pairs():
    """Rates with the reader over rates without it."""
    slow, fast = (a_serving([a_stream(step=step)], [Launch(10.2, 0)]) for step in (0.2, 0.1))
    ratio, (low, high) = (found := scraping([fast, slow] * 10)).ratio, found.ends
    assert (ratio, low, high) == pytest.approx((0.5, 0.5, 0.5))


def test_the_recorded_counter_came_late():
    """What the page says: nothing during the long answer, and the same tokens in the end."""
    one = study.watched()
    long_answer = one.replies[0]
    middle = WINDOW_SECONDS, long_answer.ended_seconds - 1
    assert max(one.series_of("answers").between(*middle)) == 0
    assert min(one.series_of("calls").between(*middle)) > 0
    counted = sum(one.series_of("answers").values) * one.interval_seconds
    assert counted == pytest.approx(sum(reply.n_tokens for reply in one.replies), rel=0.05)


def raw(name):
    """The waves of a record as they are in its file."""
    return json.loads(shipped()[f"epyc-2c/{name}"].read_text(encoding="utf-8"))["sequence"]


def test_the_page_has_medians_of_all_requests():
    """Queue, first token and share of the queue, computed again from the file's own times."""
    found, waves = study.numbers(), [one["replies"] for one in raw("http-users")]
    replies = [reply for wave in waves if len(wave) == 16 for reply in wave]
    queue = [r["launched_seconds"] - r["sent_seconds"] for r in replies]
    first = [r["event_seconds"][0] - r["sent_seconds"] for r in replies]
    assert found["queue_16"] == pytest.approx(1e3 * median(queue))
    assert found["first_16"] == pytest.approx(1e3 * median(first))
    assert found["queue_share_16"] == pytest.approx(100 * median(q / f for q, f in zip(queue, first, strict=True)))
    assert found["early_8"] < found["late_8"]


def test_a_smaller_batch_shortens_the_pause():
    """What the page advises: a smaller ubatch alone does nothing, and the price is the long prompt's first token."""
    found = study.numbers()
    assert found["ub_said"] == "It stayed about the same"
    assert found["pause_expected"] < found["pause_small"] < found["pause_large"]
    assert found["long_large"] < found["long_small"]
    assert found["n_shorter"] == found["n_pairs"]


def test_events_of_letters_carry_several_tokens():
    """The counts of the file."""
    found = study.numbers()
    replies = [reply for one in raw("http-events") for reply in one["replies"] if reply["request"]["grammar"]]
    sizes = [n for reply in replies for n in reply["event_tokens"]]
    assert (found["letters_events"], found["letters_tokens"]) == (len(sizes), sum(sizes))
    assert found["letters_events"] < found["letters_tokens"]


def test_the_claim_holds_for_short_prompts_alone():
    """What the page says: lengths up to some are inside the claim, the longest is far beyond it."""
    found = study.numbers()
    least, most = (int(n) for n in found["inside"].split(" to "))
    assert found["least_length"] <= least <= most < found["most_length"]
    assert found["ttft_least"] < study.CLAIMED_MS[1] < 1e3 * found["ttft_most"]


def test_the_metrics_of_the_long_answer():
    """Calls times running requests are what the client got; the counter and the gauge say nothing until the end."""
    found = study.watched_numbers()
    assert found["calls_during"] == pytest.approx(found["seen_during"], rel=0.05)
    assert found["counter_during"] == found["gauge_during"] == 0 < found["counter_after"]


def test_recipes_send_what_the_records_have():
    """The requests of a wave, whose seeds are counted on from wave to wave."""
    for name, sent in (("order", one_after_another()), ("long-prompt", beside_long_prompt())):
        recorded = sorted((reply.request for reply in study.recorded(name)[0].replies), key=lambda one: one.seed)
        assert [replace(one, seed=one.seed % 1000) for one in recorded] == sent
    minute = sorted((reply.request for reply in study.watched().replies), key=lambda one: one.seed)
    assert [replace(one, seed=one.seed - 1000) for one in minute] == measure.a_minute_of_work()
