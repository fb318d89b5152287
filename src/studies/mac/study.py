"""What macOS leaves the GPU, what others published of Apple's chips, and MLX beside llama.cpp: tables and numbers.

Nothing here was measured by this book. Limits come from `data/facts/gpu_shares.toml`, rates from
`inferlab.results.public_rates`, and what that list has no room for from `records/reported.csv`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import quote

from inferlab.facts import read_table
from inferlab.model.catalog import known_model
from inferlab.model.synthetic_model import shape
from inferlab.prediction.cards import known_card, known_cards
from inferlab.prediction.decode_bound import token_bytes
from inferlab.prediction.gpu_share import GpuShare, gpu_share, older_share
from inferlab.prediction.memory.cache import kv_cache_bytes
from inferlab.results.public_rates import DECODE, PROMPT, of_card, one_row, public_rates
from inferlab.settings import Settings
from inferlab.units import GB, GIB

Cell = str | int | float
Table = tuple[Sequence[str], list[Sequence[Cell]]]
"""The heads and the rows of `handbook.table`."""

RECORD = Path(__file__).parent / "records" / "reported.csv"
SYSTEM = "macos"
MODEL = "llama-3.1-70b"
SMALL, LARGE, RAISED = 16, 64, 56
"""GiB of two Macs, and of the limit that the second one is given."""
DEEP = 32768
"""Tokens in the cache before a prompt."""
MLX, LLAMA = "MLX", "llama.cpp"
GROUP, SCALE_BITS = 64, 32
"""Weights of a group that MLX quantizes together by default, and bits of its scale and its offset."""


# --- what is reported -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Reported:
    """One published figure of records/reported.csv.

    commit, line  of the file `path`; a thread has neither
    what          PROMPT, DECODE, or what `value` counts
    n_tokens      of the prompt, or before the tokens that were decoded; "" where neither
    """

    repository: str
    path: str
    commit: str
    line: str
    who: str
    card: str
    model: str
    engine: str
    version: str
    type: str
    what: str
    n_tokens: str
    value: float
    unit: str
    date: str

    @property
    def link(self) -> str:
        """Whose it is and of when, as a link to it."""
        base = f"https://github.com/{self.repository}/"
        file = f"blob/{self.commit}/{quote(self.path)}?plain=1#L{self.line}" if self.commit else self.path
        return f"[{self.who}, {self.date}]({base}{file})"


@cache
def reported() -> tuple[Reported, ...]:
    """Every row of the record."""
    rows = csv.DictReader(RECORD.read_text(encoding="utf-8").splitlines())
    return tuple(map(_reported, rows))


def _reported(cells: Mapping[str, str]) -> Reported:
    texts = {name: text for name, text in cells.items() if name != "value"}
    return Reported(**texts, value=float(cells["value"]))


# --- memory ---------------------------------------------------------------------------------------


def share(gib: int) -> GpuShare:
    """What macOS leaves the GPU of a Mac with so many GiB."""
    found = gpu_share(SYSTEM, gib * GIB)
    assert found is not None, f"No log of a Mac with {gib} GiB or less."
    return found


def share_table() -> Table:
    """GiB that the GPU may use, by a log of a Mac of that size, and what is left for everything else."""
    heads = ("memory, GiB", "macOS 26, GiB", "share", "left, GiB", "before, GiB", "logs")
    return heads, [_share_row(gib) for gib in _logged_sizes()]


def _logged_sizes() -> list[int]:
    """GB of the Macs of which there is a log of the newest system."""
    return sorted(line["memory"] for line in read_table("gpu_shares")[SYSTEM]["logged"])


def _share_row(gib: int) -> Sequence[Cell]:
    now, before = share(gib), older_share(SYSTEM, gib * GIB)
    old = before if before and before.logged else None
    keys = dict.fromkeys([now.source, *([old.source] if old else [])])
    return (
        gib,
        f"{now.gpu_bytes / GIB:.1f}",
        f"{100 * now.gpu_bytes / now.memory_bytes:.0f} %",
        f"{left_bytes(now) / GIB:.1f}",
        f"{old.gpu_bytes / GIB:.1f}" if old else "",
        f"{{cite}}`{','.join(keys)}`",
    )


def left_bytes(found: GpuShare) -> int:
    """What a Mac has beside the GPU's share."""
    return found.memory_bytes - found.gpu_bytes


def memory_numbers() -> dict[str, float]:
    """GiB of two Macs, what a raised limit gains, and how many tokens of a model's cache fit there."""
    small, large = share(SMALL), share(LARGE)
    gain = RAISED * GIB - large.gpu_bytes
    model = shape(MODEL)
    token = kv_cache_bytes(model, Settings(n_ctx=256)) / 256
    return {
        "share_small": small.gpu_bytes / GIB,
        "share_large": large.gpu_bytes / GIB,
        "left_small": left_bytes(small) / GIB,
        "left_large": left_bytes(large) / GIB,
        "raised": RAISED,
        "raised_left": LARGE - RAISED,
        "gain": gain / GIB,
        "gain_tokens": int(gain // token),
    }


# --- chips ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chip:
    """A chip with a model, as somebody published it: tokens per second.

    n_bytes  of the model's file, None where it is not stated
    link     whose it is, to open
    """

    card: str
    model: str
    type: str
    n_bytes: float | None
    prompt: float
    decode: float
    link: str

    @property
    def title(self) -> str:
        return _kind(known_card(self.card).title)

    @property
    def bandwidth(self) -> float:
        """Bytes per second, as rated."""
        return known_card(self.card).bandwidth_bytes_per_second

    @property
    def share(self) -> float:
        """The decode rate over what the rated bandwidth allows."""
        model = shape(self.model, self.type)
        factor = self.n_bytes / model.tensor_bytes if self.n_bytes else 1.0
        return self.decode * token_bytes(model) * factor / self.bandwidth

    @property
    def model_text(self) -> str:
        """The model without its version, which changes no size, and the type."""
        return f"{known_model(self.model).name.removesuffix(' v0.2')}, {self.type.removesuffix('_MOE')}"


SMALL_CHIPS = (
    ("apple-m1", "gpu-benchmarks-on-llm-inference", "llama-3-8b", 512, 512),
    ("apple-m2", "llama.cpp-5480", "mistral-7b", 512, 128),
    ("apple-m4", "normiebench-3", "llama-3.1-8b", 512, 128),
    ("apple-m5", "llama.cpp-16634", "mistral-7b", 512, 128),
)
LARGE_CHIPS = (
    ("apple-m1-pro", "llama.cpp-15396", "gpt-oss-20b", 2048, 128),
    ("apple-m4-pro", "llama.cpp-15396", "gpt-oss-20b", 2048, 128),
    ("apple-m1-max", "llama.cpp-15396", "gpt-oss-20b", 2048, 128),
    ("apple-m2-ultra", "llama.cpp-benches", "gpt-oss-20b", 2048, 32),
    ("apple-m3-ultra", "llama.cpp-15396", "gpt-oss-20b", 2048, 128),
)
"""Card, source, model, tokens of the prompt and of the decode, by bandwidth: the newest rows with both rates."""


def chips() -> list[Chip]:
    """Small chips with dense models, then larger ones with one mixture."""
    return [_chip(*case) for case in (*SMALL_CHIPS, *LARGE_CHIPS)]


def _chip(card: str, source: str, model: str, n_prompt: int, n_decode: int) -> Chip:
    fields = {"source": source, "model": model, "depth": 0}
    decode = one_row(of_card(card), n_tokens=n_decode, **fields)
    prompt = one_row(of_card(card, PROMPT), n_tokens=n_prompt, type=decode.type, **fields)
    return Chip(card, model, decode.type, decode.n_bytes, prompt.rate, decode.rate, decode.link)


def chip_table() -> Table:
    """Rates by chip, with the share of what its bandwidth allows."""
    heads = ("chip", "GB/s", "model", "prompt, tokens/s", "decode, tokens/s", "of the bound", "source")
    return heads, [
        (
            chip.title,
            round(chip.bandwidth / GB),
            chip.model_text,
            chip.prompt,
            chip.decode,
            f"{100 * chip.share:.0f} %",
            chip.link,
        )
        for chip in chips()
    ]


def without_rows() -> list[str]:
    """Apple's chips of the list of cards without a row in the list of rates."""
    measured = {one.card for one in public_rates()}
    cards = [card for card in known_cards().values() if card.backend == "metal"]
    seen = {_kind(card.title) for card in cards if card.name in measured}
    return [kind for kind in dict.fromkeys(_kind(card.title) for card in cards) if kind not in seen]


def _kind(title: str) -> str:
    """`M4 Max` of "Apple M4 Max, 40 GPU cores"."""
    return title.removeprefix("Apple ").partition(",")[0]


def chip_numbers() -> dict[str, float]:
    """Shares of the bound, a graphics card beside a Mac, a deep prompt, an M2 beside an M5."""
    dense, mixture = ([_chip(*case).share for case in cases] for cases in (SMALL_CHIPS, LARGE_CHIPS))
    by_card = {chip.card: chip for chip in chips()}
    m2, m5 = by_card["apple-m2"], by_card["apple-m5"]
    empty, deep = (
        one_row(of_card("apple-m2-ultra", PROMPT), source="llama.cpp-benches", model="gpt-oss-20b", depth=depth).rate
        for depth in (0, DEEP)
    )
    return {
        "bound_dense_least": 100 * min(dense),
        "bound_dense_most": 100 * max(dense),
        "bound_mixture_least": 100 * min(mixture),
        "bound_mixture_most": 100 * max(mixture),
        "deep": DEEP,
        "deep_kept": 100 * deep / empty,
        "m5_prompt": m5.prompt / m2.prompt,
        "m5_decode": m5.decode / m2.decode,
        "m5_bandwidth": m5.bandwidth / m2.bandwidth,
        "tensor_least": _of_tensor("least"),
        "tensor_most": _of_tensor("most"),
        **_beside_a_card(),
    }


def _of_tensor(end: str) -> float:
    return one_row(reported(), what=f"prompt with the tensor API over without: {end}").value


def _beside_a_card() -> dict[str, float]:
    """An RTX 3090 over an M2 Ultra, in one source: bandwidth, and both rates of one file."""
    mac, card = "apple-m2-ultra", "rtx-3090"
    ratio = known_card(card).bandwidth_bytes_per_second / known_card(mac).bandwidth_bytes_per_second
    return {"card_bandwidth": ratio, **{f"card_{phase}": _of(card, phase) / _of(mac, phase) for phase in _PHASES}}


_PHASES = (PROMPT, DECODE)


def _of(card: str, phase: str) -> float:
    source = "gpu-benchmarks-on-llm-inference"
    return one_row(of_card(card, phase), source=source, model="llama-3-8b", type="Q4_K_M", n_tokens=512).rate


# --- MLX ------------------------------------------------------------------------------------------

PAIRS = (
    ("apple-m3-max-40", "Llama 3.3 70B", "Q4_0", "b4326"),
    ("apple-m3-max-40", "Llama 3.3 70B", "Q4_K_M", "b4326"),
    ("apple-m5-max-40", "Qwen3.5 9B", "Q4_K_M", "b8500"),
    ("apple-m5-max-40", "Qwen3.5 35B A3B", "Q4_K_M", "b8500"),
)
"""Card, model, and llama.cpp's type and build; MLX has one row of each model."""


def pair(card: str, model: str, type: str, build: str) -> Mapping[str, tuple[Reported, Reported]]:
    """Phase -> what MLX and llama.cpp reached."""
    here = {"card": card, "model": model}
    return {
        phase: (
            one_row(reported(), engine=MLX, what=phase, **here),
            one_row(reported(), version=build, type=type, what=phase, **here),
        )
        for phase in _PHASES
    }


def mlx_table() -> Table:
    """MLX beside llama.cpp, tokens per second."""
    heads = ("chip and model", "MLX", "llama.cpp", "prompt, tokens", "prompt rates", "decode rates", "source")
    return heads, [_mlx_row(pair(*case)) for case in PAIRS]


def _mlx_row(found: Mapping[str, tuple[Reported, Reported]]) -> Sequence[Cell]:
    mlx, llama = found[PROMPT]
    return (
        f"{_kind(known_card(mlx.card).title)}: {mlx.model}",
        f"{mlx.type}, {mlx.version}",
        f"{llama.type}, {llama.version}",
        int(mlx.n_tokens),
        _both(found[PROMPT]),
        _both(found[DECODE]),
        llama.link,
    )


def _both(rows: Iterable[Reported]) -> str:
    return " / ".join(f"{row.value:,.0f}" if row.value >= 100 else f"{row.value:.3g}" for row in rows)


def mlx_numbers() -> dict[str, float]:
    """MLX over llama.cpp with as many bits, and with more; bits of its 4; one build on two days."""
    alike, larger = (pair(*case)[DECODE] for case in PAIRS[:2])
    newer = [pair(*case) for case in PAIRS[2:]]
    first, second = (
        one_row(reported(), model="Qwen3.5 9B", version=version, what=PROMPT).value
        for version in ("b8500", "b8500, another series")
    )
    return {
        "mlx_bits": 4 + SCALE_BITS / GROUP,
        "mlx_alike": _ratio(alike),
        "mlx_larger": _ratio(larger),
        **{f"mlx_{phase}_{end}": pick(map(_ratio, (found[phase] for found in newer))) for phase, end, pick in _ENDS},
        "again_first": first,
        "again_second": second,
    }


_ENDS = [(phase, end, pick) for phase in _PHASES for end, pick in (("least", min), ("most", max))]


def _ratio(rows: tuple[Reported, Reported]) -> float:
    mlx, llama = rows
    return mlx.value / llama.value


def numbers() -> dict[str, float | str]:
    """What the page glues."""
    return {**memory_numbers(), **chip_numbers(), **mlx_numbers(), "without": ", ".join(without_rows())}
