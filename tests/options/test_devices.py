"""Several devices: the ones that are meant, in llama.cpp's order, or an error; never another in silence."""

from dataclasses import replace

import pytest
from small_models import write_model

from inferlab.engine.client import LlamaEngine
from inferlab.engine.loopback import loopback_device
from inferlab.errors import EngineRefused, InvalidSettings
from inferlab.machine import Device, pci_id
from inferlab.options.devices import require_buffers, used_devices
from inferlab.settings import Settings

CPU = Device("CPU", "a processor", "cpu", backend="CPU")
ONE = Device("CUDA0", "a card", "gpu", backend="CUDA", id="0000:41:00.0")
OTHER = Device("CUDA1", "another", "gpu", backend="CUDA", id="0000:01:00.0")
AGAIN = Device("Vulkan0", "the first card, seen by Vulkan", "gpu", backend="Vulkan", id="0000:41:00.0")
INSIDE = Device("Vulkan1", "graphics of the processor", "igpu", backend="Vulkan")
ARC = Device("SYCL0", "a card", "gpu", backend="SYCL")
FAR = Device("RPC0", "127.0.0.1:50052", "gpu", backend="RPC")


@pytest.mark.parametrize(
    ("devices", "asked", "used"),
    [
        ((CPU,), {}, []),
        ((CPU, ONE, OTHER), {}, ["CUDA0", "CUDA1"]),
        ((ONE, OTHER, FAR, CPU), {}, ["RPC0", "CUDA0", "CUDA1"]),
        ((ONE, AGAIN, INSIDE), {}, ["CUDA0"]),
        ((ONE, replace(ONE, name="CUDA1"), AGAIN), {}, ["CUDA0", "CUDA1"]),
        ((INSIDE, CPU, FAR), {}, ["RPC0", "Vulkan1"]),
        ((ONE, OTHER), {"devices": ("CUDA1", "CUDA0")}, ["CUDA1", "CUDA0"]),
        ((ONE, OTHER), {"devices": ()}, []),
        ((ONE, OTHER), {"split_mode": "none"}, ["CUDA0"]),
        ((ONE, OTHER), {"split_mode": "none", "main_gpu": 1}, ["CUDA1"]),
        ((ONE, OTHER, FAR), {"split_mode": "none", "main_gpu": 1}, ["CUDA0"]),
        ((ONE, OTHER), {"split_mode": "none", "main_gpu": 1, "devices": ("CUDA1", "CUDA0")}, ["CUDA0"]),
        ((ONE, OTHER), {"tensor_split": (0, 1)}, ["CUDA0", "CUDA1"]),
        ((CPU,), {"split_mode": "none"}, []),
        ((ONE, OTHER, FAR, CPU), {"split_mode": "tensor"}, ["CUDA0", "CUDA1", "RPC0"]),
        ((ONE, AGAIN, INSIDE), {"split_mode": "tensor", "devices": ("CUDA0",)}, ["CUDA0"]),
        ((ARC, CPU), {"split_mode": "row"}, ["SYCL0"]),
    ],
)
def test_devices_are_used_in_llama_cpps_order(devices, asked, used):
    """RPC first, then cards, each once though two backends see it; main_gpu counts in that order.

    Where devices share each matrix, RPC devices are the last.
    """
    assert [device.name for device in used_devices(Settings(**asked), devices)] == used


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"devices": ("CUDA7",)}, "There is no device 'CUDA7'. llama.cpp sees: CPU, CUDA0, CUDA1"),
        ({"devices": ("CUDA0", "CUDA0")}, "names a device twice"),
        ({"split_mode": "none", "main_gpu": 2}, "there are only 2 devices, counted from 0 (CUDA0 at 0000:41:00.0"),
        ({"main_gpu": 1}, "chooses a device only with split_mode='none'"),
        ({"tensor_split": (1,)}, "has 1 share, but this request uses 2 devices (CUDA0 at 0000:41:00.0, CUDA1 at"),
        ({"tensor_split": (3, 1, 1)}, "has 3 shares, but this request uses 2 devices"),
        ({"tensor_split": (3, 1), "devices": ("CUDA1",)}, "has 2 shares, but this request uses 1 device (CUDA1"),
        ({"tensor_split": (3, 1), "devices": ()}, "has 2 shares, but this request uses no devices."),
        ({"split_mode": "none", "main_gpu": 1, "devices": ()}, "main_gpu=1, but there is no device."),
        ({"split_mode": "none", "tensor_split": (3, 1)}, "has no effect with split_mode='none'"),
        ({"split_mode": "row"}, "device CUDA0 does not support split buffers"),
        ({"split_mode": "row", "devices": ()}, "uses no devices, and llama.cpp would ignore it"),
        ({"split_mode": "tensor", "devices": ()}, "uses no devices, and llama.cpp would not load the model"),
        ({"split_mode": "tensor", "tensor_split": (3,)}, "has 1 share, but this request uses 2 devices"),
        ({"split_mode": "tensor", "main_gpu": 1}, "chooses a device only with split_mode='none'"),
    ],
)
def test_what_llama_cpp_would_pass_over_is_refused(asked, said):
    """A device that is not there, an index beyond the list, shares too few or too many: each is told, with what is."""
    with pytest.raises(InvalidSettings) as refused:
        used_devices(Settings(**asked), (CPU, ONE, OTHER))
    assert said in str(refused.value)


@pytest.mark.parametrize("extra", [AGAIN, INSIDE])
def test_a_part_of_each_matrix_is_not_given_to_a_device_that_other_modes_leave_out(extra):
    """A card that a second backend lists, or a processor's graphics: llama.cpp would count it, so it must be named."""
    with pytest.raises(InvalidSettings, match=rf"to {extra.name}, which .*devices=\('CUDA0',\)"):
        used_devices(Settings(split_mode="tensor"), (CPU, ONE, extra))


def test_a_tensor_cannot_be_moved_to_one_of_the_devices_that_share_each_matrix():
    """To llama.cpp they are one device, which has no memory of a single one; host memory can be named."""
    shared = Settings(split_mode="tensor", override_tensor=("exps=CUDA1",))
    with pytest.raises(InvalidSettings, match="There are: CPU"):
        require_buffers(shared, (ONE, OTHER))
    require_buffers(shared.but(override_tensor=("exps=CPU",)), (ONE, OTHER))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0000:c1:00.0", "0000:c1:00.0"),
        ("00000000:C1:00.0", "0000:c1:00.0"),
        (b"00010000:3B:00.0", "10000:3b:00.0"),
        ("0000:c1:00.0-v1", "0000:c1:00.0"),
        ("", None),
        (None, None),
        ("GPU-5e9a", None),
    ],
)
def test_a_place_on_the_bus_is_written_one_way(text, expected):
    """NVML, ggml and ggml's virtual devices write the same place in three ways."""
    assert pci_id(text) == expected


@pytest.mark.engine
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"tensor_split": (1, 1)}, "has 2 shares, but this request uses 1 device (RPC0)"),
        ({"main_gpu": 1, "split_mode": "none"}, "there are only 1 devices, counted from 0 (RPC0)"),
        ({"main_gpu": 1}, "chooses a device only with split_mode='none'"),
        ({"devices": ("RPC0", "RPC3")}, "There is no device 'RPC3'"),
        ({"split_mode": "tensor", "tensor_split": (1, 1)}, "has 2 shares, but this request uses 1 device (RPC0)"),
    ],
)
def test_the_engine_refuses_the_same_before_anything_is_loaded(asked, said, tmp_path):
    """The worker asks llama.cpp which devices there are, and says what it found."""
    path = write_model(tmp_path / "m.gguf", "llama-tied")
    with loopback_device(n_threads=1) as device:
        engine = LlamaEngine()
        with pytest.raises(EngineRefused) as refused:
            engine.open(path, device.settings(Settings(n_ctx=256, **asked)))
        engine.close()
    assert said in str(refused.value)
    assert "buffer size" not in refused.value.log


@pytest.mark.engine
def test_other_visible_gpus_need_another_worker(monkeypatch):
    """A running worker does not see CUDA_VISIBLE_DEVICES change, so the next question has a new one."""
    engine = LlamaEngine()
    engine.machine()
    first = engine.pid
    engine.machine()
    assert engine.pid == first
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    engine.machine()
    assert engine.pid != first
    engine.close()
