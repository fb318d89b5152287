"""The worker process: the only place that loads llama.cpp.

It reads one JSON request per line from its standard input and writes one JSON reply per line.
Whatever llama.cpp prints, and every line it logs, goes to the file named on the command line.
It exits as soon as its input closes, so it never outlives its owner, even when the owner is killed.

worker_model       a loaded model and its context
worker_vocabulary  text to token ids and back
worker_scoring     scores of a text, alone or beside a reference model
worker_sampling    times of sampler chains
worker_quantizer   the quantizer's parameters
worker_devices     ggml's devices, RPC servers, operations without a model
worker_graph       the scheduler's splits and nodes, where the environment asks for them
"""

from __future__ import annotations

import ctypes
import json
import os
import queue
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any

from inferlab.engine import amx, libraries, openmp
from inferlab.engine.protocol import NEED_NO_MODEL
from inferlab.engine.worker_devices import Devices, Refused
from inferlab.engine.worker_graph import GraphWatch
from inferlab.engine.worker_model import LoadedModel, batch_slices, context_params, loading_settings
from inferlab.engine.worker_quantizer import quantizer_params
from inferlab.engine.worker_sampling import time_chains
from inferlab.engine.worker_scoring import Scoring
from inferlab.model.gguf import file_identity

LOG_INFO, LOG_ERROR, LOG_CONTINUES = 2, 4, 5  # enum ggml_log_level
TENSOR_LINE = re.compile(r"\[ *(\d+)/ *(\d+)\] ")  # llama-quant.cpp, the start of a tensor's line
UNFINISHED: set[str] = set()  # files that are being written
LAYER_LINES = (" assigned to device ", ": dev = ")  # llama-model.cpp, llama-kv-cache.cpp: where layer and cache are
MOST_WITHOUT_WEIGHTS = 4  # models that are kept for simulations
REARRANGED_LINE = "repack tensor "  # repack.cpp:4917, amx.cpp:70
CPU_FEATURES = re.compile(r"CPU : ((?:\w+ = [^|]* \| )*)")  # llama_print_system_info, llama.cpp:599
FEATURE_ON = re.compile(r"(\w+) = 1 \|")
Entry = tuple[int, int, int, bool]  # protocol.Entry as JSON carries it: token, position, sequence, wanted


def main(log_path: str) -> None:
    """Answer requests for ever; see read_requests for the end."""
    replies = redirect_output(log_path)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prefer_for_oom_killer()
    requests: queue.Queue[str] = queue.Queue()
    threading.Thread(target=read_requests, args=(requests, log_path), daemon=True).start()
    worker = Worker(lambda message: send(replies, message))
    while True:
        send(replies, worker.answer(json.loads(requests.get())))


def send(replies: Any, message: dict[str, Any]) -> None:
    """Write one line to the owner: a reply, or the progress of a request that is still running."""
    replies.write(json.dumps(message) + "\n")
    replies.flush()


def redirect_output(log_path: str) -> Any:
    """Return the real standard output, for replies; everything else that prints goes to the log file."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    return replies


def prefer_for_oom_killer() -> None:
    """Let Linux kill this process before the notebook's when memory runs out."""
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")
    except OSError:
        pass


def read_requests(requests: queue.Queue[str], log_path: str) -> None:
    """Queue every request; when the input closes, delete the log and unfinished files, and exit."""
    for line in sys.stdin:
        requests.put(line)
    for path in (log_path, *UNFINISHED):
        with suppress(OSError):
            os.unlink(path)
    os._exit(0)


def bindings() -> Any:
    """llama-cpp-python's C API, without the package around it: that loads NumPy and Jinja for a class not used here."""
    spec = find_spec("llama_cpp")
    if spec is not None:
        sys.modules.setdefault("llama_cpp", module_from_spec(spec))
    return import_module("llama_cpp.llama_cpp")


class Worker:
    """llama.cpp with at most one open model; each request is the method `do_` + its name.

    `send_message` writes a line to the owner while a request is still running.
    """

    def __init__(self, send_message: Callable[[dict[str, Any]], None]) -> None:
        api = bindings()
        self.amx_refused = _avoid_miscompiled_amx()
        self.waiting = openmp.waiting(os.environ, openmp.library(libraries.folder()))
        self.api = api
        self.send_message = send_message
        self.devices, self.scoring = Devices(), Scoring()
        self.watch = GraphWatch(api, self.devices.ggml_base) if GraphWatch.wanted() else None
        self._loaded: LoadedModel | None = None
        self.without_weights: dict[str, tuple[LoadedModel, list[str]]] = {}
        self.log: list[tuple[float, int, str]] = []
        self._level = LOG_INFO
        self._log_callback = api.llama_log_callback(self._on_log)
        api.llama_log_set(self._log_callback, ctypes.c_void_p(0))
        api.llama_backend_init()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply to one request; {"error": why} where llama.cpp cannot do it."""
        try:
            name = request.pop("request")
            if name not in NEED_NO_MODEL and (self._loaded is None or not self._loaded.context):
                raise Refused(f"No model is open for {name!r}: the engine is fresh, or refused the last one.")
            return getattr(self, "do_" + name)(**request)
        except Refused as refusal:
            return {"error": str(refusal)}

    @property
    def loaded(self) -> LoadedModel:
        """The open model."""
        if self._loaded is None:
            raise Refused("No model is open.")
        return self._loaded

    def _on_log(self, level: int, text: bytes, _: Any) -> None:
        """Keep every line with its time; the file gets llama.cpp's default verbosity.

        A continuation has the level of its line.
        """
        now = time.perf_counter()
        self._level = level if level != LOG_CONTINUES else self._level
        line = text.decode("utf-8", errors="replace")
        self.log.append((now, self._level, line))
        if self._level >= LOG_INFO:
            os.write(2, text)
        if UNFINISHED and (tensor := TENSOR_LINE.match(line)):
            self.send_message({"progress": [int(number) for number in tensor.groups()]})

    # --- the process and its devices --------------------------------------------------------

    def do_ready(self) -> dict[str, Any]:
        return {}

    def do_machine(self) -> dict[str, Any]:
        version = self.api.llama_version().decode()
        return {
            "devices": self.devices.names_and_memory(),
            "llama_cpp": version,
            "commit": self.devices.ggml_commit(),
            "instruction_sets": self._instruction_sets(),
        }

    def _instruction_sets(self) -> list[str]:
        """What ggml's CPU code is built with, except AMX where this process may not use it."""
        features = CPU_FEATURES.search(self.api.llama_print_system_info().decode())
        names = FEATURE_ON.findall(features[1]) if features else []
        return [name for name in names if name != "AMX_INT8" or not self.amx_refused]

    def do_multiply(self, device: str, n_threads: int | None, **work: Any) -> dict[str, Any]:
        """Time matrix products on one device; see ggml_ops.Operations."""
        with self.devices.operations(device, n_threads) as operations:
            seconds, buffer = operations.mul_mat(**work)
        return {"seconds": seconds, "buffer": buffer}

    def do_attend(self, device: str, n_threads: int | None, **work: Any) -> dict[str, Any]:
        """Time one block's attention on one device; see ggml_ops.Operations."""
        with self.devices.operations(device, n_threads) as operations:
            return {"seconds": operations.attention(**work)}

    def do_transfer(self, device: str, **work: Any) -> dict[str, Any]:
        """Time copies to a device and back."""
        with self.devices.operations(device, None) as operations:
            there, back = operations.transfer(**work)
            return {"there": there, "back": back}

    def do_hold_memory(self, device: str, free_bytes: int) -> dict[str, Any]:
        return {"held_bytes": self.devices.hold_memory(device, free_bytes)}

    # --- opening ----------------------------------------------------------------------------

    def do_open(self, model: str, settings: dict[str, Any]) -> dict[str, Any]:
        """Load and make a context; times are seconds since loading began."""
        self.release()
        self.log.clear()
        began = time.perf_counter()
        self._loaded = loaded = LoadedModel(self.api, model, settings, self.devices, shared=self.scoring.reference)
        loaded_at = time.perf_counter()
        chosen = loaded.make_context(settings, self.watch and self.watch.callback)
        ready_at = time.perf_counter()
        return {
            "loaded_seconds": loaded_at - began,
            "ready_seconds": ready_at - began,
            "settings": {**settings, **chosen},
            "description": loaded.description(),
            "waiting": self.waiting,
            "log": [(at - began, level, text) for at, level, text in reported_lines(self.log)],
        }

    def do_simulate(
        self, model: str, settings: dict[str, Any], n_outputs_max: int, metadata: dict[str, str | int]
    ) -> dict[str, Any]:
        """Make a context whose allocations are only counted; an open model stays open.

        With no_alloc the compute buffers have their real sizes, the buffers of weights and cache are empty.
        """
        loaded, loading_lines = self._without_weights(model, settings, metadata)
        self.log.clear()
        params = context_params(self.api, settings)
        params.n_outputs_max = n_outputs_max
        context = self.api.llama_init_from_model(loaded.weights, params)
        if not context:
            raise Refused(f"llama.cpp would not make a context of {params.n_ctx} tokens; its last line says why.")
        self.api.llama_free(context)
        return {"log": [*loading_lines, *placement_lines(self.log)]}

    def _without_weights(
        self, model: str, settings: dict[str, Any], metadata: dict[str, str | int]
    ) -> tuple[LoadedModel, list[str]]:
        """A model loaded for simulations, and the lines of its loading; it stays for the next one that places it so."""
        # Nothing is read, and nothing repacked: that would change no buffer but its own, and with MLA on AMX it aborts.
        placed = settings | {"load_mode": "none", "use_extra_bufts": False}
        wanted = json.dumps([file_identity(Path(model)), loading_settings(self.api, placed), metadata])
        if wanted not in self.without_weights:
            if len(self.without_weights) >= MOST_WITHOUT_WEIGHTS:
                self.without_weights.pop(next(iter(self.without_weights)))[0].free()
            self.log.clear()
            loaded = LoadedModel(self.api, model, placed, self.devices, no_alloc=True, metadata=metadata)
            self.without_weights[wanted] = loaded, placement_lines(self.log)
        return self.without_weights[wanted]

    def release(self) -> None:
        """Free the open model, except weights that the reference uses too, and what simulations have loaded."""
        if self._loaded:
            self._loaded.free(besides=self.scoring.reference)
        self._loaded = None
        for loaded, _ in self.without_weights.values():
            loaded.free()
        self.without_weights.clear()

    # --- files ------------------------------------------------------------------------------

    def do_quantize(self, source: str, target: str, dry_run: bool, **choices: Any) -> dict[str, list[str]]:
        """Write `source` with other types, sending the progress as each tensor begins; dry_run only logs the sizes."""
        params, _kept = quantizer_params(self.api, dry_run=dry_run, **choices)
        self.log.clear()
        with writing(None if dry_run else target):
            status = self.api.llama_model_quantize(os.fsencode(source), os.fsencode(target), ctypes.byref(params))
        if status:
            why = [text for _, level, text in self.log if level == LOG_ERROR][-1:]
            raise Refused(f"llama.cpp did not quantize {os.path.basename(source)}: {''.join(why).strip()}")
        return {"log": [text for _, level, text in self.log if level >= LOG_INFO]}

    # --- one sequence, timed ----------------------------------------------------------------

    def do_generate(self, prompt: list[int], n_gen: int, called_at: float) -> dict[str, Any]:
        """Clear the cache, prefill the prompt, decode greedily; every llama_decode is timed separately.

        `called_at` is read from the caller's clock, which is this process's clock: the system's monotonic one.
        """
        loaded, clock = self.loaded, time.perf_counter
        loaded.clear()
        token_seconds, decode_seconds, tokens = [], [], []
        ids, last = loaded.token_array(prompt), loaded.token_array([0])
        next_batch = loaded.batch_of(last, 0, 1)  # points to `last`, which each step overwrites
        slices = batch_slices(len(prompt), loaded.n_batch)
        prefill_seconds = sum(loaded.timed_decode(loaded.batch_of(ids, start, count)) for start, count in slices)
        for index in range(n_gen):
            if index:
                decode_seconds.append(loaded.timed_decode(next_batch))
            last[0] = loaded.likeliest(-1)
            token_seconds.append(clock() - called_at)
            tokens.append(last[0])
        return {
            "prefill_seconds": prefill_seconds,
            "token_seconds": token_seconds,
            "decode_seconds": decode_seconds,
            "tokens": tokens,
        }

    def do_trace(self, prompt: list[int]) -> dict[str, Any]:
        """Compute a prompt in one batch, then one token; the scheduler's lines and the exact sizes of each pass."""
        if self.watch is None:
            raise Refused("This engine was not started with GGML_SCHED_DEBUG=2; start one with GRAPH_ENVIRONMENT.")
        self.loaded.clear()
        passes = []
        for tokens in (prompt, prompt[:1]):
            self.log.clear()
            self.watch.clear()
            ids = self.loaded.token_array(tokens)
            self.loaded.timed_decode(self.loaded.batch_of(ids, 0, len(tokens)))
            lines = "".join(text for _, level, text in self.log if level < LOG_INFO)
            passes.append({"lines": lines, **self.watch.sizes()})
        return {"passes": passes}

    # --- several sequences ------------------------------------------------------------------

    def do_step(self, entries: list[Entry]) -> dict[str, Any]:
        """Decode tokens of one or several sequences, in as few llama_decode calls as n_batch allows."""
        self._require_sequences(sequence for _, _, sequence, _ in entries)
        seconds, picks = 0.0, []
        for start, count in batch_slices(len(entries), self.loaded.n_batch):
            part = entries[start : start + count]
            seconds += self._decode_entries(part)
            picks += [self.loaded.likeliest(index) for index, (*_, wanted) in enumerate(part) if wanted]
        return {"seconds": seconds, "picks": picks}

    def _decode_entries(self, entries: list[Entry]) -> float:
        """Seconds of llama_decode and llama_synchronize over a batch with position and sequence of each token."""
        batch = self.api.llama_batch_init(len(entries), 0, 1)
        try:
            batch.n_tokens = len(entries)
            for index, (token, position, sequence, wanted) in enumerate(entries):
                batch.token[index], batch.pos[index] = token, position
                batch.n_seq_id[index], batch.seq_id[index][0], batch.logits[index] = 1, sequence, wanted
            return self.loaded.timed_decode(batch)
        finally:
            self.api.llama_batch_free(batch)

    def do_share(self, source: int, target: int) -> dict[str, Any]:
        """Replace the target sequence by the source's tokens (llama_memory_seq_cp); seconds of the call."""
        self._require_sequences((source, target))
        memory = self.loaded.memory
        began = time.perf_counter()
        if source != target:
            self.api.llama_memory_seq_rm(memory, target, -1, -1)
            self.api.llama_memory_seq_cp(memory, source, target, -1, -1)
        return {"seconds": time.perf_counter() - began}

    def do_keep(self, n_tokens: int, sequence: int) -> dict[str, Any]:
        """Remove a sequence's cells from position n_tokens to its end (llama_memory_seq_rm); -1 is every sequence."""
        self._require_sequences(() if sequence == -1 else (sequence,))
        if not self.api.llama_memory_seq_rm(self.loaded.memory, sequence, n_tokens, -1):
            raise Refused("This model's memory cannot be cut: it keeps a state, not a cell for each token.")
        return {}

    def _require_sequences(self, wanted: Iterable[int]) -> None:
        n_seq_max = self.api.llama_n_seq_max(self.loaded.context)
        if unknown := sorted({sequence for sequence in wanted if not 0 <= sequence < n_seq_max}):
            raise Refused(f"There is no sequence {unknown[0]}: n_seq_max={n_seq_max} allows 0 to {n_seq_max - 1}.")

    # --- scoring ----------------------------------------------------------------------------

    def do_score(self, tokens: list[int], first: int) -> dict[str, Any]:
        return {"nats": self.scoring.score(self.loaded, tokens, first)}

    def do_compare(self, tokens: list[int], first: int) -> dict[str, Any]:
        return self.scoring.compare(self.loaded, tokens, first)

    def do_set_reference(self) -> dict[str, Any]:
        """Set the open model aside as the reference of `compare`, so that another can be opened beside it."""
        self.scoring.set_reference(self.loaded)
        self._loaded = None
        return {}

    def do_free_reference(self) -> dict[str, Any]:
        self.scoring.free_reference(besides=self._loaded)
        return {}

    # --- sampling ---------------------------------------------------------------------------

    def do_sample(self, **work: Any) -> dict[str, Any]:
        return time_chains(self.loaded, **work)

    # --- text and tokens --------------------------------------------------------------------

    def do_random_prompt(self, n_prompt: int) -> dict[str, Any]:
        return {"tokens": self.loaded.vocabulary.random_tokens(n_prompt)}

    def do_tokenize(self, text: str) -> dict[str, Any]:
        return {"tokens": self.loaded.vocabulary.tokenize(text, special=True)}

    def do_chunks(self, text: str, n_ctx: int) -> dict[str, Any]:
        chunks, n_tokens = self.loaded.vocabulary.chunks(text, n_ctx)
        return {"chunks": chunks, "n_tokens": n_tokens}

    def do_detokenize(self, tokens: list[int]) -> dict[str, Any]:
        return {"text": self.loaded.vocabulary.detokenize(tokens)}


def _avoid_miscompiled_amx() -> bool:
    """Keep llama.cpp off AMX where a compiler bug makes that code crash; call before llama_backend_init.

    Returns whether AMX is refused.
    """
    cpu = libraries.shared_library("ggml-cpu")
    refused = amx.compiled_in(cpu) and amx.miscompiled(cpu)
    if refused:
        amx.refuse()
    return refused


@contextmanager
def writing(path: str | None) -> Iterator[None]:
    """List the file as unfinished while the block runs, so that it is deleted if the owner ends meanwhile."""
    UNFINISHED.update([path] if path else [])
    try:
        yield
    finally:
        UNFINISHED.clear()


def placement_lines(log: list[tuple[float, int, str]]) -> list[str]:
    """Lines at llama.cpp's default verbosity, and those with the device of a layer or of its cache."""
    return [text for _, level, text in log if level >= LOG_INFO or any(at in text for at in LAYER_LINES)]


def reported_lines(log: list[tuple[float, int, str]]) -> list[tuple[float, int, str]]:
    """Lines at llama.cpp's default verbosity, and of the debug lines those that the reply is made from.

    These are the last line of each of two phases of loading, the device of each layer, and each rearranged tensor.
    """
    kept, ends = set(), {}
    for index, (_, level, text) in enumerate(log):
        if level >= LOG_INFO or LAYER_LINES[0] in text or REARRANGED_LINE in text:
            kept.add(index)
        elif text.startswith(("init_tokenizer:", "create_tensor:")):
            ends[text.split(":")[0]] = index
    kept.update(ends.values())
    return [line for index, line in enumerate(log) if index in kept]


if __name__ == "__main__":
    main(sys.argv[1])
