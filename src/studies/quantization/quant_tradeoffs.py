"""Quantization types compared: fidelity lost, on trained weights; size and speed gained, on a shape.

Fidelity needs trained weights, and speed needs a model of real size. They are measured on different files, and `table`
joins them by the name of the type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferlab.engine.client import LlamaEngine
from inferlab.engine.quantize import quantize
from inferlab.engine.session import default_engine
from inferlab.measurement.fidelity import Fidelity, fidelities, fidelity
from inferlab.measurement.run import Run, measure
from inferlab.model.find import find_model
from inferlab.model.gguf import read_gguf
from inferlab.model.synthetic_model import make_shape
from inferlab.prediction.memory import kv_cache_bytes
from inferlab.settings import Settings
from inferlab.units import GIB

TYPES = ("Q8_0", "Q6_K", "Q5_K_M", "Q5_0", "Q4_K_M", "Q4_0", "Q3_K_M", "Q2_K")
CACHE_TYPES = ("q8_0", "q5_0", "q4_0")
AS_IT_IS = "as it is"
ROTATION_OFF = {"LLAMA_ATTN_ROT_DISABLE": "1"}  # llama-kv-cache.cpp:315


@dataclass(frozen=True)
class Losses:
    """Fidelity of one model in several types, or with several KV cache types, by name."""

    by_name: dict[str, Fidelity]

    @property
    def badge(self) -> str:
        """Machine, date and model of the measurement, and the number of scored tokens."""
        first = next(iter(self.by_name.values()))
        return f"{first.machine_badge}; {first.n_tokens:,} tokens scored on {first.reference.name}"


@dataclass(frozen=True)
class Row:
    """One type: its fidelity and its speed; None if not measured."""

    name: str
    fidelity: Fidelity | None
    run: Run | None

    @property
    def known(self) -> bool:
        """Whether both were measured."""
        return None not in (self.fidelity, self.run)

    @property
    def kl_divergence(self) -> float:
        return self.fidelity.kl_divergence.value

    @property
    def tensor_bytes(self) -> int:
        """Bytes of the weights of the timed model."""
        return self.run.model.tensor_bytes

    @property
    def decode_tokens_per_second(self) -> float:
        return self.run.decode_tokens_per_second

    def beats(self, other: Row) -> bool:
        """Whether divergence and decode rate are both at least as good as the other's, and one is better."""
        ours, theirs = ((row.kl_divergence, -row.decode_tokens_per_second) for row in (self, other))
        return ours != theirs and all(a <= b for a, b in zip(ours, theirs, strict=True))


def type_losses(model: str | Path | None = None, types: Sequence[str] = TYPES, n_chunks: int | None = None) -> Losses:
    """Quantize `model` into each type, in the cache folder, and compare each file with `model`.

    n_chunks is the number of 512-token chunks of the held-out text that are used (None: all).
    """
    full = find_model(model)
    files = {name: quantize(full, name) for name in types}
    compared = fidelities([(file, None) for file in files.values()], full, n_chunks=n_chunks)
    return Losses(dict(zip(files, compared, strict=True)))


def cache_losses(
    model: str | Path | None = None, types: Sequence[str] = CACHE_TYPES, n_chunks: int | None = None
) -> Losses:
    """Compare `model` with its KV cache in each type with the same model and an F16 cache, with rotation and without.

    Each case runs in an engine of its own, because llama.cpp reads from its environment whether to rotate.
    """
    by_name: dict[str, Fidelity] = {}
    for suffix, environment in (("", {}), (", plain", ROTATION_OFF)):
        with closing(LlamaEngine(environment=environment)) as engine:
            cases = [(model, Settings(type_k=kind, type_v=kind, flash_attn="on")) for kind in types]
            compared = fidelities(cases, model, n_chunks=n_chunks, engine=engine)
            by_name |= zip((kind + suffix for kind in types), compared, strict=True)
    return Losses(by_name)


def type_rates(
    shape: str, types: Sequence[str], n_prompt: int, n_gen: int, repeats: int = 3, **size: Any
) -> dict[str, Run]:
    """Prefill and decode of a published model's shape in each type; `size` changes the shape, such as n_layer."""
    files = {name: make_shape(shape, name, **size) for name in types}
    return {name: measure(file, None, n_prompt, n_gen, repeats) for name, file in files.items()}


def rows(losses: Losses, runs: Mapping[str, Run]) -> tuple[Row, ...]:
    """Losses and runs joined by name, in the order of the runs; names that only one of them has are kept."""
    names = dict.fromkeys([*runs, *losses.by_name])
    return tuple(Row(name, losses.by_name.get(name), runs.get(name)) for name in names)


def front(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows that no other row beats: the Pareto front of divergence and decode rate.

    A row that is beaten can still be the best choice if it is the largest that fits; compare its bytes.
    """
    known = [row for row in rows if row.known]
    return tuple(row for row in known if not any(other.beats(row) for other in known))


def table(rows: Sequence[Row]):
    """A pandas DataFrame of texts, one line per type: fidelity of the trained model, bytes and rates of the shape.

    What was not measured is empty; a divergence has two digits, and its standard error one.
    """
    import pandas as pd

    lines = [{"type": row.name, **_fidelity_columns(row.fidelity), **_speed_columns(row.run)} for row in rows]
    return pd.DataFrame(lines).set_index("type").fillna("").rename_axis(index=None, columns="type")


def _fidelity_columns(fidelity: Fidelity | None) -> dict[str, str]:
    if fidelity is None:
        return {}
    return {
        "bits per weight": f"{8 * fidelity.model.tensor_bytes / fidelity.model.n_params:.2f}",
        "perplexity": f"{fidelity.perplexity.value:.2f} ± {fidelity.perplexity.standard_error:.2f}",
        "KLD, nats": f"{fidelity.kl_divergence.value:.2g} ± {fidelity.kl_divergence.standard_error:.1g}",
        "same top, %": f"{100 * fidelity.same_top_share.value:.1f}",
    }


def _speed_columns(run: Run | None) -> dict[str, str]:
    if run is None:
        return {}
    return {
        "shape, GiB": f"{run.model.tensor_bytes / GIB:.2f}",
        "prefill, tokens/s": f"{run.prefill_tokens_per_second:.1f}",
        "decode, tokens/s": f"{run.decode_tokens_per_second:.1f}",
        "kernels": run.kernels_text,
    }


@dataclass(frozen=True)
class Choice:
    """One type of weights with one type of KV cache: their bytes, and the fidelity of both together.

    imatrix  name of the importance matrix, "" for none
    """

    type: str
    settings: Settings
    n_bytes: int
    fidelity: Fidelity
    imatrix: str = ""

    @property
    def name(self) -> str:
        matrix = f", matrix {self.imatrix}" if self.imatrix else ""
        return f"{self.type}{matrix}, cache {self.settings.type_k}/{self.settings.type_v}"


def choose(
    model: str | Path | None = None,
    type: str = AS_IT_IS,
    type_k: str = "f16",
    type_v: str = "f16",
    n_chunks: int | None = 8,
    imatrix: str | Path | None = None,
    engine: LlamaEngine | None = None,
) -> Choice:
    """Quantize `model`, with an importance matrix or without, use that KV cache, and compare it with the original.

    The original has an F16 cache. Bytes are those of the tensors and of a cache for the model's trained context.
    """
    engine, full = engine or default_engine(), find_model(model)
    file = full if type == AS_IT_IS else quantize(full, type, imatrix=imatrix, engine=engine)
    settings = Settings(type_k=type_k, type_v=type_v, flash_attn="on")
    header = read_gguf(file)
    cache = kv_cache_bytes(header, settings.but(n_ctx=header.n_ctx_train))
    lost = fidelity(file, full, settings=settings, n_chunks=n_chunks, engine=engine)
    return Choice(type, settings, header.tensor_bytes + cache, lost, Path(imatrix).stem if imatrix else "")
