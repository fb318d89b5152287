"""The figure of utilization over windows."""

from inferlab.measurement.telemetry.samples import Sample
from studies.utilization import figures


def test_windows_of_one_recording_are_lines():
    """Each says its length; the text has the range of each."""
    recorded = [Sample(0.0), *(Sample(0.1 * i, cpu_percent=(100 * (i % 2),)) for i in range(1, 11))]
    figure = figures.averaged_utilization(recorded, (0.1, 1.0))
    assert [trace.name for trace in figure.data] == ["mean of 0.1 s", "mean of 1 s"]
    assert "mean of 0.1 s: 0 to 100 %" in figure.layout.meta["alt"]
