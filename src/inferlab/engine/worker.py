"""The worker process: the only place that loads llama.cpp.

It reads one JSON request a line from its standard input and answers one line each.
Whatever llama.cpp prints, and every line it logs, goes to the file named on the command line.
It ends at once when its input closes, so no owner, however killed, leaves it behind.
"""

from __future__ import annotations

import ctypes
import json
import os
import queue
import random
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from inferlab.engine.protocol import NEED_NO_MODEL

PROMPT_SEED = 4096
LOG_INFO, LOG_ERROR, LOG_CONTINUES = 2, 4, 5  # enum ggml_log_level
TENSOR_LINE = re.compile(r"\[ *(\d+)/ *(\d+)\] ")  # llama-quant.cpp, as it begins with a tensor
QUANTIZER_BYTES = 2**30  # most rows that the quantizer holds at once; its own default is 8 GiB
UNFINISHED: set[str] = set()  # files that are being written
DECIDE_LOADING = ("n_gpu_layers", "split_mode", "main_gpu", "tensor_split", "devices", "rpc_servers", "load_mode")
DECIDE_PLACEMENT = ("n_gpu_layers", "split_mode", "main_gpu", "tensor_split", "devices", "rpc_servers")
LAYER_LINES = (" assigned to device ", ": dev = ")  # llama-model.cpp, llama-kv-cache.cpp: where layer and cache are


def main(log_path: str) -> None:
    replies = own_standard_streams(log_path)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_first_when_memory_runs_out()
    requests: queue.Queue[str] = queue.Queue()
    threading.Thread(target=read_requests, args=(requests, log_path), daemon=True).start()
    llama = Llama(lambda told: say(replies, told))
    while True:
        say(replies, llama.answer(json.loads(requests.get())))


def say(replies: Any, told: dict[str, Any]) -> None:
    replies.write(json.dumps(told) + "\n")
    replies.flush()


def own_standard_streams(log_path: str):
    """Keep the real output for replies; let everything else that prints reach the log file."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    return replies


def die_first_when_memory_runs_out() -> None:
    """Let Linux choose this process before the notebook's when it must kill one."""
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")
    except OSError:
        pass


def read_requests(requests: queue.Queue[str], log_path: str) -> None:
    """Queue every request; when the owner is gone, nobody will read the log: take it and half a file away, and end."""
    for line in sys.stdin:
        requests.put(line)
    for path in (log_path, *UNFINISHED):
        with suppress(OSError):
            os.unlink(path)
    os._exit(0)


class Refused(Exception):
    """llama.cpp said no; the message goes back to the caller."""


class Reference(NamedTuple):
    """A model that `compare` compares with, as it was when it was set aside."""

    model: Any
    context: Any
    sampler: Any
    source: tuple[Any, ...]


class Llama:
    """One model and one context, through llama.cpp's C API."""

    def __init__(self, tell: Callable[[dict[str, Any]], None]) -> None:
        import llama_cpp.llama_cpp as api

        from inferlab.engine import amx, libraries

        cpu = libraries.shared_library("ggml-cpu")
        if amx.compiled_in(cpu) and amx.miscompiled(cpu):
            amx.refuse()
        self.api = api
        self.ggml = ctypes.CDLL(str(libraries.shared_library("ggml")))
        self.ggml_base = ctypes.CDLL(str(libraries.shared_library("ggml-base")))
        self.tell = tell
        self.log: list[tuple[float, int, str]] = []
        self._level = LOG_INFO
        self._log_callback = api.llama_log_callback(self._keep_log)
        api.llama_log_set(self._log_callback, ctypes.c_void_p(0))
        api.llama_backend_init()
        self.model = self.context = self.sampler = self.vocab = self.reference = None
        self.simulated, self.loaded_lines = None, 0
        self.n_batch = 0
        self.rpc_servers: set[str] = set()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            name = request.pop("request")
            if self.context is None and name not in NEED_NO_MODEL:
                raise Refused(f"No model is open for {name!r}: the engine is fresh, or refused the last one.")
            return getattr(self, "do_" + name)(**request)
        except Refused as refusal:
            return {"error": str(refusal)}

    def _keep_log(self, level: int, text: bytes, _: Any) -> None:
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
            self.tell({"progress": [int(number) for number in tensor.groups()]})

    # --- the host ---------------------------------------------------------------------------

    def do_ready(self) -> dict[str, Any]:
        return {}

    def do_machine(self) -> dict[str, Any]:
        return {"devices": self.devices(), "llama_cpp": self.api.llama_version().decode(), "commit": self.commit()}

    def commit(self) -> str | None:
        """The commit that ggml was built from; None when it was built outside a repository."""
        self.ggml_base.ggml_commit.restype = ctypes.c_char_p
        told = self.ggml_base.ggml_commit().decode()
        return None if told == "unknown" else told

    def devices(self) -> list[dict[str, Any]]:
        """Every device in ggml's registry; memory that a backend reports as 0 is unknown."""
        return [{**self.names_of(device), **self.properties_of(device)} for device in self.device_pointers()]

    def named_devices(self) -> list[dict[str, Any]]:
        """The same without memory and place: to ask a GPU for those takes some of its memory."""
        return [self.names_of(device) for device in self.device_pointers()]

    def names_of(self, device: int) -> dict[str, Any]:
        kinds = {0: "cpu", 1: "gpu", 2: "igpu", 3: "accel"}
        registry = self.call("ggml_backend_dev_backend_reg", ctypes.c_void_p, device)
        return {
            "name": self.call("ggml_backend_dev_name", ctypes.c_char_p, device).decode(),
            "description": self.call("ggml_backend_dev_description", ctypes.c_char_p, device).decode(),
            "kind": kinds.get(self.call("ggml_backend_dev_type", ctypes.c_int, device), "other"),
            "backend": self.call("ggml_backend_reg_name", ctypes.c_char_p, registry).decode(),
        }

    def properties_of(self, device: int) -> dict[str, Any]:
        from inferlab.engine.ggml_ops import Properties

        told = Properties()
        self.ggml_base.ggml_backend_dev_get_props(ctypes.c_void_p(device), ctypes.byref(told))
        return {
            "memory_bytes": told.memory_total or None,
            "free_bytes": told.memory_free or None,
            "id": told.id.decode() if told.id else None,
        }

    def device_pointers(self) -> list[int]:
        count, get = self.ggml.ggml_backend_dev_count, self.ggml.ggml_backend_dev_get
        count.restype, get.restype, get.argtypes = ctypes.c_size_t, ctypes.c_void_p, [ctypes.c_size_t]
        return [get(index) for index in range(count())]

    def call(self, name: str, result: Any, pointer: int) -> Any:
        """Call a ggml function of one pointer."""
        function = getattr(self.ggml_base, name)
        function.restype, function.argtypes = result, [ctypes.c_void_p]
        return function(pointer)

    # --- probing ----------------------------------------------------------------------------

    def do_multiply(self, device: str, n_threads: int | None, **work: Any) -> dict[str, Any]:
        """Time products on one device; see engine.operations."""
        with self.operations(device, n_threads) as operations:
            return {"seconds": operations.mul_mat(**work)}

    def do_transfer(self, device: str, **work: Any) -> dict[str, Any]:
        """Time copies to a device and back."""
        with self.operations(device, None) as operations:
            there, back = operations.transfer(**work)
            return {"there": there, "back": back}

    @contextmanager
    def operations(self, device: str, n_threads: int | None) -> Iterator[Any]:
        """Operations on the device of that name, or on the RPC server at that endpoint."""
        from inferlab.engine import libraries
        from inferlab.engine.ggml_ops import Operations

        pointer = self.pointer(device)
        on_cpu = self.call("ggml_backend_dev_type", ctypes.c_int, pointer) == 0
        cpu = ctypes.CDLL(str(libraries.shared_library("ggml-cpu"))) if on_cpu else None
        try:
            with Operations(self.ggml_base, pointer, cpu and cpu.ggml_backend_cpu_set_n_threads, n_threads) as work:
                yield work
        except MemoryError as error:
            raise Refused(f"{device}: {error}.") from error

    def do_withhold(self, device: str, free_bytes: int) -> dict[str, Any]:
        """Allocate on a device until so few bytes are free; the buffers stay until this process ends."""
        from inferlab.engine.ggml_ops import withhold

        pointer = self.pointer(device)
        try:
            held = withhold(self.ggml_base, pointer, lambda: self.properties_of(pointer)["free_bytes"] or 0, free_bytes)
        except MemoryError as error:
            raise Refused(f"{device}: {error}.") from error
        return {"held_bytes": held}

    def pointer(self, device: str) -> int:
        """The device of that name, or the one at that RPC endpoint."""
        if ":" in device:
            self.add_rpc_server(device)
        known = dict(zip(self.device_pointers(), self.named_devices(), strict=True))
        found = [p for p, d in known.items() if device in d["description"] or device == d["name"]]
        if not found:
            names = ", ".join(d["name"] for d in known.values())
            raise Refused(f"There is no device {device!r}. llama.cpp sees: {names}.")
        return found[0]

    # --- opening ----------------------------------------------------------------------------

    def do_open(self, model: str, settings: dict[str, Any]) -> dict[str, Any]:
        """Load and make a context; times are seconds since llama_model_load_from_file was called."""
        self.release()
        self.log.clear()
        began = time.perf_counter()
        self.load_model(model, settings)
        loaded = time.perf_counter()
        chosen = self.make_context(settings)
        ready = time.perf_counter()
        return {
            "loaded_seconds": loaded - began,
            "ready_seconds": ready - began,
            "settings": {**settings, **chosen},
            "description": self.description(),
            "log": [(at - began, level, text) for at, level, text in told_lines(self.log)],
        }

    def do_simulate(self, model: str, settings: dict[str, Any], n_outputs_max: int) -> dict[str, Any]:
        """Make a context whose allocations are only counted; the header stays loaded for the next one.

        llama_model_params.no_alloc: sizes of compute buffers are as they would be, buffers of weights and cache empty.
        """
        wanted = (model, os.stat(model).st_mtime_ns, {name: settings[name] for name in DECIDE_PLACEMENT})
        if self.model is None or self.simulated != wanted:
            self.release()
            self.log.clear()
            self.load_model(model, settings | {"load_mode": "none"}, no_alloc=True)
            self.simulated, self.loaded_lines = wanted, len(self.log)
        del self.log[self.loaded_lines :]
        params = self.context_params(settings)
        params.n_outputs_max = n_outputs_max
        context = self.api.llama_init_from_model(self.model, params)
        if not context:
            raise Refused(f"llama.cpp would not make a context of {params.n_ctx} tokens; its last line says why.")
        self.api.llama_free(context)
        said = ((level, text) for _, level, text in self.log)
        return {"log": [text for level, text in said if level >= LOG_INFO or any(at in text for at in LAYER_LINES)]}

    def description(self) -> str:
        """What llama.cpp calls this model, e.g. `llama 8B Q4_K - Medium`."""
        text = ctypes.create_string_buffer(128)
        self.api.llama_model_desc(self.model, text, len(text))
        return text.value.decode("utf-8", errors="replace")

    def release(self) -> None:
        if self.sampler:
            self.api.llama_sampler_free(self.sampler)
        if self.context:
            self.api.llama_free(self.context)
        if self.model and not self.is_lent(self.model):
            self.api.llama_model_free(self.model)
        self.model = self.context = self.sampler = self.vocab = self.simulated = None

    def load_model(self, path: str, settings: dict[str, Any], no_alloc: bool = False) -> None:
        for endpoint in settings["rpc_servers"]:
            self.add_rpc_server(endpoint)
        params = self.api.llama_model_default_params()
        params.n_gpu_layers = settings["n_gpu_layers"]
        params.split_mode = getattr(self.api, "LLAMA_SPLIT_MODE_" + settings["split_mode"].upper())
        params.load_mode = getattr(self.api, "LLAMA_LOAD_MODE_" + settings["load_mode"].upper())
        params.main_gpu = settings["main_gpu"]
        params.no_alloc = no_alloc
        params.use_extra_bufts = not no_alloc  # repacking changes no buffer but its own; with MLA on AMX it aborts
        self._kept_alive = self.place(params, settings)
        self.source = (path, os.stat(path).st_mtime_ns, no_alloc, {name: settings[name] for name in DECIDE_LOADING})
        if self.reference and self.reference.source == self.source:
            self.model = self.reference.model
        else:
            self.model = self.api.llama_model_load_from_file(os.fsencode(path), params)
        if not self.model:
            raise Refused(f"llama.cpp did not load {os.path.basename(path)}; its last lines say why.")
        self.vocab = self.api.llama_model_get_vocab(self.model)

    def add_rpc_server(self, endpoint: str) -> None:
        """Register the devices of a ggml RPC server, once; they then stand in the list like any other."""
        if endpoint in self.rpc_servers:
            return
        from inferlab.engine import libraries

        if "rpc" not in libraries.backends():
            raise Refused(f"This llama.cpp has no RPC backend for {endpoint}. To get it: {libraries.WITH_RPC}")
        add = ctypes.CDLL(str(libraries.shared_library("ggml-rpc"))).ggml_backend_rpc_add_server
        add.restype, add.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
        registry = add(endpoint.encode())
        if not registry:
            raise Refused(f"No RPC server answers at {endpoint}. Start one there, or leave rpc_servers empty.")
        self.ggml.ggml_backend_register(ctypes.c_void_p(registry))
        self.rpc_servers.add(endpoint)

    def place(self, params: Any, settings: dict[str, Any]) -> list[Any]:
        """Fill in the arrays of `params`; returns what must stay alive while llama.cpp reads them."""
        kept = []
        self.require_devices(settings)
        if settings["tensor_split"]:
            shares = list(settings["tensor_split"]) + [0.0] * self.api.llama_max_devices()
            kept.append((ctypes.c_float * len(shares))(*shares))
            params.tensor_split = ctypes.cast(kept[-1], ctypes.POINTER(ctypes.c_float))
        if settings["devices"] is not None:
            kept.append(self.device_array(settings["devices"]))
            params.devices = ctypes.cast(kept[-1], ctypes.c_void_p)
        return kept

    def require_devices(self, settings: dict[str, Any]) -> None:
        """Refuse what llama.cpp would pass over: see inferlab.engine.devices."""
        if not any(settings[name] for name in ("devices", "main_gpu", "tensor_split")):
            return
        from inferlab.engine.devices import used_devices
        from inferlab.errors import InvalidSettings
        from inferlab.machine import Device
        from inferlab.settings import Settings

        try:
            used_devices(Settings.from_dict(settings), [Device(**names) for names in self.named_devices()])
        except InvalidSettings as wrong:
            raise Refused(str(wrong)) from wrong

    def device_array(self, names: list[str]) -> Any:
        known = {d["name"]: p for d, p in zip(self.named_devices(), self.device_pointers(), strict=True)}
        pointers = [known[name] for name in names] + [None]
        return (ctypes.c_void_p * len(pointers))(*pointers)

    def make_context(self, settings: dict[str, Any]) -> dict[str, Any]:
        params = self.context_params(settings)
        self.context = self.api.llama_init_from_model(self.model, params)
        if not self.context:
            raise Refused(
                f"llama.cpp did not make a context of {params.n_ctx} tokens; its last line says why. "
                "If memory is short: a smaller n_ctx, type_k and type_v='q8_0', or fewer layers on the device."
            )
        self.sampler = self.api.llama_sampler_init_greedy()
        self.n_batch = self.api.llama_n_batch(self.context)
        return {
            "n_ctx": self.api.llama_n_ctx(self.context),
            "n_batch": self.n_batch,
            "n_ubatch": self.api.llama_n_ubatch(self.context),
            "n_threads": params.n_threads,
            "n_threads_batch": params.n_threads_batch,
        }

    def context_params(self, settings: dict[str, Any]) -> Any:
        from inferlab.machine import physical_cores

        params = self.api.llama_context_default_params()
        params.n_ctx = settings["n_ctx"]
        for name in ("n_batch", "n_ubatch", "n_seq_max", "offload_kqv", "op_offload", "swa_full", "kv_unified"):
            setattr(params, name, settings[name])
        params.n_threads = settings["n_threads"] or physical_cores()
        params.n_threads_batch = settings["n_threads_batch"] or params.n_threads
        params.type_k = getattr(self.api, "GGML_TYPE_" + settings["type_k"].upper())
        params.type_v = getattr(self.api, "GGML_TYPE_" + settings["type_v"].upper())
        params.flash_attn_type = {"auto": -1, "off": 0, "on": 1}[settings["flash_attn"]]
        return params

    # --- files ------------------------------------------------------------------------------

    def do_quantize(
        self, source: str, target: str, file_type: int, requantize: bool, dry_run: bool
    ) -> dict[str, list[str]]:
        """Write `source` anew with other types, telling each tensor as it begins; or only say what that would give."""
        params = self.api.llama_model_quantize_default_params()
        params.ftype, params.allow_requantize, params.dry_run = file_type, requantize, dry_run
        params.max_buf_size = QUANTIZER_BYTES
        self.log.clear()
        with writing(None if dry_run else target):
            status = self.api.llama_model_quantize(os.fsencode(source), os.fsencode(target), ctypes.byref(params))
        if status:
            why = [text for _, level, text in self.log if level == LOG_ERROR][-1:]
            raise Refused(f"llama.cpp did not quantize {os.path.basename(source)}: {''.join(why).strip()}")
        return {"log": [text for _, level, text in self.log if level >= LOG_INFO]}

    # --- work -------------------------------------------------------------------------------

    def do_generate(self, prompt: list[int], n_gen: int, called_at: float) -> dict[str, Any]:
        """Clear the cache, prefill the prompt, decode greedily; every llama_decode is timed on its own.

        `called_at` is the caller's clock, which is this process's clock: both read the system's monotonic one.
        """
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)
        clock, token_seconds, decode_seconds, tokens = time.perf_counter, [], [], []
        ids = (self.api.llama_token * max(1, len(prompt)))(*prompt)
        one = (self.api.llama_token * 1)()
        prefill_seconds = sum(
            self.decode(ctypes.byref(ids, start * ctypes.sizeof(self.api.llama_token)), count)
            for start, count in batches(len(prompt), self.n_batch)
        )
        for index in range(n_gen):
            if index:
                decode_seconds.append(self.decode(one, 1))
            one[0] = self.api.llama_sampler_sample(self.sampler, self.context, -1)
            token_seconds.append(clock() - called_at)
            tokens.append(one[0])
        return {
            "prefill_seconds": prefill_seconds,
            "token_seconds": token_seconds,
            "decode_seconds": decode_seconds,
            "tokens": tokens,
        }

    def do_score(self, tokens: list[int], first: int) -> dict[str, Any]:
        """Nats of tokens[first:], each given all those before it."""
        from inferlab.engine.logits import nats_of

        return {"nats": [n for came, logits in self.rows(self.context, tokens, first) for n in nats_of(logits, came)]}

    def do_compare(self, tokens: list[int], first: int) -> dict[str, Any]:
        """The open model beside the reference on tokens[first:], batch after batch; only the results leave here."""
        from inferlab.engine.logits import Compared, compared

        if self.reference is None:
            raise Refused("No reference is set aside: the engine is fresh, or has forgotten it.")
        found = Compared([], [], [], [])
        own, full = (self.rows(context, tokens, first) for context in (self.context, self.reference.context))
        for (came, logits), (_, reference) in zip(own, full, strict=True):
            for column, more in zip(found, compared(logits, reference, came), strict=True):
                column.extend(more)
        return found._asdict()

    def do_set_aside(self) -> dict[str, Any]:
        """Keep the open model as the reference of `compare`, so that another can be opened beside it."""
        self.do_forget()
        self.reference = Reference(self.model, self.context, self.sampler, self.source)
        self.model = self.context = self.sampler = self.vocab = None
        return {}

    def do_forget(self) -> dict[str, Any]:
        """Free the reference; what the open model shares with it stays."""
        gone, self.reference = self.reference, None
        if gone:
            self.api.llama_sampler_free(gone.sampler)
            self.api.llama_free(gone.context)
            if gone.model != self.model:
                self.api.llama_model_free(gone.model)
        return {}

    def is_lent(self, model: Any) -> bool:
        """Whether the reference has its weights there, too."""
        return self.reference is not None and self.reference.model == model

    def rows(self, context: Any, tokens: list[int], first: int) -> Iterator[tuple[Any, Any]]:
        """(tokens that came, logits that predict them) from tokens[first] on, one llama_decode after another.

        The logits are llama.cpp's own memory, which its next decode writes over.
        """
        import numpy as np

        n_ctx, n_vocab = self.api.llama_n_ctx(context), self.api.llama_vocab_n_tokens(self.vocab)
        if not 1 <= first < len(tokens) <= n_ctx:
            raise Refused(f"{len(tokens)} tokens from {first} on cannot be scored in a context of {n_ctx}.")
        self.api.llama_memory_clear(self.api.llama_get_memory(context), True)
        came, ids = np.array(tokens), (self.api.llama_token * len(tokens))(*tokens)
        for start, count in batches(len(tokens) - 1, self.api.llama_n_batch(context)):
            wanted = [start + index >= first - 1 for index in range(count)]
            self.decode_wanted(context, ctypes.byref(ids, start * ctypes.sizeof(self.api.llama_token)), wanted)
            if any(wanted):
                shape = (sum(wanted), n_vocab)
                rows = np.ctypeslib.as_array(self.api.llama_get_logits(context), shape)
                yield came[start + count + 1 - len(rows) : start + count + 1], rows

    def decode_wanted(self, context: Any, ids: Any, wanted: list[bool]) -> None:
        """llama_decode of as many ids as `wanted` is long, with logits where it says so."""
        flags = (ctypes.c_int8 * len(wanted))(*wanted)
        batch = self.api.llama_batch_get_one(ctypes.cast(ids, ctypes.POINTER(self.api.llama_token)), len(wanted))
        batch.logits = flags
        status = self.api.llama_decode(context, batch)
        if status:
            raise Refused(decode_refusal(status, self.api.llama_n_ctx(context)))

    def decode(self, ids: Any, count: int) -> float:
        """Seconds of llama_decode and llama_synchronize over `count` token ids."""
        return self.timed_decode(
            self.api.llama_batch_get_one(ctypes.cast(ids, ctypes.POINTER(self.api.llama_token)), count)
        )

    def timed_decode(self, batch: Any) -> float:
        """Seconds of llama_decode and llama_synchronize over one batch."""
        began = time.perf_counter()
        status = self.api.llama_decode(self.context, batch)
        self.api.llama_synchronize(self.context)
        seconds = time.perf_counter() - began
        if status:
            raise Refused(decode_refusal(status, self.api.llama_n_ctx(self.context)))
        return seconds

    # --- several sequences ------------------------------------------------------------------

    def do_step(self, entries: list[tuple[int, int, int, bool]]) -> dict[str, Any]:
        """Tokens of one or several sequences in as few llama_decode calls as n_batch allows; see engine.Entry."""
        self.require_sequences(sequence for _, _, sequence, _ in entries)
        seconds, picks = 0.0, []
        for start, count in batches(len(entries), self.n_batch):
            part = entries[start : start + count]
            seconds += self.decode_entries(part)
            wanted = [index for index, entry in enumerate(part) if entry[3]]
            picks += [self.api.llama_sampler_sample(self.sampler, self.context, index) for index in wanted]
        return {"seconds": seconds, "picks": picks}

    def decode_entries(self, entries: list[tuple[int, int, int, bool]]) -> float:
        """Seconds of llama_decode and llama_synchronize over a batch that says sequence and position of each token."""
        batch = self.api.llama_batch_init(len(entries), 0, 1)
        try:
            batch.n_tokens = len(entries)
            for index, (token, position, sequence, wanted) in enumerate(entries):
                batch.token[index], batch.pos[index] = token, position
                batch.n_seq_id[index], batch.seq_id[index][0], batch.logits[index] = 1, sequence, wanted
            return self.timed_decode(batch)
        finally:
            self.api.llama_batch_free(batch)

    def do_share(self, source: int, target: int) -> dict[str, Any]:
        """Let the target begin with all that the source has; what it had itself is dropped. Seconds of the call."""
        self.require_sequences((source, target))
        memory = self.api.llama_get_memory(self.context)
        began = time.perf_counter()
        if source != target:
            self.api.llama_memory_seq_rm(memory, target, -1, -1)
            self.api.llama_memory_seq_cp(memory, source, target, -1, -1)
        return {"seconds": time.perf_counter() - began}

    def do_keep(self, n_tokens: int, sequence: int) -> dict[str, Any]:
        """Drop what a sequence has behind its first n_tokens; sequence -1 means every one."""
        self.require_sequences(() if sequence == -1 else (sequence,))
        if not self.api.llama_memory_seq_rm(self.api.llama_get_memory(self.context), sequence, n_tokens, -1):
            raise Refused("This model's memory cannot be cut: it keeps a state, not a cell for each token.")
        return {}

    def require_sequences(self, wanted: Iterable[int]) -> None:
        n_seq_max = self.api.llama_n_seq_max(self.context)
        if strange := sorted({sequence for sequence in wanted if not 0 <= sequence < n_seq_max}):
            raise Refused(f"There is no sequence {strange[0]}: n_seq_max={n_seq_max} allows 0 to {n_seq_max - 1}.")

    def do_random_prompt(self, n_prompt: int) -> dict[str, Any]:
        """Random token ids, opened by the model's first token if it wants one, as llama-bench does."""
        generator, n_vocab = random.Random(PROMPT_SEED), self.api.llama_vocab_n_tokens(self.vocab)
        tokens = [generator.randrange(n_vocab) for _ in range(n_prompt)]
        if tokens and self.api.llama_vocab_get_add_bos(self.vocab):
            tokens[0] = self.api.llama_vocab_bos(self.vocab)
        return {"tokens": tokens}

    def do_tokenize(self, text: str) -> dict[str, Any]:
        return {"tokens": self.tokens(text, special=True)}

    def tokens(self, text: str, special: bool) -> list[int]:
        """Ids of a text with its opening token; `special` lets the text name special tokens, such as <s>."""
        data = text.encode("utf-8")
        room = len(data) + 8
        ids = (self.api.llama_token * room)()
        count = self.api.llama_tokenize(self.vocab, data, len(data), ids, room, True, special)
        return list(ids[:count])

    def do_chunks(self, text: str, n_ctx: int) -> dict[str, Any]:
        """Every full n_ctx tokens of a text, cut as llama-perplexity cuts it: the first of each replaced by BOS.

        tools/perplexity/perplexity.cpp, perplexity(); a vocabulary without BOS keeps its first token.
        """
        if self.api.llama_vocab_get_add_eos(self.vocab):
            raise Refused("This vocabulary ends every text with a token; perplexity is not defined for it here.")
        tokens = self.tokens(text, special=False)
        chunks = [tokens[start : start + n_ctx] for start in range(0, len(tokens) - n_ctx + 1, n_ctx)]
        if self.api.llama_vocab_get_add_bos(self.vocab):
            chunks = [[self.api.llama_vocab_bos(self.vocab), *chunk[1:]] for chunk in chunks]
        return {"chunks": chunks, "n_tokens": len(tokens)}

    def do_detokenize(self, tokens: list[int]) -> dict[str, Any]:
        """What the tokens spell; llama_detokenize would also tidy the spaces before punctuation."""
        return {"text": b"".join(map(self.piece, tokens)).decode("utf-8", errors="replace")}

    def piece(self, token: int, room: int = 64) -> bytes:
        """The bytes of one token, none for a special one; llama.cpp answers too little room with what it needs."""
        n_vocab = self.api.llama_vocab_n_tokens(self.vocab)
        if not 0 <= token < n_vocab:
            raise Refused(f"There is no token {token}; this vocabulary has {n_vocab}, counted from 0.")
        buffer = ctypes.create_string_buffer(room)
        count = self.api.llama_token_to_piece(self.vocab, token, buffer, room, 0, False)
        return buffer.raw[:count] if count >= 0 else self.piece(token, -count)


@contextmanager
def writing(path: str | None) -> Iterator[None]:
    """While this lasts the file is unfinished: it goes away with the owner."""
    UNFINISHED.update([path] if path else [])
    try:
        yield
    finally:
        UNFINISHED.clear()


def told_lines(log: list[tuple[float, int, str]]) -> list[tuple[float, int, str]]:
    """Lines at llama.cpp's default verbosity, and the two debug lines that end a phase of loading."""
    ends = {}
    for index, (_, level, text) in enumerate(log):
        if level < LOG_INFO and text.startswith(("init_tokenizer:", "create_tensor:")):
            ends[text.split(":")[0]] = index
    return [line for index, line in enumerate(log) if line[1] >= LOG_INFO or index in ends.values()]


def batches(n_tokens: int, n_batch: int) -> list[tuple[int, int]]:
    """(start, count) of each llama_decode call for a prompt."""
    return [(start, min(n_batch, n_tokens - start)) for start in range(0, n_tokens, n_batch)]


def decode_refusal(status: int, n_ctx: int) -> str:
    if status == 1:
        return f"The context is full: all {n_ctx} cells of the KV cache are in use. Ask for a larger n_ctx."
    return f"llama_decode returned {status}."


if __name__ == "__main__":
    main(sys.argv[1])
