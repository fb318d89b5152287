"""Which devices of a machine a request uses, in llama.cpp's order; what llama.cpp passes over in silence is refused.

RPC devices come first, then GPUs, each once though two backends may see it; GPUs inside a processor only where there
is no other. Named devices are used as they are named. Source: llama_prepare_model_devices, src/llama.cpp:150-305.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from inferlab.errors import InvalidSettings
from inferlab.machine import Device
from inferlab.settings import Settings


def used_devices(settings: Settings, devices: Iterable[Device]) -> tuple[Device, ...]:
    """The devices that `settings` use out of a machine's `devices`, in the order of its plans: gpu0, gpu1, ...

    Raises InvalidSettings for a device that is not there or is named twice, for a main_gpu that would choose none, and
    for a tensor_split that has not one share for each device.
    """
    devices = tuple(devices)
    found = available(devices) if settings.devices is None else _named(settings.devices, devices)
    _require_shares(settings, found)
    return _main(settings, found)


def available(devices: Iterable[Device]) -> tuple[Device, ...]:
    """All that llama.cpp uses when no device is named."""
    graphics = [device for device in devices if device.kind in ("gpu", "igpu")]
    far = [device for device in graphics if device.backend == "RPC"]
    near = [device for device in graphics if device.backend != "RPC"]
    cards = [device for device in near if device.kind == "gpu"]
    return (*far, *_each_once(cards or near))


def _each_once(cards: Sequence[Device]) -> list[Device]:
    """Without those that another backend found before at the same place; one backend may divide a card into several."""

    def seen_before(i: int) -> bool:
        place, backend = cards[i].id, cards[i].backend
        return place is not None and any(c.id == place and c.backend != backend for c in cards[:i])

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
    """Too few shares leave a device unused, and those too many are passed over (llama-model.cpp:1557-1576)."""
    shares = settings.tensor_split
    if shares is not None and len(shares) != len(found):
        raise InvalidSettings(
            f"tensor_split={shares!r} has {_counted(len(shares), 'share')}, but this request uses "
            f"{_counted(len(found), 'device')}{_list(found)}. Give one share for each, in this order."
        )


def _main(settings: Settings, found: tuple[Device, ...]) -> tuple[Device, ...]:
    """The one device of split_mode='none'; elsewhere main_gpu has no say."""
    index = settings.main_gpu
    if settings.split_mode != "none":
        if index and found:
            raise InvalidSettings(
                f"main_gpu={index} chooses a device only with split_mode='none'; with {settings.split_mode!r} this "
                f"request uses {_counted(len(found), 'device')}{_list(found)}. Name the one you mean: devices=(...,)."
            )
        return found
    if index >= len(found) and (found or index):
        there = f"there are only {len(found)} devices, counted from 0{_list(found)}" if found else "there is no device"
        raise InvalidSettings(f"main_gpu={index}, but {there}.")
    return found[index : index + 1]


def _counted(n: int, what: str) -> str:
    return f"{n or 'no'} {what}{'' if n == 1 else 's'}"


def _list(devices: Sequence[Device]) -> str:
    """` (CUDA0, CUDA1)`, each with its place on the bus where that is known."""
    told = (f"{device.name} at {device.id}" if device.id else device.name for device in devices)
    return f" ({', '.join(told)})" if devices else ""
