"""Measure, predict and explain local LLM inference on the machine in front of you.

`import inferlab as lab` costs nothing: each name below is loaded from its room on first use.
"""

from importlib import import_module

__version__ = "0.1.0"

_ROOM_OF = {
    "Buffer": "engine",
    "Calibration": "calibration",
    "Checkup": "checkup",
    "ColdStart": "coldstart",
    "Depths": "depths",
    "Device": "machine",
    "DraftModel": "drafting",
    "Entry": "engine",
    "Fidelity": "divergence",
    "Fit": "fitting",
    "Foreseer": "drafting",
    "ForgetfulEngine": "forgetting",
    "InferlabError": "errors",
    "Limit": "withholding",
    "Link": "machine",
    "LoopbackDevice": "loopback",
    "Machine": "machine",
    "MemoryPlan": "memory",
    "Model": "gguf",
    "Pass": "engine",
    "Prices": "drafting",
    "PromptLookup": "drafting",
    "Request": "slots",
    "Reuse": "prefixes",
    "Run": "run",
    "Sample": "telemetry",
    "Sampler": "telemetry",
    "Schedule": "slots",
    "Serving": "serving",
    "Settings": "settings",
    "Speculation": "drafting",
    "SpeedPlan": "speed",
    "Sweep": "sweeps",
    "Tensor": "gguf",
    "Tuned": "tuning",
    "achieved": "roofs",
    "bits_per_byte": "divergence",
    "cache_losses": "tradeoffs",
    "calibrate": "calibration",
    "ceiling": "probe",
    "check_machine": "checkup",
    "check_prices": "drafting",
    "cold_start": "coldstart",
    "compare": "gaps",
    "compare_total": "gaps",
    "context_bytes": "occupancy",
    "decode_at_depths": "depths",
    "detokenize": "vocabulary",
    "diagnose": "diagnosis",
    "export_llama_bench": "llamabench",
    "fidelity": "divergence",
    "find_model": "models",
    "fit": "fitting",
    "import_llama_bench": "llamabench",
    "known_model": "facts",
    "limit_vram": "withholding",
    "load_run": "records",
    "load_sweep": "sweeps",
    "loopback_device": "loopback",
    "make_shape": "shapes",
    "measure": "run",
    "measure_each": "run",
    "occupied": "occupancy",
    "perplexity": "divergence",
    "predict_memory": "plans",
    "predict_speed": "plans",
    "quantize": "quantization",
    "read_gguf": "gguf",
    "reserved_bytes": "allocation",
    "resident": "residence",
    "reuse_prefix": "prefixes",
    "ridge_tokens": "roofs",
    "save_run": "records",
    "save_sweep": "sweeps",
    "schedule": "slots",
    "serve": "serving",
    "shape": "shapes",
    "speculate": "drafting",
    "sweep": "sweeps",
    "this_machine": "engine",
    "time_tokenizer": "vocabulary",
    "tiny_model": "models",
    "token_nats": "divergence",
    "tokenize": "vocabulary",
    "tune": "tuning",
    "type_losses": "tradeoffs",
    "type_rates": "tradeoffs",
}

__all__ = ["__version__", *sorted(_ROOM_OF)]


def __getattr__(name: str):
    if name not in _ROOM_OF:
        raise AttributeError(f"inferlab has no {name!r}; it has {', '.join(sorted(_ROOM_OF))}.")
    value = getattr(import_module(f"inferlab.{_ROOM_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_ROOM_OF})
