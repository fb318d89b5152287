"""Fault injection: runs with exactly one known fault, with telemetry, to test a diagnosis.

`observe(fault, model)` starts an engine with a loopback device, makes a first request that loads the model and more
requests that do not, and returns the `Run`, with telemetry from before the load to the last token.
The fault is in no field that a diagnosis uses: it uses samples and token times only.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inferlab.engine.client import LlamaEngine
from inferlab.engine.loopback import LoopbackDevice, loopback_device
from inferlab.engine.registry import close_engines_with_model
from inferlab.errors import InvalidSettings
from inferlab.machine import physical_cores
from inferlab.measurement import page_cache
from inferlab.measurement.base import common_fields, with_context
from inferlab.measurement.run import Run
from inferlab.measurement.telemetry.sampler import TelemetrySampler
from inferlab.model.gguf import read_gguf
from inferlab.prediction.diagnosis import agrees, diagnose
from inferlab.settings import Settings
from studies.faults.study import FAULTS, HEALTHY

INTERVAL_SECONDS = 0.05
BUSY_LOOP = "import os\nwhile os.getppid() == {}: pass"


@dataclass(frozen=True)
class Severity:
    """The degree of those faults that have one.

    gigabytes_per_second  rate of the throttled link
    kv_type               type of keys and values with the wrong cache type
    """

    gigabytes_per_second: float = 0.1
    kv_type: str = "q5_1"


@dataclass(frozen=True)
class Case:
    """One run to diagnose: `number` is shown to the reader, `cause` is the injected fault."""

    number: int
    run: Run
    cause: str


def observe(
    fault: str, model: str | Path, n_prompt: int = 192, n_gen: int = 160, severity: Severity | None = None
) -> Run:
    """Load a model and make two requests, with one fault or with none; returns the `Run`.

    The first pass counts from before the load, so its time to the first token includes the load.
    Without a fault the file is in the page cache, every core computes, and the link is not slowed.
    Raises InvalidSettings for an unknown fault, or for a cold page cache on other systems than Linux; and what
    `measure` raises.
    """
    severity, path = severity or Severity(), Path(model)
    if fault not in (HEALTHY, *FAULTS):
        raise InvalidSettings(f"There is no fault {fault!r}. There are: {', '.join((HEALTHY, *FAULTS))}.")
    if fault == "cold page cache" and not page_cache.ON_LINUX:
        raise InvalidSettings("The page cache can be emptied on Linux only. Observe another fault.")
    with _device(fault, severity) as device, _competing_processes(fault):
        _prepare_page_cache(path, fault)
        return _first_requests(path, _settings(fault, severity, device), n_prompt, n_gen)


def cases(model: str | Path) -> tuple[Case, ...]:
    """One run for each fault that is possible on this system, including healthy, in a random order."""
    order = random.sample(available(), len(available()))
    return tuple(Case(number, observe(fault, model), fault) for number, fault in enumerate(order, 1))


def healthy_baseline(model: str | Path, tries: int = 4, **work: Any) -> Run:
    """A healthy run that agrees within a quarter with the healthy run before it; the last of `tries` if none does."""
    before = observe(HEALTHY, model, **work)
    for _ in range(tries - 1):
        run = observe(HEALTHY, model, **work)
        if agrees(diagnose(run, before).comparison):
            return run
        before = run
    return before


def available() -> tuple[str, ...]:
    """The causes that are possible on this system, healthy first: the page cache can be emptied on Linux only."""
    return (HEALTHY, *(fault for fault in FAULTS if page_cache.ON_LINUX or fault != "cold page cache"))


def _first_requests(path: Path, settings: Settings, n_prompt: int, n_gen: int) -> Run:
    """Start an engine, load the model and make the requests without a warm-up.

    The first pass counts from before the load. Telemetry is taken from then to the end of the last pass.
    """
    with closing(LlamaEngine()) as engine:
        engine.ready()
        with TelemetrySampler(engine.pid, INTERVAL_SECONDS) as sampler:
            called = time.perf_counter()
            opening = engine.open(path, with_context(settings, n_prompt, n_gen))
            prompt = engine.random_prompt(n_prompt)
            waited = time.perf_counter() - called
            passes = [engine.generate(prompt, n_gen) for _ in range(2)]
        with_load = tuple(waited + seconds for seconds in passes[0].token_seconds)
        passes[0] = replace(passes[0], token_seconds=with_load, began=called)
        return Run(
            **common_fields(engine, opening, read_gguf(path)),
            n_prompt=n_prompt,
            n_gen=n_gen,
            passes=tuple(replace(pass_, began=pass_.began - called) for pass_ in passes),
            settled=None,
            load=opening.phases,
            samples=tuple(replace(sample, seconds=sample.seconds - called) for sample in sampler.samples),
            sampling=sampler.sampling,
        )


def _device(fault: str, severity: Severity) -> AbstractContextManager[LoopbackDevice]:
    rate = severity.gigabytes_per_second if fault == "throttled link" else None
    return loopback_device(rate, n_threads=1 if fault == "one thread" else physical_cores())


def _settings(fault: str, severity: Severity, device: LoopbackDevice) -> Settings:
    settings = device.settings(Settings(flash_attn="on"))
    if fault == "cache on the far side":
        return settings.but(offload_kqv=False)
    if fault == "wrong cache type":
        return settings.but(type_k=severity.kv_type, type_v=severity.kv_type)
    return settings


def _prepare_page_cache(path: Path, fault: str) -> None:
    """Empty the page cache for the fault "cold page cache"; fill it for every other."""
    if fault == "cold page cache":
        close_engines_with_model(path)
        page_cache.empty_cache(path)
    else:
        page_cache.fill_cache(path)


@contextmanager
def _competing_processes(fault: str) -> Iterator[None]:
    """One process for each core that keeps it busy; they end with the block, and with this process."""
    n_processes = physical_cores() if fault == "competing load" else 0
    command = [sys.executable, "-S", "-c", BUSY_LOOP.format(os.getpid())]
    processes = [subprocess.Popen(command) for _ in range(n_processes)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
