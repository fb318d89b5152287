"""Measure, predict and explain local LLM inference on the machine in front of you.

`import inferlab as lab` loads nothing else: each name below is imported from its module when it is first used.
Everything else is imported from its package, such as `from inferlab.measurement import batching`.
`__init__.pyi` lists the same names for editors and type checkers.
"""

from importlib import import_module

__version__ = "0.1.0"

_MODULE_OF = {
    "InferlabError": "errors",
    "Settings": "settings",
    "calibrate": "prediction.calibrate",
    "check_machine": "doctor",
    "chosen_model": "model.find",
    "cold_start": "measurement.cold_start",
    "compare": "prediction.compare",
    "derive_memory": "results.log_memory",
    "detokenize": "engine.tokenizer",
    "diagnose": "prediction.diagnosis",
    "explain": "log_reader",
    "fidelity": "measurement.fidelity",
    "find_model": "model.find",
    "fit": "prediction.fit",
    "known_model": "model.catalog",
    "limit_vram": "engine.limit_vram",
    "load": "records",
    "loopback_device": "engine.loopback",
    "make_shape": "model.synthetic_model",
    "measure": "measurement.run",
    "measure_each": "measurement.run",
    "perplexity": "measurement.fidelity",
    "predict_memory": "prediction.predict",
    "predict_speed": "prediction.predict",
    "quantize": "engine.quantize",
    "read_gguf": "model.gguf",
    "save": "records",
    "shape": "model.synthetic_model",
    "sweep": "measurement.sweep",
    "this_machine": "engine.session",
    "tiny_model": "model.find",
    "tokenize": "engine.tokenizer",
    "tune": "measurement.tune",
}

__all__ = ["__version__", *sorted(_MODULE_OF)]


def __getattr__(name: str):
    if name not in _MODULE_OF:
        raise AttributeError(
            f"inferlab has no {name!r}. It has {', '.join(sorted(_MODULE_OF))}. "
            "Everything else is imported from its package, such as `from inferlab.measurement import batching`."
        )
    value = getattr(import_module(f"inferlab.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
