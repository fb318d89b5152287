"""The terminal's front door: `inferlab doctor`, `inferlab measure`; tables for people and `--json` for programs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from inferlab import __version__
from inferlab.checkup import Checkup, check_machine
from inferlab.engine import default_engine
from inferlab.errors import InferlabError
from inferlab.intervals import ENOUGH
from inferlab.llamabench import to_rows
from inferlab.run import QUANTITIES, Run, measure
from inferlab.settings import FLASH_ATTN, KV_TYPES, Settings
from inferlab.units import bytes_text, rate_text, seconds_text

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
    defaults = Settings()
    command.add_argument("--n-prompt", type=int, default=512, help="prompt tokens (default 512)")
    command.add_argument("--n-gen", type=int, default=128, help="generated tokens (default 128)")
    command.add_argument("--repeats", type=int, default=5, help="counted passes (default 5)")
    command.add_argument("--n-ctx", type=int, help="cells of the KV cache (default: what the workload needs)")
    command.add_argument("--n-threads", type=int, help="CPU threads (default: physical cores)")
    command.add_argument("--n-gpu-layers", type=int, default=defaults.n_gpu_layers, help="default -1: all")
    command.add_argument("--type-k", choices=KV_TYPES, default=defaults.type_k, help="type of cached keys")
    command.add_argument("--type-v", choices=KV_TYPES, default=defaults.type_v, help="type of cached values")
    command.add_argument("--flash-attn", choices=FLASH_ATTN, default=defaults.flash_attn)
    command.add_argument("--no-offload-kqv", action="store_true", help="keep the KV cache on the host")
    instead = command.add_mutually_exclusive_group()
    instead.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    instead.add_argument("--llama-bench", action="store_true", help="print llama-bench's JSON rows instead")


def run_measure(options: argparse.Namespace) -> None:
    settings = Settings(
        n_ctx=options.n_ctx,
        n_threads=options.n_threads,
        n_gpu_layers=options.n_gpu_layers,
        type_k=options.type_k,
        type_v=options.type_v,
        flash_attn=options.flash_attn,
        offload_kqv=not options.no_offload_kqv,
    )
    run = measure(options.model, settings, options.n_prompt, options.n_gen, options.repeats)
    if options.json:
        print(json.dumps(json_fields(run), indent=1))
    elif options.llama_bench:
        print(json.dumps(to_rows(run), indent=1))
    else:
        print_table(run)


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
    for b in run.buffers:
        table.add_row(f"{b.kind.replace('_', ' ')} on {b.device}", bytes_text(b.n_bytes))
    console = Console()
    console.print(table)
    console.print(f"Medians of {len(run.passes)} passes; {run.badge}.", markup=False)
    if run.settled is False:
        console.print("The warm-up never settled within 2 %: something else is using this machine.", style="yellow")


if __name__ == "__main__":
    sys.exit(main())
