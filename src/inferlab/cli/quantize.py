"""`inferlab quantize`: a model in another type."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from typing import Any

from inferlab.engine.quantize import quantize
from inferlab.model.ggml_types import FILE_TYPES
from inferlab.model.gguf import read_gguf
from inferlab.units import bytes_text


def add_quantize(commands: Any) -> None:
    command = commands.add_parser(
        "quantize",
        help="write a model in another type",
        description="Quantize a model file with llama.cpp's quantizer. The new file appears whole or not at all.",
    )
    command.set_defaults(command=run_quantize)
    command.add_argument("model", metavar="MODEL", help="a .gguf file in F16, BF16 or F32, `tiny`, or hf:...")
    command.add_argument("type", metavar="TYPE", help=f"one of {', '.join(FILE_TYPES)}")
    command.add_argument("-o", "--output", metavar="OUT", help="the new file (default: in the cache folder)")
    command.add_argument("--requantize", action="store_true", help="also what is quantized already, at a loss")
    command.add_argument("--json", action="store_true", help="print one JSON object instead of a sentence")


def run_quantize(options: argparse.Namespace) -> None:
    path = quantize(
        options.model, options.type, options.output, requantize=options.requantize, engine=options.engine
    )  # fmt: skip
    made = read_gguf(path)
    bits_per_weight = 8 * made.tensor_bytes / made.n_params
    if options.json:
        sizes = {"file_bytes": made.file_bytes, "tensor_bytes": made.tensor_bytes, "bits_per_weight": bits_per_weight}
        print(json.dumps({"path": str(path), **sizes, "tensors": Counter(t.type for t in made.tensors)}, indent=1))
    else:
        print(f"{path}: {bytes_text(made.file_bytes)}, {bits_per_weight:.2f} bits per weight")
