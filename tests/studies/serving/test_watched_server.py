"""A server with Prometheus beside it: what clients saw, what was scraped, what reading costs."""

import pytest
from measurement_http import a_serving, a_stream, watched

import inferlab as lab
from inferlab.engine.llama_server import Launch
from studies.serving.watched_server import (
    QUERIES,
    WINDOW_SECONDS,
    a_minute_of_work,
    scraping_ratio,
)


def test_clients_saw_the_tokens_of_the_window():
    """Four tokens in the first second; a window later there is none."""
    one = watched()
    assert one.tokens_seen([0.4, 1.0, 1.0 + WINDOW_SECONDS]) == (0.0, 4 / WINDOW_SECONDS, 0.0)


def test_series_are_found_by_name():
    """In the order of the queries."""
    assert watched().of("waiting").query == QUERIES["waiting"]


def test_the_work_has_three_parts():
    """One long answer, users at one moment, long prompts."""
    found = a_minute_of_work(n_gen=80, n_users=2, n_readers=1)
    assert [(one.n_prompt, one.n_gen) for one in found] == [(32, 80), (64, 10), (64, 10), (1500, 8)]
    assert found[1].after_seconds == found[2].after_seconds < found[3].after_seconds


def test_the_cost_of_reading_is_a_ratio_of_pairs():
    """Rates with the reader over rates without it."""
    slow, fast = (a_serving([a_stream(step=step)], [Launch(10.2, 0)]) for step in (0.2, 0.1))
    ratio, (low, high) = scraping_ratio([fast, slow] * 10)
    assert (ratio, low, high) == pytest.approx((0.5, 0.5, 0.5))


def test_the_recorded_counter_came_late():
    """What the page says: nothing during the long answer, and the same tokens in the end."""
    one = lab.load("epyc-2c/watched-server")
    long_answer = one.replies[0]
    middle = WINDOW_SECONDS, long_answer.ended_seconds - 1
    assert max(one.of("answers").between(*middle)) == 0
    assert min(one.of("calls").between(*middle)) > 0
    counted = sum(one.of("answers").values) * one.interval_seconds
    assert counted == pytest.approx(sum(reply.n_tokens for reply in one.replies), rel=0.05)


def test_nothing_but_the_names_of_the_metrics_is_asked_for():
    """Each query names a metric of llama-server."""
    assert all("llamacpp:" in query for query in QUERIES.values())
