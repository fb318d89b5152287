"""Where the last load of a log begins: a log may hold many, and everything else is read from the last one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from inferlab.log_reader.text import LogText

LOAD_STARTS = (
    "llama_model_loader: loaded meta data with",  # src/llama-model-loader.cpp:722
    "load_model: loading model '",  # tools/server/server-context.cpp:1023
    "main: loading model\n",  # before 2025
)
PREPARATORY = ("vocab only - skipping tensors", "no_alloc              = 1")
"""src/llama.cpp:365 (Ollama reads the vocabulary first), src/llama-model.cpp:2069 (the simulation of `-fit`)"""
DRAFT = "loading draft model"  # common/speculative.cpp
RUNNING = re.compile(
    r"eval time {1,8}=|llama_perf|llama_print_timings|: id +[0-9]+ \| task|llama_context: n_"
    r"|llama_new_context_with_model:|load_tensors: |compute buffer size|KV buffer size| print_info: arch"
    r"|failed to load model|failed to initialize the context|failed to allocate|CUDA error: |exiting due to"
    r"|cleaning up before exit|all slots are idle|\[GIN\]|Failed to load model from file|Failed to create llama_context"
)
"""Lines of a load or of a run that is under way: the lines after the last of them belong to the load that follows."""


@dataclass(frozen=True)
class LastLoad:
    """Places in the text: what belongs to the last load, its model's own lines, and how many loads there are.

    start   the first line after the load before, with the lines that a program writes before it loads
    loader  the first line of the model's loader
    ends    where a draft model's lines begin, else the end of the text
    """

    start: int
    loader: int
    ends: int
    n_loads: int


def last_load(log: LogText) -> LastLoad:
    """The last load of a log; the whole text where no line begins one."""
    text = log.text
    places = _load_starts(text)
    loads = [at for at in places if not _is_draft(text, at)]
    if not loads:
        return LastLoad(0, 0, len(text), 0)
    groups = _grouped(text, loads)
    first = groups[-1][0]
    loader = groups[-1][-1]
    start = _after_the_run_before(text, groups[-2][-1], first) if len(groups) > 1 else 0
    drafts = [at for at in places if at > loader]
    return LastLoad(start, loader, drafts[0] if drafts else len(text), len(groups))


def _load_starts(text: str) -> list[int]:
    places: list[int] = []
    for needle in LOAD_STARTS:
        at = text.find(needle)
        while at >= 0:
            places.append(at)
            at = text.find(needle, at + len(needle))
    return sorted(places)


def _is_draft(text: str, at: int) -> bool:
    """Whether the line before names a draft model."""
    end = text.rfind("\n", 0, at)
    return end >= 0 and DRAFT in text[max(text.rfind("\n", 0, end), end - 500) : end]


def _grouped(text: str, loads: list[int]) -> list[list[int]]:
    """Loads, each with the lines that announce or prepare it."""
    groups = [[loads[0]]]
    for before, at in pairwise(loads):
        between = text[before : min(at, before + 400_000)]
        if any(word in between for word in PREPARATORY) or not RUNNING.search(between):
            groups[-1].append(at)
        else:
            groups.append([at])
    return groups


def _after_the_run_before(text: str, before: int, at: int) -> int:
    """The end of the last line of the run before, searched backwards from the load."""
    end = text.rfind("\n", before, at)
    while end > before:
        start = text.rfind("\n", before, end)
        if RUNNING.search(text, max(start, end - 1000), end):
            return end + 1
        end = start
    return text.rfind("\n", 0, at) + 1
