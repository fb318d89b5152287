"""`inferlab fidelity`: what a quantization loses."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from inferlab.measurement.fidelity import Estimate, Fidelity, fidelity
from inferlab.settings import KV_TYPES, Settings

ESTIMATES_SHOWN = (
    ("perplexity", "perplexity", 4),
    ("perplexity of the reference", "reference_perplexity", 4),
    ("ln of their ratio", "log_perplexity_ratio", 6),
    ("mean KL divergence (nats)", "kl_divergence", 6),
    ("RMS change in probability", "rms_probability_change", 5),
    ("share of same first choices", "same_top_share", 5),
)


def add_fidelity(commands: Any) -> None:
    command = commands.add_parser(
        "fidelity",
        help="what a quantization loses: perplexity, KL divergence",
        description="Compare a model with its full-precision reference on a text, by llama-perplexity's methods.",
    )
    command.set_defaults(command=run_fidelity)
    command.add_argument("model", metavar="MODEL", help="a .gguf file, `tiny`, `smollm2`, or hf:...")
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
    result = fidelity(
        options.model,
        options.reference,
        options.text,
        options.n_ctx,
        settings,
        n_chunks=options.n_chunks,
        engine=options.engine,
    )
    if options.json:
        print(json.dumps(result.to_dict(), indent=1))
    else:
        print_fidelity(result)


def print_fidelity(result: Fidelity) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(f"{result.model.file} beside {result.reference.file}"))
    for heading in ("", "value", "standard error"):
        table.add_column(heading)
    for name, of, digits in ESTIMATES_SHOWN:
        estimate: Estimate = getattr(result, of)
        table.add_row(name, *(f"{number:.{digits}f}" for number in estimate))
    table.add_row("largest KL divergence (nats)", f"{result.max_kl_divergence:.6f}", "")
    Console().print(table)
    print(f"{result.n_tokens} tokens scored, the second halves of {result.n_chunks} chunks of {result.n_ctx}.")
