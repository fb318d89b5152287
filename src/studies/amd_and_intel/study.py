"""What others published about two backends on one card of AMD or Intel, and what limits llama.cpp on such a card.

Nothing here was run on a card of AMD or Intel. A pair is two public rates of one source that differ in the backend
alone; a figure of a thread stands in records/threads.csv. Ratios are Vulkan's rate over that of the maker's backend.
Limits of drivers and targets of builds were read in their sources; the library says what a matrix needs.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

from inferlab.model.catalog import known_model, known_models
from inferlab.model.synthetic_model import shape
from inferlab.prediction.cards import known_card
from inferlab.prediction.memory.refused import batch_bytes, layer_tensors
from inferlab.results.public_rates import DECODE, PROMPT, PublicRate, n_sources, public_rates
from inferlab.units import GIB, MIB

VULKAN, ROCM, SYCL = "Vulkan", "ROCm", "SYCL"
SINCE = 2025.0  # Vulkan's kernels were replaced after earlier rows (studies/public_rates)
HALO = "ryzen-ai-max-395"
CHANGED = 2026.0  # between the two large sources of that chip
MIX, WHOLE = "Q4_K_M", "BF16"
RECORDS = Path(__file__).parent / "records"
BY_FORMULAS = "by formulas, as CUDA's"
PAGE_BYTES = 4096  # of Linux on x86
GTT_GIB = 96  # given: the example of the page, as somebody measured it
Cell = str | int | float
Table = tuple[Sequence[str], list[Sequence[Cell]]]
"""The heads and the rows of `handbook.table`."""


# --- pairs of public rates ----------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """Two rates of one source that differ in the backend: `own` is ROCm's or SYCL's."""

    vulkan: PublicRate
    own: PublicRate

    @property
    def ratio(self) -> float:
        """How many times as fast Vulkan was."""
        return self.vulkan.rate / self.own.rate

    @property
    def same_build(self) -> bool:
        """Whether both are of one build, as far as the source names it."""
        return bool(self.own.build) and self.vulkan.build == self.own.build


@cache
def pairs(own: str = ROCM) -> tuple[Pair, ...]:
    """Every pair of Vulkan with another backend since 2025, in the order of the list."""
    found: dict[tuple[object, ...], dict[str, PublicRate]] = {}
    for row in public_rates():
        if row.year >= SINCE and not row.is_partial:
            found.setdefault(_apart_from_backend(row), {}).setdefault(row.backend, row)
    return tuple(Pair(rows[VULKAN], rows[own]) for rows in found.values() if {VULKAN, own} <= rows.keys())


def _apart_from_backend(row: PublicRate) -> tuple[object, ...]:
    """What both rows of a pair have in common; the size to 0.1 GB, because one source prints it rounded."""
    size = round((row.n_bytes or 0) / 1e8)
    what = (row.source, row.card, row.model, row.type, size, row.flash_attn, row.n_ubatch, row.type_k, row.type_v)
    return (*what, row.depth, row.phase, row.n_tokens)


def is_mixture(row: PublicRate) -> bool:
    """Whether the model has experts."""
    return known_model(row.model).n_expert > 0


GROUPS: Mapping[str, tuple[str, bool | None, bool]] = {
    "decode, quantized": (DECODE, None, False),
    "decode, BF16": (DECODE, None, True),
    "prompt, dense, quantized": (PROMPT, False, False),
    "prompt, mixture, quantized": (PROMPT, True, False),
    "prompt, BF16": (PROMPT, None, True),
}
"""What is told apart -> phase, whether mixtures (None: both), whether in BF16."""
COLUMNS = ("Ryzen AI Max, 2025", "Ryzen AI Max, 2026", "R9700", "RX 7900 XTX, 9070 XT")
COLUMN_OF = {"r9700": COLUMNS[2], "rx-7900-xtx": COLUMNS[3], "rx-9070-xt": COLUMNS[3]}


def _column(pair: Pair) -> str:
    if pair.own.card == HALO:
        return COLUMNS[pair.own.year >= CHANGED]
    return COLUMN_OF[pair.own.card]


def of_group(name: str, chosen: Iterable[Pair]) -> list[Pair]:
    """The pairs of a group of GROUPS."""
    phase, mixture, whole = GROUPS[name]
    return [
        pair
        for pair in chosen
        if pair.own.phase == phase
        and (pair.own.type == WHOLE) == whole
        and (mixture is None or is_mixture(pair.own) == mixture)
    ]


def backend_table() -> Table:
    """Vulkan's rate over ROCm's without a context before: the middle of the pairs, and all of them."""
    empty = [pair for pair in pairs() if not pair.own.depth]
    rows: list[Sequence[Cell]] = []
    for name in GROUPS:
        group = of_group(name, empty)
        rows.append((name, *(_spread([pair for pair in group if _column(pair) == column]) for column in COLUMNS)))
    return ("Vulkan's rate / ROCm's", *COLUMNS), rows


def _spread(group: Sequence[Pair]) -> str:
    """The middle ratio, the least and the most, and of how many pairs."""
    if not group:
        return "none"
    ratios = sorted(pair.ratio for pair in group)
    middle = f"**{median(ratios):.2f}**"
    return f"{middle} ({ratios[0]:.2f} to {ratios[-1]:.2f}; {len(ratios)})" if len(ratios) > 1 else f"{middle} (1)"


DEPTHS = (0, 8192, 32768, 65536)


def depth_table() -> Table:
    """The same ratio behind a context, for every card and model that has such a pair."""
    heads = ("card and model", "test, with its source", *(f"{depth:,}" for depth in DEPTHS))
    return heads, [row for group in _by_test().values() if (row := _depth_row(group))]


def _by_test() -> dict[tuple[object, ...], dict[int, Pair]]:
    tests: dict[tuple[object, ...], dict[int, Pair]] = {}
    for pair in pairs():
        own = pair.own
        key = (own.source, own.card, own.model, own.type, own.phase, own.n_tokens, own.n_ubatch, own.type_k)
        tests.setdefault(key, {})[own.depth] = pair
    return tests


def _depth_row(found: Mapping[int, Pair]) -> Sequence[Cell] | None:
    if not any(depth in found for depth in DEPTHS[1:]):
        return None
    own = next(iter(found.values())).own
    ratios = [f"{found[depth].ratio:.2f}" if depth in found else "" for depth in DEPTHS]
    what = f"{title(own.card)}: {known_model(own.model).name}, {own.type}"
    test = f"{own.phase} of {own.n_tokens:,}" if own.phase == PROMPT else own.phase
    return (what, f"[{test}]({own.address})", *ratios)


def source_table() -> Table:
    """Where the pairs come from: cards, how many, builds, dates, and the middle ratios."""
    heads = ("source", "card", "pairs", "of one build", "dates", "decode, middle ratio", "prompt, middle ratio")
    groups: dict[tuple[str, str], list[Pair]] = {}
    for pair in sorted((*pairs(), *pairs(SYCL)), key=lambda pair: (pair.own.card, pair.own.source)):
        groups.setdefault((pair.own.source, pair.own.card), []).append(pair)
    return heads, [_source_row(group) for group in groups.values()]


def _source_row(group: Sequence[Pair]) -> Sequence[Cell]:
    own = group[0].own
    dates = sorted({row.date for pair in group for row in (pair.vulkan, pair.own)})
    same = sum(pair.same_build for pair in group)
    middles = [_middle([pair for pair in group if pair.own.phase == phase]) for phase in (DECODE, PROMPT)]
    card = title(own.card) + ("" if own.backend == ROCM else f" ({own.backend})")
    span = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    return (f"[{own.owner}]({own.address})", card, len(group), same, span, *middles)


def _middle(group: Sequence[Pair]) -> str:
    return f"{median(pair.ratio for pair in group):.2f}" if group else ""


def title(card: str) -> str:
    """A card's name without the brand."""
    return known_card(card).title.removeprefix("Radeon ")


def older_image_ratio() -> float:
    """Prompts of Qwen3.6 27B behind 32,768 tokens: Vulkan's older image, with a larger ubatch, over ROCm's newest."""
    deep = {"card": HALO, "model": "qwen3.6-27b", "depth": 32768, "phase": PROMPT}
    (newest,) = [pair for pair in pairs() if all(getattr(pair.own, name) == value for name, value in deep.items())]
    rows = [row for row in public_rates() if all(getattr(row, name) == value for name, value in deep.items())]
    (older,) = [row for row in rows if row.backend == VULKAN and row.build != newest.vulkan.build]
    return older.rate / newest.own.rate


# --- figures of threads -------------------------------------------------------------------------


@dataclass(frozen=True)
class ThreadFigure:
    """One published figure of a thread; `what` says what `value` is, in tokens/s unless it says more."""

    name: str
    path: str
    who: str
    date: str
    card: str
    model: str
    type: str
    what: str
    depth: str
    backend: str
    build: str
    value: str

    @property
    def address(self) -> str:
        """Where a reader can open it."""
        return f"https://github.com/{self.path}"


@cache
def threads() -> tuple[ThreadFigure, ...]:
    """Every row of records/threads.csv."""
    text = (RECORDS / "threads.csv").read_text(encoding="utf-8")
    return tuple(ThreadFigure(**cells) for cells in csv.DictReader(text.splitlines()))


@dataclass(frozen=True)
class PlannedKind:
    """How plans of one kind of memory met loads on a Vulkan device; ratios are the load's bytes over the nearest end.

    models, n, agree  llama.cpp's small test models, buffers, and those that lie in their plan
    """

    driver: str
    models: int
    n: int
    agree: int
    least: float
    most: float


@cache
def planned(kind: str) -> PlannedKind:
    """A row of records/plans.csv: plans by formulas, as an absent card of another backend gets them."""
    text = (RECORDS / "plans.csv").read_text(encoding="utf-8")
    rows = [row for row in csv.DictReader(text.splitlines()) if (row["kind"], row["way"]) == (kind, BY_FORMULAS)]
    (row,) = rows
    counts = {name: int(row[name]) for name in ("models", "n", "agree")}
    return PlannedKind(row["driver"], **counts, least=float(row["least"]), most=float(row["most"]))


def figure(name: str, backend: str = VULKAN, at: int = 0) -> float:
    """A thread's figure by its name and backend; `at`: which of several."""
    return [float(row.value) for row in threads() if (row.name, row.backend) == (name, backend)][at]


# --- matrices and drivers -----------------------------------------------------------------------


@dataclass(frozen=True)
class DriverLimit:
    """The largest matrix that a Vulkan driver lets llama.cpp use, with where that was read."""

    driver: str
    n_bytes: int
    source: str


LIMITS = (
    DriverLimit("Mesa's RADV and ANV", 4 * GIB, "{cite}`mesa-limits`"),
    DriverLimit("AMD's own, AMDVLK", 2 * GIB, "{cite}`amdvlk-413`"),
    DriverLimit("Dozen (WSL2)", 128 * MIB, "{cite}`whisper-cpp-3777`"),
)
"""RADV (AMD) and ANV (Intel, since Skylake) are Linux's, and report a few bytes less than 4 GiB."""


@dataclass(frozen=True)
class Needed:
    """A matrix that a card would multiply: its bytes, and those of the larger of its input and product."""

    name: str
    n_bytes: int
    batch_bytes: int

    @property
    def most(self) -> int:
        """The bytes that a driver must let llama.cpp use."""
        return max(self.n_bytes, self.batch_bytes)


@cache
def largest_matrix(model: str, type: str) -> Needed:
    """The matrix of a model that needs most; a table of the input stays on the CPU and does not count."""
    shaped = shape(model, type)
    matrices = [tensor for tensor, _ in layer_tensors(shaped) if len(tensor.shape) > 1]
    needed = [Needed(tensor.name, tensor.n_bytes, batch_bytes(tensor, shaped)) for tensor in matrices]
    return max(needed, key=lambda one: one.most)


@cache
def too_large(n_bytes: int, type: str) -> dict[str, Needed]:
    """The models of the list with a matrix above a limit in this type, the one that needs least first."""
    needed = {name: largest_matrix(name, type) for name in known_models()}
    above = {name: matrix for name, matrix in needed.items() if matrix.most > n_bytes}
    return dict(sorted(above.items(), key=lambda item: item[1].most))


def limit_table() -> Table:
    """For each driver, how many models of the list have a matrix that is too large, and the first of them."""
    heads = (
        "driver",
        "largest matrix",
        *(f"models above it in {type}, and the smallest" for type in (MIX, WHOLE)),
        "source",
    )
    return heads, [
        (limit.driver, _size(limit.n_bytes), *(_refused(limit.n_bytes, type) for type in (MIX, WHOLE)), limit.source)
        for limit in LIMITS
    ]


def _refused(limit: int, type: str) -> str:
    found = too_large(limit, type)
    name, matrix = next(iter(found.items()))
    kind = "experts" if "exps" in matrix.name else "output"
    return f"{len(found)} of {len(known_models())}: {known_model(name).name}, its {kind}"


def _size(n_bytes: float) -> str:
    return f"{n_bytes / GIB:.3g} GiB" if n_bytes >= GIB else f"{n_bytes / MIB:.0f} MiB"


# --- what a build was made for ------------------------------------------------------------------

RELEASE = {
    *("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1010", "gfx1011", "gfx1012"),
    *("gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"),
    *("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1200", "gfx1201"),
}
"""llama.cpp's release for Ubuntu with ROCm (.github/workflows/release.yml:1546)."""
IMAGE = {
    *("gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1101", "gfx1102"),
    *("gfx1150", "gfx1151", "gfx1200", "gfx1201"),
}
"""llama.cpp's image with ROCm (.devops/rocm.Dockerfile:37)."""
TARGETS = {
    "gfx1030": "RX 6800, 6900 XT",
    "gfx1031": "RX 6700 XT",
    "gfx1032": "RX 6600 XT, 6650 XT",
    "gfx1100": "RX 7900 XT, XTX",
    "gfx1101": "RX 7700 XT, 7800 XT",
    "gfx1102": "RX 7600",
    "gfx1103": "780M",
    "gfx1150": "890M",
    "gfx1151": "8060S (Ryzen AI Max)",
    "gfx1152": "860M",
    "gfx1200": "RX 9060 XT",
    "gfx1201": "RX 9070 XT, R9700",
}
"""Chips of graphics cards and processors by their target, as ROCm and LLVM name them."""


def target_table() -> Table:
    """Whether the release and the image have a chip."""
    heads = ("target", "chip", "release", "image `:server-rocm`")
    have = ("no", "yes")
    return heads, [
        (f"`{target}`", chip, have[target in RELEASE], have[target in IMAGE]) for target, chip in TARGETS.items()
    ]


# --- numbers ------------------------------------------------------------------------------------


def numbers() -> dict[str, Cell]:
    """Everything that the page's sentences show."""
    return _pair_numbers() | _thread_numbers() | _limit_numbers() | _plan_numbers()


def _pair_numbers() -> dict[str, Cell]:
    every = pairs()
    rows = [row for pair in every for row in (pair.vulkan, pair.own)]
    decode = [pair.ratio for pair in of_group("decode, quantized", every)]
    arc = {pair.own.phase: pair for pair in pairs(SYCL)}
    dates = sorted(row.date for row in rows)
    return {
        "pairs": len(every),
        "pair_cards": len({pair.own.card for pair in every}),
        "pair_repositories": n_sources(rows),
        "pairs_halo": sum(pair.own.card == HALO for pair in every),
        "pairs_same_build": sum(pair.same_build for pair in every),
        "pairs_from": dates[0][:4],
        "pairs_to": dates[-1][:7],
        "decode_middle": median(decode),
        "decode_pairs": len(decode),
        "decode_faster": sum(ratio > 1 for ratio in decode),
        "deep_older": older_image_ratio(),
        "arc_decode_vulkan": arc[DECODE].vulkan.rate,
        "arc_decode_sycl": arc[DECODE].own.rate,
        "arc_prompt": arc[PROMPT].ratio,
    }


def _thread_numbers() -> dict[str, Cell]:
    names = ("halo prompt short", "halo prompt long", "halo decode", "halo decode deep", "arc decode")
    ratios: dict[str, Cell] = {
        name.replace(" ", "_"): figure(name) / figure(name, SYCL if "arc" in name else ROCM) for name in names
    }
    return ratios | {
        "arc_deep_vulkan": figure("arc deep"),
        "arc_deep_sycl": figure("arc deep", SYCL),
        "wrong_rocm": figure("wrong perplexity", ROCM),
        "wrong_vulkan": figure("wrong perplexity"),
        "bios_rocm": figure("gtt only bios", ROCM),
        "bios_vulkan": figure("gtt only bios"),
        "blocks_slow": figure("blocks"),
        "blocks_fast": figure("blocks", at=1),
        "regression": figure("regression", at=1) / figure("regression"),
    }


def _limit_numbers() -> dict[str, Cell]:
    return {
        "gtt_gib": GTT_GIB,
        "gtt_pages": GTT_GIB * GIB // PAGE_BYTES,
        "gemma_output_gib": largest_matrix("gemma-3-27b", WHOLE).n_bytes / GIB,
        "gemma_output_mix_gib": largest_matrix("gemma-3-27b", MIX).n_bytes / GIB,
        "logits_mib": largest_matrix("gemma-3-27b", WHOLE).batch_bytes / MIB,
        "gemma_vocabulary": known_model("gemma-3-27b").n_vocab,
    }


def _plan_numbers() -> dict[str, Cell]:
    compute = planned("compute")
    return {
        "plan_models": compute.models,
        "plan_buffers": compute.n,
        "plan_inside": compute.agree,
        "plan_least": compute.least,
        "plan_most": compute.most,
    }
