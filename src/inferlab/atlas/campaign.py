"""Reference records of a machine: a list of stages, each a few minutes long, each saved as soon as it is done.

With a GPU the stages measure the shapes of Mistral 7B and Llama 3.1 8B on it. Without a GPU they are smaller: a shape
of Llama 3.2 1B with half its layers, and a loopback device if a second device is needed; the records name both.
A stage has a time limit. A pass that would probably exceed the limit is not started; its point has that as its error.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from importlib.resources import files
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from inferlab.atlas.contribute import anonymized, require_name
from inferlab.engine import openmp
from inferlab.engine.limit_vram import limit_vram
from inferlab.engine.loopback import LoopbackDevice, loopback_device
from inferlab.engine.programs import built_program
from inferlab.engine.protocol import Engine, Pass
from inferlab.engine.session import default_engine
from inferlab.errors import InferlabError, InvalidSettings, OutOfTime, RecordError
from inferlab.machine import Machine
from inferlab.measurement.batching import BatchedDecode, batched_decode
from inferlab.measurement.cold_start import ColdStart, cold_start
from inferlab.measurement.llama_bench import import_llama_bench
from inferlab.measurement.run import measure
from inferlab.measurement.sweep import Sweep, from_runs, sweep
from inferlab.model.synthetic_model import make_shape, shape
from inferlab.prediction.calibrate import calibrate
from inferlab.prediction.calibration import Calibration
from inferlab.records import as_text, to_record, write_whole
from inferlab.settings import LOAD_MODES, Settings
from inferlab.units import bytes_from_text

STAGE_SECONDS = 240.0
SAMPLE_SECONDS = 0.5
SETTLE_SECONDS = 5.0
CACHE_TYPES = ("f16", "q8_0", "q4_0")
WEIGHT_TYPES = ("F16", "Q8_0", "Q4_K_M")
COLD_REPEATS = 3
BENCH_PROMPT, BENCH_GEN = 512, 64
GENERIC_WORDS = re.compile(
    r"\(R\)|\(TM\)|@.*|\b(intel|amd|nvidia|geforce|apple|processor|cpu|gpu|\d+-core|with|radeon graphics)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Extent:
    """How much is measured: the shapes, what is changed in them, and the lengths of prompts and answers."""

    models: tuple[str, ...]
    changes: dict[str, int] = field(default_factory=dict)
    prompts: tuple[int, ...] = tuple(2**i for i in range(14))
    depths: tuple[int, ...] = (128, 512, 2048, 8192, 16384, 32000)
    n_layer_steps: int = 8
    depth: int = 4096
    n_prompt: int = 512
    n_gen: int = 64
    repeats: int = 5
    limit: str = "8GiB"
    contexts: tuple[int, ...] = (4096, 8192, 16384, 32768)
    sequences: tuple[int, ...] = (1, 2, 4, 8, 16, 32)


WITH_GPU = Extent(("mistral-7b", "llama-3.1-8b"))
WITHOUT_GPU = Extent(
    models=("llama-3.2-1b",),
    changes={"n_layer": 8, "n_vocab": 16384},
    prompts=tuple(2**i for i in range(13)),
    depths=(128, 256, 512, 1024, 2048, 4096),
    depth=512,
    n_prompt=128,
    n_gen=16,
    repeats=3,
    limit="512MiB",
    contexts=(1024, 4096, 8192, 16384),
)


@dataclass(frozen=True)
class Stage:
    """One stage: the name of its record, a short description, and the function that measures and returns the record."""

    name: str
    about: str
    work: Callable[[Bench], Any]


@dataclass(frozen=True)
class Outcome:
    """The result of a stage. `state` is kept, skipped or failed; `reason` says why, or has the path of the record."""

    stage: str
    state: str
    reason: str = ""
    seconds: float = 0.0
    n_points: int | None = None
    n_failed: int = 0


class TimeLimitedEngine:
    """An engine that refuses a pass or an opening that would probably end after `seconds` from now.

    Estimates:  pass     seconds of the last pass * n_tokens / n_tokens of the last pass
                opening  the longest one so far
    """

    def __init__(self, engine: Engine, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine, self._clock, self.seconds = engine, clock, seconds
        self._ends = clock() + seconds
        self._last: tuple[int, float] | None = None
        self._longest_opening = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def open(self, model: Path, settings: Settings) -> Any:
        self._require(self._longest_opening)
        began = self._clock()
        opening = self._engine.open(model, settings)
        self._longest_opening = max(self._longest_opening, self._clock() - began)
        return opening

    def generate(self, prompt: Sequence[int], n_gen: int) -> Pass:
        n_tokens = len(prompt) + n_gen
        self._require(self._last[1] * n_tokens / self._last[0] if self._last else 0.0)
        began = self._clock()
        pass_ = self._engine.generate(prompt, n_gen)
        self._last = n_tokens, self._clock() - began
        return pass_

    def _require(self, seconds: float) -> None:
        left = self._ends - self._clock()
        if seconds >= left:
            raise OutOfTime(
                f"not measured: it would take about {seconds:.0f} s, and {max(0.0, left):.0f} s "
                f"of the stage's {self.seconds:.0f} s were left."
            )


@dataclass(frozen=True)
class Bench:
    """What a stage needs: the machine, the extent, the engine, its time limit, and the path of llama-bench if any."""

    machine: Machine
    extent: Extent
    engine: Any
    seconds: float = STAGE_SECONDS
    llama_bench: Path | None = None
    settle_seconds: float = SETTLE_SECONDS

    @property
    def has_gpu(self) -> bool:
        return has_gpu(self.machine)

    @property
    def base(self) -> Settings:
        """On the GPU, or on the host with all its cores; flash attention on, because "auto" may choose either."""
        return Settings(flash_attn="on") if self.has_gpu else Settings(flash_attn="on", devices=())

    def device(self) -> AbstractContextManager[LoopbackDevice | None]:
        """The second device of a stage: None with a GPU, else a new loopback device."""
        return nullcontext() if self.has_gpu else loopback_device()

    def on(self, device: LoopbackDevice | None) -> Settings:
        """Settings of a stage that offloads layers or the KV cache to that device."""
        return device.settings(self.base.but(devices=None)) if device else self.base

    def limited(self, device: LoopbackDevice | None) -> AbstractContextManager[Any]:
        """Limit the device's memory to the extent's limit; a GPU with no more memory than that is not limited."""
        gpus = [gpu for gpu in self.machine.gpus if gpu.backend != "RPC"]
        small = device is None and all((gpu.memory_bytes or 0) <= bytes_from_text(self.extent.limit) for gpu in gpus)
        return nullcontext() if small else limit_vram(self.extent.limit, device, self.engine)

    def path(self, model: str, mix: str = "Q4_K_M") -> Path:
        return make_shape(model, mix, None, header_only=False, progress=False, **self.extent.changes)

    def swept(
        self,
        model: str | None,
        settings: Settings,
        over: Mapping[str, Sequence[Any]],
        n_prompt: int | None = None,
        n_gen: int | None = None,
    ) -> Sweep:
        """A sweep; `model` is None if the sweep goes over models. Raises RecordError if no point was measured."""
        path = self.path(model) if model else None
        engine = TimeLimitedEngine(self.engine, self.seconds)
        self.settle(path or over["model"][0], settings)
        done = sweep(
            path,
            settings,
            over,
            n_prompt or self.extent.n_prompt,
            n_gen or self.extent.n_gen,
            self.extent.repeats,
            engine=engine,
            progress=False,
            telemetry=SAMPLE_SECONDS,
        )
        return _require_runs(_with_file_names(done))

    def settle(self, path: str | Path, settings: Settings) -> None:
        """Warm the machine up for some seconds, because the first point of a sweep is its anchor."""
        self.engine.open(Path(path), settings.but(n_ctx=512))
        prompt, ends = self.engine.random_prompt(64), time.monotonic() + self.settle_seconds
        while time.monotonic() < ends:
            self.engine.generate(prompt, 8)


# --- stages -----------------------------------------------------------------------------------


def stages(machine: Machine) -> tuple[Stage, ...]:
    """All stages for this machine, in their order."""
    return (
        Stage("calibration", "ceilings of memory, arithmetic and links; rates of each type", _calibration),
        *(stage for model in extent_of(machine).models for stage in stages_of(model)),
    )


def extent_of(machine: Machine) -> Extent:
    """How much is measured on this machine."""
    return WITH_GPU if has_gpu(machine) else WITHOUT_GPU


def has_gpu(machine: Machine) -> bool:
    """Whether llama.cpp has a GPU of this machine; a loopback device does not count."""
    return any(device.backend != "RPC" for device in machine.gpus)


def short_stages(machine: Machine) -> tuple[str, ...]:
    """Names of the three most informative stages: ceilings, types of weights, layers on a device."""
    model = extent_of(machine).models[0]
    return ("calibration", f"{model}-weights", f"{model}-layers")


def stages_of(model: str) -> Iterator[Stage]:
    """The stages that are measured for each model, named by it."""

    def stage(name: str, about: str, work: Callable[[Bench, str], Any]) -> Stage:
        return Stage(f"{model}-{name}", about, lambda bench: work(bench, model))

    yield stage("prefill", "prompts from one token upwards", _prefill)
    yield stage("depth", "decode after more and more tokens", _depth)
    yield stage("layers", "n_gpu_layers from none to all", _layers)
    yield stage("attention", "offload_kqv with and without flash attention", _attention)
    yield stage("kv-types", "types of keys and values", _kv_types)
    yield stage("weights", "F16, Q8_0 and Q4_K_M", _weights)
    yield stage("sequences", "one token for each of 1 to 32 sequences at once", _sequences)
    yield stage("limited", "longer and longer contexts on a card of 8 GiB, or on as much of a smaller device", _limited)
    yield stage("cold-start", "every load mode, file cached and not", _cold_start)
    yield stage("llama-bench", "prefill and decode beside llama-bench's", _llama_bench)


def _calibration(bench: Bench) -> Calibration:
    return calibrate(save=False, engine=bench.engine)


def _prefill(bench: Bench, model: str) -> Sweep:
    return bench.swept(model, bench.base, {"n_prompt": bench.extent.prompts}, n_gen=8)


def _depth(bench: Bench, model: str) -> Sweep:
    return bench.swept(model, bench.base, {"n_prompt": bench.extent.depths})


def _layers(bench: Bench, model: str) -> Sweep:
    most = shape(model, "Q4_K_M", **bench.extent.changes).n_layer + 1
    steps = sorted({round(most * i / bench.extent.n_layer_steps) for i in range(bench.extent.n_layer_steps + 1)})
    with bench.device() as device:
        return bench.swept(model, bench.on(device), {"n_gpu_layers": steps})


def _attention(bench: Bench, model: str) -> Sweep:
    over = {"offload_kqv": (True, False), "flash_attn": ("on", "off")}
    with bench.device() as device:
        return bench.swept(model, bench.on(device), over, n_prompt=bench.extent.depth)


def _kv_types(bench: Bench, model: str) -> Sweep:
    over = {"type_k": CACHE_TYPES, "type_v": CACHE_TYPES}
    return bench.swept(model, bench.base, over, n_prompt=bench.extent.depth)


def _weights(bench: Bench, model: str) -> Sweep:
    paths = [str(bench.path(model, mix)) for mix in WEIGHT_TYPES]
    return bench.swept(None, bench.base, {"model": paths})


def _sequences(bench: Bench, model: str) -> BatchedDecode:
    extent = bench.extent
    path = bench.path(model)
    bench.settle(path, bench.base)
    return batched_decode(
        path, bench.base, extent.sequences, extent.n_prompt, 8, extent.repeats, bench.engine, progress=False
    )


def _limited(bench: Bench, model: str) -> Sweep:
    """Contexts that do not fit fail; the record has their errors."""
    over = {"n_ctx": bench.extent.contexts, "offload_kqv": (True, False)}
    with bench.device() as device, bench.limited(device):
        return bench.swept(model, bench.on(device), over, n_prompt=256)


def _cold_start(bench: Bench, model: str) -> tuple[ColdStart, ...]:
    """All combinations once, then all again, so that a drift of the machine affects all of them alike."""
    path, ends = bench.path(model), time.monotonic() + bench.seconds
    combinations = product(range(COLD_REPEATS), ("empty", "full"), LOAD_MODES)
    starts: list[ColdStart] = []
    for _, page_cache, load_mode in combinations:
        if time.monotonic() > ends:
            break
        starts.append(cold_start(path, bench.base.but(n_ctx=512, load_mode=load_mode), page_cache))
    return tuple(starts)


def _llama_bench(bench: Bench, model: str) -> Sweep:
    """The same file and workload by llama-bench and by `measure`, one after the other."""
    if bench.llama_bench is None:
        raise RecordError(
            "there is no llama-bench: llama-cpp-python installs none. Compile it with `make tools`, or give the path "
            "of one that was built from the same llama.cpp with --llama-bench."
        )
    path = bench.path(model)
    theirs = run_llama_bench(bench.llama_bench, path, bench.has_gpu, bench.seconds / 2)
    settings = bench.base.but(n_threads=theirs.runs[0].settings.n_threads)
    engine = TimeLimitedEngine(bench.engine, bench.seconds / 2)
    ours = measure(path, settings, BENCH_PROMPT, BENCH_GEN + 1, 5, engine=engine, telemetry=SAMPLE_SECONDS)
    return from_runs((*theirs.runs, ours))


def run_llama_bench(program: str | Path, model: str | Path, gpu: bool, seconds: float = STAGE_SECONDS) -> Sweep:
    """Runs of a llama-bench program: a prompt of 512 tokens, and 64 tokens after it. Raises RecordError."""
    layers = ["-ngl", "-1" if gpu else "0"]
    options = ["-fa", "1", *layers, "-o", "jsonl", "-m", str(model)]
    rows = ""
    for work in (["-p", str(BENCH_PROMPT), "-n", "0"], ["-p", "0", "-n", str(BENCH_GEN), "-d", str(BENCH_PROMPT)]):
        try:
            done = subprocess.run(
                [str(program), *options, *work],
                capture_output=True,
                text=True,
                timeout=seconds,
                env=openmp.bounded(os.environ),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RecordError(f"llama-bench could not be run: {error}. Give the path of one that works.") from error
        if done.returncode:
            raise RecordError(f"llama-bench ended with status {done.returncode}. It said: {done.stderr[-300:]}")
        rows += done.stdout
    with TemporaryDirectory() as folder:
        return from_runs(import_llama_bench(write_whole(Path(folder) / "rows.jsonl", rows)))


def _with_file_names(done: Sweep) -> Sweep:
    """The sweep with the names of models' files in place of their paths."""
    points = tuple(
        replace(p, changes={k: Path(v).name if k == "model" else v for k, v in p.changes.items()}) for p in done.points
    )
    over = {k: tuple(Path(v).name for v in values) if k == "model" else values for k, values in done.over.items()}
    return replace(done, points=points, over=over)


def _require_runs(done: Sweep) -> Sweep:
    if not done.runs:
        raise RecordError(f"not one point could be measured: {done.failed[0].error}")
    return done


# --- running the stages -----------------------------------------------------------------------


def record(
    folder: str | Path | None = None,
    names: Sequence[str] = (),
    machine_name: str | None = None,
    llama_bench: str | Path | None = None,
    seconds: float = STAGE_SECONDS,
    engine: Any = None,
    on_outcome: Callable[[Outcome], None] = lambda outcome: None,
) -> tuple[Outcome, ...]:
    """Run the stages and save the record of each as soon as it is measured.

    folder      where to save (None: data/records); stages that have a record in the machine's folder are skipped
    names       run only these stages, even if they have a record
    llama_bench path of the program (None: the one that `make tools` compiled)
    seconds     time limit of each stage
    on_outcome  callback with the outcome of each stage

    A failed stage leaves no record, and the next one begins. Raises InvalidSettings for an unknown stage.
    """
    engine = engine or default_engine()
    machine = engine.machine()
    name = require_name(machine_name or name_of(machine))
    target = Path(folder) / name if folder else records_folder() / name
    program = Path(llama_bench) if llama_bench else built_program("llama-bench")
    bench = Bench(machine, extent_of(machine), engine, seconds, program, SETTLE_SECONDS)
    outcomes = []
    for stage in chosen(stages(machine), names):
        outcomes.append(_run_stage(stage, bench, target / f"{stage.name}.json", again=bool(names)))
        on_outcome(outcomes[-1])
    return tuple(outcomes)


def chosen(every: Sequence[Stage], names: Sequence[str]) -> list[Stage]:
    """The stages with these names, or all of them. Raises InvalidSettings for an unknown name."""
    unknown = [name for name in names if name not in [stage.name for stage in every]]
    if unknown:
        known = ", ".join(stage.name for stage in every)
        raise InvalidSettings(f"There is no stage {unknown[0]!r} on this machine. There are: {known}.")
    return [stage for stage in every if not names or stage.name in names]


def _run_stage(stage: Stage, bench: Bench, path: Path, again: bool) -> Outcome:
    if path.exists() and not again:
        return Outcome(stage.name, "skipped", "it has been recorded; name the stage to measure it again")
    began = time.monotonic()
    try:
        data = anonymized(to_record(stage.work(bench)))
        write_whole(path, as_text(data))
    except InferlabError as error:
        return Outcome(stage.name, "failed", f"{type(error).__name__}: {error}", time.monotonic() - began)
    points = data.get("points")
    failed = sum("run" not in point for point in points or ())
    return Outcome(stage.name, "kept", str(path), time.monotonic() - began, points and len(points), failed)


def records_folder() -> Path:
    """The repository's folder of records, with one folder for each machine."""
    return Path(str(files("inferlab") / "data" / "records"))


def name_of(machine: Machine) -> str:
    """A folder's name for a machine: its GPU, or its processor and cores; e.g. `rtx-4090`, `xeon-2c`."""
    gpus = [device.description for device in machine.gpus if device.backend != "RPC"]
    words = GENERIC_WORDS.sub(" ", gpus[0] if gpus else machine.cpu).lower()
    slug = "-".join(re.findall(r"[a-z0-9]+", words)) or "machine"
    return slug[:32].strip("-") if gpus else f"{slug[:32].strip('-')}-{machine.n_cores}c"
