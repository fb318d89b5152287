"""What the lines of a load print: the values of the header, of the context, and the bytes of each buffer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from inferlab.log_reader.observed import Observed
from inferlab.log_reader.text import Line
from inferlab.machine import HOST_BUFFER, on_host
from inferlab.units import MIB

WEIGHTS, REPACKED, KV_CACHE, STATES = "weights", "repacked", "kv_cache", "states"
COMPUTE, OUTPUT = "compute", "output"
NAMES = {
    WEIGHTS: "weights",
    REPACKED: "repacked weights",
    KV_CACHE: "KV cache",
    STATES: "recurrent states",
    COMPUTE: "compute buffer",
    OUTPUT: "output buffer",
}
PINNED = "0c1e57098"
"""The build that the library's formulas follow."""
SPLIT = "_Split"
"""Ends the name of a buffer of split mode `row`: ggml-cuda.cu, get_name of the split buffer type."""
CUT = "cut"
"""In place of an array of which the log has only the beginning: llama-model-loader.cpp:810."""
HOST, MAPPED = "host", "_Mapped"
META_WORDS = ("print_info: ", "llm_load_print_meta: ")
META = re.compile(r"(?:print_info|llm_load_print_meta): (\w[\w. ()-]{0,40}?) {0,30}= {0,8}(\S.{0,600})")
ENTRY = re.compile(
    r"llama_model_loader: - kv {1,4}\d{1,4}: {1,60}(\S{1,120}) {1,9}(\w{1,4})(?:\[(\w{1,4}),(\d{1,10})\])? {0,20}= ?"
    r"(.{0,60})"
)
"""src/llama-model-loader.cpp:816"""
TYPE = re.compile(r"- type {1,4}(\w{1,10}): {1,6}(\d{1,6}) tensors")  # llama-model-loader.cpp:825
LOADED = re.compile(r"with (\d{1,6}) key-value pairs and (\d{1,6}) tensors from ")  # llama-model-loader.cpp:722
CONTEXT_WORDS = ("llama_context: ", "llama_new_context_with_model: ", "llama_init_from_model: ")
CONTEXT = re.compile(
    r"(?:llama_context|llama_new_context_with_model|llama_init_from_model): (\w{1,30}) {0,30}= {0,8}(\S.{0,60})"
)
CONTEXT_STARTS = (
    "llama_context: constructing llama_context",
    *(f"{function}: n_seq_max " for function in ("llama_new_context_with_model", "llama_init_from_model")),
)
"""The first line of a context: src/llama-context.cpp:93, and before 2025-03 the first of its values."""
BUFFER = re.compile(
    r"(?<!\w)(\w{1,60}): {1,20}(\S{1,80}) {1,3}(?:(model|KV|RS|compute|output) )?buffer size {0,3}= {0,12}"
    r"(\d{1,12}(?:\.\d{1,4})?) MiB"
)
KINDS = {"model": WEIGHTS, "KV": KV_CACHE, "RS": STATES, "compute": COMPUTE, "output": OUTPUT}
OLD_WEIGHTS = "llm_load_tensors"
"""The function whose lines say `CPU buffer size` of weights: before 2024-11."""
REARRANGED = ("AMX", "CPU_REPACK", "CPU_AARCH64")
OF_THE_CONTEXT = ("sched_reserve", "llama_")
"""Begins the name of a function that logs compute buffers of the model; others belong to a model of images or sound."""
OTHER_MODELS = ("clip_model_loader: ", "CLIP using ", "mmproj", "loading lora adapter from ")
"""Of images or sound (tools/mtmd/clip.cpp), or an adapter (src/llama-adapter.cpp)"""
ALLOCATED = (
    re.compile(r"failed to allocate (\S{1,80}) buffer of size (\d{1,15})(?![\d.])"),  # ggml-alloc.c:941, 1134
    re.compile(r"allocating (\d{1,9}(?:\.\d{1,4})?) MiB on device (\d{1,3}): cudaMalloc failed"),  # ggml-cuda.cu:888
)
FAILURES = {
    "failed to allocate buffer for kv cache": KV_CACHE,  # llama-kv-cache.cpp:288
    "failed to allocate buffer for rs cache": STATES,  # llama-memory-recurrent.cpp:121
    "failed to allocate compute pp buffers": COMPUTE,  # llama-context.cpp
    "failed to allocate compute tg buffers": COMPUTE,
}
"""Errors that end a load; without room for its weights one ends before the settings that a plan needs are printed."""

Value = int | float | bool | str | tuple[int, ...]


@dataclass(frozen=True)
class Printed:
    """Bytes as a log prints them, and how many numbers of 0.01 MiB they are the sum of."""

    n_bytes: int
    n_numbers: int = 1

    def __add__(self, other: Printed) -> Printed:
        return Printed(self.n_bytes + other.n_bytes, self.n_numbers + other.n_numbers)


@dataclass(frozen=True)
class Failure:
    """The allocation by which a load failed: its kind, its device, and the bytes asked for."""

    kind: str
    device: str
    n_bytes: int


@dataclass(frozen=True)
class Logged:
    """The last load of a log, line by line."""

    seen: Observed

    def lines(self, needle: str) -> Iterator[Line]:
        """Lines of the loaded model with a string, none of a draft model's."""
        return self.seen.log.lines_with(needle, self.seen.load.loader, self.seen.load.ends)

    @cached_property
    def header(self) -> dict[str, str]:
        """The values of `print_info`, by their names."""
        return self._values(META_WORDS, META)

    @cached_property
    def context(self) -> dict[str, str]:
        """The values of the first context, by their names."""
        return self._values(CONTEXT_WORDS, CONTEXT, *self._first_context)

    def _values(self, words: tuple[str, ...], pattern: re.Pattern[str], *where: int) -> dict[str, str]:
        values: dict[str, str] = {}
        start, end = where or (self.seen.load.loader, self.seen.load.ends)
        for word in words:
            for line in self.seen.log.lines_with(word, start, end):
                if match := pattern.search(line.text):
                    values.setdefault(match[1], match[2].strip())
        return values

    @cached_property
    def metadata(self) -> dict[str, Value]:
        """The entries of the file's metadata; an array of which only the beginning is there is CUT."""
        entries: dict[str, Value] = {}
        for match in self._entries:
            entries.setdefault(match[1], _value(match[2], match[3], match[5]))
            if match[1] == "tokenizer.ggml.tokens" and match[4]:
                entries.setdefault("n_vocab", int(match[4]))
        return entries

    @property
    def has_all_metadata(self) -> bool:
        """Whether the log has every entry, so that a key without one is not in the file."""
        return self._counts is not None and len({match[1] for match in self._entries}) == self._counts[0]

    @cached_property
    def _entries(self) -> tuple[re.Match[str], ...]:
        lines = self.lines("llama_model_loader: - kv ")
        return tuple(match for line in lines if (match := ENTRY.search(line.text)))

    @cached_property
    def types(self) -> dict[str, int]:
        """How many tensors have each type."""
        found = (TYPE.search(line.text) for line in self.lines("llama_model_loader: - type "))
        return {match[1].upper(): int(match[2]) for match in found if match}

    @property
    def n_tensors(self) -> int | None:
        return self._counts[1] if self._counts else None

    @cached_property
    def _counts(self) -> tuple[int, int] | None:
        """How many entries of metadata and how many tensors the file has."""
        line = next(self.lines("key-value pairs and "), None)
        match = line and LOADED.search(line.text)
        return (int(match[1]), int(match[2])) if match else None

    @cached_property
    def _first_context(self) -> tuple[int, int]:
        """Places in the text between which the first context is made; a second one may be a draft's own."""
        text, (start, end) = self.seen.log.text, (self.seen.load.loader, self.seen.load.ends)
        at = [at for word in CONTEXT_STARTS for at in _places(text, word, start, end)]
        return (*sorted(at), end)[:2] if at else (start, end)  # type: ignore[return-value]

    @cached_property
    def buffers(self) -> dict[str, dict[str, Printed]]:
        """Device by its short name -> kind -> bytes; host memory of every name is HOST, in which some is REPACKED."""
        found: dict[str, dict[str, Printed]] = {}
        for match in self._buffer_lines:
            kind = _kind_of(match)
            if kind is None:
                continue
            name = short_name(match[2])
            device, kind = place_of(name), REPACKED if kind == WEIGHTS and name in REARRANGED else kind
            held, printed = found.setdefault(device, {}), Printed(round(float(match[4]) * MIB))
            if kind not in held:
                held[kind] = printed
            elif kind != COMPUTE:  # the first is of the load; a graph reserved again has others
                held[kind] += printed
        return found

    @cached_property
    def _buffer_lines(self) -> tuple[re.Match[str], ...]:
        """The lines of buffers up to the end of the first context."""
        lines = self.seen.log.lines_with("buffer size", self.seen.load.loader, self._first_context[1])
        return tuple(match for line in lines if (match := BUFFER.search(line.text)))

    @cached_property
    def buffer_names(self) -> frozenset[str]:
        """The names of all buffers, such as CPU_Mapped."""
        return frozenset(without_endpoint(match[2]) for match in self._buffer_lines)

    @property
    def is_of_the_pinned_build(self) -> bool:
        return PINNED[:7] in (self.seen.program.build or "")

    @property
    def is_split_by_rows(self) -> bool:
        return any(name.endswith(SPLIT) for name in self.buffer_names)

    @cached_property
    def has_other_models(self) -> bool:
        """Whether more than the model and its first context takes memory, or will."""
        log, load = self.seen.log, self.seen.load
        printed = sum(1 for _ in log.lines_with("buffer size", load.loader))
        own = sum(_kind_of(match) is not None for match in self._buffer_lines)
        return load.has_draft or printed > own or any(log.has(words, load.start) for words in OTHER_MODELS)

    @cached_property
    def mapped(self) -> frozenset[str]:
        """Devices whose weights are a part of the mapped file, or may be: until 2024-11 no name told that."""
        names = (name for name in self.buffer_names if name.endswith(MAPPED))
        unnamed = (match[2] for match in self._buffer_lines if match[3] is None and match[1] == OLD_WEIGHTS)
        maybe = (name for name in unnamed if on_host(name) or name.startswith("Metal"))
        return frozenset(place_of(short_name(name)) for name in (*names, *maybe))

    @cached_property
    def compute_names(self) -> frozenset[str]:
        """The names of the compute buffers, such as CUDA_Host."""
        return frozenset(without_endpoint(match[2]) for match in self._buffer_lines if match[3] == "compute")

    @cached_property
    def failure(self) -> Failure | None:
        """The allocation by which the load failed; none where the first context has its last buffers."""
        if any(COMPUTE in kinds for kinds in self.buffers.values()):
            return None
        start, end = self._first_context
        for words, kind in FAILURES.items():
            at = next(_places(self.seen.log.text, words, start, end), None)
            if at is not None:
                return self._asked_for(kind, start, at)
        return None

    def _asked_for(self, kind: str, start: int, end: int) -> Failure | None:
        """The last allocation that failed between two places of the text."""
        line = self.seen.log.last(" buffer of size ", start, end)
        if line and (match := ALLOCATED[0].search(line.text)):
            return Failure(kind, place_of(short_name(match[1])), int(match[2]))
        line = self.seen.log.last("cudaMalloc failed", start, end)
        if line and (match := ALLOCATED[1].search(line.text)):
            return Failure(kind, f"CUDA{match[2]}", round(float(match[1]) * MIB))
        return None


def _kind_of(match: re.Match[str]) -> str | None:
    """The kind of a buffer of the model or its context; None of another one."""
    kind = KINDS.get(match[3] or ("model" if match[1] == OLD_WEIGHTS else ""))
    return None if kind == COMPUTE and not match[1].startswith(OF_THE_CONTEXT) else kind


def short_name(buffer: str) -> str:
    """The name of a buffer's device: without the endpoint of an RPC device, and Metal's for a mapped file."""
    name = without_endpoint(buffer)
    return name if name.startswith(HOST_BUFFER) else name.removesuffix(MAPPED).removesuffix("_Private")


def without_endpoint(name: str) -> str:
    """`RPC0` of `RPC0[192.0.2.1:50052]`; in older builds the endpoint alone tells RPC devices apart."""
    return re.sub(r"(?<=\d)\[.*", "", name)


def place_of(name: str) -> str:
    """The device of a buffer: HOST for memory of the host by any name."""
    return HOST if on_host(name) else name


def number(text: object) -> int | None:
    """The whole number with which a value begins."""
    match = re.match(r"\d{1,15}(?![\d.])", text) if isinstance(text, str) else None
    return int(match[0]) if match else None


def numbers(text: str) -> tuple[int, ...] | None:
    """The numbers of a list that is printed as a whole: `[0, 0, 8, 0]`."""
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else ""
    parts = [part.strip() for part in inner.split(",")]
    return tuple(map(int, parts)) if all(part.isdigit() for part in parts) else None


def _value(kind: str, kind_of_elements: str | None, text: str) -> Value:
    text = text.strip()
    if kind == "arr":
        return _elements(kind_of_elements, text)
    if kind == "bool":
        return text == "true"
    if kind[0] in "ui" and re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    return text


def _elements(kind: str | None, text: str) -> Value:
    if kind == "bool" and text.endswith("]"):
        return tuple(int(part.strip() == "true") for part in text[1:-1].split(","))
    return numbers(text) or CUT


def _places(text: str, word: str, start: int, end: int) -> Iterator[int]:
    at = text.find(word, start, end)
    while at >= 0:
        yield at
        at = text.find(word, at + len(word), end)


def mib(n_bytes: int | None) -> str:
    """Bytes in MiB with the two decimals of a log: `1,401.75`; empty for None."""
    return "" if n_bytes is None else f"{n_bytes / MIB:,.2f}"
