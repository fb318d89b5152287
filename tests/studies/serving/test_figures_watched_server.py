"""Figures of monitoring: the dashboard, and utilization over windows."""

from measurement_http import watched

from inferlab.measurement.telemetry.samples import Sample
from studies.serving import figures as serving_figures
from studies.utilization import figures as utilization_figures


def test_the_dashboard_shows_clients_beside_what_was_scraped():
    """Four panels on one axis; the text says what each reached."""
    figure = serving_figures.dashboard(watched(values=(0.0, 3.0)))
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


def test_windows_of_one_recording_are_lines():
    """Each says its length; the text has the range of each."""
    recorded = [Sample(0.0), *(Sample(0.1 * i, cpu_percent=(100 * (i % 2),)) for i in range(1, 11))]
    figure = utilization_figures.averaged_utilization(recorded, (0.1, 1.0))
    assert [trace.name for trace in figure.data] == ["mean of 0.1 s", "mean of 1 s"]
    assert "mean of 0.1 s: 0 to 100 %" in figure.layout.meta["alt"]
