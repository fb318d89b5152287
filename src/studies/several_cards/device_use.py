"""What two loopback devices hold and exchange under each split mode: bytes by device and kind, to the byte.

llama.cpp's log has one number for both devices where they share each matrix; the bytes here are those of the RPC
protocol (engine.loopback.watched). They are bytes only: the devices share the cores of one machine, so that no rate of
theirs is one of two cards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from inferlab.engine.client import LlamaEngine
from inferlab.engine.log import Buffer
from inferlab.engine.loopback import LoopbackDevice, loopback_device
from inferlab.settings import Settings
from studies.several_cards.watched import Watched, watching

DEVICES = 2
PROMPT, FEW, MANY = 4, 3, 13  # tokens of the prompt, and generated in two passes whose difference counts


@dataclass(frozen=True)
class DeviceUse:
    """What one device held and exchanged.

    weights_bytes, kv_cache_bytes, compute_bytes  allocated when the model was opened
    sums_bytes           allocated with the first full batch: room for the other device's partial sums
    received_per_token   bytes of tensors sent to the device for one token of decode
    sent_per_token       bytes of tensors read from it
    """

    weights_bytes: int
    kv_cache_bytes: int
    compute_bytes: int
    sums_bytes: int = 0
    received_per_token: float = 0.0
    sent_per_token: float = 0.0


@dataclass(frozen=True)
class Use:
    """One request on several devices: `devices` in the order of the settings' servers, and what the host's log says.

    tokens  the likeliest tokens of the last pass, to compare answers of two modes
    """

    devices: tuple[DeviceUse, ...]
    host: tuple[Buffer, ...] = ()
    tokens: tuple[int, ...] = ()
    pipelined: bool = field(default=False)


@dataclass(frozen=True)
class Pair:
    """Two loopback devices behind relays that count, and an engine that uses them."""

    devices: tuple[LoopbackDevice, ...]
    seen: tuple[Watched, ...]
    engine: LlamaEngine

    @property
    def alive(self) -> bool:
        """Whether both devices still run: an assertion in llama.cpp may have ended one."""
        return all(device.alive for device in self.devices)

    def use(self, path: Path, settings: Settings) -> Use:
        """Open a model on both devices, compute a full batch and a few tokens, and count.

        Raises EngineRefused or EngineCrashed where llama.cpp does.
        """
        opening = self.engine.open(path, settings.but(rpc_servers=tuple(one.endpoint for one in self.seen)))
        opened = [one.bytes_by_kind() for one in self.seen]
        totals = [one.total_bytes for one in self.seen]
        prompt = self.engine.random_prompt(settings.n_ubatch)
        self.engine.generate(prompt, 1)
        grown = [one.total_bytes - before for one, before in zip(self.seen, totals, strict=True)]
        moved, tokens = self._moved_per_token(prompt[:PROMPT])
        devices = (
            DeviceUse(held["weights"], held["kv_cache"], held["compute"], more, *exchanged)
            for held, more, exchanged in zip(opened, grown, moved, strict=True)
        )
        host = tuple(buffer for buffer in opening.buffers if buffer.device.startswith("CPU"))
        return Use(tuple(devices), host, tokens, "pipeline parallelism enabled" in opening.log)

    def _moved_per_token(self, prompt: Sequence[int]) -> tuple[list[tuple[float, float]], tuple[int, ...]]:
        """Bytes to and from each device for one token: the difference of a long and a short pass, over its tokens."""
        counts, tokens = [self._moved()], ()
        for n_gen in (FEW, MANY):
            tokens = self.engine.generate(prompt, n_gen).tokens
            counts.append(self._moved())
        found = []
        for start, few, many in zip(*counts, strict=True):
            found.append(tuple((many[i] - 2 * few[i] + start[i]) / (MANY - FEW) for i in range(2)))
        return found, tuple(tokens)

    def _moved(self) -> list[tuple[int, int]]:
        return [(one.moved["to device"], one.moved["from device"]) for one in self.seen]


@contextmanager
def pair_of_devices() -> Iterator[Pair]:
    """Two loopback devices of one thread each, watched, while the block runs. Raises DeviceUnavailable."""
    with ExitStack() as stack:
        devices = tuple(stack.enter_context(loopback_device(n_threads=1)) for _ in range(DEVICES))
        seen = tuple(stack.enter_context(watching(device)) for device in devices)
        yield Pair(devices, seen, stack.enter_context(closing(LlamaEngine())))
