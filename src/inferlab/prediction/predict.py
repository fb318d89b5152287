"""Predicts memory and speed of a model before it is loaded.

A memory plan names its method:
closed form  weights and cache from the header, compute buffers from `memory.compute` where it is exact
oracle       the compute buffers (and an unusual cache) from llama.cpp's own simulation
bound        weights and cache exact, least and most compute bytes: for a card that is not on this machine, or for
             attention that the simulation assigns to the wrong device
partial      weights and cache exact, compute buffers unknown: no formula holds for them, and nothing was simulated
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from inferlab.errors import InvalidSettings
from inferlab.machine import HOST_DEVICE, Link, Machine
from inferlab.model.catalog import KnownModel
from inferlab.model.gguf import Model
from inferlab.model.named import model_named
from inferlab.prediction.calibration import Calibration
from inferlab.prediction.extrapolation import extrapolations
from inferlab.prediction.memory import MemoryPlan
from inferlab.prediction.memory.assembly import closed_form
from inferlab.prediction.memory.bound import bound
from inferlab.prediction.memory.request import MemoryRequest, can_simulate, request_for
from inferlab.prediction.memory.simulated import from_simulation
from inferlab.prediction.rates import DeviceKey, DeviceRates
from inferlab.prediction.speed import PlacedModel, SpeedPlan, StepPlan, Term, weight_limits
from inferlab.settings import Settings
from inferlab.units import count_text

RESERVES = ("llama-cpp-python", "llama-server")


def predict_memory(
    model: Model | KnownModel | str | Path,
    settings: Settings,
    machine: Machine | None = None,
    reserve: str = "llama-cpp-python",
    simulate: bool = True,
    as_cuda: bool = False,
) -> MemoryPlan:
    """Bytes of weights, KV cache, compute and output on each device and in each layer; nothing is loaded.

    `model` is a file, a header read before, or a known model, itself or by name (as Q4_K_M). Of a file the plan is for
    this machine, of any other model for no GPU, unless a machine is given; `planned_for` of the plan names it. It has
    the machine's GPUs and the devices of `settings.rpc_servers`. A machine's instruction sets decide which host weights
    are repacked; where they are unknown, `host_weights` has every kind of processor.
    `reserve` names the program that makes the context: llama-server reserves memory for fewer logits than
    llama-cpp-python and `lab.measure`. Without `simulate` llama.cpp is never asked, even where it is installed.
    `as_cuda` plans cards of every backend as CUDA's, with a note; else one that was never compared is refused.
    Raises InvalidSettings without n_ctx, UnsupportedArchitecture where neither closed form nor simulation is valid for
    the KV cache, or a card's backend was never compared.
    """
    if reserve not in RESERVES:
        raise InvalidSettings(f"reserve={reserve!r} is not one of {', '.join(RESERVES)}.")
    model, per_sequence = model_named(model), reserve == "llama-server"
    machine = machine or (machine_with(model) if simulate else None)
    return plan_of(request_for(model, settings, machine, per_sequence, simulate, as_cuda))


def machine_with(model: Model) -> Machine | None:
    """This machine, if the model is a file on it and llama.cpp can be asked; else None."""
    if model.file is None or not can_simulate():
        return None
    from inferlab.engine.session import this_machine

    return this_machine()


def plan_of(request: MemoryRequest) -> MemoryPlan:
    """The plan by formulas where these are exact, else from llama.cpp's simulation where that is valid, else a bound.

    Raises UnsupportedArchitecture as `predict_memory`.
    """
    request = request.settled()
    return closed_form(request) if request.has_closed_form else from_simulation(request) or bound(request)


def simulated_memory(
    model: Model | str | Path, settings: Settings, machine: Machine | None = None, as_cuda: bool = False
) -> MemoryPlan | None:
    """The plan of `predict_memory` from llama.cpp's simulation even where a closed form answers, to verify that one.

    None where no simulation is valid or llama.cpp cannot be asked. Raises as `predict_memory`, and EngineError.
    """
    model = model_named(model)
    return from_simulation(request_for(model, settings, machine or machine_with(model), as_cuda=as_cuda).settled())


def predict_speed(
    model: Model | KnownModel | str | Path,
    settings: Settings,
    calibration: Calibration | None = None,
    n_prompt: int = 512,
    n_gen: int = 128,
    machine: Machine | None = None,
    link: Link | None = None,
) -> SpeedPlan:
    """Tokens per second of prefill and decode, with bands and the largest term of each; nothing is loaded.

    calibration  the measured rates of a machine (None: those that `lab.calibrate()` saved)
    link         of an RPC device (None: as measured when this session's loopback device started, or unslowed)
    n_gen        tokens generated after the prompt; decode is predicted for the middle one
    The bytes are those of `predict_memory`; `speed` computes the seconds.
    Raises InvalidSettings where a device was not calibrated, RecordError without a calibration,
    UnsupportedArchitecture for a KV cache that has no formula.
    """
    model = model_named(model)
    settings = settings if settings.n_ctx else settings.but(n_ctx=n_prompt + n_gen)
    request = request_for(model, settings, machine)
    if request.shares_tensors:
        raise InvalidSettings(
            "split_mode='tensor' cannot be timed in advance: the sums between devices in each layer have no measured "
            "rate here. Predict the memory, or predict the speed with split_mode='layer'."
        )
    calibration, link = calibration or Calibration.load(), link or _link_to(settings)
    names = {f"gpu{i}": calibration.calibrated_name(gpu) for i, gpu in enumerate(request.gpus)}
    rates = {HOST_DEVICE: calibration.host(settings.n_threads)} | {
        device: calibration.rates(name) for device, name in names.items()
    }
    links = {device: calibration.link(name, link) for device, name in names.items()}
    placed_model = PlacedModel(model, settings, request.layer_devices(), rates, links, request.moved)
    place = next(iter(names.values()), DeviceKey.from_parts(HOST_DEVICE, rates[HOST_DEVICE].n_threads or 1))
    decode = _step(calibration, place, "decode", 1, placed_model.decode(n_prompt + n_gen // 2))
    overlap = placed_model.overlap(n_prompt)
    prefill = _step(calibration, place, "prefill", n_prompt, placed_model.prefill(n_prompt), overlap)
    notes = extrapolations(placed_model, calibration, n_prompt + n_gen) + _threads_notes(settings, rates)
    return SpeedPlan(model.card(), settings, n_prompt, n_gen, prefill, decode, weight_limits(rates, decode), notes)


def _step(
    calibration: Calibration, place: str, phase: str, n_tokens: int, terms: Iterable[Term], overlap: float = 0.0
) -> StepPlan:
    """A step with its terms corrected by what models take longer than their operations there, and the phase's band."""
    factor = calibration.correction(phase, place)
    corrected = tuple(replace(term, seconds=factor * term.seconds) for term in terms)
    return StepPlan(n_tokens, corrected, calibration.bands[phase], factor * overlap)


def _threads_notes(settings: Settings, rates: Mapping[str, DeviceRates]) -> tuple[str, ...]:
    """A sentence where this session's loopback device computes with another number of threads than was calibrated."""
    if not settings.rpc_servers:
        return ()
    from inferlab.engine.loopback import loopback_at

    measured = next((each.n_threads for device, each in rates.items() if device != HOST_DEVICE), None)
    found = (device.n_threads for device in map(loopback_at, settings.rpc_servers) if device)
    return tuple(
        f"Not calibrated for this: {count_text(n, 'thread')} on the loopback device, and {measured} measured."
        for n in found
        if measured not in (None, n)
    )


def _link_to(settings: Settings) -> Link | None:
    """The link of the first loopback device of this session among the settings' RPC servers; None without any."""
    if not settings.rpc_servers:
        return None
    from inferlab.engine.loopback import links_to

    return next(iter(links_to(settings.rpc_servers)), None)
