"""Selects the devices that given settings use, in llama.cpp's order; settings that llama.cpp would ignore are refused.

RPC devices come first, then GPUs, each once even if two backends list it; integrated GPUs are used only where there is
no other. Named devices are used in the order of their names in the settings.
Source: llama_prepare_model_devices, src/llama.cpp:150-305.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from inferlab.errors import InvalidSettings
from inferlab.machine import Device
from inferlab.settings import HOST_BUFFER, Settings


def used_devices(settings: Settings, devices: Iterable[Device]) -> tuple[Device, ...]:
    """The devices that `settings` use out of a machine's `devices`, in the order of its plans: gpu0, gpu1, ...

    Raises InvalidSettings for a device that does not exist or is named twice, for a main_gpu without a device, and for
    a tensor_split whose number of shares differs from the number of devices.
    """
    devices = tuple(devices)
    found = available(devices) if settings.devices is None else _named(settings.devices, devices)
    _require_shares(settings, found)
    return _main_device(settings, found)


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
    """
    known = {HOST_BUFFER, *(device.name for device in used)}
    for text in settings.override_tensor:
        pattern, buffer = text.split("=", 1)
        if buffer.split("[")[0] not in known:
            raise InvalidSettings(
                f"override_tensor puts {pattern!r} into {buffer!r}, which is no memory of this request. There are: "
                f"{', '.join(sorted(known))}."
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
        raise InvalidSettings(f"devices={tuple(names)!r} names a device twice. Name each once; tensor_split says how "
                              "much each gets.")  # fmt: skip
    return tuple(known[name] for name in names)


def _require_shares(settings: Settings, found: Sequence[Device]) -> None:
    """Refuse a wrong number of shares: llama.cpp ignores extra ones and leaves devices without one unused.

    Source: llama-model.cpp:1557-1576.
    """
    shares = settings.tensor_split
    if shares is not None and len(shares) != len(found):
        raise InvalidSettings(
            f"tensor_split={shares!r} has {_count_text(len(shares), 'share')}, but this request uses "
            f"{_count_text(len(found), 'device')}{_names_text(found)}. Give one share for each, in this order."
        )


def _main_device(settings: Settings, found: tuple[Device, ...]) -> tuple[Device, ...]:
    """The one device of split_mode='none'; all devices in other modes, which ignore main_gpu."""
    index = settings.main_gpu
    if settings.split_mode != "none":
        if index and found:
            raise InvalidSettings(
                f"main_gpu={index} chooses a device only with split_mode='none'; with {settings.split_mode!r} this "
                f"request uses {_count_text(len(found), 'device')}{_names_text(found)}. "
                "Name the one you mean: devices=(...,)."
            )
        return found
    if index >= len(found) and (found or index):
        available_text = (
            f"there are only {len(found)} devices, counted from 0{_names_text(found)}"
            if found
            else "there is no device"
        )
        raise InvalidSettings(f"main_gpu={index}, but {available_text}.")
    return found[index : index + 1]


def _count_text(n: int, what: str) -> str:
    return f"{n or 'no'} {what}{'' if n == 1 else 's'}"


def _names_text(devices: Sequence[Device]) -> str:
    """` (CUDA0, CUDA1)`, each with its PCI id where that is known."""
    names = (f"{device.name} at {device.id}" if device.id else device.name for device in devices)
    return f" ({', '.join(names)})" if devices else ""
