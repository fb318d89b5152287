"""The hardware atlas: every measurement in the repository, with its prediction.

Bytes are predicted by `predict_memory`; if the record does not tell the processor's instruction sets, the size of the
repacked buffer in its log says which of the predicted kinds of processor it was. Rates are predicted by `predict_speed`
with the calibration in the same machine's folder.
Both are computed anew with each atlas, so that a change of the prediction is tested on all old measurements.
If a quantity cannot be predicted, the entry says why.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any

from inferlab.engine.loopback import LoopbackDevice, loopback_device
from inferlab.errors import InferlabError, RecordError
from inferlab.machine import HOST_DEVICE, Machine
from inferlab.measurement.run import Run
from inferlab.model.find import tiny_model
from inferlab.model.gguf import Model, ModelCard, read_gguf
from inferlab.model.synthetic_model import shape
from inferlab.prediction import validation
from inferlab.prediction.calibration import Calibration
from inferlab.prediction.compare import compare
from inferlab.prediction.memory import MemoryPlan
from inferlab.prediction.predict import predict_memory, predict_speed
from inferlab.prediction.speed import SpeedPlan
from inferlab.prediction.validation import POINTS, Accuracy, Checked, Point
from inferlab.records import RECORDED, SEQUENCE, from_json, from_record, kind_of, recorded_below, shipped
from inferlab.records_v1 import upgrade
from inferlab.settings import Settings

CALIBRATION = "calibration.json"
DISTURBED = "faults"
UNDISTURBED = ("baseline", "healthy")
"""The folder of runs with injected faults, which no prediction is compared with, and the healthy runs in it."""
LOOPBACK = "loopback device"
LEFT_OUT_SETTINGS = ("n_ctx", "n_threads", "n_threads_batch", "rpc_servers", "devices", "n_batch", "swa_full")
"""Settings that `settings_text` leaves out: they follow from the workload or the device."""
PHASES = ("prefill", "decode")


@dataclass(frozen=True)
class Bytes:
    """Memory over all devices: predicted and measured.

    predicted    None if unknown
    least, most  the range of the prediction, where the plan is a bound
    """

    predicted: int | None
    measured: int
    least: int | None = None
    most: int | None = None

    @property
    def error(self) -> float | None:
        """predicted / measured - 1; None if there is no prediction."""
        return None if self.predicted is None else self.predicted / self.measured - 1


Rates = dict[str, tuple[float, Checked | None]]
"""By phase: measured tokens per second, and the prediction or None."""


@dataclass(frozen=True)
class AtlasEntry:
    """One measurement: its record, its model and settings, and each quantity with its prediction.

    machine    the folder under data/records
    record     the file in that folder, without .json
    device     where the weights were: "host", "loopback device", a GPU's name, or several of them
    settings   those that differ from the defaults, by llama.cpp's names
    rates      by phase
    why        what could not be predicted, and the reason; empty if everything could
    disturbed  the run had an injected fault
    """

    machine: str
    record: str
    processor: str
    device: str
    model: str
    type: str
    settings: str
    n_prompt: int
    n_gen: int
    date: str
    build: str
    memory: Bytes | None
    rates: Rates
    why: str = ""
    disturbed: bool = False

    def checked(self, phase: str) -> Checked | None:
        """One phase's rate with its prediction; None if either is missing."""
        return self.rates.get(phase, (0.0, None))[1]


@dataclass(frozen=True)
class RecordFile:
    """One file of the repository: its kind, its number of measurements, and their dates and llama.cpp builds.

    dates      empty if the record has none
    n_refused  points of a sweep that the engine refused, which are no measurements
    """

    machine: str
    record: str
    kind: str
    n_measurements: int
    dates: tuple[str, ...]
    builds: tuple[str, ...]
    n_refused: int = 0


# --- reading ----------------------------------------------------------------------------------


def entries(folder: str | Path | None = None) -> tuple[AtlasEntry, ...]:
    """Every measurement of a rate under a folder of machines (None: the repository's records), in the files' order.

    Runs with injected faults come last. A sweep's anchors, which repeat its first point, are left out.
    Raises RecordError for a file that is not a record.
    """
    found: list[AtlasEntry] = []
    for machine, files in groupby(_files(folder), key=itemgetter(0)):
        known = _calibration((Path(folder) if folder else RECORDED) / machine)
        with _Predictions(known) as predict:
            for _, path, data in files:
                found += [predict.entry(machine, path, run) for run in _runs(data)]
                if path.name == POINTS and known:
                    found += _speed_points(machine, path.parent, known)
    return tuple(sorted(found, key=lambda entry: (entry.machine, entry.record.startswith(DISTURBED), entry.disturbed)))


def record_files(folder: str | Path | None = None) -> tuple[RecordFile, ...]:
    """Every file under a folder of machines (None: the repository's records), in their order."""
    return tuple(_record_file(machine, path, data) for machine, path, data in _files(folder))


def machines(folder: str | Path | None = None) -> dict[str, Machine]:
    """The machines of the repository, by the names of their folders."""
    found: dict[str, Machine] = {}
    for name, _, data in _files(folder):
        fields = next(_values(data, "machine"), None)
        if fields and name not in found:
            found[name] = from_json(Machine, fields)
    return found


def gpu_names(found: dict[str, Machine]) -> tuple[str, ...]:
    """Names of the GPUs of some machines, each once, without loopback devices."""
    named = (device.description for machine in found.values() for device in machine.gpus if device.backend != "RPC")
    return tuple(dict.fromkeys(named))


def _files(folder: str | Path | None) -> Iterator[tuple[str, Path, Any]]:
    """(machine, path, data) of every record under a folder of machines, or of all that ship."""
    for name, path in (recorded_below(Path(folder)) if folder else shipped()).items():
        try:
            data = upgrade(json.loads(path.read_text(encoding="utf-8")))
            kind_of(data)
        except (OSError, ValueError, RecursionError, RecordError) as error:
            raise RecordError(f"{path} cannot be read as a record: {error}. Restore it, or take it away.") from error
        yield name.partition("/")[0], path, data


def _runs(data: Any) -> tuple[Run, ...]:
    kind = kind_of(data)
    if kind == "run":
        found = from_record(data)
        return found if isinstance(found, tuple) else (found,)
    return from_record(data).runs if kind == "sweep" else ()


def _record_file(machine: str, path: Path, data: Any) -> RecordFile:
    lists = {
        "sweep": "points",
        "calibration": "timings",
        "attention timings": "timings",
        "batched decode": "points",
        "repacking": "default",
    }
    kind = kind_of(data)
    several = data.get(SEQUENCE, data.get(lists.get(kind)))
    n_refused = sum(isinstance(one, dict) and "error" in one for one in several or ())
    n_measurements = len(several) - n_refused if several is not None else 1
    builds = (_build(from_json(Machine, fields)) for fields in _values(data, "machine"))
    dates = (date for date in _values(data, "date") if date)
    distinct = tuple(dict.fromkeys(dates)), tuple(dict.fromkeys(builds))
    return RecordFile(machine, _record_name(path), kind, n_measurements, *distinct, n_refused)


def _values(data: Any, key: str) -> Iterator[Any]:
    """Every value of that key, at any depth of the JSON."""
    for name, value in data.items() if isinstance(data, dict) else enumerate(data):
        if name == key:
            yield value
        elif isinstance(value, dict | list):
            yield from _values(value, key)


def _record_name(path: Path) -> str:
    return f"{DISTURBED}/{path.stem}" if path.parent.name == DISTURBED else path.stem


def _build(machine: Machine) -> str:
    return machine.llama_cpp_text


@lru_cache(maxsize=64)
def _calibration(folder: Path) -> Calibration | None:
    path = folder / CALIBRATION
    return Calibration.load(path) if path.is_file() else None


# --- predicting -------------------------------------------------------------------------------


class _Predictions:
    """Predictions for runs of one machine. A loopback device is started once, when a prediction first needs one."""

    def __init__(self, calibration: Calibration | None) -> None:
        self.calibration = calibration
        self.device: LoopbackDevice | None = None
        self.plans: dict[Any, MemoryPlan | str] = {}

    def __enter__(self) -> _Predictions:
        return self

    def __exit__(self, *_: object) -> None:
        if self.device:
            self.device.close()

    def entry(self, machine: str, path: Path, run: Run) -> AtlasEntry:
        model, made = model_of(run.model), run.model.shape
        why: list[str] = []
        memory = self.memory(run, model, why)
        disturbed = path.parent.name == DISTURBED and not path.stem.endswith(UNDISTURBED)
        rates = self.rates(run, None if disturbed else model, why)
        mix = made.mix if made else run.model.description.split(" ")[-1] or "unknown"
        return AtlasEntry(
            machine,
            _record_name(path),
            run.machine.cpu,
            device_of(run, model),
            model_text(run.model),
            mix,
            settings_text(run.settings),
            run.n_prompt,
            run.n_gen,
            run.date,
            _build(run.machine),
            memory,
            rates,
            "; ".join(dict.fromkeys(why)),
            disturbed,
        )

    def memory(self, run: Run, model: Model | None, why: list[str]) -> Bytes | None:
        """Bytes over all devices; the measured ones are known even if no prediction is possible."""
        if not run.buffers:
            return None
        plan = self.plan(run, model) if model else "this model's header is not here"
        if isinstance(plan, str):
            why.append(f"memory: {plan}")
            return Bytes(None, sum(b.n_bytes for b in run.buffers))
        gaps = compare(plan, run)
        ends = [gap.predicted_range or (gap.predicted_bytes, gap.predicted_bytes) for gap in gaps]
        least, most = (sum(filter(None, side)) for side in zip(*ends, strict=True))
        known = all(gap.predicted_bytes is not None for gap in gaps)
        return Bytes(least if known else None, sum(gap.measured_bytes for gap in gaps), least, most)

    def plan(self, run: Run, model: Model) -> MemoryPlan | str:
        """The plan, or why there is none; equal requests share a plan."""
        settings = run.settings.but(rpc_servers=tuple("" for _ in run.settings.rpc_servers))
        key = run.model.file, run.machine, settings
        if key not in self.plans:
            try:
                self.plans[key] = predict_memory(model, self.here(run.settings), run.machine)
            except InferlabError as error:
                self.plans[key] = str(error).splitlines()[0]
        return self.plans[key]

    def here(self, settings: Settings) -> Settings:
        """The settings with a running loopback device in place of the recorded one."""
        if not settings.rpc_servers:
            return settings
        if self.device is None:
            self.device = loopback_device(n_threads=1)
        return settings.but(rpc_servers=(self.device.endpoint,) * len(settings.rpc_servers))

    def rates(self, run: Run, model: Model | None, why: list[str]) -> Rates:
        measured = {phase: getattr(run, f"{phase}_tokens_per_second") for phase in PHASES}
        plan, link = None, next(iter(run.links), None)
        if model and self.calibration:
            request = model, run.settings, self.calibration, run.n_prompt, run.n_gen
            try:
                plan = predict_speed(*request, run.machine, link)
            except InferlabError as error:
                why.append(f"rates: {str(error).splitlines()[0]}")
        elif model:
            why.append("rates: this machine has no calibration")
        return {
            phase: (rate, _checked(plan, phase, rate) if plan else None) for phase, rate in measured.items() if rate
        }


def _checked(plan: SpeedPlan, phase: str, rate: float) -> Checked:
    step = getattr(plan, phase)
    return Checked(phase, phase, step.tokens_per_second, rate, step.rate_range)


def _speed_points(machine: str, folder: Path, calibration: Calibration) -> Iterator[AtlasEntry]:
    """The points that validate speed plans: rates only, without a run's buffers."""
    for point in Accuracy.load(folder).points:
        plan = validation.predicted(point, calibration)
        rates: Rates = {phase: (point.rate(phase), _checked(plan, phase, point.rate(phase))) for phase in PHASES}
        model = shape(point.name, point.mix, **point.changes)
        link = f", {point.link.text}" if point.link else ""
        yield AtlasEntry(
            machine,
            "speed-points",
            calibration.machine.cpu,
            _device_of_point(point, model),
            model_text(model.card()),
            point.mix,
            settings_text(point.settings) + link,
            point.n_prompt,
            point.n_gen,
            f"calibration of {calibration.date}",
            _build(calibration.machine),
            None,
            rates,
        )


# --- text -------------------------------------------------------------------------------------


def model_of(card: ModelCard) -> Model | None:
    """The header of a recorded model, if it needs no file: a shape, or the embedded model; else None."""
    if made := card.shape:
        with suppress(InferlabError):
            header = shape(made.name, made.mix, **made.dimensions)
            return header if header.tensor_bytes == card.tensor_bytes else None
    return _embedded() if card.file == tiny_model().name else None


@lru_cache(maxsize=1)
def _embedded() -> Model:
    return read_gguf(tiny_model())


def model_text(card: ModelCard) -> str:
    """`Llama 3.2 1B shape, n_layer 8, n_vocab 16384`: the model and its changes."""
    changes = card.shape.dimensions if card.shape else {}
    return ", ".join([card.name, *(f"{key} {value}" for key, value in changes.items())])


def device_of(run: Run, model: Model | None = None) -> str:
    """The devices of the layers in words: the host, the loopback device, a GPU by its name, or several of them.

    If every layer is on a device, the embedding on the host does not count.
    """
    gpus = {device.name: device.description for device in run.machine.gpus}
    names = []
    for buffer in (b for b in run.buffers if b.kind == "weights"):
        plain = buffer.device.removesuffix("_Mapped").removesuffix("_Private")
        names.append(LOOPBACK if plain.startswith("RPC") else gpus.get(plain, HOST_DEVICE))
    n_gpu_layers = run.settings.n_gpu_layers
    all_offloaded = n_gpu_layers < 0 or (model is not None and n_gpu_layers > model.n_layer)
    devices = [name for name in names if name != HOST_DEVICE]
    return " + ".join(dict.fromkeys(devices if devices and all_offloaded else names)) or HOST_DEVICE


def _device_of_point(point: Point, model: Model) -> str:
    """Where a speed point's layers are, in the words of `device_of`; some layers leave the rest on the host."""
    n_gpu_layers = point.settings.n_gpu_layers
    if not point.settings.rpc_servers or n_gpu_layers == 0:
        return HOST_DEVICE
    return LOOPBACK if n_gpu_layers < 0 or n_gpu_layers > model.n_layer else f"{HOST_DEVICE} + {LOOPBACK}"


def settings_text(settings: Settings) -> str:
    """The settings that differ from the defaults, without LEFT_OUT_SETTINGS: `n_gpu_layers 4, flash_attn on`."""
    usual = Settings()
    names = [field.name for field in fields(Settings) if field.name not in LEFT_OUT_SETTINGS]
    changed = {name: getattr(settings, name) for name in names if getattr(settings, name) != getattr(usual, name)}
    if settings.devices == ():
        changed.pop("n_gpu_layers", None)
    texts = [f"{name} {str(value).lower()}" for name, value in changed.items()]
    threads = f"{settings.n_threads} host thread{'s' if settings.n_threads != 1 else ''}" if settings.n_threads else ""
    return ", ".join(filter(None, [*texts, threads])) or "defaults"


# --- errors of the predictions ----------------------------------------------------------------


def rate_errors(found: Iterable[AtlasEntry], phase: str) -> list[float]:
    """predicted / measured - 1 of a phase's rate; runs with injected faults are left out."""
    checks = (entry.checked(phase) for entry in found if not entry.disturbed)
    return [checked.error for checked in checks if checked]


def memory_errors(found: Iterable[AtlasEntry]) -> list[float]:
    """predicted / measured - 1 of the bytes; runs with injected faults are left out."""
    errors = (entry.memory.error for entry in found if entry.memory and not entry.disturbed)
    return [error for error in errors if error is not None]


def errors_by(found: Sequence[AtlasEntry], by: str) -> dict[str, dict[str, list[float]]]:
    """For each value of one field of `AtlasEntry`, such as "device": the errors of memory, prefill and decode."""
    groups: dict[str, list[AtlasEntry]] = {}
    for entry in (entry for entry in found if not entry.disturbed):
        groups.setdefault(getattr(entry, by), []).append(entry)
    return {
        value: {"memory": memory_errors(group), **{phase: rate_errors(group, phase) for phase in PHASES}}
        for value, group in sorted(groups.items())
    }


def typical(errors: Sequence[float]) -> float:
    """The median of the errors' absolute values."""
    return median(map(abs, errors))
