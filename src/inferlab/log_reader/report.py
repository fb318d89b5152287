"""What `explain` returns: facts that a log states, findings with the lines they rest on, and what it does not say."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from inferlab.engine.log import Buffer
from inferlab.log_reader.text import Line
from inferlab.units import bytes_text, number_text, rate_text

SEVERITIES = ("fault", "slow", "note")
HOST_BUFFERS = re.compile(r"CPU|AMX|BLAS|Host$|.+_Host$")
"""Names of buffers in RAM: CPU, CPU_Mapped, CPU_REPACK, AMX, and a GPU's pinned memory such as CUDA_Host."""


@dataclass(frozen=True)
class LoggedProgram:
    """Which program wrote the log; None where the log does not say.

    key   its key in the table of options: cli, python, ollama, lmstudio
    name  llama-server, llama.cpp, llama-cpp-python, Ollama or LM Studio
    """

    key: str
    name: str
    version: str | None
    build: str | None
    backends: tuple[str, ...]


@dataclass(frozen=True)
class LoggedModel:
    """The model of the last load; None where the log does not say."""

    architecture: str | None
    name: str | None
    size: str | None
    file_type: str | None
    weights_bytes: int | None
    n_ctx_train: int | None
    n_layer: int | None
    n_expert: int | None


@dataclass(frozen=True)
class LoggedContext:
    """The context of the last load; None where the log does not say.

    flash_attn   on, off or auto (as it was asked for, where the log does not say what became of it)
    n_processors logical processors, as the line of the threads counts them
    """

    n_ctx: int | None
    n_ctx_slot: int | None
    n_slots: int | None
    kv_unified: bool | None
    n_batch: int | None
    n_ubatch: int | None
    flash_attn: str | None
    type_k: str | None
    type_v: str | None
    n_threads: int | None
    n_processors: int | None

    @property
    def shared(self) -> bool:
        """Whether several slots share all cells."""
        return self.kv_unified is True and (self.n_slots or 0) > 1


@dataclass(frozen=True)
class LoggedDevice:
    """A device that the log names; bytes are those that were free when the model was loaded."""

    name: str
    description: str
    free_bytes: int | None


@dataclass(frozen=True)
class Layers:
    """Layers by device, the output layer among them unless the basis is the cache.

    basis  "lines" where the log names each layer's device; "weights" where all of them lie in RAM; "cache" where each
           device's part of the cache tells its layers
    """

    by_device: dict[str, int]
    basis: str


@dataclass(frozen=True)
class Rate:
    """One phase of the requests of the last run: how many, with tokens and seconds in total.

    slowest, fastest  tokens per second of single requests, as the log prints them; None where no request took time
    """

    n_requests: int
    n_tokens: int
    seconds: float
    slowest: float | None
    fastest: float | None

    @property
    def text(self) -> str:
        """`4.45 tokens/s`, or `4.45 to 161 tokens/s` of several requests."""
        if self.slowest is None or rate_text(self.slowest) == rate_text(self.fastest):
            return rate_text(self.slowest)
        return f"{number_text(self.slowest)} to {rate_text(self.fastest)}"


@dataclass(frozen=True)
class LogFinding:
    """Something that the log shows.

    id        name of the rule
    severity  fault: it failed; slow: it costs speed; note: worth knowing
    what      what it means, in one or two sentences
    lines     the lines of the log on which it rests
    fix       what to do, in the words of the program that wrote the log; `code` stands between backticks
    page      a document of the handbook, and `anchor` a label in it; both "" where it does not treat the matter
    sources   where the message is written: files of llama.cpp in the pinned version, or public threads
    """

    id: str
    severity: str
    what: str
    lines: tuple[Line, ...]
    fix: tuple[str, ...]
    page: str
    anchor: str
    sources: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class LogReport:
    """A log explained. What the log does not say is None, or empty, and named in `unknown`.

    n_loads   loads in the log; all else is about the last one, except findings about repeated loads
    has_draft whether the last load has a second model, which drafts tokens; sizes and settings are the first one's
    findings  what matters most comes first
    unknown   what cannot be known from this log, in sentences
    """

    program: LoggedProgram
    model: LoggedModel
    context: LoggedContext
    devices: tuple[LoggedDevice, ...]
    buffers: tuple[Buffer, ...]
    layers: Layers | None
    prompt: Rate | None
    answer: Rate | None
    findings: tuple[LogFinding, ...]
    unknown: tuple[str, ...]
    n_loads: int
    has_draft: bool
    n_lines: int

    @property
    def table(self) -> dict[str, dict[str, int]]:
        """Device -> kind (weights, kv_cache, compute, output) -> bytes, in the order of the log."""
        by_device: dict[str, dict[str, int]] = {}
        for buffer in self.buffers:
            by_device.setdefault(buffer.device, {})[buffer.kind] = buffer.n_bytes
        return by_device

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self) | {
            "table": self.table,
            "share_on_devices": self.share_on_devices,
        }

    def __repr__(self) -> str:
        head = [f"{self.title}; {len(self.findings)} findings, from the last of {self.n_loads} loads"]
        rows = [f"  {name}: {_kinds(kinds)}" for name, kinds in self.table.items()]
        rates = [f"  {what}: {rate.text}" for what, rate in self._rates() if rate]
        findings = [
            f"{finding.severity}: {finding.what} (line {', '.join(str(line.number) for line in finding.lines)})"
            for finding in self.findings
        ]
        return "\n".join([*head, *rows, *rates, *findings, *(f"unknown: {what}" for what in self.unknown)])

    @property
    def share_on_devices(self) -> float | None:
        """Share of the weights that is not in RAM, from 0 to 1; None where the log lacks the buffers or their sum."""
        weights = self.model.weights_bytes
        if not weights or not any(buffer.kind == "weights" for buffer in self.buffers):
            return None
        on_device = (part.n_bytes for part in self.buffers if part.kind == "weights" and not on_host(part.device))
        return min(1.0, sum(on_device) / weights)

    @property
    def title(self) -> str:
        """Program and model in one line."""
        program = " ".join(filter(None, [self.program.name, self.program.version, self.program.build]))
        model = [self.model.name, self.model.architecture, self.model.size, self.model.file_type]
        return ", ".join(filter(None, [program, *model]))

    @property
    def nothing_found(self) -> str:
        """The sentence for a log without findings; of a log that says little it is no good news."""
        if self.buffers:
            return "Nothing was found that slows it down or keeps it from loading."
        return "Nothing was found, but this log does not say where weights and cache lie."

    def _rates(self) -> tuple[tuple[str, Rate | None], ...]:
        return ("prompt", self.prompt), ("answer", self.answer)


def on_host(device: str) -> bool:
    """Whether a buffer of that name lies in RAM."""
    return bool(HOST_BUFFERS.match(device))


def _kinds(kinds: dict[str, int]) -> str:
    return ", ".join(f"{kind} {bytes_text(n_bytes)}" for kind, n_bytes in kinds.items())
