"""A fit as one JSON object, the same for `inferlab plan --json` and for a page."""

from __future__ import annotations

from typing import Any

from inferlab.prediction.fit import Fit
from inferlab.prediction.memory.plan import DeviceBytes
from inferlab.prediction.search import SettingThatFits
from inferlab.prediction.steps import SettingStep


def plan_fields(fit: Fit) -> dict[str, Any]:
    """What a fit found, in JSON's kinds; sizes in bytes, null where unknown.

    devices        the four kinds of bytes on each; compute_bytes is null for a bound, see compute_range
    compute_range  least and most compute bytes of each device of a bound
    rooms          for each memory its devices, what is free and usable there, the least and most that the plan needs (a
                   compute buffer of unknown size left out), and what the most leaves
    ram            RAM that was given as a whole, what of it is for the system, and what llama-server's cache of prompts
                   may grow to; null where it was not given
    answers        by largest_n_ctx, most_layers, cache_type, expert_layers, which is null for a model without experts,
                   and weights_type, which is null but for a known model
    steps          see `steps.SettingStep`; empty where none were asked for
    """
    plan = fit.plan
    return {
        "model": {"name": plan.model.name, "n_params": plan.model.n_params, "tensor_bytes": plan.model.tensor_bytes},
        "method": plan.method,
        "devices": {device: _device_fields(held) for device, held in plan.devices.items()},
        "fits": fit.fits,
        "settings": plan.settings.to_dict(),
        "compute_range": {device: {"least": ends[0], "most": ends[1]} for device, ends in plan.compute_range.items()},
        "rooms": {memory: _memory_fields(fit, memory) for memory in fit.usable_bytes},
        "reserve_bytes": fit.reserve_bytes,
        "margin_bytes": fit.margin_bytes,
        "ram": _ram_fields(fit),
        "notes": list(plan.notes),
        "answers": {
            "largest_n_ctx": _answer_fields(fit.largest_n_ctx),
            "most_layers": _answer_fields(fit.most_layers),
            "cache_type": _answer_fields(fit.cache_type),
            "expert_layers": _answer_fields(fit.expert_layers) if fit.expert_layers else None,
            "weights_type": _answer_fields(fit.weights_type) if fit.weights_type else None,
        },
        "steps": [_step_fields(step) for step in fit.steps],
    }


def _device_fields(held: DeviceBytes) -> dict[str, int | None]:
    return {f"{kind}_bytes": n_bytes for kind, n_bytes in held.parts.items()}


def _memory_fields(fit: Fit, memory: str) -> dict[str, Any]:
    usable, most = fit.usable_bytes[memory], fit.plan.most_bytes(memory)
    return {
        "devices": list(fit.plan.devices_in(memory)),
        "free_bytes": fit.free_bytes[memory],
        "room_bytes": usable,
        "least_bytes": fit.plan.least_bytes(memory),
        "most_bytes": most,
        "margin_bytes": None if usable is None else usable - most,
    }


def _ram_fields(fit: Fit) -> dict[str, int | None] | None:
    if fit.ram is None:
        return None
    cache = fit.prompt_cache_bytes(fit.plan)
    return {"bytes": fit.ram.n_bytes, "system_bytes": fit.ram.system_bytes, "prompt_cache_bytes": cache}


def _answer_fields(answer: SettingThatFits) -> dict[str, Any]:
    return {"value": answer.value, "margin_bytes": answer.margin_bytes, "reason": answer.reason}


def _step_fields(step: SettingStep) -> dict[str, Any]:
    return {
        "setting": step.setting,
        "value": step.value,
        "difference_bytes": step.difference_bytes,
        "difference_range": {"least": step.least_bytes, "most": step.most_bytes},
        "fits": step.fits,
    }
