"""`inferlab plan`: does a model fit into memory, computed before anything is loaded."""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import replace
from math import ceil
from typing import Any

from inferlab.cli.hub_list import print_repository, repository_of
from inferlab.cli.options import add_placement, flags, settings_from, size
from inferlab.cli.plan_list import print_runs
from inferlab.cli.plan_rates import rate_lines
from inferlab.engine.client import LlamaEngine
from inferlab.engine.protocol import Engine
from inferlab.errors import InferlabError, InvalidSettings, ModelNotFound
from inferlab.machine import HOST_DEVICE, Machine
from inferlab.model.catalog import known_name, near_names
from inferlab.model.find import is_address
from inferlab.model.gguf import Model
from inferlab.model.hub import PREFIX, REPO
from inferlab.model.named import addressed, model_named
from inferlab.model.quant_mixes import MIXES, mix_named
from inferlab.options.lines import programs_for
from inferlab.options.lines.llama_server import flag
from inferlab.prediction.decode_bound import active_text
from inferlab.prediction.drafter import DraftPlan, plan_drafter
from inferlab.prediction.expected import expected_fields
from inferlab.prediction.fit import DEFAULT_N_CTX, RESERVE_BYTES, Fit, fit
from inferlab.prediction.fit_fields import plan_fields
from inferlab.prediction.free_memory import BACKENDS, DEFAULT_BACKEND, SYSTEM_BYTES, HostRam, free_bytes, machine_for
from inferlab.prediction.memory import MemoryPlan
from inferlab.prediction.memory.cache import n_ctx_of, require_effect
from inferlab.prediction.memory.plan import CLOSED_FORM, SHARED
from inferlab.prediction.memory.verified import tried_text, verified_text
from inferlab.prediction.paste import Pasted, above_trained, lines_for, path_for
from inferlab.prediction.place import DEFAULT_RAM_BYTES, Place, described_place, place_of_card, place_of_cards
from inferlab.prediction.predict import simulated_memory
from inferlab.prediction.search import SettingThatFits
from inferlab.prediction.what_runs import what_runs
from inferlab.settings import Settings
from inferlab.units import KIB, MIB, bytes_text, size_unit

SIGNS = {"weights": ("█", "white"), "kv_cache": ("▓", "cyan"), "compute": ("▒", "magenta"), "output": ("░", "red")}
BAR = 48
OF_ONE_MODEL, OF_A_PLACE = ("type", "program", "draft"), ("vram", "card", "unified", "ram", "backend")
"""Options about one model's plan, and those about the memory for it, by their names in the namespace."""
SEARCHED = "n_gpu_layers", "n_cpu_moe", "cpu_moe", "n_ctx", "type_k", "type_v"
"""The settings that are searched."""
FITS_STYLES = {"yes": "bold green", "no": "bold red", "unsure": "bold yellow"}


def add_plan(commands: Any) -> None:
    command = commands.add_parser(
        "plan",
        help="does it fit: bytes on each device, before anything is loaded",
        usage="%(prog)s MODEL [options], or --list [options]; see --help",
        description="Plan the memory of a model and compare it with a card's. Exit status 0 whether it fits or not.",
    )
    command.set_defaults(command=run_plan, refuse=command.error)
    command.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        type=addressed,
        help="a .gguf file, a known name (mistral-7b), Ollama's (qwen3:8b), hf:owner/repo:TYPE, https://...",
    )
    command.add_argument(
        "--list", action="store_true", help="in place of one model: what of all known ones runs on such a machine"
    )
    command.add_argument(
        "--type", type=weights_type, metavar="TYPE", help="of a known name (default Q4_K_M, or native)"
    )
    tokens = f"tokens, such as 8192 or 8k; 0: all that the model was trained for (default {DEFAULT_N_CTX})"
    command.add_argument(*flags("n_ctx"), type=context, default=DEFAULT_N_CTX, metavar="N", help=tokens)
    add_placement(command)
    usual = Settings()
    command.add_argument(
        *flags("n_seq_max"), type=int, default=usual.n_seq_max, metavar="N", help="slots that share --n-ctx (default 1)"
    )
    command.add_argument(*flags("n_threads"), type=int, metavar="N", help="CPU threads, which need no memory")
    for name in ("n_batch", "n_ubatch"):
        n_tokens = getattr(usual, name)
        command.add_argument(*flags(name), type=int, default=n_tokens, metavar="N", help=f"default {n_tokens}")
    command.add_argument(
        *flags("kv_unified"), action="store_true", help="one pool of cells for all slots (default: parts)"
    )
    command.add_argument(
        *flags("swa_full"),
        action="store_true",
        help="layers with a sliding window keep all tokens (default: their window, as in llama-server)",
    )
    add_memory(command)
    command.add_argument(
        "--backend", choices=BACKENDS, help=f"of the card of --vram or --unified (default {DEFAULT_BACKEND})"
    )
    command.add_argument(
        "--no-simulation", action="store_true", help="do not ask llama.cpp where no formula is exact: bounds instead"
    )
    command.add_argument(
        "--reserve",
        type=memory_size,
        default=RESERVE_BYTES,
        metavar="1GiB",
        help="left free on each device (default 1GiB)",
    )
    command.add_argument(
        "--ram-reserve",
        type=memory_size,
        default=SYSTEM_BYTES,
        metavar="4GiB",
        help="of --ram, left for the system and other programs (default 4GiB)",
    )
    command.add_argument(
        *flags("cache_ram"),
        type=mebibytes,
        metavar="MIB",
        help="RAM for llama-server's cache of earlier prompts (default: 8192 MiB, or what is left; 0: none)",
    )
    command.add_argument(
        "--draft",
        metavar="MODEL",
        type=addressed,
        help="a second model that drafts: leave room for its weights and its cache",
    )
    command.add_argument(
        "--for",
        dest="program",
        choices=programs_for(),
        metavar="PROGRAM",
        help=f"also print the plan as the lines to paste there: {', '.join(programs_for())}",
    )
    command.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def list_models(options: argparse.Namespace) -> None:
    """What of all known models runs on the memory that is named."""
    place = place_from(options)
    if options.model or place is None:
        return options.refuse("--list is for all known models, on memory that is named: --card, --vram or --unified")
    if not options.n_ctx:
        return options.refuse("--list compares all models with one context: give -c a number of tokens")
    refuse_beside(options, "--list, which is for all known models. Name one of them.", *OF_ONE_MODEL)
    settings = settings_from(options)
    print_runs(what_runs(place, settings, options.reserve), place, n_ctx_of(settings), options.json)


def refuse_beside(options: argparse.Namespace, what: str, *names: str) -> None:
    """End with an error where an option was given that would change nothing."""
    flags_of = {"program": "--for"}
    given = [flags_of.get(name, f"--{name}") for name in names if getattr(options, name)]
    if given:
        options.refuse(f"{', '.join(given)} would change nothing beside {what} Or leave it out.")


def add_memory(command: argparse.ArgumentParser) -> None:
    """Options that name the memory to plan for, in place of this machine's."""
    memory = command.add_mutually_exclusive_group()
    memory.add_argument(
        "--vram", type=sizes, metavar="8GiB", help="plan for such a card, or several: 8GiB,8GiB (default: this machine)"
    )
    memory.add_argument(
        "--card", metavar="rtx-4060", help="plan for a card of the book's list, or several: 2x3060, or 3090,3060"
    )
    command.add_argument(
        "--unified",
        type=memory_size,
        metavar="32GiB",
        help="plan for one memory that host and GPU share; with --card what the GPU may use of the card's",
    )
    command.add_argument(
        "--ram", type=memory_size, metavar="32GiB", help="all RAM of that machine (default beside a card: 32GiB)"
    )


def run_plan(options: argparse.Namespace) -> None:
    if options.list:
        return list_models(options)
    if not options.model:
        options.refuse("no model is named: give a file or a name, or --list for all known models")
    if found := repository_of(options.model):
        listing = f"{options.model}, which is a list of models. Give one of them, such as {found.example}."
        refuse_beside(options, listing, *OF_ONE_MODEL, *OF_A_PLACE)
        return print_repository(found, options.json)
    place = place_from(options)
    if not place:
        start_engine(options.engine)
    model = model_to_plan(options.model, options.type)
    options.n_ctx = options.n_ctx or model.n_ctx_train or 0
    settings = settings_from(options)
    require_effect(settings, model)
    asked = place.devices if place else {}
    machine = machine_for(None if place else options.engine.machine(), **asked)
    drafter = drafter_from(options, model, settings, machine) if options.draft else None
    fitted = fit(
        model,
        settings,
        None if place else machine,
        reserve_bytes=options.reserve + (drafter.most_bytes if drafter else 0),
        ram=place.ram if place else own_ram(options, machine),
        simulate=not options.no_simulation,
        with_steps=options.json,
        within_trained=True,
        **asked,
    )
    path = path_for(options.program, options.model, model)
    pasted = lines_for(fitted, options.program, path, model.n_ctx_train) if options.program else None
    pasted = pasted and with_drafter(pasted, drafter)
    if options.json:
        expected = {"expected": expected_fields(fitted, model, place) if place else None}
        print(json.dumps(plan_fields(fitted) | expected | drafter_fields(drafter) | paste_fields(pasted), indent=1))
        return
    print_plan(fitted, model, place.title if place and options.card else "", taken_text(options.model, model))
    for line in rate_lines(fitted, model, place):
        print(line)
    if longer := above_trained(settings, model.n_ctx_train):
        print(longer)
    if place and place.limit:
        how = ", such as that of `sudo sysctl iogpu.wired_limit_mb=…`" if place.backend == "metal" else ""
        print(f"{place.limit} --unified gives another limit{how}.")
    if place and not (options.ram or place.shared):
        print(f"RAM is assumed to be {bytes_text(DEFAULT_RAM_BYTES)}; --ram gives yours.")
    if drafter:
        print(drafter.text)
    if pasted:
        print(f"\nFor {pasted.program}\n\n{pasted.text}")
    if fitted.plan.method == CLOSED_FORM:
        sys.stdout.flush()
        can_ask = isinstance(options.engine, LlamaEngine) and not options.no_simulation
        as_cuda = place is not None and place.backend != DEFAULT_BACKEND
        told = checked_text(fitted.plan, model, settings, machine, as_cuda) if can_ask else tried_text()
        print(f"\n{told}" if pasted else told)


def checked_text(plan: MemoryPlan, model: Model, settings: Settings, machine: Machine, as_cuda: bool) -> str:
    """What llama.cpp's simulation says of a plan in closed form; without it, how often such plans were exact."""
    try:
        told = simulated_memory(model, settings, machine, as_cuda)
    except InferlabError as error:
        return f"Not verified: {str(error).splitlines()[0]} {tried_text()}"
    return verified_text(plan, told) if told else tried_text()


def start_engine(engine: Engine) -> None:
    """Start llama.cpp, which will be asked for this machine's devices, and let it simulate, too."""
    if isinstance(engine, LlamaEngine):
        from inferlab.engine import dry_run

        engine.prepare()
        dry_run.lend(engine)


def sizes(text: str) -> tuple[int, ...]:
    """Sizes with commas between them, in bytes."""
    return tuple(map(memory_size, text.split(",")))


def memory_size(text: str) -> int:
    """A size of memory in bytes: GB and G are GiB there, as its makers write them."""
    return size(re.sub(r"([KMG])B?$", r"\1iB", text.strip(), flags=re.IGNORECASE))


def context(text: str) -> int:
    """A number of tokens: `8192`, `8,192`, or `8k` for 8 times 1024, `1m` for 1024k."""
    found = re.fullmatch(r"(-?\d{1,3}(?:,\d{3})+|-?\d+)([km]?)", text.strip().lower())
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of tokens. Write 8192 or 8k.")
    return int(found[1].replace(",", "")) * {"": 1, "k": KIB, "m": MIB}[found[2]]


def weights_type(text: str) -> str:
    """A type of llama-quantize, in large or small letters."""
    if not (name := mix_named(text)):
        own = "" if "_" not in text else f" A maker's own mix is planned by its file: hf:owner/repo:{text}."
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(MIXES)}.{own}")
    return name


def cards_of(text: str) -> list[str]:
    """The names of cards with commas between them; `2x3060` is two of one."""
    counted = [re.fullmatch(r"(?:([1-9]\d?) ?[xX] ?)?(.+)", one.strip()) for one in text.split(",") if one.strip()]
    return [found[2] for found in counted if found for _ in range(int(found[1] or 1))]


def mebibytes(text: str) -> int:
    """A number of MiB as llama.cpp's --cache-ram takes it, in bytes."""
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of MiB. No limit (-1) cannot be planned.")
    return int(text) * MIB


def place_from(options: argparse.Namespace) -> Place | None:
    """The card or the shared memory to plan for; None for this machine. Raises InvalidSettings."""
    backend = options.backend or DEFAULT_BACKEND
    if options.card:
        refuse_beside(options, f"--card {options.card}, which has its own. Give --vram.", "backend")
        of_host = options.ram, options.ram_reserve, options.cache_ram
        if len(names := cards_of(options.card)) > 1:
            refuse_beside(options, "several cards, each of which has its own memory.", "unified")
            return place_of_cards(names, *of_host)
        return place_of_card(names[0] if names else options.card, *of_host, gpu_bytes=options.unified)
    if options.vram and options.unified:
        options.refuse("--vram and --unified exclude each other: memory is a card's own, or shared with the host")
    if options.unified:
        return described_place([options.unified], True, ram_from(options, options.unified), backend)
    if options.vram:
        return described_place(options.vram, False, ram_from(options, DEFAULT_RAM_BYTES), backend)
    if backend != DEFAULT_BACKEND:
        raise InvalidSettings(f"--backend {backend} is for a card that is not here. Give --vram or --unified.")
    return None


def ram_from(options: argparse.Namespace, usual: int) -> HostRam:
    """The RAM that is asked about, `usual` where none is named, with what is not for the model."""
    return HostRam(options.ram or usual, options.ram_reserve, options.cache_ram)


def own_ram(options: argparse.Namespace, machine: Machine) -> HostRam | None:
    """The RAM to plan for on this machine where an option says something of it; else what is free counts."""
    if options.ram or options.cache_ram is None:
        return ram_from(options, options.ram) if options.ram else None
    free = free_bytes(machine, ())[HOST_DEVICE]
    return HostRam(free, options.reserve, options.cache_ram) if free else None


def drafter_from(options: argparse.Namespace, model: Model, settings: Settings, machine: Machine) -> DraftPlan:
    """The memory of the model of --draft beside the other one."""
    draft = model_to_plan(options.draft, None)
    return plan_drafter(model, draft, settings, machine, simulate=not options.no_simulation)


def with_drafter(pasted: Pasted, drafter: DraftPlan | None) -> Pasted:
    """The lines with the flags of the drafter behind the last one."""
    if drafter is None or not pasted.parts:
        return pasted
    line = drafter.line(pasted.program)
    *parts, last = pasted.parts
    text = f"{last.text}\n{line}" if line.startswith("#") else f"{last.text} {line}"
    return replace(pasted, parts=(*parts, replace(last, text=text)))


def drafter_fields(drafter: DraftPlan | None) -> dict[str, Any]:
    """The bytes of the drafter on each device; nothing without one."""
    if drafter is None:
        return {}
    devices = {device: drafter.plan.most_bytes(device) for device in drafter.plan.devices}
    return {"draft": {"name": drafter.plan.model.name, "most_bytes": devices}}


def model_to_plan(name: str, type: str | None) -> Model:
    """The model of a name or an address. Raises ModelNotFound, for a name with those that are like it."""
    try:
        return model_named(name, type)
    except ModelNotFound as error:
        if REPO.fullmatch(name):
            raise ModelNotFound(f"{error} On the Hugging Face Hub it would be {PREFIX}{name}.") from error
        if is_address(name) or re.search(r"[/\\]", name):
            raise
        raise ModelNotFound(f"{error} {near_names(name)}") from error


def taken_text(name: str, model: Model) -> str:
    """What a name was taken for that is not the model's own; nothing for a file, and for a name as it is listed."""
    if model.file or model.source or not model.shape or known_name(name):
        return ""
    return f"{name} is no file here and is taken as the known model {model.shape.name}."


def paste_fields(pasted: Pasted | None) -> dict[str, Any]:
    """The lines for one program: where each part is pasted, what they ask for, and why it is not the plan."""
    if pasted is None:
        return {}
    parts = [{"where": part.where, "text": part.text} for part in pasted.parts]
    settings = pasted.settings.to_dict() if pasted.settings else None
    return {"paste": {"for": pasted.program, "notes": pasted.notes, "settings": settings, "parts": parts}}


def print_plan(fitted: Fit, model: Model, card: str = "", taken: str = "") -> None:
    """What is planned where, the verdict, a table of bytes, a bar for each device, and what would fit."""
    from rich.console import Console

    console = Console()
    told = [plan_title(fitted.plan, model, card), taken]
    for line in filter(None, told):
        console.print(line, markup=False, highlight=False)
    console.print(f"fits: {fitted.fits}{fit_margin_text(fitted)}", style=FITS_STYLES[fitted.fits])
    if fitted.fits != "yes" and (others := would_fit_text(fitted)):
        console.print(others, markup=False, highlight=False)
    console.print(plan_table(fitted))
    for name in bar_names(fitted):
        console.print(plan_bar(fitted, name), soft_wrap=True)
    shown = "  ".join(f"{sign} {kind.replace('_', ' ')}" for kind, (sign, _) in SIGNS.items())
    sign_bytes = bytes_text(round(bytes_of_a_sign(fitted)))
    console.print(f"{shown}  · free  | end of the room", markup=False, highlight=False)
    console.print(f"One sign of a bar is {sign_bytes}.", markup=False, highlight=False)
    lines = [f"Compared with {fitted.compared_with}.", f"Method: {fitted.plan.method}.", *fitted.plan.notes]
    lines += [f"{a.question}: {answer_text(a)} {a.reason}" for a in fitted.answers]
    lines += filter(None, [dropped_text(fitted.plan), active_text(model)])
    for line in lines:
        console.print(line, markup=False, highlight=False)


def dropped_text(plan: MemoryPlan) -> str:
    """What of the host's weights the verdict leaves out; nothing where that is nothing."""
    n_bytes = plan.never_read_bytes
    told = f"Of the host's weights, {bytes_text(n_bytes)} are the card's and only mapped: RAM need not keep them."
    return told if n_bytes else ""


def plan_table(fitted: Fit):
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    is_shared = SHARED in fitted.usable_bytes
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("", "weights", "KV cache", "compute", "output", "total", "room"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for device, on_device in fitted.plan.devices.items():
        most = fitted.plan.compute_range.get(device, (0, None))[1]
        parts = [cell_text(n, most) for n in on_device.parts.values()]
        total = cell_text(on_device.total_bytes, fitted.plan.most_bytes(device) if most is not None else None)
        usable = "" if is_shared else cell_text(fitted.usable_bytes.get(device))
        table.add_row(device, *parts, total, usable)
    if is_shared:
        exact, most = fitted.plan.total_bytes, None if fitted.plan.is_open(SHARED) else fitted.plan.most_bytes(SHARED)
        table.add_row(SHARED, "", "", "", "", cell_text(exact, most), cell_text(fitted.usable_bytes[SHARED]))
    return table


def plan_title(plan: MemoryPlan, model: Model, card: str) -> str:
    """The model with its type or file, the card, and the settings."""
    s, on_card = plan.settings, f", on {card}" if card else ""
    what = model.shape.mix if model.shape and not model.file else model.path.name
    asked = f"n_ctx {s.n_ctx:,}, n_gpu_layers {s.n_gpu_layers}, K {s.type_k}, V {s.type_v}"
    return f"{plan.model.name}, {what}{on_card}: {asked}"


def would_fit_text(fitted: Fit) -> str:
    """The flags of each setting with which it would fit, in a sentence; experts in RAM before whole layers."""
    answers = fitted.expert_layers, fitted.largest_n_ctx, fitted.cache_type, fitted.most_layers
    others = [answer.plan.settings for answer in answers if answer and answer.plan]
    found = list(dict.fromkeys(filter(None, (changed_flags(fitted.plan.settings, other) for other in others))))
    if not found:
        return "No shorter context, no smaller cache and no other placement makes it fit."
    return f"It fits with {', or with '.join(found)}."


def changed_flags(asked: Settings, other: Settings) -> str:
    """llama.cpp's flags for what is different in other settings."""
    changed = {name: getattr(other, name) for name in SEARCHED if getattr(other, name) != getattr(asked, name)}
    flags = " ".join(filter(None, (flag(name, value) for name, value in changed.items())))
    return flags + (f" in place of {flag('cpu_moe', True)}" if changed.get("cpu_moe") is False else "")


def cell_text(n_bytes: int | None, most: int | None = None) -> str:
    """A size, or the most that a bound gives for it, in so few characters that a row fits into 80 columns."""
    return f"≤ {short_text(most, up=True)}" if n_bytes is None and most is not None else short_text(n_bytes)


def short_text(n_bytes: int | None, up: bool = False) -> str:
    """A size with three digits: `5.71 GiB`, `12.3 MiB`; a bound is rounded up, so that it stays true."""
    if n_bytes is None or abs(n_bytes) < KIB:
        return bytes_text(n_bytes)
    factor, unit = size_unit(n_bytes)
    value = n_bytes / factor
    digits = max(0, 2 - len(str(abs(int(value)))) + 1)
    shown = ceil(value * 10**digits) / 10**digits if up else value
    return f"{shown:.{digits}f} {unit}"


def bar_names(fitted: Fit) -> list[str]:
    """What gets a bar: each device of the plan, or the one memory that all of them share."""
    return [SHARED] if SHARED in fitted.usable_bytes else list(fitted.plan.devices)


def plan_bar(fitted: Fit, name: str):
    """One device, or the shared memory, as a line of signs: all at one scale, its end marked, no colour needed."""
    from rich.text import Text

    usable, scale = fitted.usable_bytes.get(name), 1 / bytes_of_a_sign(fitted)
    cells = [(sign, colour) for sign, colour, n in bar_parts(fitted.plan, name) for _ in range(round(n * scale))]
    cells = cells or [("▏", "white")]
    if usable is not None:
        end = max(0, round(usable * scale))
        cells += [("·", "dim")] * (end - len(cells))
        cells.insert(end, ("|", "bold"))
    return Text(f"{name:5} ").join([Text(), Text.assemble(*cells)])


def bytes_of_a_sign(fitted: Fit) -> float:
    """Bytes of one sign of a bar: the largest device or memory fills the line."""
    most = [*(fitted.plan.most_bytes(name) for name in bar_names(fitted)), *filter(None, fitted.usable_bytes.values())]
    return max(most) / BAR


def bar_parts(plan: MemoryPlan, name: str) -> list[tuple[str, str, int]]:
    """Sign, colour and bytes of each kind; a bound is drawn at its upper end, an unknown part not at all."""
    devices = plan.devices_in(name)
    held = {kind: sum(plan.devices[device].parts[kind] or 0 for device in devices) for kind in SIGNS}
    held["compute"] += plan.most_bytes(name) - sum(held.values())
    return [(*SIGNS[kind], n) for kind, n in held.items()]


def fit_margin_text(fitted: Fit) -> str:
    """How much is left or missing; where a compute buffer is unknown, it is not in that."""
    if fitted.plan.aborts:
        return f". {fitted.plan.notes[0]}"
    text = margin_text(fitted.margin_bytes)
    unknown = any(fitted.plan.is_open(memory) for memory in fitted.usable_bytes)
    return f"{text} without the compute buffer" if text and unknown else text


def margin_text(n_bytes: int | None) -> str:
    """How much is left or missing, after a comma; nothing where it is unknown."""
    if n_bytes is None:
        return ""
    return f", {bytes_text(abs(n_bytes))} {'to spare' if n_bytes >= 0 else 'missing'}"


def answer_text(answer: SettingThatFits) -> str:
    if answer.value is None:
        return "none."
    value = f"{answer.value:,}" if isinstance(answer.value, int) else answer.value
    return f"{value}{margin_text(answer.margin_bytes)}."
