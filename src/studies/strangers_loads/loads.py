"""Buffers that llama.cpp logged on strangers' machines, and the plan of each load, made without llama.cpp."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from inferlab.errors import InferlabError
from inferlab.machine import Device
from inferlab.model.catalog import known_name
from inferlab.model.gguf import Model
from inferlab.model.quant_mixes import MIXES
from inferlab.model.synthetic_model import shape
from inferlab.prediction.memory import MemoryPlan
from inferlab.prediction.memory.request import MemoryRequest
from inferlab.prediction.predict import plan_of
from inferlab.settings import Settings
from inferlab.units import MIB

RECORDS = Path(__file__).parent / "records" / "public"
HOST, CARD = "host", "gpu0"
WEIGHTS, CACHE, OUTPUT, COMPUTE = "weights", "kv_cache", "output", "compute"
KINDS = {"model": WEIGHTS, "KV": CACHE, "RS": CACHE, "output": OUTPUT, "compute": COMPUTE}
"""The part of a plan to which each kind of buffer in a log belongs."""
PRINTED = 0.01
"""MiB to which a log prints a buffer."""
EXACT, INSIDE, OFF = "exact", "inside", "off"
VERDICTS = (EXACT, INSIDE, OFF)


@dataclass(frozen=True)
class Compared:
    """Bytes of one kind on one device: as logged in `n_lines` lines, and the plan's least and most, all in MiB."""

    device: str
    kind: str
    logged: float
    n_lines: int
    least: float
    most: float

    @property
    def verdict(self) -> str:
        """exact: the plan's number, as far as the log prints it; inside: between least and most; else off."""
        slack = PRINTED * self.n_lines
        if not self.least - slack <= self.logged <= self.most + slack:
            return OFF
        return EXACT if self.most - self.least < PRINTED else INSIDE


@dataclass(frozen=True)
class Line:
    """One line of a log: its number, the buffer's name, what it holds, and its MiB."""

    number: int
    buffer: str
    kind: str
    mib: float

    @property
    def on_host(self) -> bool:
        return self.buffer.startswith("CPU") or self.buffer.endswith("_Host")


@dataclass(frozen=True)
class Load:
    """One load of a model on a stranger's machine.

    nth             which of the loads in that log
    model, mix      the known model that has its dimensions, and the mix of its file as the file's name has it
    n_cards         cards that have layers; they are taken to share equally, because a log does not name their shares
    flash_attn_set  what `flash_attn = auto` became, where the log says so
    is_near         whether the build has the pinned version's cache, in which each sequence may have cells of its own:
                    logs name `kv_unified` since then (llama.cpp, pull request 14363, July 2025)
    """

    repo: str
    path: str
    commit: str
    nth: int
    backend: str
    build: str
    model: str
    mix: str
    n_cards: int
    flash_attn_set: str
    is_near: bool
    settings: Settings
    lines: tuple[Line, ...]

    @property
    def has_plain_mix(self) -> bool:
        """Whether the types of all tensors follow from the mix's name; makers have mixes of their own."""
        return self.mix in MIXES

    @property
    def logged(self) -> dict[tuple[str, str], tuple[float, int]]:
        """MiB by device and kind, and of how many lines they are the sum."""
        cards = list(dict.fromkeys(_plain(line.buffer) for line in self.lines if not line.on_host))
        found: dict[tuple[str, str], tuple[float, int]] = {}
        for line in self.lines:
            device = HOST if line.on_host else f"gpu{cards.index(_plain(line.buffer))}"
            mib, n_lines = found.get((device, KINDS[line.kind]), (0.0, 0))
            found[device, KINDS[line.kind]] = mib + line.mib, n_lines + 1
        return found

    @cached_property
    def compared(self) -> tuple[Compared, ...]:
        """What plan and log both have; of weights only where the mix is a plain one. Empty without a plan."""
        plan = _plan(self.model, self.mix, self.settings, (self.backend,) * self.n_cards)
        kinds = set(KINDS.values()) - (set() if self.has_plain_mix else {WEIGHTS})
        sizes = {at: found for at, found in self.logged.items() if at[1] in kinds}
        return tuple(_compared(plan, sizes)) if plan else ()

    def verdict(self, kind: str) -> str | None:
        """The worst verdict of this kind on any device; None where nothing was compared."""
        found = {one.verdict for one in self.compared if one.kind == kind}
        return next((verdict for verdict in reversed(VERDICTS) if verdict in found), None)


@dataclass(frozen=True)
class Reserve:
    """One compute buffer of a card that somebody published, with flash attention on, in llama-server.

    cache    the type of its keys and values; "" where the source does not say
    is_full  whether all layers are on the card; else a few, of which the number does not matter
    """

    repo: str
    commit: str
    build: str
    file: str
    model: str
    mix: str
    is_full: bool
    cache: str
    settings: Settings
    mib: float

    def compared(self, type: str) -> Compared | None:
        """The plan with a type of the cache, and the buffer; None where nothing can be planned.

        Weights in RAM are copied to the card, so their types must be known where some stay there.
        """
        if known_name(self.model) is None or not (self.is_full or self.mix in MIXES):
            return None
        try:
            plan = plan_of(self.request(type))
        except InferlabError:
            return None
        return next(_compared(plan, {(CARD, COMPUTE): (self.mib, 1)}), None)

    def request(self, type: str) -> MemoryRequest:
        """What is planned, with a type of the cache. Raises InvalidSettings for a type that the heads do not fill."""
        settings = self.settings.but(type_k=type, type_v=type)
        return _request(self.model, self.mix, settings, ("CUDA",), per_sequence=True)


def _plain(buffer: str) -> str:
    return buffer.removesuffix("_Mapped")


def _compared(plan: MemoryPlan, logged: dict[tuple[str, str], tuple[float, int]]) -> Iterator[Compared]:
    for (device, kind), (mib, n_lines) in logged.items():
        planned = plan.devices[device].parts[kind]
        ends = plan.compute_range.get(device) if planned is None else (planned, planned)
        if ends:
            yield Compared(device, kind, mib, n_lines, ends[0] / MIB, ends[1] / MIB)


@cache
def _plan(name: str, mix: str, settings: Settings, backends: tuple[str, ...]) -> MemoryPlan | None:
    """The plan without llama.cpp; None where the model is not known."""
    return plan_of(_request(name, mix, settings, backends, per_sequence=False)) if known_name(name) else None


def _request(name: str, mix: str, settings: Settings, backends: tuple[str, ...], per_sequence: bool) -> MemoryRequest:
    """What is planned: without llama.cpp, and as CUDA's backend allocates."""
    cards = tuple(Device(f"{backend}{i}", backend, "gpu", backend=backend) for i, backend in enumerate(backends))
    model = _shape(name, mix if mix in MIXES else "Q4_K_M")
    return MemoryRequest(model, settings, cards, per_sequence, simulate=False, as_cuda=True)


@cache
def _shape(name: str, mix: str) -> Model:
    return shape(name, mix)


def _rows(name: str) -> list[dict[str, str]]:
    with (RECORDS / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@cache
def loads() -> tuple[Load, ...]:
    """Every load, in the order of the list."""
    lines: dict[str, list[Line]] = {}
    for row in _rows("buffers"):
        line = Line(int(row["line"]), row["buffer"], row["kind"], float(row["mib"]))
        lines.setdefault(row["load"], []).append(line)
    return tuple(_load(row, tuple(lines[row["load"]])) for row in _rows("loads"))


def _load(row: dict[str, str], lines: tuple[Line, ...]) -> Load:
    named = {key: row[key] for key in ("repo", "path", "commit", "backend", "build", "model", "mix", "flash_attn_set")}
    n_cards = int(row["cards"])
    settings = _settings(row).but(
        n_batch=int(row["n_batch"]),
        flash_attn=row["flash_attn"],
        kv_unified=row["kv_unified"] == "true",
        type_k=row["type_k"],
        type_v=row["type_v"],
        tensor_split=(1.0,) * n_cards if n_cards > 1 else None,
    )
    near = bool(row["kv_unified"])
    return Load(**named, nth=int(row["nth"]), n_cards=n_cards, is_near=near, settings=settings, lines=lines)


@cache
def reserves() -> tuple[Reserve, ...]:
    """Every published compute buffer, in the order of the list."""
    return tuple(_reserve(row) for row in _rows("compute"))


def _reserve(row: dict[str, str]) -> Reserve:
    named = {key: row[key] for key in ("repo", "commit", "build", "file", "model", "mix", "cache")}
    full = row["offload"] == "full"
    several = int(row["n_seq_max"]) > 1  # the source starts the server with --kv-unified above one slot
    settings = _settings(row).but(flash_attn="on", kv_unified=several, n_gpu_layers=-1 if full else 1)
    return Reserve(**named, is_full=full, settings=settings, mib=float(row["mib"]))


def _settings(row: dict[str, str]) -> Settings:
    n_seq_max = int(row["n_seq_max"] or 1)
    return Settings(n_ctx=int(row["n_ctx"]), n_ubatch=int(row["n_ubatch"]), n_seq_max=n_seq_max)


def first_counts() -> dict[tuple[str, str], dict[str, int]]:
    """By group and kind the counts of the first comparison, before anything was changed for it."""
    return {(row["group"], row["kind"]): {v: int(row[v]) for v in VERDICTS} for row in _rows("first")}
