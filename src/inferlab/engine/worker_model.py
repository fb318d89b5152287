"""A model that the worker has loaded: its weights, the context made for it, and one llama_decode at a time."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Sequence
from typing import Any

from inferlab.engine.worker_devices import Devices, Refused
from inferlab.engine.worker_vocabulary import Vocabulary

TEXT_BYTES = 127  # of a value in llama_model_kv_override
OVERRIDES = ("n_cpu_moe", "cpu_moe", "override_tensor")
FLASH_ATTENTION = {"auto": -1, "off": 0, "on": 1}  # enum llama_flash_attn_type


class LoadedModel:
    """Weights loaded by llama.cpp's C API and, after `make_context`, a context and a greedy sampler.

    api      the module llama_cpp.llama_cpp
    shared   a loaded model whose weights are used again if file and placement are the same
    no_alloc plan the buffers of the weights without allocating them (llama_model_params.no_alloc)
    metadata values to read in place of the file's (llama_model_params.kv_overrides)

    Raises Refused when a device is missing or llama.cpp does not load the file.
    """

    def __init__(
        self,
        api: Any,
        path: str,
        settings: dict[str, Any],
        devices: Devices,
        shared: LoadedModel | None = None,
        no_alloc: bool = False,
        metadata: dict[str, str | int] | None = None,
    ) -> None:
        self.api, self.context, self.sampler, self.n_batch = api, None, None, 0
        for endpoint in settings["rpc_servers"]:
            devices.add_rpc_server(endpoint)
        params, self._arrays = _model_params(api, settings, devices, no_alloc)
        if metadata:
            self._arrays.append(metadata_array(api, metadata))
            params.kv_overrides = self._arrays[-1]
        self.source = (path, os.stat(path).st_mtime_ns, no_alloc, loading_settings(api, settings))
        self.weights: Any
        if shared and shared.source == self.source:
            self.weights = shared.weights
        else:
            self.weights = api.llama_model_load_from_file(os.fsencode(path), params)
        if not self.weights:
            raise Refused(f"llama.cpp did not load {os.path.basename(path)}; its last lines say why.")
        self.vocabulary = Vocabulary(api, api.llama_model_get_vocab(self.weights))

    def description(self) -> str:
        """llama.cpp's name for this model, e.g. `llama 8B Q4_K - Medium`."""
        text = ctypes.create_string_buffer(128)
        self.api.llama_model_desc(self.weights, text, len(text))
        return text.value.decode("utf-8", errors="replace")

    def make_context(self, settings: dict[str, Any], on_node: Any = None) -> dict[str, Any]:
        """Make the context and return the settings that llama.cpp chose for it. Raises Refused when it makes none.

        on_node  a ggml_backend_sched_eval_callback that sees each node of a graph before it is computed
        """
        params = context_params(self.api, settings)
        if on_node is not None:
            params.cb_eval = on_node
        self.context = self.api.llama_init_from_model(self.weights, params)
        if not self.context:
            raise Refused(
                f"llama.cpp did not make a context of {params.n_ctx} tokens; its last line says why. "
                "If memory is short: a smaller n_ctx, type_k and type_v='q8_0', or fewer layers on the device."
            )
        self.sampler = self.api.llama_sampler_init_greedy()
        self.n_batch = self.api.llama_n_batch(self.context)
        return {
            "n_ctx": self.n_ctx,
            "n_batch": self.n_batch,
            "n_ubatch": self.api.llama_n_ubatch(self.context),
            "n_threads": params.n_threads,
            "n_threads_batch": params.n_threads_batch,
        }

    @property
    def n_ctx(self) -> int:
        return self.api.llama_n_ctx(self.context)

    @property
    def memory(self) -> Any:
        """The context's llama_memory_t: its KV cache, or whatever state the architecture keeps."""
        return self.api.llama_get_memory(self.context)

    def clear(self) -> None:
        """Remove every sequence from the context's memory."""
        self.api.llama_memory_clear(self.memory, True)

    def token_array(self, tokens: Sequence[int]) -> Any:
        """Token ids as a C array of at least one element."""
        return (self.api.llama_token * max(1, len(tokens)))(*tokens)

    def batch_of(self, ids: Any, start: int, count: int) -> Any:
        """A llama_batch of `count` ids of a token array, continuing sequence 0; the array must outlive it."""
        first = ctypes.byref(ids, start * ctypes.sizeof(self.api.llama_token))
        return self.api.llama_batch_get_one(ctypes.cast(first, ctypes.POINTER(self.api.llama_token)), count)

    def decode(self, batch: Any) -> None:
        """llama_decode, which may return before a device has finished. Raises Refused, e.g. when the cache is full."""
        self._require_decoded(self.api.llama_decode(self.context, batch))

    def timed_decode(self, batch: Any) -> float:
        """Seconds of llama_decode and llama_synchronize over one batch."""
        began = time.perf_counter()
        status = self.api.llama_decode(self.context, batch)
        self.api.llama_synchronize(self.context)
        seconds = time.perf_counter() - began
        self._require_decoded(status)
        return seconds

    def _require_decoded(self, status: int) -> None:
        if status == 1:
            raise Refused(
                f"The context is full: all {self.n_ctx} cells of the KV cache are in use. Ask for a larger n_ctx."
            )
        if status:
            raise Refused(f"llama_decode returned {status}.")

    def likeliest(self, index: int) -> int:
        """The likeliest next token after the batch's entry at `index`; -1 means the last entry."""
        return self.api.llama_sampler_sample(self.sampler, self.context, index)

    def free(self, besides: LoadedModel | None = None) -> None:
        """Free sampler and context, and the weights unless `besides` uses the same."""
        if self.sampler:
            self.api.llama_sampler_free(self.sampler)
        if self.context:
            self.api.llama_free(self.context)
        if besides is None or besides.weights != self.weights:
            self.api.llama_model_free(self.weights)


def batch_slices(n_tokens: int, n_batch: int) -> list[tuple[int, int]]:
    """(start, count) of each llama_decode call that `n_tokens` take."""
    return [(start, min(n_batch, n_tokens - start)) for start in range(0, n_tokens, n_batch)]


def context_params(api: Any, settings: dict[str, Any]) -> Any:
    """`settings` as llama_context_params."""
    from inferlab.machine import physical_cores
    from inferlab.model.ggml_types import TYPE_IDS

    params = _with_numbers(api.llama_context_default_params(), settings)
    params.n_threads = settings["n_threads"] or physical_cores()
    params.n_threads_batch = settings["n_threads_batch"] or params.n_threads
    params.type_k = TYPE_IDS[settings["type_k"].upper()]
    params.type_v = TYPE_IDS[settings["type_v"].upper()]
    params.flash_attn_type = FLASH_ATTENTION[settings["flash_attn"]]
    return params


def _model_params(api: Any, settings: dict[str, Any], devices: Devices, no_alloc: bool) -> tuple[Any, list[Any]]:
    """`settings` as llama_model_params, and the arrays that must exist as long as llama.cpp reads them."""
    params = _with_numbers(api.llama_model_default_params(), settings)
    params.split_mode = getattr(api, "LLAMA_SPLIT_MODE_" + settings["split_mode"].upper())
    params.load_mode = getattr(api, "LLAMA_LOAD_MODE_" + settings["load_mode"].upper())
    params.no_alloc = no_alloc
    arrays: list[Any] = []
    _require_devices(settings, devices)
    if settings["tensor_split"]:
        shares = list(settings["tensor_split"]) + [0.0] * api.llama_max_devices()
        arrays.append((ctypes.c_float * len(shares))(*shares))
        params.tensor_split = ctypes.cast(arrays[-1], ctypes.POINTER(ctypes.c_float))
    if settings["devices"] is not None:
        arrays.append(devices.pointer_array(settings["devices"]))
        params.devices = ctypes.cast(arrays[-1], ctypes.c_void_p)
    if any(settings[name] for name in OVERRIDES):
        arrays.append(_override_array(settings, devices))
        params.tensor_buft_overrides = ctypes.cast(arrays[-1], ctypes.c_void_p)
    return params, arrays


def _with_numbers(params: Any, settings: dict[str, Any]) -> Any:
    """A structure of parameters with every number and switch among the settings that has the name of its field."""
    for name, *_ in params._fields_:
        if isinstance(settings.get(name), int):
            setattr(params, name, settings[name])
    return params


def loading_settings(api: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that decide how weights are loaded: fields of llama_model_params, servers, and overrides."""
    fields = [name for name, *_ in api.llama_model_params._fields_]
    return {name: value for name, value in settings.items() if name in (*fields, "rpc_servers", *OVERRIDES)}


def metadata_array(api: Any, metadata: dict[str, str | int]) -> Any:
    """Texts, of which at most TEXT_BYTES, and whole numbers as llama_model_kv_override, ended by one without a key."""
    entries = (api.llama_model_kv_override * (len(metadata) + 1))()
    for entry, (key, value) in zip(entries, metadata.items(), strict=False):
        entry.key = key.encode()
        if isinstance(value, str):
            entry.tag, entry.value.val_str = api.LLAMA_KV_OVERRIDE_TYPE_STR, value.encode()[:TEXT_BYTES]
        else:
            entry.tag, entry.value.val_i64 = api.LLAMA_KV_OVERRIDE_TYPE_INT, value
    return entries


class _Override(ctypes.Structure):
    """llama_model_tensor_buft_override, llama.h."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p))


def _override_array(settings: dict[str, Any], devices: Devices) -> Any:
    """The overrides as llama_model_params takes them, ended by one without a pattern."""
    from inferlab.settings import Settings

    overrides = Settings.from_dict(settings).tensor_overrides
    entries = [_Override(pattern.encode(), devices.buffer_type(buffer)) for pattern, buffer in overrides]
    return (_Override * (len(entries) + 1))(*entries)


def _require_devices(settings: dict[str, Any], devices: Devices) -> None:
    """Refuse devices that llama.cpp would ignore without a word, or cannot compute on; see inferlab.options.devices."""
    asked_for = any(settings[name] for name in ("devices", "main_gpu", "tensor_split", "override_tensor"))
    if not asked_for and settings["split_mode"] != "tensor":
        return
    from inferlab.errors import InvalidSettings
    from inferlab.machine import Device
    from inferlab.options.devices import require_buffers, used_devices
    from inferlab.settings import Settings

    asked = Settings.from_dict(settings)
    try:
        require_buffers(asked, used_devices(asked, [Device(**names) for names in devices.names()]))
    except InvalidSettings as wrong:
        raise Refused(str(wrong)) from wrong
