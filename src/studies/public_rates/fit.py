"""Fits the model of a card to the public rows; `python -m studies.public_rates.model` writes it.

Every coefficient is a power of e, so that it is positive; it is drawn to a value that one would expect, as strongly as
that is known. The error is that of the logarithm of a rate; far ones count less (`soft`), because some rows are of
drivers that lack a kernel. Rows of a card count less the more of them there are. Then each card gets a factor:

    factor = exp(sum of n log errors / (n + KEPT)), where a source with n rows counts as sqrt(n)
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache
from math import exp, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from inferlab.model.dimensions import has_latent_cache
from inferlab.model.named import model_named
from inferlab.prediction.card_model import (
    PromptRates,
    PromptWork,
    TokenRates,
    TokenWork,
    prompt_seconds,
    token_seconds,
)
from inferlab.prediction.card_rates import BACKENDS, KINDS, USUAL, arithmetic, kind_of
from inferlab.prediction.card_work import CardWork, placed_work
from inferlab.prediction.cards import known_cards
from inferlab.results.public_rates import DECODE, PROMPT, PublicRate, sources

MODEL = Path(__file__).parents[2] / "inferlab" / "data" / "public_rates" / "model.toml"
PRESENT = 2026.75
RECENT, REPLACED = 2025.6, 2025.0
"""Builds whose rows count, where a card has any; and until when those of ROCm, Vulkan and SYCL never do."""
MOST_STEPS = 200
KEPT = 1.5
"""Rows' worth of belief that a card is like its siblings."""
WIDTH = {DECODE: 0.08, PROMPT: 0.12}
"""Error of a logarithm from which on a row counts less."""
CROWD = -0.35
"""Exponent of the number of a card's rows in their weight."""


@dataclass(frozen=True)
class Prior:
    """The value that a coefficient is drawn to, and by what factor it is expected to differ (as a logarithm)."""

    value: float
    width: float


def of_backends(name: str, value: float, width: float, own: float) -> dict[str, Prior]:
    """A coefficient that all backends share, and the factor of each."""
    return {name: Prior(value, width)} | {f"{name} {backend}": Prior(1.0, own) for backend in BACKENDS}


CHIPS = tuple(dict.fromkeys(card.chip for card in arithmetic().values()))
ALIKE = ("turing", "ampere", "ada", "blackwell")
"""Chips whose matrix units are built alike; those of Apple before M5 have none."""


def _chip_width(chip: str) -> float:
    if chip.startswith("apple") and chip != "apple-m5":
        return 0.15
    return 0.3 if chip in ALIKE else 0.7


TOKEN: dict[str, Prior] = {
    "reached": Prior(0.9, 0.1),
    **{f"reached {backend}": Prior(1.0, 0.1) for backend in BACKENDS},
    **of_backends("unpack", 6.0, 0.7, 0.5),
    **{f"unpack {kind}": Prior(1.0, 0.5) for kind in KINDS},
    **{f"unpack {kind} {backend}": Prior(1.0, 0.3) for kind in KINDS for backend in BACKENDS},
    **of_backends("launch", 6e-6, 0.7, 0.5),
    **{f"launch {chip}": Prior(1.0, 0.3) for chip in CHIPS},
    **of_backends("route", 25e-6, 0.7, 0.4),
    **of_backends("state", 30e-6, 0.7, 0.4),
    **of_backends("reached_cache", 0.6, 0.5, 0.4),
    **of_backends("score", 3.0, 0.7, 0.5),
    **of_backends("latent", 2.0, 0.7, 0.7),
    "quantized_cache": Prior(0.9, 0.3),
    "no_flash": Prior(1.0, 0.5),
    "latent_no_flash": Prior(3.0, 0.7),
    "yearly launch": Prior(1.15, 0.2),
    "yearly unpack": Prior(1.15, 0.2),
    "yearly route": Prior(1.1, 0.2),
    "yearly state": Prior(1.2, 0.3),
    "host_rate": Prior(35e9, 0.4),
    "crossing": Prior(60e-6, 1.0),
}
PROMPTS: dict[str, Prior] = {
    **of_backends("matrix", 1.5, 0.7, 0.5),
    **{f"matrix {chip}": Prior(1.0, _chip_width(chip)) for chip in CHIPS},
    **{f"types {kind}": Prior(1.0, 0.3) for kind in KINDS},
    **{f"types {kind} {backend}": Prior(1.0, 0.2) for kind in KINDS for backend in BACKENDS},
    **of_backends("fill", 40.0, 0.7, 0.5),
    **of_backends("experts", 0.8, 0.4, 0.4),
    **of_backends("fill_experts", 40.0, 0.8, 0.5),
    "reread": Prior(1.0, 0.4),
    **of_backends("layer", 100e-6, 0.8, 0.5),
    **of_backends("route", 50e-6, 0.8, 0.5),
    **of_backends("state", 20.0, 1.0, 0.5),
    **of_backends("score", 1.2, 0.7, 0.5),
    **{f"score {chip}": Prior(1.0, 0.3) for chip in CHIPS},
    **of_backends("latent", 1.0, 0.7, 0.7),
    "quantized_cache": Prior(1.1, 0.3),
    "no_flash": Prior(1.6, 0.5),
    "yearly matrix": Prior(1.15, 0.15),
    "yearly experts": Prior(1.1, 0.2),
    "yearly layer": Prior(1.1, 0.2),
    "yearly state": Prior(1.1, 0.3),
    "yearly score": Prior(1.3, 0.3),
    "bus_rate": Prior(10e9, 0.7),
}


@cache
def placed(name: str, type: str, n_gpu_layers: int, n_cpu_moe: int) -> CardWork:
    """A known model placed as a row says."""
    return placed_work(model_named(name, "MXFP4_MOE" if is_gpt_oss(name) else type), n_gpu_layers, n_cpu_moe)


def is_gpt_oss(name: str) -> bool:
    """Files of gpt-oss in any type keep its experts as they were trained."""
    return name.startswith("gpt-oss")


def work_of(row: PublicRate) -> TokenWork | PromptWork:
    """What a row's test needs of its card; the bytes of its file in place of those of the plain mix."""
    shape, factor = shape_of(row)
    if row.phase == PROMPT:
        return shape.prompt(row.n_tokens, row.n_ubatch, row.depth, factor)
    return shape.token(row.depth + row.n_tokens / 2, row.type_k, row.type_v, factor)


def shape_of(row: PublicRate) -> tuple[CardWork, float]:
    """A row's model as it is placed, and the bytes of its file over those of the plain mix."""
    n_layers = -1 if row.n_gpu_layers is None else row.n_gpu_layers
    shape = placed(row.model, row.type, n_layers, row.n_cpu_moe)
    return shape, row.n_bytes / shape.model.tensor_bytes if row.n_bytes else 1.0


def backend_of(row: PublicRate) -> str:
    """The row's backend; the card's usual one where the source does not say."""
    return row.backend or USUAL[known_cards()[row.card].backend]


@dataclass(frozen=True)
class Cases:
    """Rows of one phase as arrays: their work, their ratings, and the places of their coefficients."""

    rows: tuple[PublicRate, ...]
    work: Any
    bandwidth: np.ndarray
    flops: np.ndarray
    seconds: np.ndarray
    weights: np.ndarray
    indices: dict[str, np.ndarray]
    flags: dict[str, np.ndarray]

    def only(self, mask: np.ndarray) -> Cases:
        """The cases of a mask."""
        work = type(self.work)(**{f.name: getattr(self.work, f.name)[mask] for f in fields(self.work)})
        rows = tuple(row for row, keep in zip(self.rows, mask, strict=True) if keep)
        arrays = (getattr(self, name)[mask] for name in ("bandwidth", "flops", "seconds", "weights"))
        parts = ({name: values[mask] for name, values in table.items()} for table in (self.indices, self.flags))
        return Cases(rows, work, *arrays, *parts)


def current(rows: Iterable[PublicRate], phase: str, *, with_replaced: bool = False) -> tuple[PublicRate, ...]:
    """The rows of a phase by builds since RECENT, and older ones of cards that have no newer.

    Without those of 2024 on backends whose kernels were replaced since, and those of a card that is over-full with a
    part in RAM, unless `with_replaced`.
    """
    some = [row for row in rows if row.phase == phase]
    some = some if with_replaced else [row for row in some if not (_is_replaced(row) or _is_overfull(row))]
    newer = {row.card for row in some if row.year > RECENT}
    return tuple(row for row in some if row.year > RECENT or row.card not in newer)


def _is_replaced(row: PublicRate) -> bool:
    return row.year < REPLACED and backend_of(row) not in ("CUDA", "Metal")


def _is_overfull(row: PublicRate) -> bool:
    """Whether the weights that a row puts on its card are more than it holds: the driver then uses RAM silently."""
    if not row.is_partial:
        return False
    work, factor = shape_of(row)
    return work.bytes_on_card * factor > min(known_cards()[row.card].memory_bytes)


def cases_of(rows: Iterable[PublicRate], phase: str) -> Cases:
    """The rows of a phase as arrays."""
    some = tuple(row for row in rows if row.phase == phase)
    works = [work_of(row) for row in some]
    kind = PromptWork if phase == PROMPT else TokenWork
    work = kind(**{f.name: np.array([getattr(one, f.name) for one in works], dtype=float) for f in fields(kind)})
    crowd = Counter((row.card, row.backend) for row in some)
    tokens = np.array([row.n_tokens if phase == PROMPT else 1 for row in some])
    return Cases(
        rows=some,
        work=work,
        bandwidth=np.array([known_cards()[row.card].bandwidth_bytes_per_second for row in some]),
        flops=np.array([arithmetic()[row.card].flops for row in some]),
        seconds=tokens / np.array([row.rate for row in some]),
        weights=np.array([crowd[row.card, row.backend] ** CROWD for row in some]),
        indices=_indices(some, PROMPTS if phase == PROMPT else TOKEN),
        flags=_flags(some),
    )


def _indices(rows: Sequence[PublicRate], priors: dict[str, Prior]) -> dict[str, np.ndarray]:
    """For each set of coefficients the place of every row's own one."""
    places = {name: i for i, name in enumerate(priors)}
    keys: dict[str, Callable[[PublicRate], str]] = {
        "backend": backend_of,
        "chip": lambda row: arithmetic()[row.card].chip,
        "kind": lambda row: kind_of(row.type),
        "kind backend": lambda row: f"{kind_of(row.type)} {backend_of(row)}",
    }
    found = {}
    for name in dict.fromkeys(prior.split(" ")[0] for prior in priors):
        for key, of in keys.items():
            wanted = [f"{name} {of(row)}" for row in rows]
            if all(one in places for one in wanted) and wanted:
                found[f"{name} {key}"] = np.array([places[one] for one in wanted])
    return found


def _flags(rows: Sequence[PublicRate]) -> dict[str, np.ndarray]:
    def array(of: Callable[[PublicRate], float]) -> np.ndarray:
        return np.array([of(row) for row in rows], dtype=float)

    return {
        "latent": array(lambda row: has_latent_cache(placed(row.model, row.type, -1, 0).model)),
        "quantized": array(lambda row: row.type_k != "f16"),
        "no_flash": array(lambda row: row.flash_attn is False),
        "years": array(lambda row: PRESENT - row.year),
    }


class Values:
    """The logarithms of the coefficients, looked up for all cases at once."""

    def __init__(self, logs: np.ndarray, priors: dict[str, Prior], cases: Cases) -> None:
        self._logs, self._cases = logs, cases
        self._places = {name: i for i, name in enumerate(priors)}

    def one(self, name: str) -> float:
        return float(self._logs[self._places[name]])

    def of(self, name: str, *keys: str) -> Any:
        """The sum of the shared logarithm and those of the keys: "backend", "chip", "kind", "kind backend"."""
        own = sum(self._logs[self._cases.indices[f"{name} {key}"]] for key in keys)
        return own + (self.one(name) if name in self._places else 0.0)

    def yearly(self, name: str) -> Any:
        return self.one(f"yearly {name}") * self._cases.flags["years"]


def seconds(logs: np.ndarray, cases: Cases) -> np.ndarray:
    """Predicted seconds of every case."""
    if isinstance(cases.work, PromptWork):
        return prompt_seconds(cases.work, _prompt_rates(logs, cases), cases.bandwidth, cases.flops)
    return token_seconds(cases.work, _token_rates(logs, cases), cases.bandwidth, cases.flops)


def _token_rates(logs: np.ndarray, cases: Cases) -> TokenRates:
    value, flags = Values(logs, TOKEN, cases), cases.flags
    latent = (value.of("latent", "backend") + value.one("latent_no_flash") * flags["no_flash"]) * flags["latent"]
    return TokenRates(
        reached=np.exp(np.minimum(value.of("reached", "backend"), log(0.98))),
        unpack=np.exp(value.of("unpack", "backend", "kind", "kind backend") + value.yearly("unpack")),
        launch=np.exp(value.of("launch", "backend", "chip") + value.yearly("launch")),
        route=np.exp(value.of("route", "backend") + value.yearly("route")),
        state=np.exp(value.of("state", "backend") + value.yearly("state")),
        reached_cache=np.exp(value.of("reached_cache", "backend") + value.one("quantized_cache") * flags["quantized"]),
        score=np.exp(value.of("score", "backend") + latent + value.one("no_flash") * flags["no_flash"]),
        host_rate=exp(value.one("host_rate")),
        crossing=exp(value.one("crossing")),
    )


def _prompt_rates(logs: np.ndarray, cases: Cases) -> PromptRates:
    value, flags = Values(logs, PROMPTS, cases), cases.flags
    types = value.of("types", "kind", "kind backend")
    score = value.of("score", "backend", "chip") + value.of("latent", "backend") * flags["latent"]
    score += value.one("no_flash") * flags["no_flash"] + value.one("quantized_cache") * flags["quantized"]
    return PromptRates(
        matrix=np.exp(value.of("matrix", "backend", "chip") + types - value.yearly("matrix")),
        fill=np.exp(value.of("fill", "backend")),
        experts=np.exp(value.of("experts", "backend") - value.yearly("experts")),
        fill_experts=np.exp(value.of("fill_experts", "backend")),
        reread=exp(value.one("reread")),
        layer=np.exp(value.of("layer", "backend") + value.yearly("layer")),
        route=np.exp(value.of("route", "backend") + value.yearly("layer")),
        state=np.exp(value.of("state", "backend") + value.yearly("state")),
        score=np.exp(score + value.yearly("score")),
        bus_rate=exp(value.one("bus_rate")),
    )


def soft(errors: np.ndarray) -> np.ndarray:
    """Errors as they are while small, and growing as the square root when large: sqrt(2 (sqrt(1 + e^2) - 1))."""
    return np.sign(errors) * np.sqrt(2 * (np.sqrt(1 + errors**2) - 1))


def fit(cases: Cases) -> np.ndarray:
    """The logarithms of the coefficients.

    They are found as distances from what is expected, in units of the prior's width, from 0 on: never from a fit of
    other rows, which would know what is left out here.
    """
    phase = PROMPT if isinstance(cases.work, PromptWork) else DECODE
    priors = PROMPTS if phase == PROMPT else TOKEN
    middle = np.log([prior.value for prior in priors.values()])
    width = np.array([prior.width for prior in priors.values()])

    def residuals(distances: np.ndarray) -> np.ndarray:
        errors = np.log(seconds(middle + width * distances, cases) / cases.seconds) / WIDTH[phase]
        return np.concatenate([soft(errors) * cases.weights, distances])

    return middle + width * least_squares(residuals, np.zeros(len(width)), max_nfev=MOST_STEPS).x


def card_factors(cases: Cases, logs: np.ndarray) -> dict[tuple[str, str], float]:
    """By card and backend: the factor of the time that its rows show beyond the model."""
    errors = np.log(cases.seconds / seconds(logs, cases))
    by_card: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row, error in zip(cases.rows, errors, strict=True):
        if not row.is_partial:
            by_card[row.card, backend_of(row)][sources()[row.source].repository].append(float(error))
    return {card: _factor(by_source.values()) for card, by_source in by_card.items()}


def _factor(errors: Iterable[list[float]]) -> float:
    medians = [(sqrt(len(some)), float(np.median(some))) for some in errors]
    return exp(sum(n * error for n, error in medians) / (sum(n for n, _ in medians) + KEPT))


# --- what is written ----------------------------------------------------------------------------------------


def model_table(rows: Sequence[PublicRate], bands: dict[str, Any], held: dict[str, float]) -> dict[str, Any]:
    """The fitted model as model.toml has it."""
    token, prompt = (cases_of(current(rows, phase), phase) for phase in (DECODE, PROMPT))
    logs = fit(token), fit(prompt)
    return {
        "present": PRESENT,
        "token": token_table(logs[0]),
        "prompt": prompt_table(logs[1]),
        "cards": cards_table(token, prompt, *logs),
        "bands": bands,
        "held": held,
    }


TOKEN_SHARED = ("quantized_cache", "no_flash", "latent_no_flash", "host_rate", "crossing")


def token_table(logs: np.ndarray) -> dict[str, Any]:
    """The coefficients of a token by backend, with the factors of chips and years."""
    of = dict(zip(TOKEN, logs, strict=True))
    table: dict[str, Any] = {name: _e(of[name]) for name in TOKEN_SHARED}
    table["yearly"] = {name: _e(of[f"yearly {name}"]) for name in ("launch", "unpack", "route", "state")}
    table["chips"] = {chip: _e(of[f"launch {chip}"]) for chip in CHIPS}
    for backend in BACKENDS:
        own = ("launch", "route", "state", "reached_cache", "score", "latent")
        table[backend] = {name: _e(of[name] + of[f"{name} {backend}"]) for name in own}
        table[backend]["reached"] = _e(min(of["reached"] + of[f"reached {backend}"], log(0.98)))
        shared = of["unpack"] + of[f"unpack {backend}"]
        kinds = {kind: of[f"unpack {kind}"] + of[f"unpack {kind} {backend}"] for kind in KINDS}
        table[backend]["unpack"] = {kind: _e(shared + own) for kind, own in kinds.items()}
    return table


def prompt_table(logs: np.ndarray) -> dict[str, Any]:
    """The coefficients of a prompt by backend, with the factors of chips and years."""
    of = dict(zip(PROMPTS, logs, strict=True))
    table: dict[str, Any] = {name: _e(of[name]) for name in ("quantized_cache", "no_flash", "reread", "bus_rate")}
    table["yearly"] = {name: _e(of[f"yearly {name}"]) for name in ("matrix", "experts", "layer", "state", "score")}
    table["chips"] = {chip: {name: _e(of[f"{name} {chip}"]) for name in ("matrix", "score")} for chip in CHIPS}
    for backend in BACKENDS:
        own = ("matrix", "fill", "experts", "fill_experts", "layer", "route", "state", "score", "latent")
        table[backend] = {name: _e(of[name] + of[f"{name} {backend}"]) for name in own}
        kinds = {kind: of[f"types {kind}"] + of[f"types {kind} {backend}"] for kind in KINDS}
        table[backend]["types"] = {kind: _e(own) for kind, own in kinds.items()}
    return table


def cards_table(token: Cases, prompt: Cases, *logs: np.ndarray) -> dict[str, Any]:
    """By card and backend: the factors of its rows, and how many rows of how many repositories there are."""
    factors = [card_factors(cases, own) for cases, own in zip((token, prompt), logs, strict=True)]
    table: dict[str, Any] = {}
    for card, backend in sorted({*factors[0], *factors[1]}):
        rows = [
            [row for row in cases.rows if (row.card, backend_of(row)) == (card, backend)] for cases in (token, prompt)
        ]
        table.setdefault(card, {})[backend] = {
            "token": round(factors[0].get((card, backend), 1.0), 3),
            "prompt": round(factors[1].get((card, backend), 1.0), 3),
            "n_token": len(rows[0]),
            "n_prompt": len(rows[1]),
        }
    return table


def _e(logarithm: float) -> float:
    return float(f"{exp(logarithm):.4g}")


def write(table: dict[str, Any], path: Path = MODEL) -> None:
    """The model as TOML."""
    path.write_text(HEAD + "\n".join(_toml(table)) + "\n", encoding="utf-8")


HEAD = """# The model of a card, fitted to rows.csv: `python -m studies.public_rates.model` writes it, nobody edits it.
# The equations stand in prediction/card_model.py, how it was judged in studies/public_rates.

"""


def _toml(table: dict[str, Any], name: str = "") -> Iterator[str]:
    """Lines of a table: its numbers, small tables of numbers in one line, then the others."""
    own = {key: value for key, value in table.items() if not isinstance(value, dict)}
    if name and (own or not table):
        yield f"\n[{name}]"
    yield from (f"{_key(key)} = {value}" for key, value in own.items())
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _toml(value, f"{name}.{_key(key)}" if name else _key(key))


def _key(key: str) -> str:
    return f'"{key}"' if "." in key else key
