"""The worker's devices: ggml's registry, RPC servers, and single operations that need no model."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from inferlab.engine import libraries
from inferlab.engine.ggml_ops import DeviceProperties, Operations, call, hold_memory, largest_tensor_bytes

KINDS = {0: "cpu", 1: "gpu", 2: "igpu", 3: "accel"}  # enum ggml_backend_dev_type
CPU = 0


class Refused(Exception):
    """llama.cpp or ggml cannot do what the request says; the message is sent back as the reply's error."""


class Devices:
    """The devices that ggml has registered in this process; a pointer is its ggml_backend_dev_t."""

    def __init__(self) -> None:
        self.ggml = ctypes.CDLL(str(libraries.shared_library("ggml")))
        self.ggml_base = ctypes.CDLL(str(libraries.shared_library("ggml-base")))
        self.rpc_servers: set[str] = set()

    def ggml_commit(self) -> str | None:
        """The commit that ggml was built from; None when it was built outside a repository."""
        commit = self._call("ggml_commit", result=ctypes.c_char_p).decode()
        return None if commit == "unknown" else commit

    # --- the registry -----------------------------------------------------------------------

    def names_and_memory(self) -> list[dict[str, Any]]:
        """Every registered device: names, memory, place on the bus, limit; memory reported as 0 is unknown, None."""
        return [
            {**self._names_of(pointer), **self._memory_of(pointer), "largest_tensor_bytes": self._limit_of(pointer)}
            for pointer in self.pointers()
        ]

    def names(self) -> list[dict[str, Any]]:
        """Every registered device without memory and place: reading those from a GPU takes some of its memory."""
        return [self._names_of(pointer) for pointer in self.pointers()]

    def pointers(self) -> list[int]:
        """Every registered device, in ggml's order."""
        count, get = self.ggml.ggml_backend_dev_count, self.ggml.ggml_backend_dev_get
        count.restype, get.restype, get.argtypes = ctypes.c_size_t, ctypes.c_void_p, [ctypes.c_size_t]
        return [get(index) for index in range(count())]

    def pointer_array(self, names: list[str]) -> Any:
        """The named devices as the array that llama_model_params.devices takes, ended by a null pointer."""
        by_name = {device["name"]: pointer for device, pointer in zip(self.names(), self.pointers(), strict=True)}
        pointers = [by_name[name] for name in names] + [None]
        return (ctypes.c_void_p * len(pointers))(*pointers)

    def buffer_type(self, name: str) -> int:
        """The ggml_backend_buffer_type_t of host memory ("CPU"), or of a device by its name or its buffer's."""
        if name == "CPU":
            return self._call("ggml_backend_cpu_buffer_type")
        known: dict[str, int] = {}
        for device, pointer in zip(self.names(), self.pointers(), strict=True):
            buffer_type = self._call("ggml_backend_dev_buffer_type", ctypes.c_void_p(pointer))
            buffer_name = self._call("ggml_backend_buft_name", ctypes.c_void_p(buffer_type), result=ctypes.c_char_p)
            known |= {device["name"]: buffer_type, buffer_name.decode(): buffer_type}
        if name not in known:
            raise Refused(f"There is no buffer {name!r}. llama.cpp has: {', '.join(known)}.")
        return known[name]

    def find(self, device: str) -> int:
        """The device of that name, or the one at that RPC endpoint, which is registered if it is new."""
        if ":" in device:
            self.add_rpc_server(device)
        names = dict(zip(self.pointers(), self.names(), strict=True))
        matching = [p for p, named in names.items() if device in named["description"] or device == named["name"]]
        if not matching:
            known = ", ".join(named["name"] for named in names.values())
            raise Refused(f"There is no device {device!r}. llama.cpp sees: {known}.")
        return matching[0]

    def add_rpc_server(self, endpoint: str) -> None:
        """Register the devices of a ggml RPC server, once; they are then listed like any other device."""
        if endpoint in self.rpc_servers:
            return
        if "rpc" not in libraries.backends():
            raise Refused(f"This llama.cpp has no RPC backend for {endpoint}. To get it: {libraries.WITH_RPC}")
        add = ctypes.CDLL(str(libraries.shared_library("ggml-rpc"))).ggml_backend_rpc_add_server
        add.restype, add.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
        registry = add(endpoint.encode())
        if not registry:
            raise Refused(f"No RPC server answers at {endpoint}. Start one there, or leave rpc_servers empty.")
        self.ggml.ggml_backend_register(ctypes.c_void_p(registry))
        self.rpc_servers.add(endpoint)

    def _names_of(self, pointer: int) -> dict[str, Any]:
        device = ctypes.c_void_p(pointer)
        registry = ctypes.c_void_p(self._call("ggml_backend_dev_backend_reg", device))
        return {
            "name": self._call("ggml_backend_dev_name", device, result=ctypes.c_char_p).decode(),
            "description": self._call("ggml_backend_dev_description", device, result=ctypes.c_char_p).decode(),
            "kind": KINDS.get(self._kind_number(pointer), "other"),
            "backend": self._call("ggml_backend_reg_name", registry, result=ctypes.c_char_p).decode(),
        }

    def _memory_of(self, pointer: int) -> dict[str, Any]:
        properties = DeviceProperties()
        self._call("ggml_backend_dev_get_props", ctypes.c_void_p(pointer), ctypes.byref(properties), result=None)
        return {
            "memory_bytes": properties.memory_total or None,
            "free_bytes": properties.memory_free or None,
            "id": properties.id.decode() if properties.id else None,
        }

    def _limit_of(self, pointer: int) -> int | None:
        """Bytes of the largest matrix that a device of this machine takes; None where it takes any."""
        if self._kind_number(pointer) == CPU or self._names_of(pointer)["backend"] == "RPC":
            return None
        return largest_tensor_bytes(self.ggml_base, pointer)

    def _kind_number(self, pointer: int) -> int:
        return self._call("ggml_backend_dev_type", ctypes.c_void_p(pointer), result=ctypes.c_int)

    def _call(self, name: str, *arguments: Any, result: Any = ctypes.c_void_p) -> Any:
        return call(self.ggml_base, name, *arguments, result=result)

    # --- operations without a model ---------------------------------------------------------

    @contextmanager
    def operations(self, device: str, n_threads: int | None) -> Iterator[Operations]:
        """Single operations on the device of that name, or on the RPC server at that endpoint."""
        pointer = self.find(device)
        on_cpu = self._kind_number(pointer) == CPU
        cpu = ctypes.CDLL(str(libraries.shared_library("ggml-cpu"))) if on_cpu else None
        try:
            with Operations(self.ggml_base, pointer, cpu and cpu.ggml_backend_cpu_set_n_threads, n_threads) as started:
                yield started
        except MemoryError as error:
            raise Refused(f"{device}: {error}.") from error

    def hold_memory(self, device: str, free_bytes: int) -> int:
        """Allocate on a device until `free_bytes` are free; bytes allocated, which stay until this process ends."""
        pointer = self.find(device)
        try:
            return hold_memory(self.ggml_base, pointer, lambda: self._memory_of(pointer)["free_bytes"] or 0, free_bytes)
        except MemoryError as error:
            raise Refused(f"{device}: {error}.") from error
