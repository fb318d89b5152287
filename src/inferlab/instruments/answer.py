"""What an instrument answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Answer:
    """The answer to one question.

    state    how its first line is marked: "yes" for good news, "no" for bad, "unsure" for neither, "refused" for none
    summary  the answer in one sentence
    view     all of it, see `views`
    data     the same numbers for other programs, as JSON has them; a "plan" in it is for the browser to carry out
    """

    state: str
    summary: str
    view: list[Any]
    data: dict[str, Any] | list[dict[str, Any]] = field(default_factory=dict)
