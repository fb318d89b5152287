"""The engine: llama.cpp in a process of its own, asked through pipes.

A notebook that measures must survive whatever it measures, so nothing here loads llama.cpp:
`LlamaEngine` starts `inferlab.engine.worker`, sends it one JSON request a line and reads one reply a line.
When the worker dies, the caller gets EngineCrashed with llama.cpp's last lines, and the next call starts afresh.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from inferlab.engine import libraries
from inferlab.engine.endings import LOST_DEVICES, how_it_ended
from inferlab.engine.log import LOG_INFO, LogLine, buffers_in, phases_in
from inferlab.engine.protocol import NEED_NO_MODEL, Entry, Opening, Pass, Step, Tell, _nobody
from inferlab.engine.registry import ENGINES, limit_on, release_server
from inferlab.errors import EngineCrashed, EngineRefused, EngineTimeout
from inferlab.machine import Device, Machine, pci_id, read_host, server_name
from inferlab.model.gguf import read_gguf
from inferlab.settings import Settings

LOG_LINES_IN_ERRORS = 12
PROGRESS = '{"progress"'


class LlamaEngine:
    """llama.cpp in one worker process, started on first use and again after a crash.

    A request that is not answered within `timeout_seconds` ends the worker and raises EngineTimeout.
    `environment` is added to the worker's, for what llama.cpp reads there: {"LLAMA_ATTN_ROT_DISABLE": "1"}.
    """

    def __init__(
        self, timeout_seconds: float | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self.timeout_seconds, self.environment = timeout_seconds, dict(environment or {})
        self._replies: queue.Queue[str] = queue.Queue()
        self._worker: subprocess.Popen | None = None
        self._log: Path | None = None
        self._lock = threading.RLock()
        self._opened: tuple[tuple[Any, Settings], Opening] | None = None
        self._servers: tuple[str, ...] = ()
        self._visible: tuple[str | None, ...] = ()
        ENGINES.add(self)

    @property
    def pid(self) -> int | None:
        """The worker's process id; None while there is no worker."""
        return self._worker.pid if self._alive else None

    def machine(self) -> Machine:
        """The host with the devices that llama.cpp registers on it, each within the limit that this session set."""
        self._see_what_is_visible()
        told = self._ask("machine")
        devices = tuple(_named(Device(**device)) for device in told["devices"])
        return replace(read_host(), devices=devices, llama_cpp=told["llama_cpp"], llama_cpp_commit=told["commit"])

    def held(self) -> AbstractContextManager[Any]:
        """Keep the engine for one measurement: another thread waits until the block ends."""
        return self._lock

    def ready(self) -> None:
        """Start the worker and wait until llama.cpp's libraries are loaded in it."""
        self._ask("ready")

    def open(self, model: Path, settings: Settings) -> Opening:
        """Load the model and make its context, or reuse the open one if neither file nor settings changed.

        The header is checked first, so a damaged file never reaches C code.
        Raises ModelError, EngineRefused or EngineCrashed.
        """
        wanted = (_identity(model), settings)
        if self._opened and self._opened[0] == wanted and self._alive:
            return self._opened[1]
        began = time.perf_counter()
        settings.require_model(read_gguf(model))
        check_seconds = time.perf_counter() - began
        self._opened = None
        self._know_only(settings.rpc_servers)
        told = self._ask("open", model=os.path.abspath(model), settings=settings.to_dict())
        lines = [LogLine(*line) for line in told["log"]]
        log = "".join(line.text for line in lines if line.level >= LOG_INFO)
        phases = {
            "check_seconds": check_seconds,
            **phases_in(lines, told["loaded_seconds"], told["ready_seconds"]),
        }
        opening = Opening(buffers_in(log), phases, Settings.from_dict(told["settings"]), log, told["description"])
        self._opened = (wanted, opening)
        return opening

    def simulate(self, model: Path, settings: Settings, n_outputs_max: int = 0) -> str:
        """What llama.cpp logs when it only counts what it would allocate; the file may be a header alone.

        n_outputs_max is the number of rows of logits to reserve for, 0 for one for each token of a batch.
        Raises ModelError, EngineRefused or EngineCrashed.
        """
        settings.require_model(read_gguf(model))
        self._opened = None
        self._know_only(settings.rpc_servers)
        told = self._ask(
            "simulate", model=os.path.abspath(model), settings=settings.to_dict(), n_outputs_max=n_outputs_max
        )
        return "".join(told["log"])

    def generate(self, prompt: Sequence[int], n_gen: int) -> Pass:
        """Prefill `prompt`, then decode greedily until `n_gen` token ids are known."""
        called_at = time.perf_counter()
        told = self._ask("generate", prompt=list(prompt), n_gen=n_gen, called_at=called_at)
        return Pass(
            prefill_seconds=told["prefill_seconds"],
            token_seconds=tuple(told["token_seconds"]),
            decode_seconds=tuple(told["decode_seconds"]),
            tokens=tuple(told["tokens"]),
            began=called_at,
        )

    def step(self, entries: Sequence[Entry]) -> Step:
        """Compute tokens of one or several sequences together; what the sequences have stays and grows by them.

        Raises EngineRefused where the cache has no room, or n_seq_max no such sequence.
        """
        told = self._ask("step", entries=list(entries))
        return Step(told["seconds"], tuple(told["picks"]))

    def share(self, source: int, target: int) -> float:
        """Let sequence `target` begin with all tokens of `source`, in place of its own; seconds of the call.

        In one pool of cells (kv_unified) the cells are shared and nothing is copied; without it the source's cells
        are copied before the next step.
        """
        return self._ask("share", source=source, target=target)["seconds"]

    def keep(self, n_tokens: int, sequence: int | None = None) -> None:
        """Drop what a sequence, or every one, has behind its first `n_tokens`; keep(0) empties the cache."""
        self._ask("keep", n_tokens=n_tokens, sequence=-1 if sequence is None else sequence)

    def has_open(self, model: Path) -> bool:
        """Whether this very file is loaded now."""
        return bool(self._opened and self._opened[0][0] == _identity(model) and self._alive)

    def open_vocabulary(self, model: Path) -> None:
        """Make `model`'s vocabulary usable; a model that is already open stays as it is."""
        if not self.has_open(model):
            self.open(model, Settings(n_ctx=256))

    def random_prompt(self, n_prompt: int) -> list[int]:
        """`n_prompt` token ids drawn with a fixed seed, as llama-bench draws its own."""
        return self._ask("random_prompt", n_prompt=n_prompt)["tokens"]

    def tokenize(self, text: str) -> list[int]:
        """Token ids of `text`, with the model's own opening token."""
        return self._ask("tokenize", text=text)["tokens"]

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Text of token ids; special tokens vanish."""
        return self._ask("detokenize", tokens=list(tokens))["text"]

    def chunks(self, text: str, n_ctx: int) -> tuple[list[list[int]], int]:
        """(every full n_ctx tokens of `text`, how many tokens it has), cut and opened as llama-perplexity does."""
        told = self._ask("chunks", text=text, n_ctx=n_ctx)
        return told["chunks"], told["n_tokens"]

    def score(self, tokens: Sequence[int], first: int = 1) -> list[float]:
        """Nats of tokens[first:], each given all those before it; they must fit the open context."""
        return self._ask("score", tokens=list(tokens), first=first)["nats"]

    def set_aside(self) -> None:
        """Keep the open model as the reference of `compare`; open another one, or the same, beside it."""
        self._opened = None
        self._ask("set_aside")

    def compare(self, tokens: Sequence[int], first: int = 1) -> dict[str, list[Any]]:
        """The open model and the reference on tokens[first:]: the columns of engine.rows.Compared."""
        return self._ask("compare", tokens=list(tokens), first=first)

    def forget(self) -> None:
        """Free the reference, if there is one."""
        if self._alive:
            self._ask("forget")

    def quantize(
        self,
        source: Path,
        target: Path,
        file_type: int,
        *,
        requantize: bool = False,
        dry_run: bool = False,
        tell: Tell = _nobody,
    ) -> str:
        """Write `source` to `target` with llama.cpp's quantizer and return its log; the open model stays open.

        file_type is a number of enum llama_ftype; `tell` hears (tensors begun, all tensors).
        With dry_run nothing is written. The header is checked first.
        Raises ModelError, EngineRefused or EngineCrashed; what was written by then is left to the caller.
        """
        read_gguf(source)
        paths = {"source": os.path.abspath(source), "target": os.path.abspath(target)}
        told = self._ask(
            "quantize", tell, **paths, file_type=file_type, requantize=requantize, dry_run=dry_run
        )
        return "".join(told["log"])

    def multiply(self, device: str, n_threads: int | None = None, **work: Any) -> list[float]:
        """Seconds of each pass over `n_matrices` products (n_rows, n_cols) x (n_cols, n_tokens) on a device.

        `device` is a name in ggml's registry or an RPC endpoint; work: type, n_rows, n_cols, n_tokens, n_matrices and
        the seconds to go on for. The open model stays open. Raises EngineRefused or EngineCrashed.
        """
        self._know(device)
        return self._ask("multiply", device=device, n_threads=n_threads, **work)["seconds"]

    def withhold(self, device: str, free_bytes: int) -> int:
        """Allocate memory of a device until no more than `free_bytes` of it are free; bytes held by this worker.

        It is held until the worker ends. Raises EngineRefused where the device gives less, EngineCrashed.
        """
        return self._ask("withhold", device=device, free_bytes=free_bytes)["held_bytes"]

    def transfer(self, device: str, n_bytes: int, seconds: float) -> tuple[list[float], list[float]]:
        """Seconds of each copy of n_bytes to a device, and of each copy back."""
        self._know(device)
        told = self._ask("transfer", device=device, n_bytes=n_bytes, seconds=seconds)
        return told["there"], told["back"]

    def _know(self, device: str) -> None:
        if ":" in device:
            self._know_only((device,))

    def close(self) -> None:
        """End the worker; the next request starts a new one. What another thread is waiting for ends as a crash."""
        worker, self._worker, log, self._log, self._opened = self._worker, None, self._log, None, None
        if worker is not None:
            worker.kill()
            worker.wait()
            worker.stdin.close()
        if log is not None:
            log.unlink(missing_ok=True)

    def uses(self, endpoint: str) -> bool:
        """Whether this worker has the RPC server at `endpoint` among its devices."""
        return self._alive and endpoint in self._servers

    def _know_only(self, endpoints: tuple[str, ...]) -> None:
        """Have no worker that knows other RPC servers: ggml forgets none, and llama.cpp uses every one it knows.

        A server serves one client at a time, so this session's other workers let go of these.
        """
        self._see_what_is_visible()
        if self._alive and self._servers != endpoints[: len(self._servers)]:
            self.close()
        self._servers = endpoints
        for endpoint in endpoints:
            release_server(endpoint, but=self)

    def _see_what_is_visible(self) -> None:
        """Have no worker that was started when other GPUs were visible, or in another order: it would not notice."""
        if self._alive and self._visible != visible_gpus():
            self.close()

    @property
    def _alive(self) -> bool:
        return self._worker is not None and self._worker.poll() is None

    def _start(self) -> None:
        libraries.folder()
        self.close()
        self._visible = visible_gpus()
        handle, name = tempfile.mkstemp(prefix="inferlab-", suffix=".log")
        os.close(handle)
        self._log = Path(name)
        self._worker = subprocess.Popen(
            [sys.executable, "-m", "inferlab.engine.worker", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, **self.environment, "GGML_NO_BACKTRACE": "1"},
            start_new_session=True,
        )
        self._replies = queue.Queue()
        threading.Thread(target=_pass_lines, args=(self._worker.stdout, self._replies), daemon=True).start()

    def _ask(self, request: str, tell: Tell = _nobody, **details: Any) -> dict[str, Any]:
        """Send one request and wait for its reply; an interrupt ends the worker and goes on to the caller.

        `tell` is called with what is done and what there is to do, whenever the worker says so.
        """
        with self._lock:
            if not self._alive:
                if self._worker is not None and request not in NEED_NO_MODEL:
                    raise self._crashed(request, self._worker)  # it died unasked, and its model with it
                self._start()
            worker = self._worker
            try:
                worker.stdin.write(json.dumps({"request": request, **details}) + "\n")
                worker.stdin.flush()
                line = self._next_line(request)
                while line.startswith(PROGRESS):
                    tell(*json.loads(line)["progress"])
                    line = self._next_line(request)
            except (BrokenPipeError, ValueError):  # ValueError: `close` from another thread closed the pipe
                line = ""
            except BaseException:
                self.close()
                raise
            return self._reply(request, line, worker)

    def _next_line(self, request: str) -> str:
        """The worker's next line, empty when it died; waits in slices so that an interrupt gets through."""
        deadline = None if self.timeout_seconds is None else time.monotonic() + self.timeout_seconds
        while True:
            try:
                return self._replies.get(timeout=0.2)
            except queue.Empty:
                if deadline is not None and time.monotonic() > deadline:
                    raise self._timed_out(request) from None

    def _reply(self, request: str, line: str, worker: subprocess.Popen) -> dict[str, Any]:
        if not line.endswith("\n"):
            raise self._crashed(request, worker)
        told = json.loads(line)
        if "error" in told:
            raise EngineRefused(told["error"], self._last_lines())
        return told

    def _timed_out(self, request: str) -> EngineTimeout:
        log = self._last_lines()
        self.close()
        return EngineTimeout(
            f"The engine did not answer {request!r} within {self.timeout_seconds} s and was stopped. "
            "Ask for less, or for more time; the next call starts a fresh engine.",
            log,
        )

    def _crashed(self, request: str, worker: subprocess.Popen) -> EngineCrashed:
        if worker is not self._worker:
            return EngineCrashed(f"The engine was closed during {request!r}; the next call starts a fresh engine.")
        how = how_it_ended(worker.wait())
        log = self._last_lines()
        how = next((reason for text, reason in LOST_DEVICES.items() if text in log), how)
        self.close()
        return EngineCrashed(
            f"The engine's process ended during {request!r} ({how}). Your session is untouched; "
            "the next call starts a fresh engine.",
            log,
        )

    def _last_lines(self) -> str:
        text = self._log.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-LOG_LINES_IN_ERRORS:])


def _named(device: Device) -> Device:
    """The device, described by what it is where ggml says only its endpoint, and within its limit."""
    far = device.backend == "RPC"
    limit = limit_on(device.description if far else device.name)
    device = device.limited(limit) if limit else device
    described = server_name(device.description) if far else device.description
    return replace(device, id=pci_id(device.id), description=described)


def _pass_lines(stream, lines: queue.Queue[str]) -> None:
    """Hand over every line of the worker; an empty one says that it ended."""
    with stream:
        for line in stream:
            lines.put(line)
    lines.put("")


DECIDE_VISIBLE = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES")


def visible_gpus() -> tuple[str | None, ...]:
    """What the environment says about which GPUs a new worker sees, and in which order CUDA numbers them."""
    return tuple(os.environ.get(name) for name in DECIDE_VISIBLE)


def _identity(model: Path) -> tuple[str, int, int, int] | None:
    """What tells that a path still means the same file; None when it means none."""
    try:
        told = model.stat()
    except OSError:
        return None
    return os.path.abspath(model), told.st_ino, told.st_size, told.st_mtime_ns
