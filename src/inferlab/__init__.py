"""Measure, predict and explain local LLM inference on the machine in front of you.

`import inferlab as lab` costs nothing: each name below is loaded from its room on first use.
"""

from importlib import import_module

__version__ = "0.1.0"

_ROOM_OF = {
    "BatchedDecode": "measurement.batching",
    "Buffer": "engine.log",
    "Calibration": "prediction.calibration",
    "Checkup": "doctor.findings",
    "ColdStart": "measurement.cold_start",
    "DepthScaling": "measurement.depth",
    "Device": "machine",
    "DraftModel": "measurement.speculative",
    "Entry": "engine.protocol",
    "Fidelity": "measurement.fidelity",
    "Fit": "prediction.fit",
    "FixedAcceptanceDrafter": "measurement.speculative",
    "InferlabError": "errors",
    "Limit": "engine.limit_vram",
    "Link": "machine",
    "LoopbackDevice": "engine.loopback",
    "Machine": "machine",
    "MemoryPlan": "prediction.memory.plan",
    "Model": "model.gguf",
    "NoCacheEngine": "measurement.no_cache",
    "Pass": "engine.protocol",
    "PrefixReuse": "measurement.prefix_cache",
    "PromptLookup": "measurement.speculative",
    "Request": "measurement.continuous_batching",
    "Run": "measurement.run",
    "Sample": "measurement.telemetry.samples",
    "Sampler": "measurement.telemetry.sampler",
    "Schedule": "measurement.continuous_batching",
    "Settings": "settings",
    "Speculation": "measurement.speculative",
    "SpeedPlan": "prediction.speed",
    "Sweep": "experiments.sweep",
    "Tensor": "model.gguf",
    "Tuning": "experiments.tune",
    "VerifyCost": "measurement.speculative",
    "achieved": "prediction.roofline",
    "batched_decode": "measurement.batching",
    "bits_per_byte": "measurement.fidelity",
    "cache_losses": "experiments.quant_tradeoffs",
    "calibrate": "prediction.calibrate",
    "ceiling": "measurement.ceilings",
    "check_machine": "doctor",
    "cold_start": "measurement.cold_start",
    "compare": "prediction.compare",
    "compare_total": "prediction.compare",
    "context_bytes": "measurement.memory",
    "decode_at_depths": "measurement.depth",
    "detokenize": "engine.tokenizer",
    "diagnose": "experiments.diagnosis",
    "export_llama_bench": "measurement.llama_bench",
    "fidelity": "measurement.fidelity",
    "find_model": "model.find",
    "fit": "prediction.fit",
    "import_llama_bench": "measurement.llama_bench",
    "known_model": "model.catalog",
    "limit_vram": "engine.limit_vram",
    "load": "records",
    "loopback_device": "engine.loopback",
    "make_shape": "model.synthetic_model",
    "measure": "measurement.run",
    "measure_each": "measurement.run",
    "occupied": "measurement.memory",
    "perplexity": "measurement.fidelity",
    "predict_memory": "prediction.predict",
    "predict_speed": "prediction.predict",
    "quantize": "engine.quantize",
    "read_gguf": "model.gguf",
    "reserved_bytes": "measurement.memory",
    "resident": "measurement.memory",
    "reuse_prefix": "measurement.prefix_cache",
    "ridge_tokens": "prediction.roofline",
    "save": "records",
    "schedule": "measurement.continuous_batching",
    "shape": "model.synthetic_model",
    "speculate": "measurement.speculative",
    "sweep": "experiments.sweep",
    "this_machine": "engine.session",
    "time_tokenizer": "engine.tokenizer",
    "time_verification": "measurement.speculative",
    "tiny_model": "model.find",
    "token_nats": "measurement.fidelity",
    "tokenize": "engine.tokenizer",
    "tune": "experiments.tune",
    "type_losses": "experiments.quant_tradeoffs",
    "type_rates": "experiments.quant_tradeoffs",
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
