"""A GPU without NVML: found by name and kind, with its memory, by the doctor and by the engine."""

import re

from inferlab.doctor import check_machine
from inferlab.engine.limit_vram import limit_vram
from inferlab.errors import DeviceUnavailable
from inferlab.measurement.run import measure
from inferlab.model.find import tiny_model
from inferlab.settings import Settings
from inferlab.units import MIB, bytes_text

LEAST_HELD = 256 * MIB


def test_the_device_is_named_with_its_kind_and_its_memory(gpu, record_property):
    """ggml gives name, kind, size and what is free; a software driver is known as one."""
    assert re.fullmatch(r"(CUDA|ROCm|Vulkan|SYCL|MTL)\d+", gpu.name)
    assert gpu.kind in ("gpu", "igpu")
    assert gpu.backend
    assert gpu.name.startswith(gpu.backend)
    assert gpu.is_software == ("llvmpipe" in gpu.description)
    assert 0 < gpu.free_bytes <= gpu.memory_bytes
    limit = f", no tensor above {bytes_text(gpu.largest_tensor_bytes)}" if gpu.largest_tensor_bytes else ""
    record_property("found", f"{gpu.name}, {gpu.description}: {bytes_text(gpu.memory_bytes)}{limit}")


def test_the_doctor_names_it_and_says_what_is_software(gpu):
    """A software driver is no GPU that a reader could use."""
    found = {finding.subject: finding.found for finding in check_machine().findings}
    assert gpu.name in found["GPU and llama.cpp"]
    assert ("software on the processor" in found["GPU and llama.cpp"]) == gpu.is_software
    assert gpu.description not in found["GPU and driver"] or not gpu.is_software
    assert gpu.name in found["engine"]


def test_a_limit_takes_the_memory_or_says_why_it_cannot(gpu, engine, record_property):
    """Another process holds the rest of the card; a driver that does not count others' memory is found out."""
    limit, refused, free = gpu.memory_bytes - LEAST_HELD, "", 0
    try:
        with limit_vram(limit, gpu.name, engine=engine):
            free = engine.machine().gpus[0].free_bytes
    except DeviceUnavailable as error:
        refused = str(error)
    record_property("found", refused or f"{bytes_text(free)} free of {bytes_text(gpu.memory_bytes)}")
    if refused:
        assert gpu.backend == "Vulkan"
        assert gpu.name in refused
    else:
        assert 0 < free <= limit


def test_telemetry_without_nvml_is_none_and_says_so(gpu, engine):
    """What no driver reports is unknown, and the run says why; the processor's part is there all the same."""
    run = measure(tiny_model(), Settings(n_ctx=256), n_prompt=64, n_gen=64, repeats=2, engine=engine, telemetry=0.02)
    assert run.samples
    assert any(sample.cpu_percent is not None for sample in run.samples)
    if gpu.backend != "CUDA":
        assert all(sample.gpu_utilization_percent is None for sample in run.samples)
        assert run.sampling.missing
