"""The hardware atlas: every measurement in the repository, beside what is predicted for it.

Bytes are those of `plans.predict_memory`, rates those of `plans.predict_speed` with the calibration that lies in the
same machine's folder; both are made anew whenever the atlas is, so that a better model meets all old measurements.
Where something cannot be predicted, the entry says why.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

from inferlab.atlas.campaign import records_folder
from inferlab.engine.loopback import LoopbackDevice, loopback_device
from inferlab.errors import InferlabError, RecordError
from inferlab.machine import Machine
from inferlab.measurement.run import Run
from inferlab.model.find import tiny_model
from inferlab.model.gguf import Model, ModelCard, read_gguf
from inferlab.model.synthetic_model import parse_file_name, shape
from inferlab.prediction import validation
from inferlab.prediction.calibration import Calibration
from inferlab.prediction.compare import compare
from inferlab.prediction.memory import MemoryPlan
from inferlab.prediction.predict import predict_memory, predict_speed
from inferlab.prediction.validation import Accuracy, Checked
from inferlab.records import SEQUENCE, from_json, from_record, kind_of
from inferlab.records_v1 import upgrade
from inferlab.settings import Settings

CALIBRATION = "calibration.json"
DISTURBED = "faults"
UNDISTURBED = ("baseline", "healthy")
"""The folder of runs that were disturbed on purpose, to which no prediction is held, and those in it that were not."""
HOST, LOOPBACK = "host", "loopback device"
NOT_TOLD = ("n_ctx", "n_threads", "n_threads_batch", "rpc_servers", "devices", "n_batch", "swa_full")
"""Settings that go without saying: they follow from the workload or the place, or are no choice."""
PHASES = ("prefill", "decode")


@dataclass(frozen=True)
class Bytes:
    """Memory over all devices: predicted (None, or between two ends, where the plan is a bound), and measured."""

    predicted: int | None
    measured: int
    least: int | None = None
    most: int | None = None

    @property
    def error(self) -> float | None:
        """Predicted over measured, less one."""
        return None if self.predicted is None else self.predicted / self.measured - 1


@dataclass(frozen=True)
class Entry:
    """One measurement: where it stands, what ran, and each quantity beside its prediction.

    machine    the folder under data/records; record the file in it, without .json
    device     where the weights were: "host", "loopback device", a GPU's name, or several of them
    settings   what differs from the defaults, in llama.cpp's words
    rates      by phase: (measured tokens per second, the prediction or None)
    why        what could not be predicted, and for which reason; empty where everything could
    disturbed  something else was made to run at the same time
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
    rates: dict[str, tuple[float, Checked | None]]
    why: str = ""
    disturbed: bool = False

    def checked(self, phase: str) -> Checked | None:
        """One phase's rate beside its prediction, if both are there."""
        return self.rates.get(phase, (0.0, None))[1]


@dataclass(frozen=True)
class Held:
    """One file of the repository: its kind, how many measurements it holds, and when and with what they were made."""

    machine: str
    record: str
    kind: str
    n_measurements: int
    dates: tuple[str, ...]
    builds: tuple[str, ...]


# --- reading ----------------------------------------------------------------------------------


def entries(folder: str | Path | None = None) -> tuple[Entry, ...]:
    """Every measurement of a rate under a folder of machines (None: the repository's records), in the files' order.

    The folder of disturbed runs stands last. A sweep's anchors, which repeat its first point, are left out.
    Raises RecordError for a file that is no record.
    """
    found: list[Entry] = []
    for machine, path, data in _files(folder):
        known = _calibration(path.parents[1] if path.parent.name == DISTURBED else path.parent)
        with _Predictions(known) as predict:
            found += [predict.entry(machine, path, run) for run in _runs(data)]
        if kind_of(data) == "speed point" and known:
            found += _speed_points(machine, path.parent, known)
    return tuple(sorted(found, key=lambda entry: (entry.machine, entry.record.startswith(DISTURBED), entry.disturbed)))


def held(folder: str | Path | None = None) -> tuple[Held, ...]:
    """Every file under a folder of machines (None: the repository's records), in their order."""
    return tuple(_held(machine, path, data) for machine, path, data in _files(folder))


def machines(folder: str | Path | None = None) -> dict[str, Machine]:
    """The machines of the repository, by their folders' names."""
    found: dict[str, Machine] = {}
    for name, _, data in _files(folder):
        told = next(_objects(data, "machine"), None)
        if told and name not in found:
            found[name] = from_json(Machine, told)
    return found


def gpu_names(found: dict[str, Machine]) -> tuple[str, ...]:
    """GPUs of some machines, each once; a loopback device is none."""
    named = (device.description for one in found.values() for device in one.gpus if device.backend != "RPC")
    return tuple(dict.fromkeys(named))


def _files(folder: str | Path | None) -> Iterator[tuple[str, Path, Any]]:
    root = Path(folder) if folder else records_folder()
    for path in sorted(root.glob("*/**/*.json")):
        try:
            data = upgrade(json.loads(path.read_text(encoding="utf-8")))
            kind_of(data)
        except (OSError, ValueError, RecordError) as error:
            raise RecordError(f"{path} cannot be read as a record: {error}. Restore it, or take it away.") from error
        yield path.relative_to(root).parts[0], path, data


def _runs(data: Any) -> tuple[Run, ...]:
    kind = kind_of(data)
    if kind == "run":
        return (from_record(data),)
    return from_record(data).runs if kind == "sweep" else ()


def _held(machine: str, path: Path, data: Any) -> Held:
    lists = {"sweep": "points", "calibration": "timings", "attention timings": "timings", "batched decode": "points"}
    kind = kind_of(data)
    several = data.get(SEQUENCE, data.get(lists.get(kind)))
    n_measurements = len(several) if several is not None else 1
    builds = (_build(from_json(Machine, told)) for told in _objects(data, "machine"))
    dates = (date for date in _objects(data, "date") if date)
    return Held(machine, _name(path), kind, n_measurements, tuple(dict.fromkeys(dates)), tuple(dict.fromkeys(builds)))


def _objects(data: Any, key: str) -> Iterator[Any]:
    """Every value under that key, at any depth."""
    for name, value in data.items() if isinstance(data, dict) else enumerate(data):
        if name == key:
            yield value
        elif isinstance(value, dict | list):
            yield from _objects(value, key)


def _name(path: Path) -> str:
    return f"{DISTURBED}/{path.stem}" if path.parent.name == DISTURBED else path.stem


def _build(machine: Machine) -> str:
    return machine.llama_cpp_text


@lru_cache(maxsize=64)
def _calibration(folder: Path) -> Calibration | None:
    path = folder / CALIBRATION
    return Calibration.load(path) if path.is_file() else None


# --- predicting -------------------------------------------------------------------------------


class _Predictions:
    """What is predicted for runs of one machine; a loopback device is started once, when one has to be asked about."""

    def __init__(self, calibration: Calibration | None) -> None:
        self.calibration = calibration
        self.device: LoopbackDevice | None = None
        self.plans: dict[Any, MemoryPlan | str] = {}

    def __enter__(self) -> _Predictions:
        return self

    def __exit__(self, *_: object) -> None:
        if self.device:
            self.device.close()

    def entry(self, machine: str, path: Path, run: Run) -> Entry:
        model, said, why = model_of(run.model), parse_file_name(run.model.file), []
        memory = self.memory(run, model, why)
        disturbed = path.parent.name == DISTURBED and not path.stem.endswith(UNDISTURBED)
        rates = self.rates(run, None if disturbed else model, why)
        mix = said[1] if said else run.model.description.split(" ")[-1] or "unknown"
        return Entry(
            machine, _name(path), run.machine.cpu, device_of(run, model), model_text(run.model), mix,
            settings_text(run.settings), run.n_prompt, run.n_gen, run.date, _build(run.machine), memory, rates,
            "; ".join(dict.fromkeys(why)), disturbed,
        )  # fmt: skip

    def memory(self, run: Run, model: Model | None, why: list[str]) -> Bytes | None:
        """Bytes over all devices; what the run's log told is there even where nothing can be predicted."""
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
        """The plan, or why there is none; equal requests share one."""
        settings = run.settings.but(rpc_servers=tuple("" for _ in run.settings.rpc_servers))
        key = run.model.file, run.machine, settings
        if key not in self.plans:
            try:
                self.plans[key] = predict_memory(model, self.here(run.settings), run.machine)
            except InferlabError as error:
                self.plans[key] = str(error).splitlines()[0]
        return self.plans[key]

    def here(self, settings: Settings) -> Settings:
        """The settings with a loopback device that answers in the place of the recorded one."""
        if not settings.rpc_servers:
            return settings
        if self.device is None:
            self.device = loopback_device(n_threads=1)
        return settings.but(rpc_servers=(self.device.endpoint,) * len(settings.rpc_servers))

    def rates(self, run: Run, model: Model | None, why: list[str]) -> dict[str, tuple[float, Checked | None]]:
        measured = {phase: getattr(run, f"{phase}_tokens_per_second") for phase in PHASES}
        plan, link = None, next(iter(run.links), None)
        if model and self.calibration:
            asked = model, run.settings, self.calibration, run.n_prompt, run.n_gen
            try:
                plan = predict_speed(*asked, run.machine, link)
            except InferlabError as error:
                why.append(f"rates: {str(error).splitlines()[0]}")
        elif model:
            why.append("rates: this machine has no calibration")
        return {phase: (rate, plan and _checked(plan, phase, rate)) for phase, rate in measured.items() if rate}


def _checked(plan: Any, phase: str, rate: float) -> Checked:
    step = getattr(plan, phase)
    return Checked(phase, phase, step.tokens_per_second, rate, step.rate_range)


def _speed_points(machine: str, folder: Path, calibration: Calibration) -> Iterator[Entry]:
    """The points that speed plans were held to: rates alone, without a run's buffers."""
    told = Accuracy.load(folder)
    for point in told.points:
        plan = validation.predicted(point, calibration)
        rates = {phase: (point.rate(phase), _checked(plan, phase, point.rate(phase))) for phase in PHASES}
        model = shape(point.name, point.mix, **point.changes)
        device = LOOPBACK if point.settings.rpc_servers and point.settings.n_gpu_layers else HOST
        link = f", {point.link.text}" if point.link else ""
        yield Entry(
            machine, "speed-points", calibration.machine.cpu, device, model_text(model.card()), point.mix,
            settings_text(point.settings) + link, point.n_prompt, point.n_gen, calibration.date,
            _build(calibration.machine), None, rates,
        )  # fmt: skip


# --- words ------------------------------------------------------------------------------------


def model_of(card: ModelCard) -> Model | None:
    """The header of a recorded model, where it can be had without its file: a shape, or the embedded model."""
    if said := parse_file_name(card.file):
        name, mix, changes = said
        with suppress(InferlabError):
            made = shape(name, mix, **changes)
            return made if made.tensor_bytes == card.tensor_bytes else None
    return _embedded() if card.file == tiny_model().name else None


@lru_cache(maxsize=1)
def _embedded() -> Model:
    return read_gguf(tiny_model())


def model_text(card: ModelCard) -> str:
    """`Llama 3.2 1B shape, n_layer 8, n_vocab 16384`: the model and what was changed in it."""
    said = parse_file_name(card.file)
    return ", ".join([card.name, *(f"{key} {value}" for key, value in (said[2] if said else {}).items())])


def device_of(run: Run, model: Model | None = None) -> str:
    """Where the layers lay, in words: the host, the loopback device, a GPU by its name, or several of them.

    Where every layer is on a device, the embedding that stays on the host does not count.
    """
    cards = {device.name: device.description for device in run.machine.gpus}
    names = []
    for buffer in (b for b in run.buffers if b.kind == "weights"):
        plain = buffer.device.removesuffix("_Mapped").removesuffix("_Private")
        names.append(LOOPBACK if plain.startswith("RPC") else cards.get(plain, HOST))
    asked = run.settings.n_gpu_layers
    whole = asked < 0 or (model is not None and asked > model.n_layer)
    far = [name for name in names if name != HOST]
    return " + ".join(dict.fromkeys(far if far and whole else names)) or HOST


def settings_text(settings: Settings) -> str:
    """What differs from the defaults and is a choice: `n_gpu_layers 4, flash_attn on`."""
    usual = Settings()
    names = [one.name for one in fields(Settings) if one.name not in NOT_TOLD]
    changed = {name: getattr(settings, name) for name in names if getattr(settings, name) != getattr(usual, name)}
    if settings.devices == ():
        changed.pop("n_gpu_layers", None)
    said = [f"{name} {str(value).lower()}" for name, value in changed.items()]
    threads = f"{settings.n_threads} host thread{'s' if settings.n_threads != 1 else ''}" if settings.n_threads else ""
    return ", ".join(filter(None, [*said, threads])) or "defaults"


# --- the whole of it --------------------------------------------------------------------------


def rate_errors(found: Iterable[Entry], phase: str) -> list[float]:
    """Predicted over measured, less one, of a phase's rate; runs that were disturbed on purpose left out."""
    checks = (entry.checked(phase) for entry in found if not entry.disturbed)
    return [one.error for one in checks if one]


def memory_errors(found: Iterable[Entry]) -> list[float]:
    """Predicted over measured bytes, less one."""
    errors = (entry.memory.error for entry in found if entry.memory)
    return [error for error in errors if error is not None]


def errors_by(found: Sequence[Entry], by: str) -> dict[str, dict[str, list[float]]]:
    """For each value of one field of `Entry`, such as "device": the errors of memory, prefill and decode."""
    counted = [entry for entry in found if not entry.disturbed]
    groups: dict[str, list[Entry]] = {}
    for entry in counted:
        groups.setdefault(getattr(entry, by), []).append(entry)
    return {
        value: {"memory": memory_errors(group), **{phase: rate_errors(group, phase) for phase in PHASES}}
        for value, group in sorted(groups.items())
    }


def typical(errors: Sequence[float]) -> float:
    """The median of the errors' sizes."""
    return median(map(abs, errors))
