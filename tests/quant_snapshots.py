"""llama.cpp's snapshots of its quantizer (tests/snapshots, MIT licence): types of every matrix of twelve real models.

`python tests/quant_snapshots.py FOLDER` reads them in llama.cpp's sources and writes tests/data/quant_snapshots.json,
which has, for each model and mix, how many matrices have each type, and a digest of all names and types.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

from inferlab.model import architectures
from inferlab.model.catalog import KnownModel, known_model
from inferlab.model.gguf import Tensor
from inferlab.model.quant_mixes import is_quantized

KEPT = Path(__file__).parent / "data" / "quant_snapshots.json"
KNOWN = {
    "deepseek-v3.1": "deepseek-v3.1",
    "gemma-3-4b-it": "gemma-3-4b",
    "glm-4.6v": "glm-4.5-air",
    "gpt-oss-120b": "gpt-oss-120b",
    "meta-llama-3.1-70b-instruct": "llama-3.1-70b",
    "nvidia-nemotron-3-nano-30b-a3b": "nemotron-3-nano-30b-a3b",
    "qwen3-0.6b": "qwen3-0.6b",
    "qwen3-14b": "qwen3-14b",
    "qwen3-coder-next": "qwen3-coder-next",
    "qwen3.5-397b-a17b": "qwen3.5-397b-a17b",
    "qwen3.6-27b": "qwen3.6-27b",
    "step-3.5-flash": "step-3.5-flash",
}
"""Snapshot -> the known model of that shape."""


def model_of(snapshot: str) -> KnownModel:
    """The model of a snapshot; two files are not quite those of the known model."""
    known = known_model(KNOWN[snapshot])
    if snapshot == "glm-4.6v":  # the language model of GLM 4.5 Air without its prediction layer
        return replace(known, n_layer=46, optional=("qkv_bias",), metadata=known.metadata | {"nextn_predict_layers": 0})
    return replace(known, tied_embeddings=False) if snapshot == "qwen3-0.6b" else known


def summary(tensors: tuple[Tensor, ...]) -> dict[str, object]:
    """Matrices of each type, and a digest of every name and type in the order of the file."""
    types = {tensor.name: tensor.type for tensor in tensors if is_quantized(tensor)}
    lines = "".join(f"{name} {type}\n" for name, type in types.items())
    counts = dict(sorted(Counter(types.values()).items()))
    return {"types": counts, "digest": hashlib.sha256(lines.encode()).hexdigest()[:16]}


def read(path: Path, tensors: tuple[Tensor, ...]) -> dict[str, dict[str, object]]:
    """A snapshot by its mixes: it lists the matrices that do not have the default type of their mix."""
    found: dict[str, dict[str, object]] = {}
    for section in path.read_text(encoding="utf-8").split("\n[")[1:]:
        head, *lines = section.strip().splitlines()
        mix, default = re.fullmatch(r"(\w+)\] (\w+)", head).groups()
        other = dict(line.rsplit(" ", 1) for line in lines)
        unknown = other.keys() - {tensor.name for tensor in tensors}
        assert not unknown, f"{path.name} has matrices that the layout lacks: {sorted(unknown)[:5]}"
        found[mix] = summary(tuple(replace(t, type=other.get(t.name, default).upper()) for t in tensors))
    return found


def main(folder: str) -> None:
    kept = {name: read(Path(folder) / f"{name}.schema", architectures.tensors(model_of(name))) for name in KNOWN}
    lines = ",\n".join(f' "{name}": {json.dumps(mixes)}' for name, mixes in kept.items())
    KEPT.write_text("{\n" + lines + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
