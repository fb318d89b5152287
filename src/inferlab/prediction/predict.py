"""Plans: what a model will take, said before it is loaded, with the method that said so.

closed form  weights and cache from the header, compute buffers from `memory.compute` where it is exact
oracle       the compute buffers (and an unusual cache) from llama.cpp's own simulation
bound        weights and cache exact, compute between two ends: a card that is not here to be asked, or attention
             that the simulation has on the wrong side
"""

from __future__ import annotations

from pathlib import Path

from inferlab.errors import InvalidSettings
from inferlab.machine import Link, Machine
from inferlab.model.gguf import Model
from inferlab.model.named import model_named
from inferlab.prediction.calibration import Calibration
from inferlab.prediction.memory import MemoryPlan
from inferlab.prediction.memory.placement import HOST
from inferlab.prediction.memory.planner import MemoryPlanner, planned_devices
from inferlab.prediction.speed import Placed, SpeedPlan, StepPlan, limits_of
from inferlab.settings import Settings

RESERVES = ("llama-cpp-python", "llama-server")


def predict_memory(
    model: Model | str | Path,
    settings: Settings,
    machine: Machine | None = None,
    reserve: str = "llama-cpp-python",
) -> MemoryPlan:
    """Bytes of weights, KV cache, compute and output on each device and in each layer; nothing is loaded.

    `model` is a file, a header read before, or the name of a known model (as Q4_K_M). Without a machine there is the
    host alone, and the devices of `settings.rpc_servers`; with one, its GPUs too, here or not.
    `reserve` says whose context it is: llama-server reserves room for fewer logits than llama-cpp-python and
    `lab.measure` do.
    Raises InvalidSettings without n_ctx, UnsupportedArchitecture where neither closed form nor simulation is valid.
    """
    if reserve not in RESERVES:
        raise InvalidSettings(f"reserve={reserve!r} is not one of {', '.join(RESERVES)}.")
    model = model_named(model)
    settings.require_model(model)
    planner = MemoryPlanner(model, settings, planned_devices(settings, machine), reserve == "llama-server")
    return planner.closed_form() or planner.from_oracle() or planner.bound()


def predict_speed(
    model: Model | str | Path,
    settings: Settings,
    calibration: Calibration | None = None,
    n_prompt: int = 512,
    n_gen: int = 128,
    machine: Machine | None = None,
    link: Link | None = None,
) -> SpeedPlan:
    """Rates of prefill and decode, what bounds them, and how far they may be off; nothing is loaded.

    calibration  what the machine was measured to need (None: the one that `lab.calibrate()` kept)
    link         of an RPC device (None: as measured when this session's loopback device started, or unslowed)
    n_gen        tokens generated after the prompt; decode is that of the one in their middle
    The bytes are those of `predict_memory`; the seconds are added up by `speed`.
    Raises InvalidSettings where a device was not calibrated, RecordError without a calibration,
    UnsupportedArchitecture for a KV cache that has no formula.
    """
    model = model_named(model)
    settings.require_model(model)
    calibration = calibration or Calibration.load()
    settings = settings if settings.n_ctx else settings.but(n_ctx=n_prompt + n_gen)
    gpus = planned_devices(settings, machine)
    placed = MemoryPlanner(model, settings, gpus, False).placed()
    link = link or _link_to(settings)
    names = {f"gpu{i}": calibration.name_of(gpu) for i, gpu in enumerate(gpus)}
    rates = {HOST: calibration.host(settings.n_threads)} | {at: calibration.rates(name) for at, name in names.items()}
    ways = {at: calibration.link(name, link) for at, name in names.items()}
    whole = Placed(model, settings, placed, rates, ways)
    decode = StepPlan(1, whole.decode(n_prompt + n_gen // 2), calibration.bands["decode"])
    prefill = StepPlan(n_prompt, whole.prefill(n_prompt), calibration.bands["prefill"], whole.overlap(n_prompt))
    known = {tensor.type for tensor, _ in whole.tensors()} - set.union(*(set(one.types) for one in rates.values()))
    notes = tuple(f"{type} was not calibrated; the nearest type in size stands for it." for type in sorted(known))
    return SpeedPlan(model.card(), settings, n_prompt, n_gen, prefill, decode, limits_of(rates, decode), notes)


def _link_to(settings: Settings) -> Link | None:
    """The slowed link of the first loopback device of this session that a request uses; None without any."""
    if not settings.rpc_servers:
        return None
    from inferlab.engine.loopback import links_to

    return next(iter(links_to(settings.rpc_servers)), None)
