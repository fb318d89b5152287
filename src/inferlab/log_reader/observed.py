"""The facts that the lines of a log state, each None where no line does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from inferlab.engine.log import Buffer, buffers_in, tensor_places_in
from inferlab.log_reader.report import Layers, LoggedContext, LoggedDevice, LoggedModel, LoggedProgram, Rate, on_host
from inferlab.log_reader.runs import LastLoad, last_load
from inferlab.log_reader.text import Line, LogText
from inferlab.units import GIB, KIB, MIB

NUMBER = r"(\d{1,12}(?:\.\d{1,12})?)"
UNITS = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}
SWITCHES = {"1": "on", "true": "on", "enabled": "on", "0": "off", "false": "off", "disabled": "off", "auto": "auto"}
FLASH_ATTENTION = {
    "Flash Attention enabled": "on",
    "Flash Attention not supported, set to disabled": "off",
    "Flash Attention was auto, set to enabled": "on",  # before the other two
    "Flash Attention was auto, set to disabled": "off",
}

# Programs by strings that only they write, the most particular first.
PROGRAMS = (
    # lmstudio-bug-tracker#914, #1454
    ("lmstudio", "LM Studio", ("[LMSInternal]", "[LM STUDIO SERVER]", "[DEBUG]\n llama", "[DEBUG]\n load")),
    # ollama#10368
    (
        "ollama",
        "Ollama",
        (
            "source=server.go",
            "source=llama_server.go",
            "source=sched.go",
            "source=routes.go",
            "source=runner.go",
            "ollama runner",
            'msg="starting llama-server"',
            "[GIN] ",
        ),
    ),
    # llama_cpp/llama.py:500, 550, 942, 1346; llama_cpp/_internals.py:266
    (
        "python",
        "llama-cpp-python",
        (
            "Llama.generate: ",
            "llama_cpp/llama.py",
            "llama_cpp\\llama.py",
            "llama_cpp/_internals.py",
            "llama_cpp\\_internals.py",
            "Model metadata: {",
            "Using fallback chat format: ",
            "Guessed chat format: ",
            "exceed context window of",
        ),
    ),
    # tools/server/server-common.h:30, 37
    (
        "cli",
        "llama-server",
        (
            "load_model: loading model '",
            "llama_server: ",
            "update_slots",
            "launch_slot_",
            "slot print_timing",
            "srv  ",
            "couldn't bind HTTP server socket",
            "exiting due to model loading error",
            "exiting due to HTTP server error",
        ),
    ),
    (
        "cli",
        "llama.cpp",
        (
            "llama_model_loader: ",
            "llama_context: ",
            "print_info: ",
            "llama_perf_context_print: ",
            "llama_model_load: ",
            "llm_load_print_meta: ",
            "load_tensors: ",
            "ggml_cuda_init: ",
            "gguf_init_from_",
            "ggml_backend_",
            "CUDA error: ",
            "no usable GPU found",
            "load_backend: ",
            "llama_print_timings: ",
            " ms per token, ",
        ),
    ),
)
UNKNOWN_PROGRAM = "unknown"
BACKENDS = {
    "CUDA": (
        "CUDA : ",
        "loaded CUDA backend",
        "ggml_cuda_init: found",
        "using device CUDA",
    ),  # ggml-backend-reg.cpp:259
    "ROCm": ("ROCm : ", "loaded ROCm backend", "using device ROCm", "loaded HIP backend"),
    "Vulkan": ("loaded Vulkan backend", "ggml_vulkan: Found", "using device Vulkan"),
    "Metal": ("Metal : ", "ggml_metal_", "loaded Metal backend", "using device Metal", "using device MTL"),
    "SYCL": ("loaded SYCL backend", "using device SYCL"),
    "RPC": ("using device RPC", "loaded RPC backend"),
    "CPU": ("CPU : ", "loaded CPU backend", "system_info: ", "CPU_Mapped", "CPU_REPACK"),
}
OLD_WEIGHTS = re.compile(rf"llm_load_tensors: +(\S{{1,64}}) buffer size = +{NUMBER} MiB")  # ollama#5913
GO_BUFFER = re.compile(
    r'msg=\\?"(model weights|kv cache|compute graph)\\?" (?:device|buffer|backend)=(\S{1,64}) '
    rf'(?:buffer_type=\S{{1,64}} )?size=\\?"{NUMBER} (GiB|MiB|KiB|B)'
)  # Ollama's own engine, ollama#11090
GO_KINDS = {"model weights": "weights", "kv cache": "kv_cache", "compute graph": "compute"}
USING_DEVICE = re.compile(
    rf"using device (\S{{1,64}}) \((.{{1,120}}?)\)(?: \(.{{0,40}}?\))? - {NUMBER} MiB free"
)  # llama.cpp:306
KV_SIZE = re.compile(r"K \((\w{1,10})\): +[\d.]{1,12} MiB, V \((\w{1,10})\)")  # llama-kv-cache.cpp:301
CACHED_LAYERS = re.compile(r" cells, {1,8}(\d{1,5}) layers,")
OFFLOADED = re.compile(r"offloaded (\d{1,6})/(\d{1,6}) layers to GPU")  # llama-model.cpp:1924
TIMING = re.compile(
    r"eval time {1,8}= {0,20}(\d{1,12}(?:\.\d{1,6})?) ms / {0,20}(\d{1,12}) (?:tokens|runs)"
    r"(?: {1,8}\( {0,20}\d{1,12}(?:\.\d{1,6})? ms per token, {1,20}(\d{1,12}(?:\.\d{1,6})?) tokens per second)?"
)
"""tools/server/server-context.cpp:613, src/llama-context.cpp:4434; `prompt ` stands before it, or not"""
OLLAMA_CONTEXT = re.compile(r"(?:--ctx-size|-c) (\d{1,12})\b")  # ollama llm/llama_server.go
RUNNER_STARTS = ("starting runner", "starting llama server", "starting llama-server")
CPU_ONLY = re.compile(r" library=\\?\"?cpu\b")  # ollama discover/types.go:50
OLLAMA_PARALLEL = re.compile(r"(?:--parallel|-np) (\d{1,4})\b")


@dataclass(frozen=True)
class Observed:
    """A log and what its lines say about the last load."""

    log: LogText

    @cached_property
    def load(self) -> LastLoad:
        return last_load(self.log)

    def first(self, needle: str) -> Line | None:
        """The first line of the last load, or of what follows it, with a string."""
        return self.log.first(needle, self.load.start)

    def lines(self, needle: str) -> Iterator[Line]:
        return self.log.lines_with(needle, self.load.start)

    def _value(self, needle: str, pattern: str) -> str | None:
        """The group of a pattern in the model's own lines, in the first line with a string."""
        for line in self.log.lines_with(needle, self.load.loader, self.load.ends):
            if match := re.search(pattern, line.text):
                return match[1]
        return None

    def _field(self, name: str) -> str | None:
        """A field of `print_info:` or `llama_context:`, in any version's spelling."""
        return self._value(
            f" {name} ", rf"(?:_info|_meta|_context|_with_model): {re.escape(name)} {{1,30}}= {{0,8}}(\S.{{0,80}})"
        )

    def _count(self, name: str) -> int | None:
        match = re.match(r"\d{1,12}", self._field(name) or "")
        return int(match[0]) if match else None

    @cached_property
    def program(self) -> LoggedProgram:
        key, name = next(
            ((key, name) for key, name, words in PROGRAMS if any(self.log.has(word) for word in words)),
            ("cli", UNKNOWN_PROGRAM),
        )
        return LoggedProgram(key, name, self._version(key), self._build(), self.backends)

    def _version(self, key: str) -> str | None:
        patterns = {
            "ollama": ("(version ", r"\(version (\d[\w.+-]{0,30})\)"),
            "lmstudio": ("LM Studio ", r"LM Studio v?(\d[\w.+-]{0,20})"),
        }
        if key not in patterns:
            return None
        needle, pattern = patterns[key]
        line = self.log.first(needle)
        match = line and re.search(pattern, line.text)
        return match[1] if match else None

    def _build(self) -> str | None:
        """llama.cpp's build: common/common.cpp:402, before it `build: 4205 (c6bc7395) with` (#11819)."""
        for needle, pattern in (
            ("build", r"build:? (\d{1,8} \([0-9a-f]{6,12}\)) with"),
            ("version: ", r"version: (\S{1,20} \(build \d{1,8}, commit [0-9a-f]{6,12}\))"),
        ):
            for line in self.log.lines_with(needle, self.load.start, self.load.start + 200_000):
                if match := re.search(pattern, line.text):
                    return match[1]
        return None

    @cached_property
    def backends(self) -> tuple[str, ...]:
        """Backends that a line names, and those whose names the buffers have."""
        devices = [buffer.device for buffer in self.buffers]
        return tuple(
            name
            for name, words in BACKENDS.items()
            if any(self.log.has(word, self.load.start) for word in words)
            or any(device.startswith(name) for device in devices)
        )

    @cached_property
    def model(self) -> LoggedModel:
        return LoggedModel(
            architecture=self._field("arch")
            or self._value("general.architecture", r"general\.architecture str {1,20}= (\w{1,40})"),
            name=self._field("general.name"),
            size=self._value(" model type ", r"model type {1,30}= (\d\S{0,20})") or self._field("model params"),
            file_type=self._field("file type") or self._field("model ftype"),
            weights_bytes=self._weights_bytes(),
            n_ctx_train=self._count("n_ctx_train"),
            n_layer=self._count("n_layer"),
            n_expert=self._count("n_expert"),
        )

    def _weights_bytes(self) -> int | None:
        match = re.match(rf"{NUMBER} (GiB|MiB)", self._field("file size") or self._field("model size") or "")
        return round(float(match[1]) * UNITS[match[2]]) if match else None

    @cached_property
    def devices(self) -> tuple[LoggedDevice, ...]:
        """GPUs and other devices that llama.cpp uses; each once."""
        devices: dict[str, LoggedDevice] = {}
        for line in self.lines("using device "):
            if parts := USING_DEVICE.search(line.text):
                devices[parts[1]] = LoggedDevice(parts[1], parts[2], round(float(parts[3]) * MIB))
        return tuple(devices.values())

    @cached_property
    def buffers(self) -> tuple[Buffer, ...]:
        """What was allocated by the last load; a device's buffers of one kind are summed."""
        lines = [line.text for line in self.log.lines_with("buffer size", self.load.loader, self.load.ends)]
        old = [
            Buffer(device, "weights", round(float(size) * MIB))
            for device, size in OLD_WEIGHTS.findall("\n".join(lines))
        ]
        return (*old, *buffers_in("\n".join(lines)), *self._go_buffers())

    def _go_buffers(self) -> list[Buffer]:
        totals: dict[tuple[str, str], int] = {}
        for words in GO_KINDS:
            for line in self.log.lines_with(f'"{words}', self._last_start(), self.load.ends):
                if match := GO_BUFFER.search(line.text):
                    totals[match[2], GO_KINDS[match[1]]] = round(float(match[3]) * UNITS[match[4]])
        return [Buffer(device, kind, n_bytes) for (device, kind), n_bytes in totals.items() if n_bytes]

    def _last_start(self) -> int:
        """Where Ollama last started a runner; its own engine writes none of llama.cpp's loader lines."""
        return max(0, *(self.log.text.rfind(word) for word in RUNNER_STARTS))

    @property
    def runner_started(self) -> bool:
        """Whether the log has Ollama's first line of a load."""
        return any(self.log.has(word) for word in RUNNER_STARTS)

    @cached_property
    def searched(self) -> tuple[Line, ...]:
        """Ollama's lines about GPUs since its server started, of which it writes one for each, or one for the CPU."""
        start = max(0, self.log.text.rfind('msg="Listening on '))
        words = ("no compatible GPUs were discovered", 'msg="inference compute"')
        return tuple(line for word in words for line in self.log.lines_with(word, start))

    @property
    def found_a_gpu(self) -> bool | None:
        """Whether Ollama's search found one (discover/types.go); None where the log has no search."""
        if not self.searched:
            return None
        return any("inference compute" in line.text and not CPU_ONLY.search(line.text) for line in self.searched)

    @cached_property
    def buffer_lines(self) -> tuple[Line, ...]:
        return tuple(self.log.lines_with("model buffer size", self.load.loader, self.load.ends))

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
            return Layers({name: list(places.values()).count(name) for name in dict.fromkeys(places.values())}, "lines")
        total = self.offloaded[2] if self.offloaded else (self.model.n_layer or 0) + 1
        if total > 1 and self.bytes_on("weights", host=True) and not self.bytes_on("weights", host=False):
            return Layers({"CPU": total}, "weights")
        return self._layers_by_cache()

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
        return Layers({device: round(n) for device, n in layers.items() if round(n)}, "cache")

    @cached_property
    def context(self) -> LoggedContext:
        slots = self._slots()
        types = self._types()
        threads = self._threads()
        return LoggedContext(
            n_ctx=self._count("n_ctx") or self._ollama(OLLAMA_CONTEXT),
            n_ctx_slot=slots[1] or self._count("n_ctx_seq") or self._count("n_ctx_per_seq"),
            n_slots=slots[0] or self._count("n_seq_max") or self._ollama(OLLAMA_PARALLEL),
            kv_unified={"true": True, "false": False}.get(slots[2] or self._field("kv_unified") or ""),
            n_batch=self._count("n_batch"),
            n_ubatch=self._count("n_ubatch"),
            flash_attn=self._flash_attn(),
            type_k=types[0],
            type_v=types[1],
            n_threads=threads[0],
            n_processors=threads[1],
        )

    def _slots(self) -> tuple[int | None, int | None, str | None]:
        """tools/server/server-context.cpp:1231; older versions wrote only `initializing slots, n_slots = 4`."""
        line = self.first("n_slots = ")
        match = line and re.search(
            r"n_slots = (\d{1,6})(?:, n_ctx_slot = (\d{1,12}))?(?:, kv_unified = '(\w{4,5})')?", line.text
        )
        if not match:
            return None, None, None
        return int(match[1]), int(match[2]) if match[2] else None, match[3]

    def _ollama(self, pattern: re.Pattern[str]) -> int | None:
        line = self.log.line_at(self._last_start()) if self.program.key == "ollama" else None
        match = line and pattern.search(line.text)
        return int(match[1]) if match else None

    def _flash_attn(self) -> str | None:
        """What became of it (llama-context.cpp:550, 553), else what was asked for."""
        for said, state in FLASH_ATTENTION.items():
            if self.log.first(said, self.load.loader, self.load.ends):
                return state
        return SWITCHES.get(self._field("flash_attn") or "")

    def _types(self) -> tuple[str | None, str | None]:
        for line in self.log.lines_with("MiB, V (", self.load.loader, self.load.ends):
            if match := KV_SIZE.search(line.text):
                return match[1], match[2]
        return None, None

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
        for match in TIMING.finditer(text, self.load.start):
            at = match.start()
            phase = int(text[max(0, at - 7) : at] != "prompt ")
            timed[phase].append((int(match[2]), float(match[1]) / 1000, match[3]))
        return _rate(timed[0]), _rate(timed[1])


Timed = tuple[int, float, str | None]
"""Tokens, seconds and the rate as it is printed, of one request."""


def _rate(timed: list[Timed]) -> Rate | None:
    """A request that took no measurable time has no rate."""
    if not timed:
        return None
    rates = [float(rate or n_tokens / seconds) for n_tokens, seconds, rate in timed if seconds]
    n_tokens, seconds = sum(request[0] for request in timed), sum(request[1] for request in timed)
    return Rate(len(timed), n_tokens, seconds, min(rates, default=None), max(rates, default=None))
