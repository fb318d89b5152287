"""A fit as one JSON object, the same for `inferlab plan --json` and for a page."""

from __future__ import annotations

from typing import Any

from inferlab.prediction.fit import Fit
from inferlab.prediction.memory.plan import DeviceBytes
from inferlab.prediction.search import Answer
from inferlab.prediction.steps import Step


def plan_fields(found: Fit) -> dict[str, Any]:
    """What a fit found, in JSON's kinds; sizes in bytes, null where unknown.

    devices        the four kinds of bytes on each; compute_bytes is null for a bound, see compute_range
    compute_range  least and most compute bytes of each device of a bound
    rooms          for each room its devices, what is free and usable there, the least and most that the plan needs (a
                   compute buffer of unknown size left out), and what the most leaves
    answers        by largest_n_ctx, most_layers, cache_type, expert_layers, which is null for a model without experts,
                   and weights_type, which is null but for a known model
    steps          see `steps.Step`; empty where none were asked for
    """
    plan = found.plan
    return {
        "model": {"name": plan.model.name, "n_params": plan.model.n_params, "tensor_bytes": plan.model.tensor_bytes},
        "method": plan.method,
        "devices": {device: _device_fields(held) for device, held in plan.devices.items()},
        "fits": found.fits,
        "settings": plan.settings.to_dict(),
        "compute_range": {device: {"least": ends[0], "most": ends[1]} for device, ends in plan.compute_range.items()},
        "rooms": {room: _room_fields(found, room) for room in found.room_bytes},
        "reserve_bytes": found.reserve_bytes,
        "margin_bytes": found.margin_bytes,
        "notes": list(plan.notes),
        "answers": {
            "largest_n_ctx": _answer_fields(found.largest_n_ctx),
            "most_layers": _answer_fields(found.most_layers),
            "cache_type": _answer_fields(found.cache_type),
            "expert_layers": _answer_fields(found.expert_layers) if found.expert_layers else None,
            "weights_type": _answer_fields(found.weights_type) if found.weights_type else None,
        },
        "steps": [_step_fields(step) for step in found.steps],
    }


def _device_fields(held: DeviceBytes) -> dict[str, int | None]:
    return {f"{kind}_bytes": n_bytes for kind, n_bytes in held.parts.items()}


def _room_fields(found: Fit, room: str) -> dict[str, Any]:
    usable, most = found.room_bytes[room], found.plan.most_bytes(room)
    return {
        "devices": list(found.plan.devices_in(room)),
        "free_bytes": found.free_bytes[room],
        "room_bytes": usable,
        "least_bytes": found.plan.least_bytes(room),
        "most_bytes": most,
        "margin_bytes": None if usable is None else usable - most,
    }


def _answer_fields(answer: Answer) -> dict[str, Any]:
    return {"value": answer.value, "margin_bytes": answer.margin_bytes, "reason": answer.reason}


def _step_fields(step: Step) -> dict[str, Any]:
    return {
        "setting": step.setting,
        "value": step.value,
        "difference_bytes": step.difference_bytes,
        "difference_range": {"least": step.least_bytes, "most": step.most_bytes},
        "fits": step.fits,
    }
