"""Selects the devices that given settings use, in llama.cpp's order; settings that llama.cpp would ignore are refused.

RPC devices come first, then GPUs, each once even if two backends list it; integrated GPUs are used only where there is
no other. Named devices are used in the order of their names in the settings.
With split_mode "tensor" the order is ggml's own, RPC devices last, and every device counts that is not the processor.
Source: llama_prepare_model_devices, src/llama.cpp:150-305.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from inferlab.errors import InvalidSettings
from inferlab.machine import HOST_BUFFER, Device
from inferlab.settings import Settings

SPLIT_BUFFERS = frozenset(["SYCL", "HTP"])
"""Backends with buffers for split_mode "row": only they answer to ggml_backend_split_buffer_type (ggml-sycl.cpp:7229,
ggml-hexagon.cpp:8095); any other ends the load (llama-model.cpp:1144-1163)."""


def used_devices(settings: Settings, devices: Iterable[Device]) -> tuple[Device, ...]:
    """The devices that `settings` use out of a machine's `devices`, in the order of its plans: gpu0, gpu1, ...

    Raises InvalidSettings for a device that does not exist or is named twice, for a main_gpu without a device, for a
    tensor_split that has no effect or whose number of shares differs from the number of devices, and for a split_mode
    that the devices cannot take.
    """
    devices = tuple(devices)
    tensors = settings.split_mode == "tensor"
    if settings.devices is None:
        used = _sharing_tensors(devices) if tensors else available(devices)
    else:
        used = _named(settings.devices, devices)
    _require_mode(settings, used)
    _require_shares(settings, used)
    return _main_device(settings, used)


def available(devices: Iterable[Device]) -> tuple[Device, ...]:
    """All that llama.cpp uses when no device is named."""
    gpus = [device for device in devices if device.kind in ("gpu", "igpu")]
    rpc = [device for device in gpus if device.backend == "RPC"]
    local = [device for device in gpus if device.backend != "RPC"]
    cards = [device for device in local if device.kind == "gpu"]
    return (*rpc, *_without_duplicates(cards or local))


def require_buffers(settings: Settings, used: Sequence[Device]) -> None:
    """Refuse an override_tensor to memory of which no used device is; llama.cpp would stop where it has to compute.

    A buffer has the name of its device; that of an RPC device has the endpoint behind it: RPC0[127.0.0.1:50052].
    With split_mode "tensor" the devices are one to llama.cpp's graph, which has no memory of a single one.
    """
    known = {HOST_BUFFER, *(device.name for device in used if settings.split_mode != "tensor")}
    for text in settings.override_tensor:
        pattern, buffer = text.split("=", 1)
        if buffer.split("[")[0] not in known:
            raise InvalidSettings(
                f"override_tensor puts {pattern!r} into {buffer!r}, which is no memory of this request. There are: "
                f"{', '.join(sorted(known))}."
            )


def _sharing_tensors(devices: Sequence[Device]) -> tuple[Device, ...]:
    """All devices that are not the processor, for split_mode "tensor" where none is named.

    Raises InvalidSettings where llama.cpp would take one that it leaves out in other modes: a card's second entry, from
    another backend, or an integrated GPU (src/llama.cpp:191-211).
    """
    sharing = tuple(device for device in devices if device.kind in ("gpu", "igpu"))
    extra = [device for device in sharing if device not in available(devices)]
    if extra:
        others = tuple(device.name for device in sharing if device not in extra)
        raise InvalidSettings(
            f"split_mode='tensor' without devices: llama.cpp would also give a part of each matrix to "
            f"{', '.join(device.name for device in extra)}, which it leaves out in other modes. "
            f"Name the devices that you mean: devices={others!r}."
        )
    return sharing


def _require_mode(settings: Settings, used: Sequence[Device]) -> None:
    """Refuse a split_mode for which there is no device, or that a device has no buffers for."""
    mode = settings.split_mode
    if mode not in ("row", "tensor"):
        return
    if not used:
        did = "would ignore it" if mode == "row" else "would not load the model"
        raise InvalidSettings(
            f"split_mode={mode!r}, but this request uses no devices, and llama.cpp {did}. Leave it out."
        )
    without = [device for device in used if device.backend not in SPLIT_BUFFERS]
    if mode == "row" and without:
        raise InvalidSettings(
            f"split_mode='row': device {without[0].name} does not support split buffers, so llama.cpp would not load "
            f"the model. Of its backends only {' and '.join(sorted(SPLIT_BUFFERS, reverse=True))} take 'row'. Use "
            "'layer' or 'tensor'."
        )


def _without_duplicates(cards: Sequence[Device]) -> list[Device]:
    """The GPUs without those that another backend lists at the same PCI id; one backend may list a card twice."""

    def seen_before(i: int) -> bool:
        pci_id, backend = cards[i].id, cards[i].backend
        return pci_id is not None and any(c.id == pci_id and c.backend != backend for c in cards[:i])

    return [card for i, card in enumerate(cards) if not seen_before(i)]


def _named(names: Sequence[str], devices: Sequence[Device]) -> tuple[Device, ...]:
    known = {device.name: device for device in devices}
    for name in names:
        if name not in known:
            raise InvalidSettings(f"There is no device {name!r}. llama.cpp sees: {', '.join(known) or 'none'}.")
    if len(set(names)) < len(names):
        raise InvalidSettings(
            f"devices={tuple(names)!r} names a device twice. Name each once; tensor_split says how much each gets."
        )
    return tuple(known[name] for name in names)


def _require_shares(settings: Settings, used: Sequence[Device]) -> None:
    """Refuse a wrong number of shares: llama.cpp ignores extra ones and leaves devices without one unused.

    Source: llama-model.cpp:1557-1576.
    """
    shares = settings.tensor_split
    if shares is not None and settings.split_mode == "none":
        raise InvalidSettings(
            f"tensor_split={shares!r} has no effect with split_mode='none': llama.cpp puts everything on one device. "
            "Leave one of the two out."
        )
    if shares is not None and len(shares) != len(used):
        raise InvalidSettings(
            f"tensor_split={shares!r} has {_count_text(len(shares), 'share')}, but this request uses "
            f"{_count_text(len(used), 'device')}{_names_text(used)}. Give one share for each, in this order."
        )


def _main_device(settings: Settings, used: tuple[Device, ...]) -> tuple[Device, ...]:
    """The one device of split_mode='none'; all devices in other modes, which ignore main_gpu."""
    index = settings.main_gpu
    if settings.split_mode != "none":
        if index and used:
            raise InvalidSettings(
                f"main_gpu={index} chooses a device only with split_mode='none'; with {settings.split_mode!r} this "
                f"request uses {_count_text(len(used), 'device')}{_names_text(used)}. "
                "Name the one you mean: devices=(...,)."
            )
        return used
    if index >= len(used) and (used or index):
        available_text = (
            f"there are only {len(used)} devices, counted from 0{_names_text(used)}" if used else "there is no device"
        )
        raise InvalidSettings(f"main_gpu={index}, but {available_text}.")
    return used[index : index + 1]


def _count_text(n: int, what: str) -> str:
    return f"{n or 'no'} {what}{'' if n == 1 else 's'}"


def _names_text(devices: Sequence[Device]) -> str:
    """` (CUDA0, CUDA1)`, each with its PCI id where that is known."""
    names = (f"{device.name} at {device.id}" if device.id else device.name for device in devices)
    return f" ({', '.join(names)})" if devices else ""
