"""Measurements in the queue: each waits for its turn as a whole, and is queued again if its engine is killed."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from inferlab import progress
from inferlab.engine import measurement_queue
from inferlab.errors import EngineCrashed

MOST_INTERRUPTIONS = 3  # then it may be the memory that is too small, and not an accident

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def queued(measure: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """A function that measures within one turn (INFERLAB_QUEUE); without a queue it is called as it is.

    If its engine is killed by another process or by the system, it measures again, behind those who wait by then.
    After MOST_INTERRUPTIONS kills, and at once after a crash of llama.cpp itself, it raises EngineCrashed.
    """

    @wraps(measure)
    def in_turn(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        if measurement_queue.folder() is None or measurement_queue.is_inside():
            return measure(*args, **kwargs)
        with measurement_queue.one_turn():
            for _ in range(MOST_INTERRUPTIONS - 1):
                try:
                    return _in_turn(measure, *args, **kwargs)
                except EngineCrashed as crash:
                    if not crash.killed:
                        raise
                    progress.note("The engine was killed during the measurement, which is queued again.")
                    measurement_queue.again()
            return _in_turn(measure, *args, **kwargs)

    return in_turn


def _in_turn(measure: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
    with measurement_queue.turn():
        return measure(*args, **kwargs)
