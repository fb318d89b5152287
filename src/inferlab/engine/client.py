"""The engine: llama.cpp in a process of its own, connected by pipes.

A notebook that measures must survive whatever it measures, so nothing here loads llama.cpp:
`LlamaEngine` starts `inferlab.engine.worker`, sends it one JSON request per line and reads one reply per line.
When the worker dies, the caller gets EngineCrashed with the end of llama.cpp's log, and the next call starts afresh.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from inferlab.engine import libraries, measurement_queue
from inferlab.engine.log import LOG_INFO, LogLine, buffers_in, phases_in, tensor_places_in
from inferlab.engine.process import NoReply, WorkerProcess, visible_gpus
from inferlab.engine.protocol import (
    NEED_NO_MODEL,
    Entry,
    Opening,
    Pass,
    ProgressCallback,
    Sampler,
    Step,
    ignore_progress,
)
from inferlab.engine.registry import ENGINES, close_engines_with_server, limit_on
from inferlab.errors import EngineCrashed, EngineRefused, EngineTimeout
from inferlab.machine import Device, Machine, pci_id, read_host, server_name
from inferlab.model.gguf import Model, file_identity, header_of, read_gguf
from inferlab.settings import Settings

PROGRESS = '{"progress"'
COMPUTING = frozenset(
    [
        "attend",
        "compare",
        "generate",
        "multiply",
        "open",
        "quantize",
        "sample",
        "score",
        "share",
        "step",
        "trace",
        "transfer",
    ]
)
"""The requests that wait for this process's turn, where there is a queue of measurements."""


class LlamaEngine:
    """llama.cpp in one worker process, started on first use and again after a crash.

    A request without a reply after `timeout_seconds` stops the worker and raises EngineTimeout.
    `environment` is added to the worker's, for what llama.cpp reads there: {"LLAMA_ATTN_ROT_DISABLE": "1"}.
    `started_by` is a command that starts the worker, such as ("nice", "-n", "10").
    """

    def __init__(
        self,
        timeout_seconds: float | None = None,
        environment: Mapping[str, str] | None = None,
        started_by: Sequence[str] = (),
    ) -> None:
        self.timeout_seconds, self.environment = timeout_seconds, dict(environment or {})
        self.started_by = tuple(started_by)
        self._worker: WorkerProcess | None = None
        self._lock = threading.RLock()
        self._opened: tuple[tuple[Any, Settings], Opening] | None = None
        self._servers: tuple[str, ...] = ()
        ENGINES.add(self)

    # --- the worker and its machine ---------------------------------------------------------

    @property
    def pid(self) -> int | None:
        """The worker's process id; None while there is no worker."""
        worker = self._living
        return worker.pid if worker else None

    def ready(self) -> None:
        """Start the worker and wait until llama.cpp's libraries are loaded in it."""
        self._request("ready")

    def prepare(self) -> None:
        """Start the worker and return at once; it loads llama.cpp's libraries meanwhile."""
        with self._lock:
            if not self._living:
                self._start()

    def machine(self) -> Machine:
        """The host with the devices that llama.cpp registers on it, each within the limit that this session set."""
        self._stop_if_gpus_changed()
        reply = self._request("machine")
        devices = tuple(described_device(Device(**device)) for device in reply["devices"])
        return replace(
            read_host(),
            devices=devices,
            llama_cpp=reply["llama_cpp"],
            llama_cpp_commit=reply["commit"],
            instruction_sets=tuple(reply["instruction_sets"]),
        )

    def exclusive(self) -> AbstractContextManager[Any]:
        """Reserve the engine for one measurement: other threads wait until the block ends.

        With a queue of measurements, the turn that the first computation takes is kept until then too.
        """
        return self._lock if measurement_queue.folder() is None else self._exclusive_for_one_turn()

    @contextmanager
    def _exclusive_for_one_turn(self) -> Iterator[None]:
        with self._lock, measurement_queue.one_turn():
            yield

    def close(self) -> None:
        """Stop the worker; the next request starts a new one. A request of another thread raises EngineCrashed."""
        worker, self._worker, self._opened = self._worker, None, None
        if worker is not None:
            worker.stop()

    # --- opening a model --------------------------------------------------------------------

    def open(self, model: Path, settings: Settings) -> Opening:
        """Load the model and make its context, or reuse the open one if neither file nor settings changed.

        The header is checked first, so a damaged file never reaches C code.
        Raises ModelError, EngineRefused or EngineCrashed.
        """
        wanted = (file_identity(model), settings)
        if self._opened and self._opened[0] == wanted and self._living:
            return self._opened[1]
        began = time.perf_counter()
        settings.require_model(read_gguf(model))
        check_seconds = time.perf_counter() - began
        self._opened = None
        self._use_only_servers(settings.rpc_servers)
        reply = self._request("open", model=os.path.abspath(model), settings=settings.to_dict())
        opening = _opening(reply, check_seconds)
        self._opened = (wanted, opening)
        return opening

    def simulate(self, model: Path, settings: Settings, n_outputs_max: int = 0, header: Model | None = None) -> str:
        """llama.cpp's log of a context whose allocations are only counted; the file may be a header alone.

        n_outputs_max is the number of rows of logits to reserve for, 0 for one per token of a batch.
        header is the file's where this process wrote it; else the file is read first.
        The vocabulary is not loaded: no buffer depends on its words. An open model stays open.
        Raises ModelError, EngineRefused or EngineCrashed.
        """
        header = header or header_of(model)
        settings.require_model(header)
        if settings.devices != ():  # the host alone is the same beside any servers
            self._use_only_servers(settings.rpc_servers)
        size = {} if header.n_vocab is None else {f"{header.architecture}.vocab_size": header.n_vocab}
        reply = self._request(
            "simulate",
            model=os.path.abspath(model),
            settings=settings.to_dict(),
            n_outputs_max=n_outputs_max,
            metadata={"tokenizer.ggml.model": "no_vocab", **size},
        )
        return "".join(reply["log"])

    def has_open(self, model: Path) -> bool:
        """Whether this very file is loaded now."""
        return bool(self._opened and self._opened[0][0] == file_identity(model) and self._living)

    def open_vocabulary(self, model: Path) -> None:
        """Make `model`'s vocabulary usable; a model that is already open stays as it is."""
        if not self.has_open(model):
            self.open(model, Settings(n_ctx=256))

    # --- computing tokens -------------------------------------------------------------------

    def generate(self, prompt: Sequence[int], n_gen: int) -> Pass:
        """Prefill `prompt`, then decode greedily until `n_gen` token ids are known."""
        with measurement_queue.turn():
            called_at = time.perf_counter()
            reply = self._request("generate", prompt=list(prompt), n_gen=n_gen, called_at=called_at)
        return Pass(
            prefill_seconds=reply["prefill_seconds"],
            token_seconds=tuple(reply["token_seconds"]),
            decode_seconds=tuple(reply["decode_seconds"]),
            tokens=tuple(reply["tokens"]),
            began=called_at,
        )

    def step(self, entries: Sequence[Entry]) -> Step:
        """Compute tokens of one or several sequences together; they are appended to what the sequences have.

        Raises EngineRefused where the cache is full, or n_seq_max allows no such sequence.
        """
        reply = self._request("step", entries=list(entries))
        return Step(reply["seconds"], tuple(reply["picks"]))

    def trace(self, prompt: Sequence[int]) -> list[dict[str, Any]]:
        """The scheduler's debug lines and the sizes of its copies in two passes: a prompt in one batch, then one token.

        Each has lines and copy_bytes. Raises EngineRefused for an engine that was not started with GGML_SCHED_DEBUG=2.
        """
        return self._request("trace", prompt=list(prompt))["passes"]

    def share(self, source: int, target: int) -> float:
        """Replace sequence `target` by all tokens of `source`; seconds of the call.

        In one pool of cells (kv_unified) the two share the cells and nothing is copied; without it the source's cells
        are copied before the next step.
        """
        return self._request("share", source=source, target=target)["seconds"]

    def keep(self, n_tokens: int, sequence: int | None = None) -> None:
        """Keep the first `n_tokens` positions of a sequence and remove the rest; None means every sequence.

        This is llama_memory_seq_rm from position n_tokens to the end; keep(0) empties the cache. Raises EngineRefused
        for a model that keeps a recurrent state in place of a cell for each token.
        """
        self._request("keep", n_tokens=n_tokens, sequence=-1 if sequence is None else sequence)

    # --- text and token ids -----------------------------------------------------------------

    def random_prompt(self, n_prompt: int) -> list[int]:
        """`n_prompt` token ids drawn with a fixed seed, as llama-bench draws its own."""
        return self._request("random_prompt", n_prompt=n_prompt)["tokens"]

    def tokenize(self, text: str) -> list[int]:
        """Token ids of `text`, with the model's own opening token."""
        return self._request("tokenize", text=text)["tokens"]

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Text of token ids; special tokens give no text."""
        return self._request("detokenize", tokens=list(tokens))["text"]

    def chunks(self, text: str, n_ctx: int) -> tuple[list[list[int]], int]:
        """(every full n_ctx tokens of `text`, its number of tokens), cut and opened as llama-perplexity does."""
        reply = self._request("chunks", text=text, n_ctx=n_ctx)
        return reply["chunks"], reply["n_tokens"]

    # --- scoring ----------------------------------------------------------------------------

    def score(self, tokens: Sequence[int], first: int = 1) -> list[float]:
        """Nats of tokens[first:], each given all tokens before it; all must fit the open context."""
        return self._request("score", tokens=list(tokens), first=first)["nats"]

    def set_reference(self) -> None:
        """Set the open model aside as the reference of `compare`; another one, or the same, can be opened beside it."""
        self._opened = None
        self._request("set_reference")

    def compare(self, tokens: Sequence[int], first: int = 1) -> dict[str, list[Any]]:
        """The open model and the reference on tokens[first:]: the columns of engine.logits.ComparedLosses."""
        return self._request("compare", tokens=list(tokens), first=first)

    def free_reference(self) -> None:
        """Free the reference, if there is one."""
        if self._living:
            self._request("free_reference")

    # --- sampling ---------------------------------------------------------------------------

    def sample(
        self, prompt: Sequence[int], chains: Sequence[Sequence[Sampler]], exponent: float, repeats: int
    ) -> tuple[list[list[float]], list[float]]:
        """(seconds of each sampler chain in each repetition, seconds of the decode step before each of them).

        The logits follow Zipf's law with this exponent: engine.worker_sampling. Raises EngineRefused for an unknown
        sampler.
        """
        reply = self._request(
            "sample", prompt=list(prompt), chains=[list(chain) for chain in chains], exponent=exponent, repeats=repeats
        )
        return reply["seconds"], reply["decode_seconds"]

    # --- files ------------------------------------------------------------------------------

    def quantize(
        self,
        source: Path,
        target: Path,
        file_type: int,
        *,
        requantize: bool = False,
        imatrix: Path | None = None,
        tensor_types: Sequence[tuple[str, str]] = (),
        dry_run: bool = False,
        on_progress: ProgressCallback = ignore_progress,
    ) -> str:
        """Write `source` to `target` with llama.cpp's quantizer and return its log; the open model stays open.

        file_type is a number of enum llama_ftype; imatrix the file of an importance matrix; tensor_types pairs of a
        pattern and the type of the tensors whose names it is found in; `on_progress` gets (tensors begun, all tensors).
        With dry_run nothing is written. The header is checked first.
        Raises ModelError, EngineRefused or EngineCrashed; the caller deletes what was written by then.
        """
        read_gguf(source)
        paths = {"source": os.path.abspath(source), "target": os.path.abspath(target)}
        choices = {"imatrix": imatrix and os.path.abspath(imatrix), "tensor_types": list(tensor_types)}
        reply = self._request(
            "quantize", on_progress, **paths, **choices, file_type=file_type, requantize=requantize, dry_run=dry_run
        )
        return "".join(reply["log"])

    # --- devices without a model ------------------------------------------------------------

    def multiply(self, device: str, n_threads: int | None = None, **work: Any) -> tuple[list[float], str]:
        """Seconds of each pass over n_matrices products (n_rows, n_cols) x (n_cols, n_tokens), and the weights' buffer.

        `device` is a name in ggml's registry or an RPC endpoint; work: type, n_rows, n_cols, n_tokens, n_matrices, the
        seconds to go on for, least_passes, extra_bufts. The open model stays open.
        Raises EngineRefused or EngineCrashed.
        """
        self._prepare_device(device)
        reply = self._request("multiply", device=device, n_threads=n_threads, **work)
        return reply["seconds"], reply["buffer"]

    def attend(self, device: str, n_threads: int | None = None, **work: Any) -> list[float]:
        """Seconds of each pass of one block's attention on a device; see ggml_ops.Operations.attention for `work`."""
        self._prepare_device(device)
        return self._request("attend", device=device, n_threads=n_threads, **work)["seconds"]

    def transfer(self, device: str, n_bytes: int, seconds: float) -> tuple[list[float], list[float]]:
        """Seconds of each copy of n_bytes to a device, and of each copy back."""
        self._prepare_device(device)
        reply = self._request("transfer", device=device, n_bytes=n_bytes, seconds=seconds)
        return reply["there"], reply["back"]

    def hold_memory(self, device: str, free_bytes: int) -> int:
        """Allocate memory of a device until at most `free_bytes` of it are free; bytes allocated by this worker.

        They are freed when the worker ends. Raises EngineRefused where an allocation fails, EngineCrashed.
        """
        return self._request("hold_memory", device=device, free_bytes=free_bytes)["held_bytes"]

    # --- which RPC servers and GPUs the worker sees -----------------------------------------

    def uses(self, endpoint: str) -> bool:
        """Whether this worker has the RPC server at `endpoint` among its devices."""
        return self._living is not None and endpoint in self._servers

    def _prepare_device(self, device: str) -> None:
        if ":" in device:
            self._use_only_servers((device,))

    def _use_only_servers(self, endpoints: tuple[str, ...]) -> None:
        """Stop a worker that has registered other RPC servers: ggml removes none, and llama.cpp uses all it has.

        A server serves one client at a time, so this session's other workers that use one of these are stopped too.
        """
        self._stop_if_gpus_changed()
        if self._living and self._servers != endpoints[: len(self._servers)]:
            self.close()
        self._servers = endpoints
        for endpoint in endpoints:
            close_engines_with_server(endpoint, besides=self)

    def _stop_if_gpus_changed(self) -> None:
        """Stop a worker that was started when other GPUs were visible, or in another order: it sees no change."""
        worker = self._living
        if worker and worker.visible_gpus != visible_gpus():
            self.close()

    # --- requests and replies ---------------------------------------------------------------

    @property
    def _living(self) -> WorkerProcess | None:
        """The worker, unless there is none or it has ended."""
        return self._worker if self._worker is not None and self._worker.alive else None

    def _start(self) -> WorkerProcess:
        libraries.folder()
        self.close()
        self._worker = WorkerProcess(self.environment, self.started_by)
        return self._worker

    def _request(self, name: str, on_progress: ProgressCallback = ignore_progress, **details: Any) -> dict[str, Any]:
        """Send one request and wait for its reply; an interrupt stops the worker and goes on to the caller.

        `on_progress` gets (done, total) whenever the worker reports progress before its reply.
        """
        with self._lock, measurement_queue.turn() if name in COMPUTING else measurement_queue.NO_QUEUE:
            worker = self._living
            if worker is None:
                if self._worker is not None and name not in NEED_NO_MODEL:
                    raise self._crashed(name, self._worker)  # it died between two requests, and its model with it
                worker = self._start()
            try:
                worker.send({"request": name, **details})
                line = worker.next_line(self.timeout_seconds)
                while line.startswith(PROGRESS):
                    on_progress(*json.loads(line)["progress"])
                    line = worker.next_line(self.timeout_seconds)
            except (BrokenPipeError, ValueError):  # ValueError: `close` from another thread closed the pipe
                line = ""
            except NoReply:
                raise self._timed_out(name, worker) from None
            except BaseException:
                self.close()
                raise
            return self._reply(name, line, worker)

    def _reply(self, name: str, line: str, worker: WorkerProcess) -> dict[str, Any]:
        if not line.endswith("\n"):
            raise self._crashed(name, worker)
        reply = json.loads(line)
        if "error" in reply:
            raise EngineRefused(reply["error"], worker.last_log_lines())
        return reply

    def _timed_out(self, name: str, worker: WorkerProcess) -> EngineTimeout:
        log = worker.last_log_lines()
        self.close()
        return EngineTimeout(
            f"The engine did not answer {name!r} within {self.timeout_seconds} s and was stopped. "
            "Ask for less, or for more time; the next call starts a fresh engine.",
            log,
        )

    def _crashed(self, name: str, worker: WorkerProcess) -> EngineCrashed:
        if worker is not self._worker:
            return EngineCrashed(f"The engine was closed during {name!r}; the next call starts a fresh engine.")
        reason, log, killed = worker.why_it_ended(), worker.last_log_lines(), worker.was_killed()
        self.close()
        return EngineCrashed(
            f"The engine's process ended during {name!r} ({reason}). Your session is untouched; "
            "the next call starts a fresh engine.",
            log,
            killed,
        )


def described_device(device: Device) -> Device:
    """A device as ggml reports it, with this session's limit; an RPC device is described by its server's name."""
    remote = device.backend == "RPC"
    limit = limit_on(device.description if remote else device.name)
    device = device.limited(limit) if limit else device
    description = server_name(device.description) if remote else device.description
    return replace(device, id=pci_id(device.id), description=description)


def _opening(reply: dict[str, Any], check_seconds: float) -> Opening:
    lines = [LogLine(*line) for line in reply["log"]]
    log = "".join(line.text for line in lines if line.level >= LOG_INFO)
    phases = {
        "check_seconds": check_seconds,
        **phases_in(lines, reply["loaded_seconds"], reply["ready_seconds"]),
    }
    places = tensor_places_in("".join(line.text for line in lines))
    chosen = Settings.from_dict(reply["settings"])
    return Opening(buffers_in(log), phases, chosen, log, reply["description"], places, reply["waiting"])
