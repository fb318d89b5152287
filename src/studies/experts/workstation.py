"""A workstation by the data sheets of its parts: which models fit, how fast they can be, what another part gains."""

from __future__ import annotations

from collections.abc import Sequence
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
from inferlab.records import load
from inferlab.settings import Settings
from inferlab.units import GB, GIB
from studies.experts.sizing import (
    EXPERTS,
    LAYERS,
    MOST_TELLING,
    NOTHING,
    Parts,
    Placing,
    parts_with,
    place,
    ram_rate,
    rung,
)

Name = tuple[str, str]
Table = tuple[Sequence[str], Sequence[Sequence[str | float]]]
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
ENGINE_CORES = 12  # a given
CAPPED = ("power", "decode", "capped-power", "capped-decode")
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


@cache
def parts(transfers: str = "two-modules") -> Parts:
    """An RTX 5090, and RAM in two modules or in four."""
    return parts_with("rtx-5090", 128 * GIB - SYSTEM_BYTES, transfers)


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
    two, four = parts(), parts("four-modules")
    dense, mixture, disk = placed(DENSE), placed(MIXTURE), rung("NVMe SSD (990 PRO)")
    card_power, cpu_power = facts()["rtx-5090-power"], facts()["ryzen-9950x-power"]
    sheet = ("cores", "threads", "channels", "two-modules", "four-modules", "most-memory", "lanes", "power")
    seen_bytes = token_bytes(shape("qwen3-30b-a3b", "Q4_0"), depth=2048)
    seen_dense = token_bytes(shape("qwen2.5-7b", "Q4_K_M"))
    return {
        "n_ctx": N_CTX,
        "most_telling": MOST_TELLING,
        "crowded": _lost_by_sharing_a_core(),
        "whole": placed(WHOLE).tokens_per_second(two),
        "split": placed(SPLIT).tokens_per_second(two),
        "split_layers": placed(SPLIT).n_moved,
        **{f"cpu_{line}": facts()[f"ryzen-9950x-{line}"] for line in sheet},
        "ratio": two.vram_rate / two.ram_rate,
        "two_gb": two.ram_rate / GB,
        "four_gb": four.ram_rate / GB,
        "four_less": 100 * (1 - four.ram_rate / two.ram_rate),
        "vram_gb": two.vram_bytes / GIB,
        "vram_rate": two.vram_rate / GB,
        "module_gb": facts()["64gb-module"],
        "bus_gb": rung("PCIe 5.0, 16 lanes").bytes_per_second / GB,
        "disk_gb": disk.bytes_per_second / GB,
        "disk_tb": facts()["990-pro-largest"] / 1000,
        "load_s": disk.seconds(model(MIXTURE).tensor_bytes),
        **{f"card_{name}": facts()[f"rtx-5090-{name}"] for name in ("power", "spike", "supply")},
        "both_power": card_power + cpu_power,
        "two_cards_power": 2 * card_power + cpu_power,
        **{f"cap_{name}": facts()[f"rtx-5060-ti-{name}"] for name in CAPPED},
        "seen": facts()["rtx-4090-qwen3-30b-a3b"],
        "seen_most": 1e9 * facts()["rtx-4090-bandwidth"] / seen_bytes,
        "share": 100 * facts()["rtx-4080-decode"] * seen_dense / (1e9 * facts()["rtx-4080-bandwidth"]),
        "ram_share": 100 * (dense.ram_read / two.ram_rate) / dense.seconds(two),
        "byte_share": 100 * dense.ram_read / (dense.ram_read + dense.vram_read),
        "modules_loss": 100 * (1 - mixture.tokens_per_second(four) / mixture.tokens_per_second(two)),
        "mixture_read": mixture.ram_read / GB,
        "mixture_held": mixture.ram_bytes / GB,
    }


def _lost_by_sharing_a_core() -> float:
    """Percent of decode that a server with two threads on one core loses against one thread."""
    rates: dict[tuple[int, int], list[float]] = {}
    for served in load("epyc-2c/http-cores"):
        threads_cores = served.settings.n_threads, served.n_cores
        rates.setdefault(threads_cores, []).append(served.replies[0].tokens_per_second)
    return 100 * (1 - median(rates[2, 1]) / median(rates[1, 1]))


# --- tables -------------------------------------------------------------------------------------


def models_table() -> Table:
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
    rows = []
    for name in MODELS:
        at = placed(name)
        in_ram = {NOTHING: NOTHING, LAYERS: f"{at.n_moved} layers", EXPERTS: f"experts of {at.n_moved} layers"}
        bounds = _bound(at, parts()), _bound(at, parts("four-modules"))
        file_gb, ram_gib = model(name).tensor_bytes / GB, at.ram_bytes / GIB
        rows.append((title(name), file_gb, in_ram[at.in_ram], ram_gib, _conversations(name), *bounds))
    return heads, rows


def _bound(at: Placing, changed: Parts) -> str:
    rate = at.tokens_per_second(changed)
    if not at.fits(changed):
        return "does not fit"
    return f"over {MOST_TELLING:.0f}" if rate > MOST_TELLING else f"{rate:.3g}"


def _conversations(name: Name) -> str:
    """How many contexts fit beside the weights, where all of them lie on the card."""
    if placed(name).in_ram != NOTHING:
        return "–"
    asked = Settings(n_ctx=N_CTX, flash_attn="on")
    longest = fit(model(name), asked, vram=parts().vram_bytes, simulate=False).largest_n_ctx.settings
    return str(longest.n_ctx // N_CTX if longest else 0)


def changes_table() -> Table:
    """Heads and rows: the bounds of three models with one part changed."""
    names = (WHOLE, DENSE, MIXTURE)
    changes = {
        "nothing": parts(),
        "size of VRAM, twice": replace(parts(), vram_bytes=2 * parts().vram_bytes),
        "bandwidth of VRAM, twice": replace(parts(), vram_rate=2 * parts().vram_rate),
        "size of RAM, twice": replace(parts(), ram_bytes=2 * parts().ram_bytes),
        "bandwidth of RAM, twice": replace(parts(), ram_rate=2 * parts().ram_rate),
        "RTX PRO 6000 instead": replace(parts(), vram_bytes=known_card("rtx-pro-6000").memory_bytes[0]),
        "two modules of DDR5-6000": replace(parts(), ram_rate=ram_rate(6000)),
    }
    return ("changed", *map(title, names)), [
        (shown, *(place(model(name), changed, N_CTX).tokens_per_second(changed) for name in names))
        for shown, changed in changes.items()
    ]


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
