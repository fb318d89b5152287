"""What prose is held to, on pages and in the answers of instruments: the length of a sentence, and words to avoid."""

from __future__ import annotations

import re

LONGEST_SENTENCE = 32
UNWANTED = re.compile(
    r"\b(treads?|crowd|teeth|knobs?|mends?|foreseer|desk|the (?:old )?drawing|the story|the second version)\b",
    re.IGNORECASE,
)


def split(block: str) -> list[str]:
    """The sentences of a paragraph; a colon or a semicolon ends one, too."""
    return [sentence for sentence in re.split(r"(?<=[.!?:;])[\"”*)]*\s+", " ".join(block.split())) if sentence]
