"""What `explain` returns: facts that a log states, findings with the lines they rest on, and what it does not say."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from inferlab.engine.log import Buffer
from inferlab.log_reader.text import Line
from inferlab.machine import on_host
from inferlab.units import bytes_text, number_text, rate_text

SEVERITIES = ("fault", "slow", "note")

WHOLE_LOGS = {
    "llama-server": "Start it with `-lv 4`, and paste its log from the first line on.",
    "LM Studio": "Paste its Developer Logs, or what `lms log stream -s runtime` writes while the model is loaded.",
    "Ollama": "Paste the server's log from its start: `server.log`, `journalctl -u ollama`, or `docker logs`.",
    "llama-cpp-python": "Make the model with `verbose=True`, and paste all that it writes.",
}
"""Where a program keeps its log: lmstudio-bug-tracker#874, #1599; ollama docs/troubleshooting.mdx"""


@dataclass(frozen=True)
class LoggedProgram:
    """Which program wrote the log; None where the log does not say.

    key   its key in the table of options: cli, python, ollama, lmstudio
    name  llama-server, llama.cpp, llama-cpp-python, Ollama, LM Studio, or a program around llama.cpp, such as koboldcpp
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

    n_ctx_slot   cells that one slot can use: all of them where slots share one cache, and no more than in training
    flash_attn   on, off or auto (as it was asked for, where the log does not say what became of it)
    n_processors logical processors, as the line of the threads counts them
    n_gpu_layers layers that Ollama asked its runner to put on GPUs
    swa_full     whether sliding-window layers keep the whole context
    offload_kqv  whether the cache follows the layers to their devices
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
    n_seq_max: int | None = None
    n_outputs_max: int | None = None
    n_gpu_layers: int | None = None
    swa_full: bool | None = None
    offload_kqv: bool | None = None

    @property
    def shared(self) -> bool:
        """Whether several slots share all cells."""
        return self.kv_unified is True and (self.n_slots or 0) > 1


@dataclass(frozen=True)
class LoggedDevice:
    """A GPU or another accelerator that the log names, no processor; None where it does not say.

    free_bytes   free when the model was loaded, or when llama.cpp listed its devices
    used         the model was loaded for it: `using device`, or a buffer lies there; else the log only lists it
    shares_ram   its memory is the machine's RAM
    is_software  a driver that computes on the processor
    """

    name: str
    description: str
    free_bytes: int | None
    total_bytes: int | None = None
    used: bool = False
    shares_ram: bool = False
    is_software: bool = False

    @property
    def text(self) -> str:
        """Name and memory of a device, and whether the log only lists it."""
        sizes = [(self.free_bytes, "free"), (self.total_bytes, "in all")]
        known = [f"{bytes_text(n_bytes)} {what}" for n_bytes, what in sizes if n_bytes is not None]
        what = [
            self.description if self.description != self.name else "",
            *known[:1],
            "a part of RAM" if self.shares_ram else "",
            "computed on the processor" if self.is_software else "",
            "" if self.used else "listed",
        ]
        said = "; ".join(filter(None, what))
        return f"{self.name} ({said})" if said else self.name


@dataclass(frozen=True)
class Breakdown:
    """One row of llama.cpp's table of memory, in bytes, exact to a MiB; total and free None in RAM."""

    device: str
    total_bytes: int | None
    free_bytes: int | None
    weights_bytes: int
    context_bytes: int
    compute_bytes: int


@dataclass(frozen=True)
class Layers:
    """Layers by device, the output layer among them unless the basis is the cache or the cached layers.

    basis  "lines" where the log names each layer's device; "weights" where all of them lie in RAM; "offloaded" where
           llama.cpp counts those of its devices together; "cache" where each device's part of the cache tells its
           layers, "cached layers" where only some layers have one
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
    breakdown llama.cpp's own table of memory, the last one that it printed
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
    breakdown: tuple[Breakdown, ...] = ()

    @property
    def table(self) -> dict[str, dict[str, int]]:
        """Device -> kind (weights, kv_cache, recurrent, compute, output, …) -> bytes, in the order of the log."""
        by_device: dict[str, dict[str, int]] = {}
        for buffer in self.buffers:
            by_device.setdefault(buffer.device, {})[buffer.kind] = buffer.n_bytes
        return by_device

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self) | {
            "table": self.table,
            "share_on_devices": self.share_on_devices,
            "enough": self.enough,
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
    def enough(self) -> bool:
        """Whether there is enough to call a run healthy: a load up to its last buffers, or a finished request."""
        kinds = {buffer.kind for buffer in self.buffers}
        return {"weights", "compute"} <= kinds or self.prompt is not None or self.answer is not None

    @property
    def nothing_found(self) -> str:
        """The sentence for a log without findings; of a log that says little it is no good news."""
        if not self.enough:
            whole = WHOLE_LOGS.get(self.program.name, "Paste the log from its first line on.")
            placed = self._placed()
            so_far = (
                f"Nothing is wrong so far: {placed}. But this part is too short to judge the rest"
                if placed
                else "Nothing was found, but this part is too short to judge"
            )
            return f"{so_far}: it has neither the buffers of a whole load nor a finished request. {whole}"
        if self.buffers:
            weights = [buffer.device for buffer in self.buffers if buffer.kind == "weights"]
            on_cpu = " All of it runs on the CPU." if weights and all(map(on_host, weights)) else ""
            return f"Nothing was found that slows it down or keeps it from loading.{on_cpu}"
        return "Nothing was found, but this log does not say where weights and cache lie."

    def _placed(self) -> str:
        """What a part of a load shows of a model that is on devices; "" where it shows none of it, or some in RAM.

        Beside all layers on devices, the tensors for the tokens lie in RAM; much more than these may be experts. A
        larger compute buffer in RAM than on the devices says that the processor computes.
        """
        in_ram, on_devices = self._bytes("weights")
        at_work, beside = self._bytes("compute")
        if 4 * in_ram > on_devices or at_work > beside:
            return ""
        if self.layers:
            names, n = list(self.layers.by_device), sum(self.layers.by_device.values())
            return "" if any(map(on_host, names)) else f"all {n} layers are on {' and '.join(names)}"
        for kind, name in (("kv_cache", "cache"), ("recurrent", "recurrent state")):
            held = list(dict.fromkeys(part.device for part in self.buffers if part.kind == kind))
            if held:
                return "" if any(map(on_host, held)) else f"the {name} is on {' and '.join(held)}"
        return ""

    def _bytes(self, kind: str) -> tuple[int, int]:
        """Bytes of one kind in RAM, and on devices."""
        parts = [part for part in self.buffers if part.kind == kind]
        in_ram = sum(part.n_bytes for part in parts if on_host(part.device))
        return in_ram, sum(part.n_bytes for part in parts) - in_ram

    def _rates(self) -> tuple[tuple[str, Rate | None], ...]:
        return ("prompt", self.prompt), ("answer", self.answer)


def _kinds(kinds: dict[str, int]) -> str:
    return ", ".join(f"{kind} {bytes_text(n_bytes)}" for kind, n_bytes in kinds.items())
