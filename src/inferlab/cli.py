"""The terminal's front door, a command for each verb; tables for people and `--json` for programs."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

from inferlab import __version__
from inferlab.checkup import Checkup, check_machine
from inferlab.divergence import Estimate, Fidelity, fidelity
from inferlab.engine import default_engine
from inferlab.errors import InferlabError, InvalidSettings
from inferlab.facts import known_models
from inferlab.fitting import DEFAULT_N_CTX, RESERVE_BYTES, Answer, Fit, fit, model_named
from inferlab.gguf import Model, read_gguf
from inferlab.intervals import ENOUGH
from inferlab.llamabench import to_rows
from inferlab.loopback import LoopbackDevice, loopback_device
from inferlab.machine import device_names
from inferlab.memory import MemoryPlan
from inferlab.mixes import MIXES
from inferlab.quantization import QUANTIZATIONS, quantize
from inferlab.run import QUANTITIES, Run, measure
from inferlab.settings import FLASH_ATTN, KV_TYPES, Settings
from inferlab.shapes import make_shape
from inferlab.units import MB, bytes_from_text, bytes_text, rate_text, seconds_text

INTERRUPTED = 130
STATE_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status.

    0 done, 1 an error of ours or a problem that `doctor` found, 2 unusable arguments, 130 Ctrl-C.
    """
    options = parser().parse_args(arguments)
    try:
        return options.command(options) or 0
    except InferlabError as error:
        print(f"inferlab: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("inferlab: interrupted; the engine was stopped.", file=sys.stderr)
        return INTERRUPTED
    finally:
        default_engine().close()


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="inferlab", description="Measure local LLM inference on this machine.")
    top.add_argument("--version", action="version", version=f"inferlab {__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    add_doctor(commands)
    add_measure(commands)
    add_plan(commands)
    add_shape(commands)
    add_quantize(commands)
    add_fidelity(commands)
    return top


def add_doctor(commands: Any) -> None:
    command = commands.add_parser(
        "doctor",
        help="is this machine ready, and what mends it if not",
        description="Look at what the book and its labs need. Exit status 0: ready, warnings or not; 1: a problem.",
    )
    command.set_defaults(command=run_doctor)
    command.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def run_doctor(options: argparse.Namespace) -> int:
    checkup = check_machine()
    if options.json:
        print(json.dumps(checkup.to_dict(), indent=1))
    else:
        print_checkup(checkup)
    return int(checkup.state == "problem")


def print_checkup(checkup: Checkup) -> None:
    """A table of findings, then each command on lines of its own, whole, so that it can be copied."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("looked at", "state", "found", title=checkup.title, title_justify="left")
    for finding in checkup.findings:
        table.add_row(finding.subject, f"[{STATE_STYLES[finding.state]}]{finding.state}", escape(finding.found))
    console = Console()
    console.print(table)
    for command, subjects in checkup.remedies.items():
        console.print(f"To mend {subjects}:", style="bold")
        console.print(f"    {command}", markup=False, highlight=False, soft_wrap=True)
    console.print(checkup.next_step, markup=False, highlight=False)


def add_measure(commands: Any) -> None:
    command = commands.add_parser(
        "measure",
        help="prefill and decode, timed",
        description="Prefill random prompt tokens, decode after them, and time both through llama.cpp.",
    )
    command.set_defaults(command=run_measure)
    command.add_argument(
        "model", nargs="?", metavar="MODEL",
        help="a .gguf file, `tiny`, or hf:owner/repo/file.gguf (default: INFERLAB_MODEL, else tiny)",
    )  # fmt: skip
    command.add_argument("--n-prompt", type=int, default=512, help="prompt tokens (default 512)")
    command.add_argument("--n-gen", type=int, default=128, help="generated tokens (default 128)")
    command.add_argument("--repeats", type=int, default=5, help="counted passes (default 5)")
    command.add_argument("--n-ctx", type=int, help="cells of the KV cache (default: what the workload needs)")
    command.add_argument("--n-threads", type=int, help="CPU threads (default: physical cores)")
    add_placement(command)
    instead = command.add_mutually_exclusive_group()
    instead.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    instead.add_argument("--llama-bench", action="store_true", help="print llama-bench's JSON rows instead")


def add_placement(command: argparse.ArgumentParser) -> None:
    """Options that say what lies where, under the names of `Settings`."""
    defaults = Settings()
    command.add_argument("--n-gpu-layers", type=int, default=defaults.n_gpu_layers, help="default -1: all")
    command.add_argument("--type-k", choices=KV_TYPES, default=defaults.type_k, help="type of cached keys")
    command.add_argument("--type-v", choices=KV_TYPES, default=defaults.type_v, help="type of cached values")
    command.add_argument("--flash-attn", choices=FLASH_ATTN, default=defaults.flash_attn)
    command.add_argument("--no-offload-kqv", action="store_true", help="keep the KV cache on the host")
    command.add_argument(
        "--loopback", nargs="?", type=float, const=math.inf, metavar="GB/s",
        help="put the layers on a second device on this machine; with a number, over a link of that rate",
    )  # fmt: skip


def placed(options: argparse.Namespace, **others: Any) -> Settings:
    """Settings from the options of `add_placement` and `--n-ctx`."""
    return Settings(
        n_ctx=options.n_ctx,
        n_gpu_layers=options.n_gpu_layers,
        type_k=options.type_k,
        type_v=options.type_v,
        flash_attn=options.flash_attn,
        offload_kqv=not options.no_offload_kqv,
        **others,
    )


def run_measure(options: argparse.Namespace) -> None:
    settings = placed(options, n_threads=options.n_threads)
    with loopback(options) as device:
        settings = device.settings(settings) if device else settings
        run = measure(options.model, settings, options.n_prompt, options.n_gen, options.repeats)
    if options.json:
        print(json.dumps(json_fields(run), indent=1))
    elif options.llama_bench:
        print(json.dumps(to_rows(run), indent=1))
    else:
        print_table(run)


def loopback(options: argparse.Namespace) -> AbstractContextManager[LoopbackDevice | None]:
    """The second device, if one was asked for; it computes with --n-threads, the host with one."""
    if options.loopback is None:
        return nullcontext()
    rate = None if math.isinf(options.loopback) else options.loopback
    return loopback_device(rate, n_threads=options.n_threads)


def json_fields(run: Run) -> dict[str, Any]:
    """One run under llama-bench's field names where it has the field, and our objects' names elsewhere."""
    settings = run.settings
    return {
        "llama_cpp": run.machine.llama_cpp,
        "llama_cpp_commit": run.machine.llama_cpp_commit,
        "llama_cpp_python": run.machine.llama_cpp_python,
        "cpu_info": run.machine.cpu,
        "gpu_info": ", ".join(d.description for d in run.machine.gpus),
        "backends": ",".join(dict.fromkeys(d.backend for d in run.machine.devices if d.backend)),
        "model_filename": run.model.file,
        "model_name": run.model.name,
        "model_type": run.model.description,
        "model_size": run.model.tensor_bytes,
        "model_n_params": run.model.n_params,
        "n_batch": settings.n_batch,
        "n_ubatch": settings.n_ubatch,
        "n_ctx": settings.n_ctx,
        "n_threads": settings.n_threads,
        "type_k": settings.type_k,
        "type_v": settings.type_v,
        "n_gpu_layers": settings.n_gpu_layers,
        "no_kv_offload": not settings.offload_kqv,
        "flash_attn": settings.flash_attn,
        "load_mode": settings.load_mode,
        "n_prompt": run.n_prompt,
        "n_gen": run.n_gen,
        "test_time": run.date,
        "synthetic": run.model.synthetic,
        "settled": run.settled,
        "load_seconds": run.load_seconds,
        "ttft_seconds": run.ttft_seconds,
        "prefill_tokens_per_second": run.prefill_tokens_per_second,
        "decode_tokens_per_second": run.decode_tokens_per_second,
        "inter_token_seconds": run.inter_token_seconds,
        "prefill_seconds": run.prefill_seconds,
        "ranges": run.ranges,
        "intervals": {of: run.interval(of) for of in QUANTITIES},
        "links": [asdict(link) for link in run.links],
        "buffers": [{"device": b.device, "kind": b.kind, "n_bytes": b.n_bytes} for b in run.buffers],
        "passes": [
            {
                "prefill_seconds": p.prefill_seconds,
                "token_seconds": p.token_seconds,
                "decode_seconds": p.decode_seconds,
            }
            for p in run.passes
        ],
    }


def add_shape(commands: Any) -> None:
    command = commands.add_parser(
        "shape",
        help="a file with a published model's exact shape and synthetic weights",
        description="Write a GGUF with the tensors, types and metadata of a published model and synthetic weights.",
        epilog=f"Known models: {', '.join(known_models())}.",
    )
    command.set_defaults(command=run_shape)
    command.add_argument("name", metavar="NAME", help="a known model, e.g. qwen2.5-0.5b")
    command.add_argument("--type", choices=MIXES, default="Q4_K_M", metavar="MIX", help=f"one of {', '.join(MIXES)}")
    command.add_argument("-o", "--output", required=True, metavar="PATH", help="the file to write")
    command.add_argument("--n-layer", type=int, help="layers (default: as published)")
    command.add_argument("--header-only", action="store_true", help="no data: full size, hardly any disk")
    command.add_argument("--json", action="store_true", help="print one JSON object instead of two lines")


def run_shape(options: argparse.Namespace) -> None:
    began = perf_counter()
    path = make_shape(
        options.name, options.type, options.output, n_layer=options.n_layer, header_only=options.header_only
    )  # fmt: skip
    seconds, model = perf_counter() - began, read_gguf(path)
    if options.json:
        print(json.dumps(shape_fields(model, options, seconds), indent=1))
        return
    rate = "" if options.header_only else f" in {seconds_text(seconds)} ({model.file_bytes / MB / seconds:.0f} MB/s)"
    print(f"{path}: {bytes_text(model.file_bytes)}{rate}, {options.type}, {model.n_params:,} weights.")
    print(
        "Header only: for llama.cpp's memory simulation, not for running." if options.header_only
        else "The weights are synthetic: memory and speed are those of the published model, the text is noise."
    )  # fmt: skip


def shape_fields(model: Model, options: argparse.Namespace, seconds: float) -> dict[str, Any]:
    return {
        "path": str(model.path),
        "name": model.name,
        "type": options.type,
        "synthetic": model.synthetic,
        "header_only": options.header_only,
        "n_params": model.n_params,
        "tensor_bytes": model.tensor_bytes,
        "file_bytes": model.file_bytes,
        "seconds": seconds,
    }


SHOWN = (
    ("time to first token", "ttft_seconds", seconds_text),
    ("engine's part of it", "prefill_seconds", seconds_text),
    ("prefill", "prefill_tokens_per_second", rate_text),
    ("decode", "decode_tokens_per_second", rate_text),
    ("between tokens", "inter_token_seconds", seconds_text),
)


def span_text(pair: tuple[float, float] | None, text: Callable[[float], str]) -> str:
    """`12.1 to 12.9 ms`, the unit once if it is the same; empty for None."""
    if pair is None:
        return ""
    low, high = (text(value).split(" ") for value in pair)
    return " ".join([*(low[:1] if low[1:] == high[1:] else low), "to", *high])


def print_table(run: Run) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    title = Text(f"{run.model.name}: {run.n_prompt} prompt tokens, {run.n_gen} generated")
    table = Table(title=title)
    for heading in ("", "median", "range", "95 % interval")[: 4 if len(run.passes) >= ENOUGH else 3]:
        table.add_column(heading)
    for name, of, text in SHOWN:
        spread = [span_text(pair, text) for pair in (run.ranges.get(of), run.interval(of))]
        table.add_row(name, text(getattr(run, of)), *spread[: len(table.columns) - 2])
    table.add_row("load", seconds_text(run.load_seconds))
    names = device_names(b.device for b in run.buffers)
    for b in run.buffers:
        table.add_row(f"{b.kind.replace('_', ' ')} on {names[b.device]}", bytes_text(b.n_bytes))
    console = Console()
    console.print(table)
    console.print(f"Medians of {len(run.passes)} passes; {run.badge}.", markup=False)
    if run.settled is False:
        console.print("The warm-up never settled within 2 %: something else is using this machine.", style="yellow")


def add_plan(commands: Any) -> None:
    command = commands.add_parser(
        "plan",
        help="does it fit: bytes on each device, before anything is loaded",
        description="Plan the memory of a model and hold it against a card. Exit status 0 whether it fits or not.",
    )
    command.set_defaults(command=run_plan)
    command.add_argument("model", metavar="MODEL", help="a .gguf file, `tiny`, hf:..., or a known name: mistral-7b")
    command.add_argument("--type", choices=MIXES, metavar="TYPE", help="of a known name (default Q4_K_M)")
    command.add_argument("--n-ctx", type=int, default=DEFAULT_N_CTX, help=f"default {DEFAULT_N_CTX}")
    add_placement(command)
    command.add_argument("--vram", type=size, metavar="8GiB", help="plan for a card with as much (default: this one)")
    command.add_argument(
        "--reserve", type=size, default=RESERVE_BYTES, metavar="1GiB", help="left free on each device (default 1GiB)"
    )
    command.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def size(text: str) -> int:
    """A size on the command line, in bytes."""
    try:
        return bytes_from_text(text)
    except InvalidSettings as wrong:
        raise argparse.ArgumentTypeError(str(wrong)) from None


def run_plan(options: argparse.Namespace) -> None:
    model = model_named(options.model, options.type)
    found = fit(model, placed(options), vram=options.vram, reserve_bytes=options.reserve)
    if options.json:
        print(json.dumps(plan_fields(found), indent=1))
    else:
        print_plan(found)


def plan_fields(found: Fit) -> dict[str, Any]:
    """A plan as one JSON object; of an open part null, and whether it fits."""
    model = found.plan.model
    return {
        "model": {"name": model.name, "n_params": model.n_params, "tensor_bytes": model.tensor_bytes},
        "method": found.plan.method,
        "devices": {
            device: {f"{kind}_bytes": n_bytes for kind, n_bytes in held.parts.items()}
            for device, held in found.plan.devices.items()
        },
        "fits": found.fits,
    }


SIGNS = {"weights": ("█", "white"), "kv_cache": ("▓", "cyan"), "compute": ("▒", "magenta"), "output": ("░", "red")}
BAR = 48
FITS_STYLES = {"yes": "bold green", "no": "bold red", "unsure": "bold yellow"}


def print_plan(found: Fit) -> None:
    """A table of bytes, a bar for each device, the verdict with what it is compared with, and what would fit."""
    from rich.console import Console

    console = Console()
    console.print(plan_table(found))
    for device in found.plan.devices:
        console.print(plan_bar(found, device), soft_wrap=True)
    shown = "  ".join(f"{sign} {kind.replace('_', ' ')}" for kind, (sign, _) in SIGNS.items())
    one = bytes_text(round(bytes_of_a_sign(found)))
    console.print(f"{shown}  · free  | end of the room; a sign is {one}", markup=False, highlight=False)
    console.print(f"fits: {found.fits}{margin_text(found.margin_bytes)}", style=FITS_STYLES[found.fits])
    told = [f"Compared with {found.compared_with}.", f"Method: {found.plan.method}.", *found.plan.notes]
    told += [f"{a.question}: {answer_text(a)} {a.reason}" for a in found.answers]
    for line in told:
        console.print(line, markup=False, highlight=False)


def plan_table(found: Fit):
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(plan_title(found.plan)), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("", "weights", "KV cache", "compute", "output", "total", "room"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for device, held in found.plan.devices.items():
        parts = [open_text(found.plan, device, n) for n in held.parts.values()]
        room = found.room_bytes.get(device)
        table.add_row(device, *parts, open_text(found.plan, device, held.total_bytes), bytes_text(room))
    return table


def plan_title(plan: MemoryPlan) -> str:
    s = plan.settings
    return f"{plan.model.name}: n_ctx {s.n_ctx:,}, n_gpu_layers {s.n_gpu_layers}, K {s.type_k}, V {s.type_v}"


def open_text(plan: MemoryPlan, device: str, n_bytes: int | None) -> str:
    """A size, or the range that a bound gives for it."""
    if n_bytes is not None or device not in plan.compute_range:
        return bytes_text(n_bytes)
    return f"up to {bytes_text(plan.compute_range[device][1])}"


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
    """What one sign of a bar stands for: the largest device or room fills the line."""
    most = [*map(found.plan.most_bytes, found.plan.devices), *filter(None, found.room_bytes.values())]
    return max(most) / BAR


def bar_parts(plan: MemoryPlan, device: str) -> list[tuple[str, str, int]]:
    """Sign, colour and bytes of each kind; what is open is drawn at its safe end."""
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


def add_quantize(commands: Any) -> None:
    command = commands.add_parser(
        "quantize",
        help="write a model in another type",
        description="Quantize a model file with llama.cpp's quantizer. The new file appears whole or not at all.",
    )
    command.set_defaults(command=run_quantize)
    command.add_argument("model", metavar="MODEL", help="a .gguf file in F16, BF16 or F32, `tiny`, or hf:...")
    command.add_argument("type", metavar="TYPE", help=f"one of {', '.join(QUANTIZATIONS)}")
    command.add_argument("-o", "--output", metavar="OUT", help="the new file (default: in the cache folder)")
    command.add_argument("--requantize", action="store_true", help="also what is quantized already, at a loss")
    command.add_argument("--json", action="store_true", help="print one JSON object instead of a sentence")


def run_quantize(options: argparse.Namespace) -> None:
    path = quantize(options.model, options.type, options.output, requantize=options.requantize)
    made = read_gguf(path)
    bits_per_weight = 8 * made.tensor_bytes / made.n_params
    if options.json:
        sizes = {"file_bytes": made.file_bytes, "tensor_bytes": made.tensor_bytes, "bits_per_weight": bits_per_weight}
        print(json.dumps({"path": str(path), **sizes, "tensors": Counter(t.type for t in made.tensors)}, indent=1))
    else:
        print(f"{path}: {bytes_text(made.file_bytes)}, {bits_per_weight:.2f} bits per weight")


def add_fidelity(commands: Any) -> None:
    command = commands.add_parser(
        "fidelity",
        help="what a quantization loses: perplexity, KL divergence",
        description="Compare a model with its full-precision reference on a text, by llama-perplexity's methods.",
    )
    command.set_defaults(command=run_fidelity)
    command.add_argument("model", metavar="MODEL", help="a .gguf file, `tiny`, or hf:...")
    command.add_argument(
        "reference", nargs="?", metavar="REFERENCE", help="the same model in full precision (default: MODEL, cache F16)"
    )
    command.add_argument("--text", type=Path, metavar="FILE", help="a text (default: the held-out one of `tiny`)")
    command.add_argument("--n-ctx", type=int, default=512, help="tokens of a chunk, half of them scored (default 512)")
    command.add_argument("--n-chunks", type=int, metavar="N", help="only the first N chunks")
    command.add_argument("--n-gpu-layers", type=int, default=-1, help="default -1: all")
    command.add_argument("--type-k", choices=KV_TYPES, default="f16", help="type of MODEL's cached keys")
    command.add_argument("--type-v", choices=KV_TYPES, default="f16", help="type of MODEL's cached values")
    command.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def run_fidelity(options: argparse.Namespace) -> None:
    settings = Settings(n_gpu_layers=options.n_gpu_layers, type_k=options.type_k, type_v=options.type_v)
    found = fidelity(
        options.model, options.reference, options.text, options.n_ctx, settings, n_chunks=options.n_chunks
    )
    if options.json:
        print(json.dumps(found.to_dict(), indent=1))
    else:
        print_fidelity(found)


def print_fidelity(found: Fidelity) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(f"{found.model.file} beside {found.reference.file}"))
    for heading in ("", "value", "standard error"):
        table.add_column(heading)
    for name, of, digits in ESTIMATES_SHOWN:
        estimate: Estimate = getattr(found, of)
        table.add_row(name, *(f"{number:.{digits}f}" for number in estimate))
    table.add_row("largest KL divergence (nats)", f"{found.max_kl_divergence:.6f}", "")
    Console().print(table)
    print(f"{found.n_tokens} tokens scored, the second halves of {found.n_chunks} chunks of {found.n_ctx}.")


ESTIMATES_SHOWN = (
    ("perplexity", "perplexity", 4),
    ("perplexity of the reference", "reference_perplexity", 4),
    ("ln of their ratio", "log_perplexity_ratio", 6),
    ("mean KL divergence (nats)", "kl_divergence", 6),
    ("RMS change in probability", "rms_probability_change", 5),
    ("share of same first choices", "same_top_share", 5),
)


if __name__ == "__main__":
    sys.exit(main())
