"""The queue of measurements: processes that share a machine take turns, so that no two of them time at once.

INFERLAB_QUEUE names a folder that they share; without it there is no queue, and nothing here touches a file.
Who waits or measures has a file with its number there, and a lock on it. The system takes the lock away when the
process ends, however it ends, so nobody waits for the dead; a process that is stopped (SIGSTOP) keeps its turn.
The places are those of processes: the threads and engines of one process share a turn.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from inferlab import progress
from inferlab.engine import cpu_time
from inferlab.errors import QueueUnavailable

if TYPE_CHECKING:
    from filelock import FileLock

VARIABLE = "INFERLAB_QUEUE"
SUFFIX = ".place"
SHARED_MODE = 0o666  # whoever may write the folder may use the queue, as any user of the system
LOOK_SECONDS, MOST_LOOK_SECONDS = 0.1, 1.0  # between two looks at the queue: for each who is ahead, and at most
QUIET_PROCESSORS = 0.1
NO_QUEUE = nullcontext()


@dataclass(frozen=True)
class Turn:
    """The turn in which something was measured.

    n_ahead          measurements that were before it in the queue
    waited_seconds   from joining the queue to the turn
    seconds          of the turn, until the measurement was complete
    others           processors that other processes kept busy during the turn, on average
    n_interrupted    how often its engine was killed, and the measurement queued again
    """

    n_ahead: int
    waited_seconds: float
    seconds: float
    others: float
    n_interrupted: int = 0

    @property
    def quiet(self) -> bool:
        """Whether others used at most a tenth of one processor."""
        return self.others <= QUIET_PROCESSORS

    @property
    def label(self) -> str:
        """`quiet`, or `disturbed` with how much others computed."""
        return "quiet" if self.quiet else f"disturbed: others used {self.others:.2g} processors"


# --- places in a folder -----------------------------------------------------------------------


class Place:
    """A place in the queue of a folder: taken when made, given up by `leave` or by the end of the process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with self._gate():
                self.number = max(self._numbers(), default=0) + 1
                self._lock = _lock(self._file(self.number))
                self._lock.acquire(timeout=0)
        except OSError as error:
            raise QueueUnavailable(
                f"{VARIABLE} names {folder}, where no place in the queue could be taken: {error}. "
                "Name a folder that every user of the queue may write, or unset the variable."
            ) from error

    def n_ahead(self) -> int:
        """How many living processes have a lower number; what the dead left is removed."""
        with self._gate():
            return sum(self._is_taken(number) for number in self._numbers() if number < self.number)

    def n_before(self) -> int:
        """The same at less cost, for many who wait: only the foremost place is looked at, so the dead behind it count.

        Twenty who wait should not disturb the one who measures.
        """
        before = sorted(number for number in self._numbers() if number < self.number)
        if before and not self._is_taken(before[0]):
            return len(before) - 1
        return len(before)

    def leave(self) -> None:
        """Give the place up."""
        with self._gate():
            self._lock.release()
            self._file(self.number).unlink(missing_ok=True)

    def _is_taken(self, number: int) -> bool:
        from filelock import Timeout

        try:
            with _lock(self._file(number)).acquire(timeout=0):
                pass
        except Timeout:
            return True
        self._file(number).unlink(missing_ok=True)
        return False

    def _numbers(self) -> list[int]:
        return [int(path.stem) for path in self.folder.glob(f"*{SUFFIX}") if path.stem.isdecimal()]

    def _file(self, number: int) -> Path:
        return self.folder / f"{number}{SUFFIX}"

    def _gate(self) -> FileLock:
        """Whoever reads or changes the places holds this lock, for less than a millisecond."""
        return _lock(self.folder / "gate")


def _lock(path: Path) -> FileLock:
    from filelock import FileLock

    return FileLock(path, mode=SHARED_MODE, thread_local=False, poll_interval=0.005)


# --- this process's turn ----------------------------------------------------------------------


@dataclass
class _Began:
    """The start of a turn: time.perf_counter(), the others' processor seconds by then, and how it came to it."""

    at: float
    others: float
    n_ahead: int
    waited_seconds: float


class _Holder:
    """The place of this process, shared by all that asks for a turn while another block still has it."""

    def __init__(self) -> None:
        self.joining, self.counting = threading.Lock(), threading.Lock()
        self.depth = self.n_interrupted = 0
        self.place: Place | None = None
        self.began: _Began | None = None

    def enter(self) -> None:
        with self.counting:
            self.depth += 1

    def leave(self) -> None:
        with self.counting:
            self.depth -= 1
            if self.depth == 0:
                self.give_up()

    def give_up(self) -> None:
        place, self.place, self.began, self.n_interrupted = self.place, None, None, 0
        if place is not None:
            place.leave()

    def join(self, folder: Path) -> None:
        """Wait for the turn, unless this process has it."""
        with self.joining:
            if self.began is None:
                joined, self.place = time.perf_counter(), Place(folder)
                try:
                    n_ahead = _wait(self.place)
                except BaseException:
                    self.give_up()
                    raise
                others, now = cpu_time.other_seconds(), time.perf_counter()
                self.began = _Began(now, others, n_ahead, now - joined)


_HOLDER = _Holder()


def _wait(place: Place) -> int:
    """Wait until nobody is ahead, with a line that says how many are; how many there were at first."""
    first = n_ahead = place.n_ahead()
    if n_ahead:
        shown = 0
        with progress.status() as show:
            while n_ahead:
                if n_ahead != shown:
                    show(f"waiting for {n_ahead} measurement{'s' if n_ahead > 1 else ''} before this one")
                shown = n_ahead
                time.sleep(min(MOST_LOOK_SECONDS, LOOK_SECONDS * n_ahead))
                n_ahead = place.n_before()
    return first


def folder() -> Path | None:
    """The folder that INFERLAB_QUEUE names; None without a queue."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


def turn() -> AbstractContextManager[None]:
    """Wait for this process's turn and keep it while the block runs; at once where it has it, or without a queue."""
    where = folder()
    return NO_QUEUE if where is None else _turn(where)


@contextmanager
def _turn(where: Path) -> Iterator[None]:
    with one_turn():
        _HOLDER.join(where)
        yield


@contextmanager
def one_turn() -> Iterator[None]:
    """The first `turn` in this block is kept until its end; without one inside, nobody waits."""
    _HOLDER.enter()
    try:
        yield
    finally:
        _HOLDER.leave()


def is_inside() -> bool:
    """Whether this process is inside a turn, or a block that keeps one."""
    return _HOLDER.depth > 0


def again() -> None:
    """Give this process's turn up, to be queued again behind the others; the next `Turn` counts the interruption."""
    n_interrupted = _HOLDER.n_interrupted + 1
    _HOLDER.give_up()
    _HOLDER.n_interrupted = n_interrupted


def present_turn() -> Turn | None:
    """This process's turn so far, None where it has none; it is made at least cpu_time.LEAST_SECONDS long."""
    began = _HOLDER.began
    if began is None:
        return None
    seconds, others = cpu_time.since(began.at, began.others)
    return Turn(began.n_ahead, began.waited_seconds, seconds, others, _HOLDER.n_interrupted)
