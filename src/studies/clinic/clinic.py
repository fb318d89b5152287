"""The error clinic: known faults, provoked one at a time in a process of their own.

`provoke(name)` makes the fault, lets llama.cpp meet it in a worker process, and returns a `Specimen` with its log.
The worker gets files and settings that `LlamaEngine.open` would refuse, so that llama.cpp's own message is seen.
`CASES` has what can be provoked without a GPU. The memory cases need Linux and a llama.cpp with RPC.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from inferlab.engine import libraries
from inferlab.engine.process import NoReply, WorkerProcess
from inferlab.engine.protocol import Entry, entries_of
from inferlab.errors import EngineTimeout, InferlabError
from inferlab.measurement.base import with_context
from inferlab.model.find import tiny_model
from inferlab.model.gguf import read_gguf
from inferlab.model.synthetic_model import make_shape
from inferlab.prediction.predict import predict_memory
from inferlab.settings import Settings
from studies.clinic import files
from studies.clinic.devices import Placed, no_lock_command, other_version, short_device

TIMEOUT_SECONDS = 60.0
SMALL = Settings(n_ctx=256, n_gpu_layers=0)
REPORTS = (
    "invalid magic",
    "unknown model architecture",
    "unknown pre-tokenizer",
    "not within the file bounds",
    "quantized V cache requires",
    "unable to allocate ",
    "for kv cache",
    "failed to allocate compute",
    "failed to find a memory slot",
    "version mismatch",
    "failed to mlock",
)


@dataclass(frozen=True)
class Case:
    """A fault that can be provoked.

    cause     what is wrong, in a sentence
    make      writes the file to load into a folder, or finds it, and returns its path
    forced    settings that `Settings` refuses, given to llama.cpp past that check
    requests  what the worker is asked after it has opened the model
    around    (path, settings) -> a context in which the worker lives, with the settings for it
    no_locks  the worker may lock no memory
    """

    name: str
    cause: str
    make: Callable[[Path], Path]
    settings: Settings = SMALL
    forced: Mapping[str, Any] = field(default_factory=dict)
    requests: tuple[Mapping[str, Any], ...] = ()
    around: Callable[[Path, Settings], AbstractContextManager[Placed]] = lambda _, settings: nullcontext(
        Placed(settings)
    )
    no_locks: bool = False


@dataclass(frozen=True)
class Specimen:
    """A provoked fault.

    own_words  the line of the log that reports the failure; the worker's reply where no line does
    log        all that llama.cpp logged
    ended      "error": the worker refused and lived on; "exit": the worker's process ended; "no error"
    before     what this library would have said before the load; "" where it sees nothing
    placed     the settings, and for a memory case the device's limit and planned bytes
    """

    name: str
    cause: str
    own_words: str
    log: str
    ended: str
    before: str
    placed: Placed


def provoke(name: str) -> Specimen:
    """Let a worker process meet the fault `name`, a key of CASES, and end that process.

    Raises EngineTimeout where there is no reply within a minute, and DeviceUnavailable where `possible` lacks the name.
    """
    case = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        path = case.make(Path(folder))
        with case.around(path, case.settings) as placed:
            ended, reply, log = _met(case, path, placed.settings)
        before = _said_before(case, path, placed)
    words = next((line.strip() for line in log.splitlines() if any(report in line for report in REPORTS)), reply)
    return Specimen(name, case.cause, words, log, ended, before, placed)


def provoke_all() -> dict[str, Specimen]:
    """Every fault that this machine can provoke, by its name."""
    return {name: provoke(name) for name in possible()}


def possible() -> list[str]:
    """Names of the cases that this machine can provoke.

    The memory of a device is limited on Linux, with RPC; locks are refused where `no_lock_command` has its programs.
    """
    rpc = "rpc" in libraries.backends()
    lacking = set() if rpc else {"RPC version"}
    if not rpc or sys.platform != "linux":
        lacking |= {name for name in CASES if name.startswith("memory: ")}
    if not no_lock_command():
        lacking.add("locked memory")
    return [name for name in CASES if name not in lacking]


def _met(case: Case, path: Path, settings: Settings) -> tuple[str, str, str]:
    """(how it ended, the worker's last error or "", the log)."""
    opening = {"request": "open", "model": str(path), "settings": {**settings.to_dict(), **case.forced}}
    ended, error = "no error", ""
    worker = WorkerProcess({}, no_lock_command() if case.no_locks else ())
    try:
        for request in (opening, *case.requests):
            reply = _ask(worker, request)
            if reply is None or "error" in reply:
                ended = "exit" if reply is None else "error"
                error = worker.why_it_ended() if reply is None else reply["error"]
                break
        return ended, error, worker.log.read_text(encoding="utf-8", errors="replace")
    finally:
        worker.stop()


def _ask(worker: WorkerProcess, request: Mapping[str, Any]) -> dict[str, Any] | None:
    """The reply, None where the process ended without one."""
    try:
        worker.send(dict(request))
        line = worker.next_line(TIMEOUT_SECONDS)
    except BrokenPipeError:
        return None
    except NoReply:
        raise EngineTimeout(f"There was no reply within {TIMEOUT_SECONDS:.0f} s.", worker.last_log_lines()) from None
    return json.loads(line) if line else None


def _said_before(case: Case, path: Path, placed: Placed) -> str:
    """The first refusal of settings, header, plan or prompt; for a memory case, the plan beside the limit."""
    if placed.planned:
        return placed.verdict
    try:
        settings = case.settings.but(**case.forced)
        settings.require_model(read_gguf(path))
        predict_memory(path, settings, simulate=False)
        for request in case.requests:
            if "prompt" in request:
                with_context(settings, len(request["prompt"]), request["n_gen"])
    except InferlabError as refused:
        return str(refused).replace(f"{path.parent}/", "")
    return ""


def _tiny(_: Path) -> Path:
    return tiny_model()


def _shape(_: Path) -> Path:
    return make_shape("llama-3.2-1b", "Q4_K_M", n_layer=4, n_vocab=8192)


PROMPT = {"request": "generate", "prompt": [1] * 300, "n_gen": 1, "called_at": 0.0}
TWO_BY_TURNS = [entry for at in range(128) for entry in (Entry(1, at, 0), Entry(1, at, 1, wanted=at == 127))]
HOLES = (
    {"request": "step", "entries": TWO_BY_TURNS},
    {"request": "keep", "n_tokens": 0, "sequence": 0},
    {"request": "step", "entries": entries_of([1] * 128)},
)
CASES = {
    case.name: case
    for case in (
        Case(
            "web page",
            "A download was answered with a web page, saved as .gguf.",
            partial(files.written, content=files.WEB_PAGE),
        ),
        Case(
            "LFS pointer", "A repository was cloned without Git LFS.", partial(files.written, content=files.LFS_POINTER)
        ),
        Case("incomplete file", "A download or a copy was cut off.", files.incomplete),
        Case(
            "memory: weights",
            "The device has half of the bytes that the weights need.",
            _shape,
            Settings(n_ctx=256),
            around=partial(short_device, missing="weights"),
        ),
        Case(
            "memory: cache",
            "The weights fit, but only half of the KV cache does.",
            _shape,
            Settings(n_ctx=32768, flash_attn="on"),
            around=partial(short_device, missing="cache"),
        ),
        Case(
            "memory: compute",
            "Weights and cache fit, but only half of the compute buffer does.",
            _shape,
            Settings(n_ctx=4096, n_batch=2048, n_ubatch=2048, flash_attn="off"),
            around=partial(short_device, missing="compute"),
        ),
        Case(
            "quantized values",
            "A quantized V cache without flash attention.",
            _tiny,
            forced={"type_v": "q8_0", "flash_attn": "off"},
        ),
        Case(
            "locked memory",
            "The process may lock no memory, and the load asks for it.",
            _tiny,
            SMALL.but(load_mode="mlock"),
            no_locks=True,
        ),
        Case("context overflow", "The prompt is longer than the context.", _tiny, requests=(PROMPT,)),
        Case(
            "unknown architecture",
            "The model is newer than the program.",
            partial(files.renamed, key="general.architecture", old=b"llama", new=b"lumen"),
        ),
        Case(
            "unknown pre-tokenizer",
            "The program does not know the rule that splits the text.",
            partial(files.renamed, key="tokenizer.ggml.pre", old=b"gpt-2", new=b"xxxxx"),
        ),
        Case("RPC version", "The RPC server speaks another version of the protocol.", _tiny, around=other_version),
        Case(
            "holes in the cache",
            "Negative control: the free cells of the KV cache are not adjacent.",
            _tiny,
            SMALL.but(n_seq_max=2, kv_unified=True),
            requests=HOLES,
        ),
    )
}
