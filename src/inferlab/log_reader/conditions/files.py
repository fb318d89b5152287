"""The model's file is not there, or is no model."""

from __future__ import annotations

import re

from inferlab.log_reader.conditions.found import Found
from inferlab.log_reader.observed import Observed

OPENING_FAILED = (
    r"failed to open GGUF file '([^']{0,300})'(?: \((?:errno )?(.{1,100}?)\))?\s*$",  # ggml 0.25.3; llama.cpp#18884
    r"error loading model: failed to open (\S.{0,300}?): (.{1,100}?)\s*$",  # src/llama-mmap.cpp
    r"Model path does not exist: (\S.{0,300}?)()\s*$",  # llama_cpp/_internals.py:54
)


NO_SUCH_FILE = ("No such file or directory", "")


def missing_file(seen: Observed) -> Found | None:
    """A model's file that is not there, or may not be read; older versions of llama.cpp do not say which."""
    for needle, pattern in zip(
        ("failed to open GGUF file", ": failed to open ", "Model path does not exist"), OPENING_FAILED, strict=True
    ):
        line = seen.first(needle)
        if line and (match := re.search(pattern, line.text)):
            return Found((line,), {"what": _not_opened(match[1], match[2])})
    return None


def _not_opened(name: str, why: str | None) -> str:
    if why in NO_SUCH_FILE:
        return f"There is no file {name}."
    return f"The file {name} could not be opened{f': {why}' if why else ': it is missing, or may not be read'}."


CONDITIONS = (missing_file,)
