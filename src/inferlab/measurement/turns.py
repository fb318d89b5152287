"""Sides measured in alternating order, so that a slow minute of the machine meets all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

Side = TypeVar("Side")
Taken = TypeVar("Taken")


def alternating(sides: Sequence[Side], rounds: Iterable[object]) -> Iterator[Side]:
    """Each side once a round, in every second round in reversed order."""
    for number, _ in enumerate(rounds):
        yield from sides if number % 2 == 0 else sides[::-1]


def in_turns(
    once: Callable[[Side], Taken], sides: Sequence[Side], rounds: Iterable[object]
) -> tuple[tuple[Taken, ...], ...]:
    """What `once` returns for each side, `alternating`: a tuple for each side with one result a round."""
    taken: list[list[Taken]] = [[] for _ in sides]
    for place in alternating(range(len(sides)), rounds):
        taken[place].append(once(sides[place]))
    return tuple(map(tuple, taken))
