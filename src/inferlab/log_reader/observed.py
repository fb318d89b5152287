"""The facts that the lines of a log state, each None where no line does."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from inferlab.engine.log import Buffer, buffers_in, tensor_places_in
from inferlab.log_reader.buffers import KINDS, folded, last_reserved, sums_of_2023
from inferlab.log_reader.devices import NUMBER, UNITS, breakdown_in, joined, listed_in, ollamas_gpus, parts_of, used_in
from inferlab.log_reader.ollama import OllamasLoad
from inferlab.log_reader.programs import UNKNOWN_PROGRAM, backends_of, build_of, program_of, version_of
from inferlab.log_reader.report import Breakdown, Layers, LoggedContext, LoggedDevice, LoggedModel, LoggedProgram, Rate
from inferlab.log_reader.runs import RUNNER_STARTS, LastLoad, last_load
from inferlab.log_reader.text import Line, LogText
from inferlab.machine import on_host

__all__ = ["KV_SIZE", "RUNNER_STARTS", "UNKNOWN_PROGRAM", "Observed"]

SWITCHES = {"1": "on", "true": "on", "enabled": "on", "on": "on"} | {
    "0": "off",
    "false": "off",
    "disabled": "off",
    "off": "off",
    "auto": "auto",
    "-1": "auto",
}
FLASH_ATTENTION = {
    "Flash Attention enabled": "on",
    "Flash Attention not supported, set to disabled": "off",
    "Flash Attention was auto, set to enabled": "on",  # before the other two
    "Flash Attention was auto, set to disabled": "off",
    "enabling flash_attn since it is required": "on",  # src/llama-context.cpp:3823
    "- forcing off": "off",  # 2024: a model whose heads it did not support
}
KV_SIZE = re.compile(r"K \((\w{1,10})\): +[\d.]{1,12} MiB, V \((\w{1,10})\)")  # llama-kv-cache.cpp:301
CELLS = (
    # src/llama-kv-cache.cpp:301; its last number counts the parts, of which each has these cells
    ("MiB, V (", re.compile(r"\( {0,12}(\d{1,12}) cells, {1,8}\d{1,5} layers,(?: {1,8}\d{1,4}/ {0,8}(\d{1,4}) seqs)?")),
    ("kv_size = ", re.compile(r"_init: kv_size = (\d{1,12})(), ")),  # 2024 and 2025
)
CACHED_LAYERS = re.compile(r" cells, {1,8}(\d{1,5}) layers,")
OFFLOADED = re.compile(r"offloaded (\d{1,6})/(\d{1,6}) layers to GPU")  # llama-model.cpp:1924
TIMING = re.compile(
    r"eval time {1,8}= {0,20}(\d{1,12}(?:\.\d{1,6})?) ms / {0,20}(\d{1,12}) (?:tokens|runs)"
    r"(?: {1,8}\( {0,20}\d{1,12}(?:\.\d{1,6})? ms per token, {1,20}(\d{1,12}(?:\.\d{1,6})?) tokens per second)?"
)
"""tools/server/server-context.cpp:613, src/llama-context.cpp:4434; `prompt ` stands before it, or not"""
SIZED = re.compile(r"size[^=]{0,20}=|VRAM used|m(?:em|emory) (?:required|used) {1,20}=")
"""In lines about weights; the last are of 2023."""
HELD = ("weights", "kv_cache", "recurrent")
"""Kinds of buffers by which a device is used; it may compute without one."""
OF_SOURCE = re.compile(r"\braise (?:\w{1,40}\.){0,4}\w{1,60}\(")
"""A statement of Python, which a traceback shows before the message itself"""
CPU_ONLY = re.compile(r" library=\\?\"?cpu\b")  # ollama discover/types.go:50


@dataclass(frozen=True)
class Observed:
    """A log and what its lines say about the last load."""

    log: LogText

    @cached_property
    def load(self) -> LastLoad:
        return last_load(self.log)

    def first(self, needle: str) -> Line | None:
        """The first of `lines`."""
        return next(self.lines(needle), None)

    def lines(self, needle: str) -> Iterator[Line]:
        """The lines of the last load, and of what follows it, with a string; not a traceback's lines of source."""
        found = self.log.lines_with(needle, self.load.start)
        return (line for line in found if "raise " not in line.text or not OF_SOURCE.search(line.text))

    def _value(self, needle: str, pattern: str) -> str | None:
        """The group of a pattern in the model's own lines, in the first line with a string."""
        for line in self.log.lines_with(needle, self.load.loader, self.load.ends):
            if match := re.search(pattern, line.text):
                return match[1]
        return None

    def _field(self, name: str) -> str | None:
        """A field of `print_info:` or `llama_context:`, in any version's spelling."""
        return self._value(
            f" {name} ",
            rf"(?:_info|_meta|_context|_with_model|_from_model): {re.escape(name)} {{1,30}}= {{0,8}}(\S.{{0,80}})",
        )

    def _count(self, name: str) -> int | None:
        match = re.match(r"\d{1,12}", self._field(name) or "")
        return int(match[0]) if match else None

    @cached_property
    def program(self) -> LoggedProgram:
        key, name = program_of(self.log)
        build = build_of(self.log, self.load.start)
        return LoggedProgram(key, name, version_of(self.log, name), build, self.backends)

    @cached_property
    def ollama(self) -> OllamasLoad:
        return OllamasLoad(self.log)

    @cached_property
    def backends(self) -> tuple[str, ...]:
        """Backends that a line names, and those whose names the buffers or devices have."""
        named = [*(buffer.device for buffer in self.buffers), *(device.name for device in self.devices)]
        return backends_of(self.log, self.load.start, [name for device in named for name in parts_of(device)])

    @cached_property
    def model(self) -> LoggedModel:
        architecture, file_type, name = self.ollama.model()
        return LoggedModel(
            architecture=self._field("arch")
            or architecture
            or self._value("general.architecture", r"general\.architecture str {1,20}= (\w{1,40})"),
            name=self._field("general.name") or name,
            size=self._value(" model type ", r"model type {1,30}= (\d\S{0,20})") or self._field("model params"),
            file_type=self._field("file type") or self._field("model ftype") or file_type,
            weights_bytes=self._weights_bytes(),
            n_ctx_train=self._count("n_ctx_train") or self._compared(2),
            n_layer=self._count("n_layer"),
            n_expert=self._count("n_expert"),
        )

    def _weights_bytes(self) -> int | None:
        match = re.match(rf"{NUMBER} (GiB|MiB)", self._field("file size") or self._field("model size") or "")
        return round(float(match[1]) * UNITS[match[2]]) if match else None

    @cached_property
    def devices(self) -> tuple[LoggedDevice, ...]:
        """GPUs and other accelerators that the log names, each once, those that are used first."""
        on_devices = [part.device for part in self.buffers if part.kind in HELD and not on_host(part.device)]
        holding = {name for device in on_devices for name in parts_of(device.partition("[")[0])}
        named = (replace(device, used=device.used or device.name in holding) for device in self._named_devices.values())
        return tuple(_once_each(sorted(named, key=lambda device: not device.used), ollamas_gpus(self.log)))

    @cached_property
    def _named_devices(self) -> dict[str, LoggedDevice]:
        listed = listed_in(self.log, self.load.start) or listed_in(self.log, 0)
        return joined(listed, used_in(self.log, self.load.start))

    @cached_property
    def breakdown(self) -> tuple[Breakdown, ...]:
        """llama.cpp's own table of memory, its last one."""
        return breakdown_in(self.log, self.load.start)

    @cached_property
    def buffers(self) -> tuple[Buffer, ...]:
        """What was allocated by the last load; a device's buffers of one kind are summed.

        Ollama's own engine writes sizes of its own; where llama.cpp's buffers stand too, those were only its plan.
        """
        start, ends = self.load.loader, self.load.ends
        contexts = [line.number for line in self.log.lines_with("constructing llama_context", start, ends)]
        lines = last_reserved(self.log.lines_with("buffer size", start, ends), contexts)
        found = buffers_in("\n".join(lines), KINDS)
        if not any(buffer.kind == "weights" for buffer in found):
            found = (
                self.ollama.plan(self.load.ends) or sums_of_2023(self.log, start, ends, self._named_devices) or found
            )
        return tuple(folded(found or self._buffers_of_the_table(), self._named_devices.values()))

    def _buffers_of_the_table(self) -> list[Buffer]:
        """What llama.cpp's table at the end of a run says; one before any answer may be a simulation's."""
        start = self.load.start
        if self.log.text.rfind("| memory breakdown [MiB]", start) < self.log.text.find("eval time ", start) + 1:
            return []
        kinds = ("weights", "kv_cache", "compute")
        parts = ((row.device, (row.weights_bytes, row.context_bytes, row.compute_bytes)) for row in self.breakdown)
        return [Buffer(name, kind, n) for name, sizes in parts for kind, n in zip(kinds, sizes, strict=True) if n]

    @property
    def runner_started(self) -> bool:
        """Whether the log has Ollama's first line of a load."""
        return any(self.log.has(word) for word in RUNNER_STARTS)

    @cached_property
    def searched(self) -> tuple[Line, ...]:
        """Ollama's lines about GPUs since its server started, of which it writes one for each, or one for the CPU."""
        start = server_start(self.log)
        words = (
            "no compatible GPUs were discovered",
            'msg="no GPU detected"',  # v0.1.28 server/routes.go:1043
            ": no GPU detected",
            'msg="inference compute"',
            'msg="vram-based default context"',
        )
        return tuple(line for word in words for line in self.log.lines_with(word, start))

    @property
    def found_a_gpu(self) -> bool | None:
        """Whether Ollama's search found one (discover/types.go); None where the log has no search."""
        if not self.searched:
            return None
        return any(_names_a_gpu(line.text) for line in self.searched)

    @cached_property
    def buffer_lines(self) -> tuple[Line, ...]:
        """The lines about the weights' buffers: llama.cpp's, those before 2025, or Ollama's."""
        words = ("model buffer size", "llm_load_tensors: ", 'msg="model weights"')
        found = ([*self.log.lines_with(word, self.load.loader, self.load.ends)] for word in words)
        sized = ([line for line in lines if SIZED.search(line.text)] for lines in found)
        return tuple(next((lines for lines in sized if lines), ()))

    def bytes_on(self, kind: str, host: bool) -> int:
        """Bytes of one kind in RAM, or on the devices."""
        return sum(buffer.n_bytes for buffer in self.buffers if buffer.kind == kind and on_host(buffer.device) == host)

    @cached_property
    def offloaded(self) -> tuple[Line, int, int] | None:
        """The line about offloaded layers with its two numbers; the first number is what was asked for (A30)."""
        for line in self.log.lines_with("offloaded ", self.load.loader, self.load.ends):
            if match := OFFLOADED.search(line.text):
                return line, int(match[1]), int(match[2])
        return None

    @cached_property
    def layers(self) -> Layers | None:
        """Layers by device: from debug lines, from weights that all lie in RAM, or from the parts of the cache."""
        lines = self.log.lines_with("assigned to device", self.load.loader, self.load.ends)
        places = tensor_places_in("\n".join(line.text for line in lines)).layers
        if places:
            return Layers(dict(Counter(places.values())), "lines")
        total = self.offloaded[2] if self.offloaded else (self.model.n_layer or 0) + 1
        if total > 1 and self.bytes_on("weights", host=True) and not self.bytes_on("weights", host=False):
            return Layers({"CPU": total}, "weights")
        devices = dict.fromkeys(
            part.device for part in self.buffers if part.kind == "weights" and not on_host(part.device)
        )
        by_cache = self._layers_by_cache()
        divided = len(devices) > 1 and by_cache is not None and by_cache.basis == "cache"
        return by_cache if divided else self._layers_offloaded(" and ".join(devices)) or by_cache

    def _layers_offloaded(self, devices: str) -> Layers | None:
        """With weights on devices, `offloaded` counts the layers that belong there (src/llama-model.cpp:1593)."""
        if not self.offloaded or not devices:
            return None
        _, there, total = self.offloaded
        places = {devices: there, "CPU": total - there}
        return Layers({device: n for device, n in places.items() if n}, "offloaded") if 0 < there <= total else None

    def _layers_by_cache(self) -> Layers | None:
        """Each layer has an equal part of the cache, on its own device unless the cache is kept in RAM."""
        sizes = [*self.log.lines_with("MiB, V (", self.load.loader, self.load.ends)]
        match = CACHED_LAYERS.search(sizes[0].text) if len(sizes) == 1 else None
        parts = {part.device: part.n_bytes for part in self.buffers if part.kind == "kv_cache"}
        if not match or not any(parts.values()):
            return None
        if self.bytes_on("weights", host=False) and not self.bytes_on("kv_cache", host=False):
            return None
        layers = {device: int(match[1]) * n_bytes / sum(parts.values()) for device, n_bytes in parts.items()}
        if any(abs(n - round(n)) > 0.05 for n in layers.values()):
            return None
        all_cached = self.model.n_layer is None or int(match[1]) >= self.model.n_layer
        counts = {device: round(n) for device, n in layers.items() if round(n)}
        return Layers(counts, "cache" if all_cached else "cached layers")

    @cached_property
    def context(self) -> LoggedContext:
        asked = self.ollama
        n_slots, in_slot, unified = self._slots()
        types, threads = self._types(), self._threads()
        n_slots = n_slots or self._count("n_seq_max") or asked.number("n_slots")
        n_ctx = self._count("n_ctx") or asked.number("n_ctx") or self._cells() or self._generated()
        in_slot = in_slot or (n_ctx if unified else None) or self._count("n_ctx_seq") or self._count("n_ctx_per_seq")
        in_slot = in_slot or (None if n_ctx else self._compared(1))
        return LoggedContext(
            n_ctx=n_ctx or _all_cells(in_slot, n_slots, unified),
            n_ctx_slot=in_slot,
            n_slots=n_slots,
            kv_unified=unified,
            n_batch=self._count("n_batch") or asked.number("n_batch"),
            n_ubatch=self._count("n_ubatch") or asked.number("n_ubatch"),
            flash_attn=self._flash_attn(),
            type_k=types[0] or asked.setting("type_k"),
            type_v=types[1] or asked.setting("type_v"),
            n_threads=threads[0] or asked.number("n_threads"),
            n_processors=threads[1],
            n_seq_max=self._count("n_seq_max"),
            n_outputs_max=self._count("n_outputs_max"),
            n_gpu_layers=asked.number("n_gpu_layers"),
            swa_full=True if self.log.first("using full-size SWA cache", self.load.loader, self.load.ends) else None,
            offload_kqv=self._offload_kqv(),
        )

    def _compared(self, group: int) -> int | None:
        """The context of a sequence, or that of the training, from the warning that compares them."""
        line = self.first("n_ctx_train (")
        match = line and COMPARED.search(line.text)
        return int(match[group]) if match else None

    def _generated(self) -> int | None:
        """The context in the first line of an answer of llama.cpp's program and of LM Studio."""
        line = self.first("enerate: n_ctx = ")
        match = line and re.search(r"[Gg]enerate: n_ctx = (\d{1,12})", line.text)
        return int(match[1]) if match else None

    def _cells(self) -> int | None:
        """The cells of the largest cache of the context, where the lines of its settings are missing."""
        found = [
            int(match[1]) * int(match[2] or 1)
            for needle, pattern in CELLS
            for line in self.log.lines_with(needle, self.load.loader, self.load.ends)
            if (match := pattern.search(line.text))
        ]
        return max(found, default=None)

    def _slots(self) -> tuple[int | None, int | None, bool | None]:
        """Slots, the context of one, and whether they share all cells, in the words of any version of llama-server."""
        found = (_number_in(self.first(words), pattern) for words, pattern in SLOTS)
        n_slots = next((number for number in found if number), None)
        found = (_number_in(self.first(words), pattern) for words, pattern in CONTEXTS_OF_A_SLOT)
        in_slot = next((number for number in found if number), None)
        said = self._field("kv_unified") or ""
        line = self.first("kv_unified = ")
        match = line and re.search(r"kv_unified = '?(true|false)", line.text)
        unified = {"true": True, "false": False}.get(said or (match[1] if match else ""))
        return n_slots, in_slot, unified

    def _offload_kqv(self) -> bool | None:
        """Lines of 2024 and 2025 say it; else a cache in RAM beside layers on a device does."""
        said = self._value("offload = ", r"\boffload = ([01])\b")
        if said:
            return said == "1"
        on_device, in_ram = self.bytes_on("kv_cache", host=False), self.bytes_on("kv_cache", host=True)
        all_there = self.offloaded is not None and self.offloaded[1] == self.offloaded[2]
        if on_device or (in_ram and all_there and self.bytes_on("weights", host=False)):
            return bool(on_device)
        return None

    def _flash_attn(self) -> str | None:
        """What became of it (llama-context.cpp:550, 553), else what was asked for."""
        for said, state in FLASH_ATTENTION.items():
            if self.log.first(said, self.load.loader, self.load.ends):
                return state
        return SWITCHES.get((self._field("flash_attn") or self.ollama.setting("flash_attn") or "").strip().lower())

    def _types(self) -> tuple[str | None, str | None]:
        for line in self.log.lines_with("MiB, V (", self.load.loader, self.load.ends):
            if match := KV_SIZE.search(line.text):
                return match[1], match[2]
        said = (self._value(f"type_{part} = '", rf"type_{part} = '(\w{{1,10}})'") for part in "kv")  # 2024, 2025
        return next(said), next(said)

    def _threads(self) -> tuple[int | None, int | None]:
        """common/common.cpp:423, `n_threads = 8 (n_threads_batch = 8) / 16`, in the line that has most of it."""
        match = None
        for line in self.lines("n_threads = "):
            here = re.search(r"n_threads = (\d{1,6})(?: \(n_threads_batch = \d{1,6}\) / (\d{1,6}))?", line.text)
            match = match or here
            if here and here[2]:
                return int(here[1]), int(here[2])
        return (int(match[1]), None) if match else (None, None)

    @cached_property
    def rates(self) -> tuple[Rate | None, Rate | None]:
        """Prompt and answer of the requests since the last load, each at the rate that the log prints."""
        timed: tuple[list[Timed], list[Timed]] = ([], [])
        text = self.log.text
        for match in TIMING.finditer(text, self.load.loader):
            at = match.start()
            phase = int(text[max(0, at - 7) : at] != "prompt ")
            timed[phase].append((int(match[2]), float(match[1]) / 1000, match[3]))
        for line in self.lines("CtxLimit:") if self.log.has("CtxLimit:") else self.lines("ContextLimit:"):
            for phase, one in enumerate(_of_koboldcpp(line.text)):
                timed[phase].append(one)
        for match in OLLAMAS_RATE.finditer(text) if self.log.has("eval rate: ") else ():
            phase, rate = int(match[1] is None), float(match[3])
            if rate:
                timed[phase].append((int(match[2]), int(match[2]) / rate, match[3]))
        return _rate(timed[0]), _rate(timed[1])


COMPARED = re.compile(r"n_ctx(?:_per)?(?:_seq)? \((\d{1,12})\) [<>] n_ctx_train \((\d{1,12})\)")
"""src/llama-context.cpp:323, 328"""
SLOTS = (
    ("n_slots = ", r"n_slots = (\d{1,6})"),
    ("n_slots=", r"\bn_slots=(\d{1,6})"),  # early 2024
    ('"n_slots":', r'"n_slots":(\d{1,6})'),
    ("using n_parallel = ", r"using n_parallel = (\d{1,6})"),  # tools/server/server.cpp:157
    (" slots (auto)", r"using (\d{1,6}) slots \(auto\)"),
)
CONTEXTS_OF_A_SLOT = (
    ("n_ctx_slot = ", r"n_ctx_slot = (\d{1,12})"),  # tools/server/server-context.cpp:1231, 3126
    ("new slot, n_ctx = ", r"new slot, n_ctx = (\d{1,12})"),  # tools/server/server-context.cpp:1281
    ("n_ctx_slot=", r"\bn_ctx_slot=(\d{1,12})"),  # early 2024
    ('"n_ctx_slot":', r'"n_ctx_slot":(\d{1,12})'),
)


def server_start(log: LogText) -> int:
    """Where Ollama's server last started, which then searches for GPUs; the second form is of 2023."""
    return max(0, log.text.rfind('msg="Listening on '), log.text.rfind(": Listening on "))


def _once_each(devices: list[LoggedDevice], found: dict[str, int]) -> Iterator[LoggedDevice]:
    """The devices without those that Ollama's search and its runner number differently: it says how many there are."""
    counts: dict[str, int] = {}
    for device in devices:
        n = counts[device.description] = counts.get(device.description, 0) + 1
        if device.used or n <= found.get(device.description, n):
            yield device


def _names_a_gpu(line: str) -> bool:
    """Whether a line of Ollama's search has a GPU, or memory of one: discover/types.go, server/routes.go."""
    if "vram-based default context" in line:
        return 'total_vram="0 B"' not in line
    return "inference compute" in line and not CPU_ONLY.search(line)


def _number_in(line: Line | None, pattern: str) -> int | None:
    match = line and re.search(pattern, line.text)
    return int(match[1]) if match else None


def _all_cells(in_slot: int | None, n_slots: int | None, unified: bool | None) -> int | None:
    """The cells of all slots: those of one where they share them or where it is the only one."""
    if in_slot is None or unified or n_slots == 1:
        return in_slot
    return in_slot * n_slots if unified is False and n_slots else None


OLLAMAS_RATE = re.compile(
    r"^(prompt )?eval count: {1,12}(\d{1,9}) token\(s\)\n(?:prompt )?eval duration: .{1,40}\n"
    r"(?:prompt )?eval rate: {1,12}(\d{1,9}\.\d\d) tokens/s",
    re.MULTILINE,
)
"""What `ollama run --verbose` writes after an answer: ollama v0.12.3 api/types.go:708"""
KOBOLD_TIMES = re.compile(
    r"Process(?:ing)?: ?(\d{1,9}\.\d{1,4})s \(([^()]{1,60})\), Generat(?:e|ion): ?(\d{1,9}\.\d{1,4})s \(([^()]{1,60})\)"
)
KOBOLD_RATE = re.compile(r"(\d{1,9}(?:\.\d{1,4})?) ?(T/s|ms/T)$")
"""koboldcpp's line of a request: seconds, with milliseconds for a token, tokens per second, or both (#852, #972)"""


def _of_koboldcpp(text: str) -> list[Timed]:
    """Prompt and answer of a request; tokens follow from seconds and rate."""
    match = KOBOLD_TIMES.search(text)
    rates = [KOBOLD_RATE.search(match[group]) for group in (2, 4)] if match else []
    if not match or not all(rates):
        return []
    values = [float(rate[1]) if rate[2] == "T/s" else 1000 / max(float(rate[1]), 0.001) for rate in rates if rate]
    seconds = [float(match[group]) for group in (1, 3)]
    return [(round(time * rate), time, f"{rate:.2f}") for time, rate in zip(seconds, values, strict=True)]


Timed = tuple[int, float, str | None]
"""Tokens, seconds and the rate as it is printed, of one request."""


def _rate(timed: list[Timed]) -> Rate | None:
    """A request that took no measurable time, or that computed no token, has no rate."""
    if not timed:
        return None
    rates = [float(rate or n_tokens / seconds) for n_tokens, seconds, rate in timed if seconds and n_tokens]
    n_tokens, seconds = sum(request[0] for request in timed), sum(request[1] for request in timed)
    return Rate(len(timed), n_tokens, seconds, min(rates, default=None), max(rates, default=None))
