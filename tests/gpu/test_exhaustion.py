"""Memory that really runs out: of weights, of the cache, of the compute buffer, in llama.cpp's and the driver's words.

On a card another process holds the rest of its memory. A software driver allocates from the process's own memory,
which the kernel limits (RLIMIT_DATA), so that the driver refuses as a full card does.
"""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from small_models import write_model

from inferlab.engine.client import LlamaEngine
from inferlab.engine.limit_vram import limit_vram
from inferlab.errors import DeviceUnavailable, EngineCrashed, EngineRefused
from inferlab.log_reader import explain
from inferlab.model.gguf import read_gguf
from inferlab.prediction.memory.plan import MemoryPlan
from inferlab.prediction.predict import predict_memory
from inferlab.settings import Settings
from inferlab.units import MIB

WIDE = {"n_layer": 8, "n_embd": 2048, "n_ff": 8192, "n_head": 16, "n_head_kv": 16, "head_dim": 128, "n_vocab": 8000}
ASKED = Settings(n_ctx=8192, n_batch=4000, n_ubatch=4000, flash_attn="on", load_mode="none")
SLACK = 64 * MIB
"""Of a software driver's process, for what is in no buffer."""
PARTS = {
    "weights": ("weights-do-not-fit", "unable to allocate {device} buffer"),
    "kv_cache": ("cache-does-not-fit", "failed to allocate buffer for kv cache"),
    "compute": ("compute-does-not-fit", "failed to allocate compute pp buffers"),
}
"""What is missing -> the finding of the log reader, and llama.cpp's words."""
DRIVER = {"Vulkan": "ErrorOutOfDeviceMemory", "CUDA": "cudaMalloc failed: out of memory"}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A model with large parts of each kind: zeros for weights, and none of it on disk."""
    return write_model(tmp_path_factory.mktemp("model") / "wide.gguf", "llama", **WIDE)


@pytest.fixture
def plan(model, machine) -> MemoryPlan:
    return predict_memory(read_gguf(model), ASKED, machine)


def room_until(plan: MemoryPlan, missing: str) -> int:
    """Bytes for all parts before `missing`, and for half of that one."""
    parts, order = plan.devices["gpu0"].parts, list(PARTS)
    return sum(parts[part] for part in order[: order.index(missing)]) + parts[missing] // 2


@contextmanager
def with_room(gpu, engine: LlamaEngine, plan: MemoryPlan, n_bytes: int) -> Iterator[None]:
    """The device with so many bytes for a model."""
    if not gpu.is_software:
        with limit_vram(n_bytes + SLACK, gpu.name, engine=engine):
            yield
        return
    engine.machine()
    host = plan.devices["host"]
    held = private_bytes(engine.pid) + host.weights_bytes + host.compute_bytes + host.output_bytes
    resource.prlimit(engine.pid, resource.RLIMIT_DATA, (held + n_bytes + SLACK, resource.RLIM_INFINITY))
    yield


def private_bytes(pid: int) -> int:
    """Bytes of data that a process has mapped (proc_pid_status(5))."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmData")))


@pytest.mark.parametrize("missing", PARTS)
def test_each_part_is_refused_in_words_that_the_log_reader_knows(missing, gpu, engine, model, plan, record_property):
    """The engine raises with llama.cpp's own lines, the reader's finding names the part, and the session goes on."""
    finding, words = PARTS[missing]
    try:
        with with_room(gpu, engine, plan, room_until(plan, missing)), pytest.raises(EngineRefused) as refused:
            engine.open(model, ASKED)
    except DeviceUnavailable as unlimited:
        pytest.skip(f"This card's memory cannot be limited: {unlimited}")
    log = refused.value.log
    record_property("found", f"{missing}: " + " | ".join(line for line in log.splitlines() if "alloc" in line.lower()))
    assert words.format(device=gpu.name) in log
    assert DRIVER[gpu.backend] in log
    assert finding in {found.id for found in explain(log).findings}
    engine.close()
    assert engine.open(model, ASKED.but(n_ctx=256, n_batch=256, n_ubatch=256)).buffers


def test_a_plan_says_before_what_will_not_fit(gpu, plan):
    """The numbers that the loads above were refused by."""
    whole = sum(plan.devices["gpu0"].parts.values())
    for missing in PARTS:
        assert room_until(plan, missing) < whole
        assert plan.fits({"gpu0": room_until(plan, missing)}) == "no"


def test_memory_that_runs_out_while_a_token_is_computed(gpu, engine, model, record_property):
    """The driver or llama.cpp ends the worker; the session raises, and the next load works."""
    if not gpu.is_software:
        pytest.skip("A card's memory is allocated before the first token.")
    asked = ASKED.but(n_ctx=512, n_batch=512, n_ubatch=512)
    engine.open(model, asked)
    held = private_bytes(engine.pid)
    resource.prlimit(engine.pid, resource.RLIMIT_DATA, (held, resource.RLIM_INFINITY))
    with pytest.raises(EngineCrashed) as ended:
        engine.generate(engine.random_prompt(512), 4)
    record_property("found", str(ended.value).splitlines()[0])
    engine.open(model, asked)
    assert len(engine.generate(engine.random_prompt(16), 2).tokens) == 2
