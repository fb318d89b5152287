"""A workstation by the data sheets of its parts: which models fit, how fast they can be, what another part gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from statistics import median

from inferlab.facts import cited_facts
from inferlab.model.catalog import known_model
from inferlab.model.gguf import Model
from inferlab.model.synthetic_model import shape
from inferlab.prediction.cards import known_card
from inferlab.prediction.decode_bound import token_bytes
from inferlab.prediction.fit import fit
from inferlab.prediction.link_rates import Rung, cited_rungs
from inferlab.records import load
from inferlab.settings import Settings
from inferlab.units import GB, GIB
from studies.experts.sizing import EXPERTS, LAYERS, MOST_TELLING, NOTHING, Parts, Placing, place

Name = tuple[str, str]
N_CTX, SYSTEM_BYTES = 16384, 8 * GIB  # givens: cells of a conversation, RAM for system and programs
WHOLE, SPLIT = ("qwen3-32b", "Q6_K"), ("qwen3-32b", "Q8_0")
DENSE, MIXTURE = ("llama-3.1-70b", "Q4_K_M"), ("qwen3-235b-a22b", "Q4_K_M")
MODELS: Sequence[Name] = (
    ("llama-3.1-8b", "Q8_0"),
    ("qwen3-30b-a3b", "Q4_K_M"),
    WHOLE,
    SPLIT,
    DENSE,
    ("qwen3-235b-a22b", "Q3_K_M"),
    MIXTURE,
)
CHANGED: Mapping[str, str] = {
    "size of VRAM, twice": "vram_bytes",
    "bandwidth of VRAM, twice": "vram_rate",
    "size of RAM, twice": "ram_bytes",
    "bandwidth of RAM, twice": "ram_rate",
}
ENGINE_CORES = 12  # a given
SLICE = """\
# /etc/systemd/system/inference.slice
[Slice]
AllowedCPUs={engine}

# in the [Service] of llama-server
Slice=inference.slice
ExecStart=/usr/bin/llama-server -m /srv/model.gguf -c {n_ctx} -t {n_threads}

# the rest, until the next boot
for unit in system.slice user.slice init.scope; do
  sudo systemctl set-property --runtime $unit \\
    AllowedCPUs={rest}
done
systemctl show llama-server -p EffectiveCPUs"""


@cache
def facts() -> dict[str, float]:
    return {name: fact.value for name, fact in cited_facts("cards").items()}


def ram_rate(transfers: float) -> float:
    """Bytes per second of all channels, 64 bits each, at so many million transfers per second."""
    return facts()["ryzen-9950x-channels"] * 8 * transfers * 1e6


@cache
def parts() -> Parts:
    """An RTX 5090, and RAM in two modules."""
    card = known_card("rtx-5090")
    return Parts(
        vram_bytes=card.memory_bytes[0],
        vram_rate=card.bandwidth_bytes_per_second,
        ram_bytes=128 * GIB - SYSTEM_BYTES,
        ram_rate=ram_rate(facts()["ryzen-9950x-two-modules"]),
    )


def four_modules() -> Parts:
    return replace(parts(), ram_rate=ram_rate(facts()["ryzen-9950x-four-modules"]))


@cache
def model(name: Name) -> Model:
    return shape(*name)


def title(name: Name) -> str:
    return f"{known_model(name[0]).name}, {name[1]}"


@cache
def placed(name: Name) -> Placing:
    return place(model(name), parts(), N_CTX)


# --- numbers ------------------------------------------------------------------------------------


def numbers() -> dict[str, float]:
    """The numbers of the page *A workstation, sized*."""
    return {
        "n_ctx": N_CTX,
        "most_telling": MOST_TELLING,
        "crowded": _lost_by_sharing_a_core(),
        "whole": placed(WHOLE).tokens_per_second(parts()),
        "split": placed(SPLIT).tokens_per_second(parts()),
        "split_layers": placed(SPLIT).n_moved,
        **_sheet_numbers(),
        **_power_numbers(),
        **_seen_numbers(),
        **_part_numbers(),
    }


def _sheet_numbers() -> dict[str, float]:
    """Lines of the data sheets, and rates that follow from them."""
    two, four, disk = parts().ram_rate, four_modules().ram_rate, _rung("NVMe SSD (990 PRO)")
    lines = ("cores", "threads", "channels", "two-modules", "four-modules", "most-memory", "lanes", "power")
    return {
        **{f"cpu_{line}": facts()[f"ryzen-9950x-{line}"] for line in lines},
        "ratio": parts().vram_rate / two,
        "two_gb": two / GB,
        "four_gb": four / GB,
        "four_less": 100 * (1 - four / two),
        "vram_gb": parts().vram_bytes / GIB,
        "vram_rate": parts().vram_rate / GB,
        "module_gb": facts()["64gb-module"],
        "bus_gb": _rung("PCIe 5.0, 16 lanes").bytes_per_second / GB,
        "disk_gb": disk.bytes_per_second / GB,
        "disk_tb": facts()["990-pro-largest"] / 1000,
        "load_s": disk.seconds(model(MIXTURE).tensor_bytes),
    }


def _rung(name: str) -> Rung:
    return next(one for one in cited_rungs() if one.name == name)


def _power_numbers() -> dict[str, float]:
    card, cpu = facts()["rtx-5090-power"], facts()["ryzen-9950x-power"]
    capped = ("power", "decode", "capped-power", "capped-decode")
    return {
        **{f"card_{name}": facts()[f"rtx-5090-{name}"] for name in ("power", "spike", "supply")},
        "both_power": card + cpu,
        "two_cards_power": 2 * card + cpu,
        **{f"cap_{name}": facts()[f"rtx-5060-ti-{name}"] for name in capped},
    }


def _seen_numbers() -> dict[str, float]:
    """Published rates beside what the bandwidth of their cards allows."""
    seen_bytes = token_bytes(shape("qwen3-30b-a3b", "Q4_0"), depth=2048)
    read = token_bytes(shape("qwen2.5-7b", "Q4_K_M"))
    return {
        "seen": facts()["rtx-4090-qwen3-30b-a3b"],
        "seen_most": 1e9 * facts()["rtx-4090-bandwidth"] / seen_bytes,
        "share": 100 * facts()["rtx-4080-decode"] * read / (1e9 * facts()["rtx-4080-bandwidth"]),
    }


def _part_numbers() -> dict[str, float]:
    """Where a token of the dense model and of the mixture is read."""
    dense, mixture = placed(DENSE), placed(MIXTURE)
    slower = mixture.tokens_per_second(four_modules()) / mixture.tokens_per_second(parts())
    return {
        "ram_share": 100 * (dense.ram_read / parts().ram_rate) / dense.seconds(parts()),
        "byte_share": 100 * dense.ram_read / (dense.ram_read + dense.vram_read),
        "modules_loss": 100 * (1 - slower),
        "mixture_read": mixture.ram_read / GB,
        "mixture_held": mixture.ram_bytes / GB,
    }


def _lost_by_sharing_a_core() -> float:
    """Percent of decode that a server with two threads on one core loses against one thread."""
    rates: dict[tuple[int, int], list[float]] = {}
    for one in load("epyc-2c/http-cores"):
        rates.setdefault((one.settings.n_threads, one.n_cores), []).append(one.replies[0].tokens_per_second)
    return 100 * (1 - median(rates[2, 1]) / median(rates[1, 1]))


# --- tables -------------------------------------------------------------------------------------


def models_table() -> tuple[Sequence[str], list[Sequence[str | float]]]:
    """Heads and rows: for each model what lies in RAM, and the bounds with two and with four modules."""
    heads = (
        "model",
        "file, GB",
        "in RAM",
        "RAM, GiB",
        "conversations on the card",
        "tokens/s, two modules",
        "four modules",
    )
    return heads, [_model_row(name, placed(name)) for name in MODELS]


def _model_row(name: Name, one: Placing) -> Sequence[str | float]:
    in_ram = {NOTHING: NOTHING, LAYERS: f"{one.n_moved} layers", EXPERTS: f"experts of {one.n_moved} layers"}
    bounds = _bound(one, parts()), _bound(one, four_modules())
    return (
        title(name),
        model(name).tensor_bytes / GB,
        in_ram[one.in_ram],
        one.ram_bytes / GIB,
        _conversations(name),
        *bounds,
    )


def _bound(one: Placing, found: Parts) -> str:
    if not one.fits(found):
        return "does not fit"
    return f"over {MOST_TELLING:.0f}" if one.launches_decide(found) else f"{one.tokens_per_second(found):.3g}"


def _conversations(name: Name) -> str:
    """How many contexts fit beside the weights, where all of them lie on the card."""
    if placed(name).in_ram != NOTHING:
        return "–"
    asked = Settings(n_ctx=N_CTX, flash_attn="on")
    found = fit(model(name), asked, vram=parts().vram_bytes, simulate=False)
    return str((found.largest_n_ctx.value or 0) // N_CTX)


def changes_table() -> tuple[Sequence[str], list[Sequence[str | float]]]:
    """Heads and rows: the bounds of three models with one part changed."""
    names = (WHOLE, DENSE, MIXTURE)
    changes = {
        "nothing": {},
        **{shown: {part: 2 * getattr(parts(), part)} for shown, part in CHANGED.items()},
        "RTX PRO 6000 instead": {"vram_bytes": known_card("rtx-pro-6000").memory_bytes[0]},
        "two modules of DDR5-6000": {"ram_rate": ram_rate(6000)},
    }
    rows = [(shown, *(_rate_with(name, change) for name in names)) for shown, change in changes.items()]
    return ("changed", *map(title, names)), rows


def _rate_with(name: Name, change: Mapping[str, float]) -> float:
    changed = replace(parts(), **change)
    return place(model(name), changed, N_CTX).tokens_per_second(changed)


# --- cores --------------------------------------------------------------------------------------


def slice_text() -> str:
    """Units of systemd that give the engine cores of its own, and the rest to all else."""
    engine, rest = cpu_lists(int(facts()["ryzen-9950x-cores"]), ENGINE_CORES)
    return SLICE.format(engine=engine, rest=rest, n_ctx=N_CTX, n_threads=ENGINE_CORES)


def cpu_lists(n_cores: int, n_engine: int) -> tuple[str, str]:
    """Logical processors for an engine and for all else, as systemd and taskset take them: ("0-11", "12-15,28-31").

    The engine gets the first thread of its cores, and the others of these cores stay idle. Thread t of core i has the
    number i + t * n_cores, as Linux counts on many desktop processors; `lscpu -e` shows it.
    """
    return f"0-{n_engine - 1}", f"{n_engine}-{n_cores - 1},{n_cores + n_engine}-{2 * n_cores - 1}"
