"""Plans and loads every recorded request on two watched loopback devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path

from inferlab.engine.client import LlamaEngine
from inferlab.engine.loopback import LoopbackDevice, loopback_device
from inferlab.engine.session import this_machine
from inferlab.errors import InferlabError
from inferlab.model.gguf import read_gguf
from inferlab.model.synthetic_model import make_shape
from inferlab.prediction.memory import MemoryPlan
from inferlab.prediction.memory.request import MemoryRequest, planned_devices
from inferlab.prediction.predict import predict_memory
from inferlab.settings import Settings
from studies import recipes
from studies.recipes import Recipe
from studies.several_cards.study import KINDS, MIX, SHAPES, Case, DeviceUse, SeveralCards, Use, recorded
from studies.several_cards.watched import Watched, watching

BASE = Settings(n_ctx=1024, n_batch=128, n_ubatch=64, flash_attn="on", n_threads=1, use_extra_bufts=False)
PROMPT, FEW, MANY = 4, 3, 13  # tokens of the prompt, and generated in two passes whose difference counts


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
        opening = self.engine.open(path, settings.but(rpc_servers=tuple(relay.endpoint for relay in self.seen)))
        opened = [relay.bytes_by_kind() for relay in self.seen]
        totals = [relay.total_bytes for relay in self.seen]
        prompt = self.engine.random_prompt(settings.n_ubatch)
        self.engine.generate(prompt, 1)
        grown = [relay.total_bytes - before for relay, before in zip(self.seen, totals, strict=True)]
        moved, tokens = self._moved_per_token(prompt[:PROMPT])
        devices = (
            DeviceUse(held["weights"], held["kv_cache"], held["compute"], more, *exchanged)
            for held, more, exchanged in zip(opened, grown, moved, strict=True)
        )
        host = tuple(buffer for buffer in opening.buffers if buffer.device.startswith("CPU"))
        return Use(tuple(devices), host, tokens, "pipeline parallelism enabled" in opening.log)

    def _moved_per_token(self, prompt: Sequence[int]) -> tuple[list[tuple[float, ...]], tuple[int, ...]]:
        """Bytes to and from each device for one token: the difference of a long and a short pass, over its tokens."""
        start = self._moved()
        self.engine.generate(prompt, FEW)
        few = self._moved()
        tokens = self.engine.generate(prompt, MANY).tokens
        counts = zip(start, few, self._moved(), strict=True)
        each = [tuple((c[i] - 2 * b[i] + a[i]) / (MANY - FEW) for i in range(2)) for a, b, c in counts]
        return each, tuple(tokens)

    def _moved(self) -> list[tuple[int, int]]:
        return [(relay.moved["to device"], relay.moved["from device"]) for relay in self.seen]


@contextmanager
def pair_of_devices() -> Iterator[Pair]:
    """Two loopback devices of one thread each, watched, while the block runs. Raises DeviceUnavailable."""
    with ExitStack() as stack:
        devices = tuple(stack.enter_context(loopback_device(n_threads=1)) for _ in range(2))
        seen = tuple(stack.enter_context(watching(device)) for device in devices)
        yield Pair(devices, seen, stack.enter_context(closing(LlamaEngine())))


def cases_again() -> SeveralCards:
    """Plan and load every recorded case again, on fresh devices after one has ended."""
    left, cases = [(case.shape, case.changes) for case in recorded().cases], []
    with loopback_device(n_threads=1) as first, loopback_device(n_threads=1) as second:
        while left:
            with pair_of_devices() as pair:
                while left and pair.alive:
                    cases.append(placed(*left.pop(0), pair, (first.endpoint, second.endpoint)))
    return SeveralCards(machine=this_machine(), date=date.today().isoformat(), cases=tuple(cases))


def placed(shape: str, changes: dict[str, object], pair: Pair, planned_for: Sequence[str]) -> Case:
    """One case: the plan for two devices that nobody uses, then the load on two others of the same kind."""
    name, dimensions = SHAPES[shape]
    path = make_shape(name, MIX, progress=False, **dimensions)
    try:
        settings = BASE.but(**changes)
        asked = settings.but(rpc_servers=tuple(planned_for))
        plan = predict_memory(path, asked, this_machine())
        use = pair.use(path, settings)
    except InferlabError as error:
        return Case(shape, changes, refused=f"{type(error).__name__}: {error}".splitlines()[0])
    names = _planned_names(plan, settings)
    planned = (tuple(plan.devices[name].parts[kind] for kind in KINDS) if name else (0,) * len(KINDS) for name in names)
    ends = (_compute_range(plan, name) if name else (0, 0) for name in names)
    request = MemoryRequest(read_gguf(path), asked, planned_devices(asked, this_machine()), False)
    return Case(shape, changes, tuple(planned), tuple(ends), plan.method, request.sums_bytes, use)


def _planned_names(plan: MemoryPlan, settings: Settings) -> list[str | None]:
    """The plan's name of both devices; None for a device that the request does not use."""
    names = [name for name in plan.devices if name != "host"]
    return names if len(names) > 1 else [None] * settings.main_gpu + names + [None] * (1 - settings.main_gpu)


def _compute_range(plan: MemoryPlan, name: str) -> tuple[int, int]:
    exact = plan.devices[name].compute_bytes
    return plan.compute_range[name] if exact is None else (exact, exact)


RECIPES: Mapping[str, Recipe] = {"several-cards": partial(cases_again)}

if __name__ == "__main__":
    recipes.main(RECIPES)
