"""Tables of speed plans against models and requests that took no part in a calibration, for appendix A."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from handbook.cells import table
from inferlab.prediction import validation
from inferlab.prediction.validation import Accuracy, Checked

PHASES = validation.PHASES


def by_machine(accuracies: Mapping[str, Accuracy]):
    """A row for each machine and phase: errors, what was allowed, and how many rates lie inside the band."""
    rows = [_machine_row(name, accuracy, phase) for name, accuracy in accuracies.items() for phase in PHASES]
    return table(("machine, phase", "median error", "at most allowed", "largest error", "rates inside the band"), rows)


def left_out(accuracy: Accuracy):
    """A row for each left-out model, kind of request and type of weights: median errors and rates inside the band."""
    groups: dict[str, Mapping[str, Sequence[Checked]]] = {
        **validation.by_group(accuracy, lambda point: f"{point.name} {point.mix}"),
        **validation.by_group(accuracy, lambda point: point.request),
        "the type of most weights: the nearest type stands in": validation.with_types_left_out(accuracy),
    }
    heads = ("group", "prefill and decode, median error", "inside the band")
    return table(heads, [_group_row(name, phases) for name, phases in groups.items()])


def _machine_row(name: str, accuracy: Accuracy, phase: str) -> tuple[str, ...]:
    checked = accuracy.checked(phase)
    median, most = validation.median_error(checked), validation.required_error(accuracy.points, phase)
    largest = max(abs(rate.error) for rate in checked)
    return (
        f"{name}, {phase}",
        f"{100 * median:.0f} %",
        f"{100 * most:.0f} %",
        f"{100 * largest:.0f} %",
        f"{_inside(checked)} inside {100 * accuracy.calibration.bands[phase]:.0f} %",
    )


def _group_row(name: str, phases: Mapping[str, Sequence[Checked]]) -> tuple[str, str, str]:
    errors = " and ".join(f"{100 * validation.median_error(phases[phase]):.0f} %" for phase in PHASES)
    return name, errors, _inside([rate for phase in PHASES for rate in phases[phase]])


def _inside(checked: Sequence[Checked]) -> str:
    return f"{sum(rate.inside for rate in checked)} of {len(checked)}"
