"""What Ollama's own lines say of a load: its runner's command, what it asked of the runner, and its plan of memory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from inferlab.engine.log import Buffer
from inferlab.log_reader.devices import NUMBER, UNITS
from inferlab.log_reader.runs import OF_A_MODEL, RUNNER_STARTS
from inferlab.log_reader.text import Line, LogText

BUFFER = re.compile(
    r'msg=\\?"(model weights|kv cache|compute graph)\\?" (?:device|buffer|backend)=(\S{1,64}) '
    rf'(?:buffer_type=\S{{1,64}} )?size=\\?"{NUMBER} (GiB|MiB|KiB|B)'
)
"""ml/backend/ggml/ggml.go:377 of v0.9, ml/backend.go:310 of v0.11, ml/device.go:240 of v0.13; ollama#11090"""
KINDS = {"model weights": "weights", "kv cache": "kv_cache", "compute graph": "compute"}
OPTIONS = {
    "n_ctx": r"(?:--ctx-size|-c) (\d{1,12})\b",
    "n_slots": r"(?:--parallel|-np) (\d{1,4})\b",
    "n_batch": r"(?:--batch-size|-b) (\d{1,9})\b",
    "n_ubatch": r"(?:--ubatch-size|-ub) (\d{1,9})\b",
    "n_gpu_layers": r"(?:--n-gpu-layers|-ngl) (\d{1,9})\b",
    "n_threads": r"(?:--threads|-t) (\d{1,5})\b",
    "type_k": r"(?:--kv-cache-type|--cache-type-k|-ctk) (\w{1,10})\b",
    "type_v": r"(?:--kv-cache-type|--cache-type-v|-ctv) (\w{1,10})\b",
    "flash_attn": r"(?:--flash-attn|-fa)(?: (on|off|auto)\b|\b)",
}
"""The command of a runner: llm/server.go:178 of v0.9, llm/llama_server.go:368"""
ASKED = {
    "n_ctx": r"\bKvSize:(\d{1,12})\b",
    "n_slots": r"\bParallel:(\d{1,4})\b",
    "n_batch": r"\bBatchSize:(\d{1,9})\b",
    "n_gpu_layers": r"\bGPULayers:(\d{1,9})\[",
    "n_threads": r"\bNumThreads:(\d{1,5})\b",
    "type_k": r"\bKvCacheType:(\w{1,10})\b",
    "type_v": r"\bKvCacheType:(\w{1,10})\b",
    "flash_attn": r"\bFlashAttention:(\w{2,8})\b",
}
"""`load request=`: llm/server.go:469 of v0.13"""
MODEL = re.compile(r'msg="" architecture=(\w{1,40}) file_type=(\S{1,30}) name="?([^"]{0,100}?)"? description=')
"""ml/backend/ggml/ggml.go:92 of v0.9"""


@dataclass(frozen=True)
class OllamasLoad:
    """The last load of a log of Ollama's; of another program's log, all is empty."""

    log: LogText

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where it started runners that load a model; all runners where no line has a command."""
        found = [(at, self.log.line_at(at).text) for at in self._runners()]
        return tuple(at for at, line in found if OF_A_MODEL in line) or tuple(at for at, _ in found)

    def _runners(self) -> list[int]:
        places = []
        for words in RUNNER_STARTS:
            at = self.log.text.find(words)
            while at >= 0:
                places.append(at)
                at = self.log.text.find(words, at + len(words))
        return sorted(places)

    @property
    def start(self) -> int:
        """The last of them; the beginning of the log where it has none."""
        return self.starts[-1] if self.starts else 0

    def setting(self, name: str) -> str | None:
        """A setting as Ollama asked its runner for it."""
        if not self.starts:
            return None
        for line, patterns in ((self._asked, ASKED), (self.log.line_at(self.start), OPTIONS)):
            if line and name in patterns and (match := re.search(patterns[name], line.text)):
                return match[1] or "on"
        return None

    @cached_property
    def _asked(self) -> Line | None:
        return self.log.last('msg=load request="', self.start)

    def number(self, name: str) -> int | None:
        """A setting that is a number above 0."""
        said = self.setting(name)
        return int(said) or None if said and said.isdigit() else None

    def plan(self, ends: int) -> tuple[Buffer, ...]:
        """The sizes of its plan, or of its own engine's buffers; the last of each kind and device counts."""
        totals: dict[tuple[str, str], int] = {}
        for words in KINDS:
            for line in self.log.lines_with(f'"{words}', self.start, ends):
                if match := BUFFER.search(line.text):
                    totals[match[2], KINDS[match[1]]] = round(float(match[3]) * UNITS[match[4]])
        return tuple(Buffer(device, kind, n_bytes) for (device, kind), n_bytes in totals.items() if n_bytes)

    def model(self) -> tuple[str | None, str | None, str | None]:
        """Architecture, type and name of a model of its own engine."""
        line = self.log.last('msg="" architecture=', self.start)
        match = line and MODEL.search(line.text)
        return (match[1], match[2], match[3] or None) if match else (None, None, None)
