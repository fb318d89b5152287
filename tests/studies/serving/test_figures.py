"""Figures of requests over HTTP, and the dashboard."""

import pytest
from measurement_http import a_serving, a_stream, watched

from inferlab.engine.llama_server import Launch
from studies.serving import figures
from studies.serving.study import CLAIMED_MS, HttpRequest


def alt(figure):
    return figure.layout.meta["alt"]


def test_the_clock_has_a_bar_for_each_part():
    """Queue, prefill and decode of a request follow each other without a gap."""
    figure = figures.request_clock(a_serving([a_stream(), a_stream(sent=10.1, slot=1)], [Launch(10.2, 0)]))
    assert [trace.name for trace in figure.data] == ["queue", "prefill", "decode"]
    ends = [trace.base[0] + trace.x[0] for trace in figure.data]
    assert ends == pytest.approx([0.2, 0.5, 0.7])
    assert [trace.base[0] for trace in figure.data[1:]] == pytest.approx(ends[:2])
    assert len(figure.data[0].y) == 1  # a request whose launch is unknown has no bar
    assert "queue 200" in alt(figure)


def test_waits_and_rates_are_over_users():
    """Every request is a point of the waits; together and each are two lines of the rates."""
    one, two = a_serving([a_stream()], [Launch(10.2, 0)]), a_serving([a_stream()] * 2, [Launch(10.3, 0)] * 2)
    waits, rates = figures.http_waits([one, two]), figures.http_rates([one, two])
    assert list(waits.data[0].x) == [1, 2, 2]
    assert list(waits.data[3].y) == pytest.approx([200, 300])
    assert "2 users 500 ms, queue 300 ms" in alt(waits)
    assert list(rates.data[1].y) == pytest.approx([4 / 0.7, 8 / 0.7])
    assert "each" in alt(rates)


def test_first_tokens_over_length_stand_beside_the_claim():
    """The band is what is claimed, and the points are the lengths."""
    servings = [a_serving([a_stream()], [], [HttpRequest(n, 4)]) for n in (16, 256)]
    figure = figures.ttft_over_http(servings)
    assert (figure.layout.shapes[0].y0, figure.layout.shapes[0].y1) == CLAIMED_MS
    assert list(figure.data[1].x) == [16, 256]


def test_pauses_are_those_of_the_running_answers():
    """The long prompt is the last request; its first token is the other series."""
    fast, slow = (a_serving([a_stream(step=step), a_stream(sent=10.4, first=11.0, slot=1)], []) for step in (0.1, 0.3))
    arms = {"-b 128": [fast], "-b 2048": [slow]}
    figure = figures.longest_pauses(arms)
    assert list(figure.data[1].y) == pytest.approx([0.1, 0.3])
    assert list(figure.data[3].y) == pytest.approx([0.6, 0.6])
    shown = figures.running_answers(arms)
    assert list(shown.data[0].x) == pytest.approx([0.6, 0.6])
    assert list(shown.data[1].x)[:2] == pytest.approx([0.1, 0.2])
    assert "-b 2048 300" in alt(shown)


def test_the_dashboard_shows_clients_beside_what_was_scraped():
    """Four panels on one axis; the text says what each reached."""
    figure = figures.dashboard(watched(values=(0.0, 3.0)))
    assert [trace.name for trace in figure.data] == [
        "running",
        "waiting for a slot",
        "rate of the counter",
        "calls times running",
        "rate of the prompts' counter",
        "the gauge",
        "tokens that the clients got",
    ]
    assert "the rate of the counter is at most 3" in figure.layout.meta["alt"]
    assert figure.layout.xaxis4.title.text == "seconds since the first request"
