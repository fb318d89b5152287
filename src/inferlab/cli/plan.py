"""`inferlab plan`: does a model fit into memory, computed before anything is loaded."""

from __future__ import annotations

import argparse
import json
from math import ceil
from pathlib import Path
from typing import Any

from inferlab.cli.options import add_placement, settings_from, size
from inferlab.engine.option_lines import programs_for
from inferlab.errors import ModelNotFound
from inferlab.model.catalog import known_models
from inferlab.model.gguf import Model
from inferlab.model.named import model_named
from inferlab.model.quant_mixes import MIXES
from inferlab.prediction.fit import DEFAULT_N_CTX, RESERVE_BYTES, Answer, Fit, fit
from inferlab.prediction.memory import MemoryPlan
from inferlab.prediction.paste import Pasted, lines_for
from inferlab.units import GIB, KIB, MIB, bytes_text

SIGNS = {"weights": ("█", "white"), "kv_cache": ("▓", "cyan"), "compute": ("▒", "magenta"), "output": ("░", "red")}
BAR = 48
FITS_STYLES = {"yes": "bold green", "no": "bold red", "unsure": "bold yellow"}


def add_plan(commands: Any) -> None:
    command = commands.add_parser(
        "plan",
        help="does it fit: bytes on each device, before anything is loaded",
        description="Plan the memory of a model and compare it with a card's. Exit status 0 whether it fits or not.",
    )
    command.set_defaults(command=run_plan)
    command.add_argument("model", metavar="MODEL", help="a .gguf file, `tiny`, hf:..., or a known name: mistral-7b")
    command.add_argument("--type", choices=MIXES, metavar="TYPE", help="of a known name (default Q4_K_M)")
    command.add_argument("--n-ctx", type=int, default=DEFAULT_N_CTX, help=f"default {DEFAULT_N_CTX}")
    add_placement(command)
    command.add_argument("--vram", type=size, metavar="8GiB", help="plan for such a card (default: this machine)")
    command.add_argument(
        "--reserve", type=size, default=RESERVE_BYTES, metavar="1GiB", help="left free on each device (default 1GiB)"
    )
    command.add_argument(
        "--for", dest="program", choices=programs_for(), metavar="PROGRAM",
        help=f"also print the plan as the lines to paste there: {', '.join(programs_for())}",
    )  # fmt: skip
    command.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def run_plan(options: argparse.Namespace) -> None:
    model = model_to_plan(options.model, options.type)
    settings = settings_from(options)
    machine = options.engine.machine() if options.vram is None else None
    found = fit(model, settings, machine, vram=options.vram, reserve_bytes=options.reserve)
    pasted = lines_for(found, options.program, path_of(model), model.n_ctx_train) if options.program else None
    if options.json:
        print(json.dumps(plan_fields(found) | paste_fields(pasted), indent=1))
        return
    print_plan(found)
    if pasted:
        print(f"\nFor {pasted.program}\n\n{pasted.text}")


def model_to_plan(name: str, type: str | None) -> Model:
    """The model of a name. Raises ModelNotFound with the known names, which only a plan can use."""
    try:
        return model_named(name, type)
    except ModelNotFound as error:
        raise ModelNotFound(f"{error} Known names: {', '.join(known_models())}.") from error


def path_of(model: Model) -> Path | None:
    """The model's file, as an absolute path; None for a known name, of which there is no file."""
    return model.path.absolute() if model.path.is_file() else None


def paste_fields(pasted: Pasted | None) -> dict[str, Any]:
    """The lines for one program: where each part is pasted, what they ask for, and why it is not the plan."""
    if pasted is None:
        return {}
    parts = [{"where": part.where, "text": part.text} for part in pasted.parts]
    settings = pasted.settings.to_dict() if pasted.settings else None
    return {"paste": {"for": pasted.program, "notes": pasted.notes, "settings": settings, "parts": parts}}


def plan_fields(found: Fit) -> dict[str, Any]:
    """A plan as one JSON object: bytes of each part, null where unknown, and whether it fits."""
    model = found.plan.model
    return {
        "model": {"name": model.name, "n_params": model.n_params, "tensor_bytes": model.tensor_bytes},
        "method": found.plan.method,
        "devices": {
            device: {f"{kind}_bytes": n_bytes for kind, n_bytes in on_device.parts.items()}
            for device, on_device in found.plan.devices.items()
        },
        "fits": found.fits,
    }


def print_plan(found: Fit) -> None:
    """A table of bytes, a bar for each device, the verdict with the memory it is compared with, and what would fit."""
    from rich.console import Console

    console = Console()
    console.print(plan_table(found))
    for device in found.plan.devices:
        console.print(plan_bar(found, device), soft_wrap=True)
    shown = "  ".join(f"{sign} {kind.replace('_', ' ')}" for kind, (sign, _) in SIGNS.items())
    sign_bytes = bytes_text(round(bytes_of_a_sign(found)))
    console.print(f"{shown}  · free  | end of the room; a sign is {sign_bytes}", markup=False, highlight=False)
    console.print(f"fits: {found.fits}{margin_text(found.margin_bytes)}", style=FITS_STYLES[found.fits])
    lines = [f"Compared with {found.compared_with}.", f"Method: {found.plan.method}.", *found.plan.notes]
    lines += [f"{a.question}: {answer_text(a)} {a.reason}" for a in found.answers]
    for line in lines:
        console.print(line, markup=False, highlight=False)


def plan_table(found: Fit):
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(plan_title(found.plan)), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("", "weights", "KV cache", "compute", "output", "total", "room"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for device, on_device in found.plan.devices.items():
        most = found.plan.compute_range.get(device, (0, None))[1]
        parts = [cell_text(n, most) for n in on_device.parts.values()]
        total = cell_text(on_device.total_bytes, found.plan.most_bytes(device) if most is not None else None)
        table.add_row(device, *parts, total, cell_text(found.room_bytes.get(device)))
    return table


def plan_title(plan: MemoryPlan) -> str:
    s = plan.settings
    return f"{plan.model.name}: n_ctx {s.n_ctx:,}, n_gpu_layers {s.n_gpu_layers}, K {s.type_k}, V {s.type_v}"


def cell_text(n_bytes: int | None, most: int | None = None) -> str:
    """A size, or the most that a bound gives for it, in so few characters that a row fits into 80 columns."""
    return f"≤ {short_text(most, up=True)}" if n_bytes is None and most is not None else short_text(n_bytes)


def short_text(n_bytes: int | None, up: bool = False) -> str:
    """A size with three digits: `5.71 GiB`, `12.3 MiB`; a bound is rounded up, so that it stays true."""
    if n_bytes is None or abs(n_bytes) < KIB:
        return bytes_text(n_bytes)
    factor, unit = next(one for one in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")) if abs(n_bytes) >= one[0])
    value = n_bytes / factor
    digits = max(0, 2 - len(str(abs(int(value)))) + 1)
    shown = ceil(value * 10**digits) / 10**digits if up else value
    return f"{shown:.{digits}f} {unit}"


def plan_bar(found: Fit, device: str):
    """One device as a line of signs, all devices at one scale, its room marked: readable without colours."""
    from rich.text import Text

    rooms, scale = found.room_bytes, 1 / bytes_of_a_sign(found)
    cells = [(sign, colour) for sign, colour, n in bar_parts(found.plan, device) for _ in range(round(n * scale))]
    cells = cells or [("▏", "white")]
    if rooms.get(device) is not None:
        end = max(0, round(rooms[device] * scale))
        cells += [("·", "dim")] * (end - len(cells))
        cells.insert(end, ("|", "bold"))
    return Text(f"{device:5} ").join([Text(), Text.assemble(*cells)])


def bytes_of_a_sign(found: Fit) -> float:
    """Bytes of one sign of a bar: the largest device or room fills the line."""
    most = [*map(found.plan.most_bytes, found.plan.devices), *filter(None, found.room_bytes.values())]
    return max(most) / BAR


def bar_parts(plan: MemoryPlan, device: str) -> list[tuple[str, str, int]]:
    """Sign, colour and bytes of each kind; an unknown part is drawn at its upper bound."""
    parts = plan.devices[device].parts
    missing = plan.most_bytes(device) - sum(filter(None, parts.values()))
    return [(*SIGNS[kind], missing if n is None else n) for kind, n in parts.items()]


def margin_text(n_bytes: int | None) -> str:
    """How much is left or missing, after a comma; nothing where it is unknown."""
    if n_bytes is None:
        return ""
    return f", {bytes_text(abs(n_bytes))} {'to spare' if n_bytes >= 0 else 'missing'}"


def answer_text(answer: Answer) -> str:
    if answer.value is None:
        return "none."
    value = f"{answer.value:,}" if isinstance(answer.value, int) else answer.value
    return f"{value}{margin_text(answer.margin_bytes)}."
