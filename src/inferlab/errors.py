"""Every error the library raises: what happened, what was found, what to do.

    InferlabError
    ├── ModelError
    │   ├── ModelNotFound       no such file, or not a file
    │   ├── NotReached          an address that gave no file: no answer, a refusal, or one that cannot be trusted
    │   ├── NotGGUF             a file, but of another kind
    │   ├── UnsupportedGGUF     a whole GGUF that is no language model, or in a form that llama.cpp does not read
    │   └── DamagedGGUF         a GGUF whose header cannot be trusted
    │       └── HeaderIncomplete    a beginning of a GGUF that ends inside its header
    ├── UnsupportedArchitecture a formula that does not hold for this model; never a guess
    ├── InvalidSettings         a request that llama.cpp would refuse, or does not know
    ├── EngineError
    │   ├── EngineUnavailable   llama-cpp-python is missing or does not load
    │   ├── DeviceUnavailable   no loopback device, or a GPU whose memory cannot be limited or counted
    │   └── EngineRefused       llama.cpp refused: model, context or decode failed
    │       ├── EngineCrashed   the worker process died; the last log lines are in the message
    │       └── EngineTimeout   no answer in time; the worker was stopped
    ├── ContributionRefused     records that may not be shared as they are
    ├── MeasurementCancelled    ended early by Cancel
    ├── NotEnoughDisk           a file that would not fit on the disk
    ├── OtherEngineFailed       an engine beside llama.cpp is missing, or ended; only one measurement needs them
    ├── OutOfTime               a measurement that would exceed its time limit
    ├── PyTorchUnavailable      PyTorch is missing; only two measurements need it
    ├── QueueUnavailable        the folder of the measurement queue cannot be used
    ├── RecordError             a stored run that cannot be read or written
    ├── StaleDiagram            a diagram's picture was not drawn from its present source
    ├── UnknownClaim            a name that is not in the register of claims
    ├── UnknownSyllabus         a workshop that the book has no syllabus for
    └── UnreadableLog           no log: nothing to read, or no line that a known program writes

The notebook's kernel survives all of them, and the next call starts a new worker where one is needed.
"""

from __future__ import annotations


class InferlabError(Exception):
    """Base class of the library's errors."""


class ModelError(InferlabError):
    """Something is wrong with a model file."""


class ModelNotFound(ModelError):
    """No file at that path."""


class NotReached(ModelError):
    """An address that gave no file: no answer, a refusal, or an answer that cannot be trusted."""


class NotGGUF(ModelError):
    """The file is not a GGUF."""


class UnsupportedGGUF(ModelError):
    """A whole GGUF that is no language model, or is in a form that this library does not read."""


class DamagedGGUF(ModelError):
    """The file is a GGUF whose header breaks the format's rules."""


class HeaderIncomplete(DamagedGGUF):
    """Only the beginning of a GGUF is there, and it ends inside the header; more of it may be brought.

    file          name of that file, which may be a later part of a split model
    n_bytes       how many were there
    needed_bytes  the least with which reading goes on; the header may need more
    """

    def __init__(self, message: str, file: str, n_bytes: int, needed_bytes: int) -> None:
        super().__init__(message)
        self.file, self.n_bytes, self.needed_bytes = file, n_bytes, needed_bytes


class UnsupportedArchitecture(InferlabError):
    """No valid formula for this model's architecture."""


class InvalidSettings(InferlabError, ValueError):
    """Settings that llama.cpp would refuse, or does not know."""


class EngineError(InferlabError):
    """The engine could not do what was requested."""


class EngineUnavailable(EngineError):
    """llama.cpp cannot be loaded in this environment."""


class DeviceUnavailable(EngineError):
    """A device is not available: no loopback device, or memory that cannot be limited or counted."""


class EngineRefused(EngineError):
    """llama.cpp answered with an error; `log` holds its last lines."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(f"{message}\nllama.cpp's last lines:\n{log}" if log else message)
        self.log = log


class EngineCrashed(EngineRefused):
    """The worker process ended during the request; the next call starts a fresh one.

    killed  whether another process or the system ended it, rather than a failure of its own
    """

    def __init__(self, message: str, log: str = "", killed: bool = False) -> None:
        super().__init__(message, log)
        self.killed = killed


class EngineTimeout(EngineRefused):
    """The engine did not answer in time and was stopped; the next call starts a fresh one."""


class ContributionRefused(InferlabError):
    """Records that name their owner, or files that are not records."""


class MeasurementCancelled(InferlabError):
    """A measurement was cancelled before it was complete."""


class NotEnoughDisk(InferlabError):
    """A file is larger than the free space on the disk."""


class OtherEngineFailed(InferlabError):
    """An engine beside llama.cpp is not installed, or its process ended."""


class OutOfTime(InferlabError):
    """A measurement was not started, because it would probably exceed its time limit."""


class PyTorchUnavailable(InferlabError):
    """PyTorch cannot be imported."""


class QueueUnavailable(InferlabError):
    """No place can be taken in the folder that INFERLAB_QUEUE names."""


class RecordError(InferlabError):
    """A record cannot be read or written."""


class StaleDiagram(InferlabError):
    """A diagram's SVG was drawn from an older source."""


class UnknownClaim(InferlabError):
    """The register of claims has no entry of that name."""


class UnknownSyllabus(InferlabError):
    """There is no workshop of that name."""


class UnreadableLog(InferlabError):
    """There is no log to read, or no line of it that a known program writes."""
