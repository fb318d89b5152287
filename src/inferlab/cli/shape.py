"""`inferlab shape`: a file with a published model's exact shape and synthetic weights."""

from __future__ import annotations

import argparse
import json
from time import perf_counter
from typing import Any

from inferlab.model.catalog import known_model, known_models
from inferlab.model.gguf import Model, read_gguf
from inferlab.model.quant_mixes import MIXES
from inferlab.model.synthetic_model import make_shape
from inferlab.units import MB, bytes_text, seconds_text


def add_shape(commands: Any) -> None:
    command = commands.add_parser(
        "shape",
        help="a file with a published model's exact shape and synthetic weights",
        description="Write a GGUF with the tensors, types and metadata of a published model and synthetic weights.",
        epilog=f"Known models, as of {known_models().last_look}: {', '.join(known_models())}.",
    )
    command.set_defaults(command=run_shape)
    command.add_argument("name", metavar="NAME", help="a known model, e.g. qwen2.5-0.5b")
    usual = "default: Q4_K_M, of gpt-oss MXFP4_MOE"
    command.add_argument("--type", choices=MIXES, metavar="MIX", help=f"one of {', '.join(MIXES)} ({usual})")
    command.add_argument("-o", "--output", required=True, metavar="PATH", help="the file to write")
    command.add_argument("--n-layer", type=int, help="layers (default: as published)")
    command.add_argument("--header-only", action="store_true", help="no data: full size, hardly any disk")
    command.add_argument("--json", action="store_true", help="print one JSON object instead of two lines")


def run_shape(options: argparse.Namespace) -> None:
    began = perf_counter()
    options.type = options.type or known_model(options.name).usual_type
    path = make_shape(
        options.name, options.type, options.output, n_layer=options.n_layer, header_only=options.header_only
    )
    seconds, model = perf_counter() - began, read_gguf(path)
    if options.json:
        print(json.dumps(shape_fields(model, options, seconds), indent=1))
        return
    rate = "" if options.header_only else f" in {seconds_text(seconds)} ({model.file_bytes / MB / seconds:.0f} MB/s)"
    print(f"{path}: {bytes_text(model.file_bytes)}{rate}, {options.type}, {model.n_params:,} weights.")
    print(
        "Header only: for llama.cpp's memory simulation, not for running."
        if options.header_only
        else "The weights are synthetic: memory and speed are those of the published model, the text is noise."
    )


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
