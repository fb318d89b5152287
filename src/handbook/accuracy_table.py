"""Tables of speed plans against models and requests that took no part in a calibration, for appendix A."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from inferlab.prediction import validation
from inferlab.prediction.validation import Accuracy, Checked, Point

PHASES = validation.PHASES


def by_machine(found: Mapping[str, Accuracy]):
    """A row for each machine and phase: errors, what was allowed, and how many lie inside the band."""
    from IPython.display import Markdown

    head = "| machine | phase | rates | median | allowed | largest | inside | band |"
    rows = [_machine_row(name, accuracy, phase) for name, accuracy in found.items() for phase in PHASES]
    return Markdown("\n".join([head, "|---|---|--:|--:|--:|--:|--:|--:|", *rows]))


def left_out(accuracy: Accuracy):
    """A row for each left-out model, kind of request and type of weights: median errors and rates inside the band."""
    from IPython.display import Markdown

    head = "| group | rates of each phase | prefill, median error | decode, median error | inside the band |"
    rows = _rows(accuracy, "model", lambda point: f"{point.name} {point.mix}")
    rows += _rows(accuracy, "request", lambda point: point.request)
    rows.append(_row("the type of most weights: the nearest type stands in", validation.with_types_left_out(accuracy)))
    return Markdown("\n".join([head, "|---|--:|--:|--:|--:|", *rows]))


def _machine_row(name: str, accuracy: Accuracy, phase: str) -> str:
    checked, allowed = accuracy.checked(phase), validation.required_error(accuracy.points, phase)
    largest = max(abs(one.error) for one in checked)
    numbers = validation.median_error(checked), allowed, largest, validation.share_inside(checked)
    percents = " | ".join(f"{100 * number:.0f} %" for number in (*numbers, accuracy.calibration.bands[phase]))
    return f"| {name} | {phase} | {len(checked)} | {percents} |"


def _rows(accuracy: Accuracy, kind: str, group: Callable[[Point], str]) -> list[str]:
    return [_row(f"{kind}: {name}", phases) for name, phases in validation.by_group(accuracy, group).items()]


def _row(name: str, phases: Mapping[str, Sequence[Checked]]) -> str:
    errors = " | ".join(f"{100 * validation.median_error(phases[phase]):.0f} %" for phase in PHASES)
    checked = [one for phase in PHASES for one in phases[phase]]
    return f"| {name} | {len(phases[PHASES[0]])} | {errors} | {sum(one.inside for one in checked)} of {len(checked)} |"
