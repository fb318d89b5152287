"""A recorded measurement in place of one that cannot answer its question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from inferlab.measurement.paired import Paired
from inferlab.measurement.run import Run
from inferlab.measurement.sweep import Sweep

Measured = TypeVar("Measured", Sweep, Paired, Sequence[Run])


def measured_or_recorded(measured: Measured, answers: bool, recorded: Callable[[], Measured]) -> tuple[Measured, str]:
    """(`measured`, a sentence that says so) if it `answers` the question; else (`recorded()`, whose machine it names).

    A lab asks about a difference that some machines do not show: two sides that are equally fast, pairs without a
    verdict, or a sweep whose points were dropped because the machine was disturbed.
    """
    if answers:
        return measured, "Measured on this machine."
    shown = recorded()
    runs = shown.runs if isinstance(shown, Sweep) else shown.before if isinstance(shown, Paired) else shown
    cpu = runs[0].machine.cpu
    return shown, f"The run on this machine cannot answer this question. Shown is the recorded run of another: {cpu}."
