"""`inferlab quantize`: a model in another type. `inferlab imatrix`: what makes its loss smaller."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from typing import Any

from inferlab.engine.importance import importance_matrix
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
    command.add_argument("--imatrix", metavar="FILE", help="an importance matrix of this model (`inferlab imatrix`)")
    command.add_argument(
        "--tensor-type",
        action="append",
        default=[],
        metavar="PATTERN=TYPE",
        dest="tensor_types",
        help="type of the tensors whose names the pattern is found in; may be repeated",
    )
    command.add_argument("--requantize", action="store_true", help="accept a quantized model, at a further loss")
    command.add_argument("--json", action="store_true", help="print one JSON object instead of a sentence")


def add_imatrix(commands: Any) -> None:
    command = commands.add_parser(
        "imatrix",
        help="make an importance matrix for `quantize`",
        description="Run a model over a text with llama-imatrix and write how much each column of a matrix is used.",
    )
    command.set_defaults(command=run_imatrix)
    command.add_argument("model", metavar="MODEL", help="a .gguf file in F16, BF16 or F32, `tiny`, or hf:...")
    command.add_argument("text", metavar="TEXT", help="a file like the texts that the model will read")
    command.add_argument("-o", "--output", metavar="OUT", help="the new file (default: in the cache folder)")
    command.add_argument("--chunks", type=int, metavar="N", help="pieces of 512 tokens (default: the whole text)")


def run_imatrix(options: argparse.Namespace) -> None:
    made = importance_matrix(options.model, options.text, options.output, options.chunks)
    print(f"{made.path}: {len(made.columns)} matrices over {made.n_chunks * made.n_ctx:,} tokens")
    unseen = made.unseen_experts
    if unseen:
        print(f"{len(unseen)} experts saw no token, so nothing is known of their columns. Give more text.")


def run_quantize(options: argparse.Namespace) -> None:
    chosen = {name: getattr(options, name) for name in ("imatrix", "tensor_types", "requantize", "engine")}
    path = quantize(options.model, options.type, options.output, **chosen)
    made = read_gguf(path)
    bits_per_weight = 8 * made.tensor_bytes / made.n_params
    if options.json:
        sizes = {"file_bytes": made.file_bytes, "tensor_bytes": made.tensor_bytes, "bits_per_weight": bits_per_weight}
        print(json.dumps({"path": str(path), **sizes, "tensors": Counter(t.type for t in made.tensors)}, indent=1))
    else:
        print(f"{path}: {bytes_text(made.file_bytes)}, {bits_per_weight:.2f} bits per weight")
