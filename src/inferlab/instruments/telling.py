"""How far a long answer is, for a front end that listens."""

from __future__ import annotations

from collections.abc import Callable

hears: Callable[[str], None] | None = None
"""What a front end does with such a text; None where nobody listens."""


def tell(text: str) -> None:
    """Say how far an answer is."""
    if hears is not None:
        hears(text)
