"""A small model in several files, as llama-gguf-split writes it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from inferlab.model.gguf import header_bytes, read_gguf


def write_split(folder: Path, name: str, source: Path, n_parts: int) -> list[Path]:
    """The parts of a model, each with a share of its tensors."""
    whole = read_gguf(source)
    plain = {key: value for key, value in whole.metadata.items() if isinstance(value, int | float | str | bool)}
    share, paths = -(-len(whole.tensors) // n_parts), []
    for number in range(n_parts):
        path = folder / f"{name}-{number + 1:05}-of-{n_parts:05}.gguf"
        laid, end = [], 0
        for tensor in whole.tensors[number * share : (number + 1) * share]:
            laid.append(replace(tensor, offset=end))
            end += -(-tensor.n_bytes // 32) * 32
        header = header_bytes({**plain, "split.no": number, "split.count": n_parts}, tuple(laid))
        path.write_bytes(header)
        os.truncate(path, len(header) + end)
        paths.append(path)
    return paths
