"""Where the last load of a log begins: a log may hold many, and everything else is read from the last one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from inferlab.log_reader.text import LogText

LOAD_STARTS = (
    "llama_model_loader: loaded meta data with",  # src/llama-model-loader.cpp:722
    "load_model: loading model '",  # tools/server/server-context.cpp:1023
    "main: loading model\n",  # before 2025
)
RUNNER_STARTS = ("starting runner", "starting llama server", "starting llama-server")
"""Ollama's first line of a load, with the runner's command: llm/server.go:398 of v0.11, llm/llama_server.go:433"""
OF_A_MODEL = " --model "
"""In the command of a runner that loads; Ollama also starts runners that only look for GPUs (discover/runner.go)."""
MODEL_FILE = re.compile(r" --model (\S{1,300})|tensors from (\S.{0,300}?) \(version ")
"""The model in the command of a runner, and in the loader's first line"""
VOCABULARY_ONLY = re.compile(r"vocab only - skipping tensors|vocab_only {1,30}= 1")
"""src/llama.cpp:365; Ollama reads the vocabulary before a load, and up to 0.5 after it too"""
PREPARATORY = re.compile(rf"{VOCABULARY_ONLY.pattern}|no_alloc {{1,30}}= 1")
"""A load that comes before the real one: also the simulation of `-fit`, src/llama-model.cpp:2069"""
TIMINGS = "eval time ="
"""Of requests; where they come before the first load, the log begins in the middle of another run."""
DRAFT = "loading draft model"  # common/speculative.cpp:2540
RUNNING = re.compile(
    r"eval time {1,8}=|llama_perf|llama_print_timings|: id +[0-9]+ \| task|llama_context: n_"
    r"|llama_new_context_with_model:|llama_init_from_model: n_|load_tensors: |compute buffer size|KV buffer size"
    r"|print_info: arch"
    r"|failed to load model|failed to initialize the context|failed to allocate|CUDA error: |exiting due to"
    r"|cleaning up before exit|all slots are idle|\[GIN\] .{1,100}POST|Failed to load model from file"
    r"|Failed to create llama_context|runner started in |llama-server started in "
)
"""Lines of a load or of a run that is under way: the lines after the last of them belong to the load that follows."""
FAILED = re.compile(r"failed to load model|error loading model|exiting due to")
"""No load that was announced comes after such a line; a projector may be measured in between."""
MOST_BETWEEN = 400_000
"""Characters between two loads that are searched."""


@dataclass(frozen=True)
class LastLoad:
    """Places in the text: what belongs to the last load, its model's own lines, and how many loads there are.

    start      the first line after the load before, with the lines that a program writes before it loads
    loader     the first line of the model's loader; of Ollama's own engine, the line that starts its runner
    ends       where the lines of a draft model or of another reading of the vocabulary begin, else the end of the text
    has_draft  whether a draft model was loaded after it
    next_begun whether the log ends in the first lines of another load
    """

    start: int
    loader: int
    ends: int
    n_loads: int
    has_draft: bool = False
    next_begun: bool = False


def last_load(log: LogText) -> LastLoad:
    """The last load of a log; the whole text where no line begins one."""
    text = log.text
    places = _load_starts(text)
    drafts = {at for before, at in pairwise([0, *places]) if _is_draft(text, before, at)}
    every, groups = _every_load(text, places, drafts), _loads(text, places, drafts)
    if not groups:
        return LastLoad(0, 0, len(text), 0)
    first, loader = groups[-1][0], groups[-1][-1]
    before = groups[-2][-1] if len(groups) > 1 else 0
    start = _after_the_run_before(text, before, first) if before or text.find(TIMINGS, 0, first) >= 0 else 0
    later = [at for at in places if at > loader]
    ends, has_draft = later[0] if later else len(text), any(at > loader for at in drafts)
    return LastLoad(start, loader, ends, len(groups), has_draft, len(every) > len(groups))


def _loads(text: str, places: list[int], drafts: set[int]) -> list[list[int]]:
    groups = _every_load(text, places, drafts)
    return groups[:-1] if _only_begun(text, groups) else groups


def _every_load(text: str, places: list[int], drafts: set[int]) -> list[list[int]]:
    return _real(text, _grouped(text, [at for at in places if at not in drafts]), places)


TROUBLE = re.compile(r"level=(?:ERROR|WARN)|[Ff]ailed|terminated|signal|panic|SIG[A-Z]|ASSERT|xception|\| 5\d\d \|")
OF_OLLAMA = "level=INFO source="
LONGEST_BEGINNING = 40_000


def _only_begun(text: str, groups: list[list[int]]) -> bool:
    """Whether a log of Ollama's breaks off in the first lines of its last load, after a load that was complete."""
    if len(groups) < 2 or len(text) - groups[-1][-1] > LONGEST_BEGINNING:
        return False
    before, last = text[groups[-2][-1] : groups[-1][0]], text[groups[-1][0] :]
    complete = "runner started in " in before or "llama-server started in " in before
    if not complete or OF_OLLAMA not in before or 'msg="Listening on ' in before:
        return False
    return not (RUNNING.search(text, groups[-1][-1]) or TROUBLE.search(last))


def until_other_models(log: LogText) -> list[LogText]:
    """The log up to the end of the last load of each model but the last one, the latest first, of one Ollama server."""
    text = log.text
    groups = _loads(text, _load_starts(text), set())
    start = max(0, text.rfind('msg="Listening on '))
    ends = dict(pairwise([*(group[0] for group in groups), len(text)]))
    loads = [(_model(log, group), ends[group[0]]) for group in groups if group[0] >= start]
    last = {model: end for model, end in loads if model}
    if not loads or loads[-1][0] is None:
        return []
    others = sorted((end for model, end in last.items() if model != loads[-1][0]), reverse=True)
    return [log.until(end) for end in others[:MOST_OTHERS]]


MOST_OTHERS = 2
"""Models beside the last one that are judged, too."""


def _model(log: LogText, group: list[int]) -> str | None:
    """The file of a load's model, by the first of its lines that names it."""
    found = (MODEL_FILE.search(log.line_at(at).text) for at in group)
    return next((match[1] or match[2] for match in found if match), None)


def _load_starts(text: str) -> list[int]:
    places = [at for needle in LOAD_STARTS for at in _places(text, needle)]
    runners = [at for needle in RUNNER_STARTS for at in _places(text, needle)]
    return sorted([*places, *(at for at in runners if OF_A_MODEL in text[at : at + 700].partition("\n")[0])])


def _places(text: str, needle: str) -> Iterator[int]:
    at = text.find(needle)
    while at >= 0:
        yield at
        at = text.find(needle, at + len(needle))


def _is_draft(text: str, before: int, at: int) -> bool:
    """Whether a line since the load before names a draft model."""
    return text.find(DRAFT, max(before, at - MOST_BETWEEN), at) >= 0


def _grouped(text: str, loads: list[int]) -> list[list[int]]:
    """Loads, each with the lines that announce or prepare it."""
    groups = [loads[:1]] if loads else []
    for before, at in pairwise(loads):
        if _prepares(text, before, at):
            groups[-1].append(at)
        else:
            groups.append([at])
    return groups


def _prepares(text: str, before: int, at: int) -> bool:
    """Whether the first of two beginnings announces or prepares the load of the second."""
    between = text[before : min(at, before + MOST_BETWEEN)]
    announced = between.startswith(LOAD_STARTS[1:]) and text.startswith(LOAD_STARTS[0], at)
    if announced and not FAILED.search(between):
        return True
    return bool(PREPARATORY.search(between)) or not RUNNING.search(between)


def _real(text: str, groups: list[list[int]], places: list[int]) -> list[list[int]]:
    """The groups without those that only read the vocabulary, unless there is nothing else."""
    ends = dict(pairwise([*places, len(text)]))
    last = [text[group[-1] : min(ends[group[-1]], group[-1] + MOST_BETWEEN)] for group in groups]
    real = [group for group, lines in zip(groups, last, strict=True) if not VOCABULARY_ONLY.search(lines)]
    return real or groups


def _after_the_run_before(text: str, before: int, at: int) -> int:
    """The end of the last line of the run before, searched backwards from the load."""
    end = text.rfind("\n", before, at)
    while end > before:
        start = text.rfind("\n", before, end)
        if RUNNING.search(text, max(start, end - 1000), end):
            return end + 1
        end = start
    return text.rfind("\n", 0, at) + 1
