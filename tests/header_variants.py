"""Headers of every architecture with other dimensions: tensors are added as llama.cpp asks for them.

A small file has one size of each thing, and where two sizes coincide a wrong rule fits. Here layers, heads, windows,
states and lists are changed at random. Which tensors such a model has, llama.cpp says itself: it names each that is
missing, and the shape of each that is wrong.
"""

import re
import struct
from math import prod
from pathlib import Path
from random import Random

from inferlab.engine.client import LlamaEngine
from inferlab.errors import EngineRefused
from inferlab.model.gguf import SCALARS, LazyArray, Model, PackedArray, Tensor, header_bytes, read_gguf
from inferlab.settings import Settings

SIZES = {
    "embedding_length": (256, 384, 512),
    "attention.sliding_window": (100, 300, 777),
    "attention.sliding_window_pattern": (2, 3, 5),
    "attention.indexer.key_length": (80, 128, 256),
    "leading_dense_block_count": (1, 2),
    "full_attention_interval": (2, 3),
    "nextn_predict_layers": (0, 1),
    "ssm.conv_kernel": (2, 3, 5),
    "ssm.state_size": (16, 32, 64),
    "ssm.group_count": (1, 2),
    "kda.head_dim": (32, 64),
    "shortconv.l_cache": (2, 4),
    "wkv.head_size": (32, 64),
    "ple.conv_kernel": (2, 3),
    "num_loops": (1, 2),
}
MISSING = re.compile(r"(?:missing tensor|check_tensor_dims: tensor) '([^']+)'(?! has)")
WRONG = re.compile(r"tensor '([^']+)' has wrong shape; expected +([\d, ]+), got")
MOST_QUESTIONS = 2000


def variant(model: Model, random: Random) -> dict:
    """The metadata of a model with other dimensions; lists for each layer are mixed anew."""
    keys, name = values(model), model.architecture
    n_layer = model.n_layer if name == "hrm_text" else model.n_layer + random.choice((1, 2))
    for key, value in keys.items():
        if isinstance(value, tuple) and len(value[1]) == model.n_layer and key.startswith(name) and "rope" not in key:
            keys[key] = value[0], [random.choice(value[1]) for _ in range(n_layer)]
    keys[f"{name}.block_count"] = n_layer
    for key, sizes in SIZES.items():
        told = keys.get(f"{name}.{key}")
        if told and not isinstance(told, (tuple, bool)) and random.random() < 0.4:
            keys[f"{name}.{key}"] = random.choice(sizes)
    heads = keys.get(f"{name}.attention.head_count_kv")
    if isinstance(heads, tuple) and name != "glm5-next":  # the first layer's heads give the width of all
        keys[f"{name}.attention.head_count"] = max(heads[1]) or 1
    return keys


def values(model: Model) -> dict:
    """The metadata that decides sizes: numbers, texts, and lists with their type; none of the tokenizer."""
    found = {"tokenizer.ggml.model": "no_vocab", f"{model.architecture}.vocab_size": 128}
    for key, value in model.metadata.items():
        if isinstance(value, LazyArray) and value.kind in SCALARS and not key.startswith("tokenizer."):
            found[key] = value.kind, model.array(key)
        elif not isinstance(value, LazyArray) and not key.startswith("tokenizer.") and not _is_negative(value):
            found.setdefault(key, value)
    return found


def completed(engine: LlamaEngine, path: Path, keys: dict, settings: Settings) -> tuple[Model, str]:
    """The variant with every tensor that llama.cpp wants, and llama.cpp's log. Raises EngineRefused for none."""
    tensors: dict[str, tuple[int, ...]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for _ in range(MOST_QUESTIONS):
        model = written(path, keys, tensors)
        try:
            return model, engine.simulate(path, settings, 0, model)
        except EngineRefused as refusal:
            missing, wrong = MISSING.findall(str(refusal)), WRONG.findall(str(refusal))
            if not (missing or wrong):
                raise
            name = (missing or [wrong[-1][0]])[-1]
            if not missing:
                shapes[stem(name)] = tuple(int(size) for size in wrong[-1][1].split(",") if size.strip())
            tensors[name] = shapes.get(stem(name), (1,))
    raise EngineRefused(f"{path} has more tensors than {MOST_QUESTIONS} questions find.")


def written(path: Path, keys: dict, tensors: dict[str, tuple[int, ...]]) -> Model:
    """A sparse file with these keys, and zeros for the weights."""
    placed, offset = [], 0
    for name, shape in tensors.items():
        placed.append(Tensor(name, shape, "F32", 4 * prod(shape), offset))
        offset += -(-4 * prod(shape) // 32) * 32
    header = header_bytes({key: packed(value) for key, value in keys.items()}, tuple(placed))
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + offset)
    return read_gguf(path)


def packed(value: object) -> object:
    if not isinstance(value, tuple):
        return value
    kind, numbers = value
    content = struct.pack(f"<{len(numbers)}{SCALARS[kind]}", *numbers)
    return PackedArray(kind, len(numbers), len(content), lambda: content)


def stem(name: str) -> str:
    return re.sub(r"blk\.\d+\.", "", name)


def _is_negative(value: object) -> bool:
    return isinstance(value, int) and value < 0
