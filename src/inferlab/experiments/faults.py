"""Faults put in on purpose: one thing about a healthy engine is made worse, and what happens is written down.

`observe(fault)` starts a fresh engine beside a loopback device, makes a first request that has to load the model
and some more that do not, and returns the `Run`, with telemetry from before the load to the last token.
What is wrong stands in no field that a diagnosis may look at: `experiments.diagnosis` sees samples and token times.

    cold page cache        the system has forgotten the file before it is loaded
    one thread             the device computes on one thread
    cache on the far side  the KV cache lies in host RAM, and attention on the device (offload_kqv off)
    wrong cache type       keys and values in a type that costs more than it saves
    throttled link         a slow bus between host and device
    competing load         other processes want the same processor
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from inferlab.engine.client import LlamaEngine
from inferlab.engine.loopback import links_to, loopback_device
from inferlab.engine.protocol import Pass
from inferlab.engine.registry import close_engines_with_model
from inferlab.errors import InvalidSettings
from inferlab.machine import physical_cores
from inferlab.measurement import page_cache
from inferlab.measurement.run import Run, fitted
from inferlab.measurement.telemetry.sampler import Sampler
from inferlab.model.gguf import read_gguf
from inferlab.records import load
from inferlab.settings import Settings

HEALTHY = "healthy"
FAULTS = (
    "cold page cache",
    "one thread",
    "cache on the far side",
    "wrong cache type",
    "throttled link",
    "competing load",
)
INTERVAL_SECONDS = 0.05
RECORDS, RECORDED = "xeon-2c/faults", (1, 2, 3)
RIVAL = "import os\nwhile os.getppid() == {}: pass"


@dataclass(frozen=True)
class Severity:
    """How bad a fault is made, where it has a degree.

    gigabytes_per_second  rate of the throttled link
    kv_type               the wrong type of keys and values
    n_rivals              competing processes (None: one for each physical core)
    """

    gigabytes_per_second: float = 0.1
    kv_type: str = "q5_1"
    n_rivals: int | None = None


@dataclass(frozen=True)
class Round:
    """A recorded round: a healthy baseline, and one run for each cause, healthy among them."""

    baseline: Run
    runs: dict[str, Run]


@dataclass(frozen=True)
class Case:
    """One observation whose cause is to be found: `number` is what the reader sees, `cause` what was done."""

    number: int
    run: Run
    cause: str


def observe(
    fault: str | None = None,
    model: str | Path | None = None,
    n_prompt: int = 192,
    n_gen: int = 160,
    repeats: int = 2,
    severity: Severity | None = None,
) -> Run:
    """Load a model and make `repeats` requests, with one fault or with none; returns the `Run`.

    The first pass counts from before the load, so its first token waits for the load; the others do not wait.
    Without a fault the file is in the page cache, every core computes, and the link is not slowed.
    A file's pages can be forgotten on Linux only.
    Raises InvalidSettings for an unknown fault, or for a cold page cache elsewhere; else what `measure` raises.
    """
    fault, severity = fault or HEALTHY, severity or Severity()
    _require_known(fault)
    path = Path(model) if model else _tiny()
    with _device(fault, severity) as device, _rivals(fault, severity):
        _prepare(path, fault)
        return first_requests(path, _settings(fault, severity, device), n_prompt, n_gen, repeats)


def cases(
    model: str | Path | None = None, seed: int | None = None, faults: Sequence[str] | None = None, **work: Any
) -> tuple[Case, ...]:
    """Every fault that this system allows observed once, healthy among them, in an order that only the seed knows."""
    faults = faults or possible()
    order = random.Random(seed).sample(list(faults), len(faults))
    return tuple(Case(number, observe(fault, model, **work), fault) for number, fault in enumerate(order, 1))


def recorded_rounds() -> tuple[Round, ...]:
    """The rounds under data/records that a diagnosis is scored on; its rules were written before they were run."""
    return tuple(
        Round(
            load(f"{RECORDS}/{number}-baseline"),
            {cause: load(f"{RECORDS}/{number}-{slug(cause)}") for cause in (HEALTHY, *FAULTS)},
        )
        for number in RECORDED
    )


def slug(cause: str) -> str:
    """A cause as it stands in a record's name."""
    return cause.replace(" ", "-")


def possible() -> tuple[str, ...]:
    """The causes that can be made here, healthy first: a file's pages can be forgotten on Linux only."""
    return (HEALTHY, *(fault for fault in FAULTS if page_cache.ON_LINUX or fault != "cold page cache"))


def first_requests(
    model: str | Path, settings: Settings, n_prompt: int = 192, n_gen: int = 160, repeats: int = 2
) -> Run:
    """Start an engine, load the model and make `repeats` requests at once, without a warm-up; returns the `Run`.

    The first pass counts from before the load. Telemetry is taken from there to the end of the last pass.
    """
    path, engine = Path(model), LlamaEngine()
    try:
        engine.ready()
        with Sampler(engine.pid, INTERVAL_SECONDS) as sampler:
            called = time.perf_counter()
            opening = engine.open(path, fitted(settings, n_prompt, n_gen))
            prompt = engine.random_prompt(n_prompt)
            waited = time.perf_counter() - called
            passes = [engine.generate(prompt, n_gen) for _ in range(repeats)]
        passes[0] = _later(passes[0], waited, called)
        return Run(
            model=replace(read_gguf(path).card(), description=opening.description),
            settings=opening.settings,
            machine=engine.machine(),
            n_prompt=n_prompt,
            n_gen=n_gen,
            passes=tuple(replace(one, began=one.began - called) for one in passes),
            settled=None,
            buffers=opening.buffers,
            load=opening.phases,
            date=date.today().isoformat(),
            samples=tuple(replace(sample, seconds=sample.seconds - called) for sample in sampler.samples),
            sampling=sampler.sampling,
            links=links_to(opening.settings.rpc_servers),
        )
    finally:
        engine.close()


def _later(one: Pass, waited: float, called: float) -> Pass:
    """The same pass for somebody who had called before the model was loaded."""
    return replace(one, token_seconds=tuple(waited + seconds for seconds in one.token_seconds), began=called)


def _require_known(fault: str) -> None:
    if fault not in (HEALTHY, *FAULTS):
        raise InvalidSettings(f"There is no fault {fault!r}. There are: {', '.join((HEALTHY, *FAULTS))}.")
    if fault == "cold page cache" and not page_cache.ON_LINUX:
        raise InvalidSettings("A file can be put out of the page cache on Linux only. Observe another fault.")


def _device(fault: str, severity: Severity):
    rate = severity.gigabytes_per_second if fault == "throttled link" else None
    return loopback_device(rate, n_threads=1 if fault == "one thread" else physical_cores())


def _settings(fault: str, severity: Severity, device: Any) -> Settings:
    settings = device.settings(Settings(flash_attn="on"))
    if fault == "cache on the far side":
        return settings.but(offload_kqv=False)
    if fault == "wrong cache type":
        return settings.but(type_k=severity.kv_type, type_v=severity.kv_type)
    return settings


def _prepare(path: Path, fault: str) -> None:
    """The page cache as it is to be: empty for that fault, full for every other."""
    if fault == "cold page cache":
        close_engines_with_model(path)
        page_cache.empty_cache(path)
    else:
        page_cache.fill_cache(path)


@contextmanager
def _rivals(fault: str, severity: Severity) -> Iterator[None]:
    """Processes that compute nothing as fast as they can; they end with the block, and with this process."""
    n_rivals = (severity.n_rivals or physical_cores()) if fault == "competing load" else 0
    command = [sys.executable, "-S", "-c", RIVAL.format(os.getpid())]
    rivals = [subprocess.Popen(command) for _ in range(n_rivals)]
    try:
        yield
    finally:
        for rival in rivals:
            rival.kill()
            rival.wait()


def _tiny() -> Path:
    from inferlab.model.find import tiny_model

    return tiny_model()
