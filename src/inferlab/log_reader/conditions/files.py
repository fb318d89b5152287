"""The model's file, a part of it, its adapter or its projector is not there, or this version cannot read it."""

from __future__ import annotations

import re
from itertools import islice

from inferlab.log_reader.conditions.found import MOST_READ, Found
from inferlab.log_reader.observed import Observed
from inferlab.model.gguf_kinds import IK_TYPES, MOST_NEW_TYPES, REMOVED_TYPES

OPENING_FAILED = (
    r"failed to open GGUF file '([^']{0,300})'(?: \((?:errno )?(.{1,100}?)\))?\s*$",  # ggml 0.25.3; llama.cpp#18884
    r"error loading model: failed to open (\S.{0,300}?): (.{1,100}?)\s*$",  # src/llama-mmap.cpp
    r"Model path does not exist: (\S.{0,300}?)()\s*$",  # llama_cpp/_internals.py:54
)


NO_SUCH_FILE = ("No such file or directory", "")


def missing_file(seen: Observed) -> Found | None:
    """A model's file that is not there, or may not be read; older versions of llama.cpp do not say which."""
    for needle, pattern in zip(
        ("failed to open GGUF file", ": failed to open ", "Model path does not exist"), OPENING_FAILED, strict=True
    ):
        line = seen.first(needle)
        if line and (match := re.search(pattern, line.text)):
            return Found((line,), {"what": _not_opened(match[1], match[2])})
    return None


FOLDERS = ("/", "\\")


def _not_opened(name: str, why: str | None) -> str:
    if name.endswith(FOLDERS):
        return f"The path {name} is a folder, not a file."
    if why in NO_SUCH_FILE:
        return f"There is no file {name}."
    return f"The file {name} could not be opened{f': {why}' if why else ': it is missing, or may not be read'}."


def no_first_bytes(seen: Observed) -> Found | None:
    """A folder or an empty file in place of the model, of which not even four bytes can be read."""
    line = seen.first("failed to read magic") or seen.first("error loading model: read error: Is a directory")
    if not line:
        return None
    named = seen.first("failed to load model from ")
    match = named and re.search(r"failed to load model from (?:file: )?(\S.{0,300}?)\s*$", named.text)
    path = match[1] if match else ""
    lines = (line, named) if named and match and named.number != line.number else (line,)
    if "Is a directory" in line.text or path.endswith(FOLDERS):
        return Found(lines, {"what": f"The path {path or 'of the model'} is a folder, not a file."})
    name = f" {path}" if path else ""
    return Found(lines, {"what": f"The path{name} is a folder or an empty file: not even its first bytes can be read."})


UNKNOWN_TYPE = {
    "has invalid ggml type ": re.compile(r"tensor '([^']{1,120})' has invalid ggml type (\d{1,9})"),
    "gguf_tensor_info_sanitize: invalid type (": re.compile(r"(info)_sanitize: invalid type \((\d{1,9})\)"),  # 2024
}
MXFP4 = 39
NEWER_TYPES = {MXFP4: "MXFP4", 40: "NVFP4", 41: "Q1_0", 42: "Q2_0"}
"""Types of the pinned llama.cpp that older versions do not know; a fork may use a number for another type (#11975)."""


def unknown_tensor_type(seen: Observed) -> Found | None:
    for needle, pattern in UNKNOWN_TYPE.items():
        line = seen.first(needle)
        if line and (match := pattern.search(line.text)):
            return Found((line,), {"what": _unknown_type(int(match[2]))})
    return None


def _unknown_type(number: int) -> str:
    if number in NEWER_TYPES:
        name, but = NEWER_TYPES[number], "" if number == MXFP4 else ", unless a fork wrote the file"
        return f"Type {number} is {name}, which newer versions know{but}."
    if number in IK_TYPES:
        return f"Type {number} is {IK_TYPES[number]}, which only ik_llama.cpp reads."
    if number > MOST_NEW_TYPES:
        return f"Type {number} is none of llama.cpp: a fork of it wrote the file."
    return f"Type {number} is of a newer llama.cpp, or of a fork of it."


REMOVED_TYPE = re.compile(r"tensor '([^']{1,120})' of type (\d{1,3}) \(")
REORDERED = " Q4_0 is now reordered while it is loaded, to the same effect."
OF_REMOVED = {
    4: " In Ollama's first files of gpt-oss the number stands for MXFP4.",
    **dict.fromkeys((31, 32, 33), REORDERED),
    36: " In BitNet's files the number stands for I2_S, which llama.cpp does not read.",
}
"""ggml/include/ggml.h:394-416; Ollama v0.11.0 fs/ggml/type.go:194"""


def removed_tensor_type(seen: Observed) -> Found | None:
    """A type that llama.cpp had; such a type has blocks of size 0."""
    for line in islice(seen.lines("' of type "), MOST_READ):
        match = REMOVED_TYPE.search(line.text)
        gone = "REMOVED" in line.text or "has been removed" in line.text or "block size (0)" in line.text
        if match and gone and int(match[2]) in REMOVED_TYPES:
            number = int(match[2])
            return Found((line,), {"number": number, "name": REMOVED_TYPES[number], "more": OF_REMOVED.get(number, "")})
    return None


MISSING_TENSOR = {
    "missing tensor '": re.compile(r"missing tensor '([^']{1,120})'"),
    "' not found": re.compile(r"\w: tensor '([^']{1,120})' not found"),  # 2023 to 2025
}


def missing_tensor(seen: Observed) -> Found | None:
    for needle, pattern in MISSING_TENSOR.items():
        for line in islice(seen.lines(needle), MOST_READ):
            if match := pattern.search(line.text):
                return Found((line,), {"tensor": match[1]})
    return None


WRONG_SHAPE = re.compile(r"tensor '([^']{1,120})' has wrong shape; expected ([\d, ]{1,80}), got ([\d, ]{1,80})")


def tensor_shape(seen: Observed) -> Found | None:
    """src/llama-model-loader.cpp:916, with the shapes in columns."""
    line = seen.first("has wrong shape; expected ")
    match = line and WRONG_SHAPE.search(line.text)
    if not line or not match:
        return None
    expected, got = (" x ".join(re.findall(r"\d+", shape)) for shape in match.groups()[1:])
    return Found((line,), {"tensor": match[1], "expected": expected, "got": got})


def adapter_as_model(seen: Observed) -> Found | None:
    """A LoRA adapter was given as the model: its metadata say so, and then something that a model has is missing."""
    for line in islice(seen.lines("general.type "), MOST_READ):
        if re.search(r"llama_model_loader: .{0,60}general\.type {1,40}str {1,40}= adapter\s*$", line.text):
            failed = seen.first("error loading model: ")
            return Found((line, failed)) if failed else None
    return None


SPLIT_FILES: tuple[tuple[str, str, str], ...] = (
    (
        "illegal split file",
        r"illegal split file(?: idx)?: (\d{1,5})",
        "The path names a later part of a model in several files; llama.cpp wants the path of the first.",
    ),
    (
        "failed to load GGUF split from ",
        r"failed to load GGUF split from (\S.{0,300}?)\s*$",
        "A part of the model is missing or cannot be read: {0}.",
    ),
    (
        "invalid split file name: ",
        r"invalid split file name: (\S.{0,300}?)\s*$",
        "The part {0} does not have the name under which llama.cpp looks for the others.",
    ),
    (
        "invalid split file: ",
        r"invalid split file: (\S.{0,300}?)\s*$",
        "The part {0} does not have the name under which llama.cpp looks for the others.",
    ),
    (
        "invalid split file idx: ",
        r"invalid split file idx: \d{1,5} \(file: (.{1,300}?)\), expected",
        "The part {0} holds another part than its name says.",
    ),
    (
        "invalid split count, given: ",
        r"given: (\d{1,5}) splits, but expected (\d{1,5})",
        "The model has {1} parts, and {0} were given.",
    ),
    (
        "corrupted model: ",
        r"corrupted model: (\d{1,9}) tensors expected but (\d{1,9}) found",
        "The parts together have {1} tensors and not {0}: they are of different downloads, or one is damaged.",
    ),
    ("is missing shard ", r"is missing shard (\d{1,5})", "Part {0} of the model is missing."),
    (
        " shards, expected ",
        r"has (\d{1,5}) shards, expected (\d{1,5})",
        "The model has {1} parts, and {0} were given.",
    ),
)
"""src/llama-model-loader.cpp:90, 96, 605-669; ollama server/create.go:1139-1191"""


def split_file(seen: Observed) -> Found | None:
    for needle, pattern, what in SPLIT_FILES:
        line = seen.first(needle)
        if line and (match := re.search(pattern, line.text)):
            return Found((line,), {"what": what.format(*match.groups())})
    return None


MMPROJ_MISMATCH = {
    "mismatch between text model (n_embd": re.compile(
        r"text model \(n_embd = (\d{1,7})\) and (?:gen-audio )?mmproj \(n_embd = (\d{1,7})\)"
    ),
    "mmproj embedding mismatch (": re.compile(r"mismatch \((\d{1,7}) and (\d{1,7})\)"),  # koboldcpp#1662
}


def mmproj_mismatch(seen: Observed) -> Found | None:
    for needle, pattern in MMPROJ_MISMATCH.items():
        line = seen.first(needle)
        if line and (match := pattern.search(line.text)):
            sizes = sorted((int(match[1]), int(match[2])))
            return Found((line,), {"small": sizes[0], "large": sizes[1]})
    return None


PROJECTOR_FAILED = (
    "ailed to load CLIP model from ",
    "failed to load multimodal model, '",
    "clip_init: failed to load model '",
    "failed to load mmproj model",  # koboldcpp gpttype_adapter.cpp
)
PROJECTORS_PATH = re.compile(
    r"(?:CLIP model from|multimodal model,|clip_init: failed to load model) '?"
    r"([^'?\"]{1,200}?)(?:\\n|['?\"]|\. Does|\s*$)"
)
OF_A_PROJECTOR = (
    (
        re.compile(r"failed to (?:seek for|read) tensor (\S{1,100})"),
        "the file ends before its tensor {0}: it is not whole",
    ),
    (
        re.compile(r"unable to find tensor (\S{1,100})"),
        "the file lacks the tensor {0}: it is damaged, or of another age than this version",
    ),
)
"""tools/mtmd/clip.cpp:3656; clip_model_load in 2024, koboldcpp; llama.cpp#14237, #17327"""


def projector_not_loaded(seen: Observed) -> Found | None:
    """The line that says it, with the path, and a line about a tensor that was not there."""
    found = (line for needle in PROJECTOR_FAILED for line in islice(seen.lines(needle), MOST_READ))
    line = next(found, None)
    if line is None:
        return None
    match = PROJECTORS_PATH.search(line.text)
    path = f" {match[1]}" if match else ""
    for pattern, why in OF_A_PROJECTOR:
        for said in ("for tensor ", "read tensor ", "find tensor "):
            for tensor in islice(seen.lines(said), MOST_READ):
                if missing := pattern.search(tensor.text):
                    lines = tuple(dict.fromkeys((tensor, line)))
                    return Found(lines, {"path": path, "why": why.format(missing[1])})
    return Found((line,), {"path": path, "why": "it is missing, damaged, or no projector"})


OLLAMAS = ("blobs/sha256-", "blobs\\sha256-", "blobs/sha256:")
OLLAMAS_FAIL = (
    "key not found in model: ",
    "wrong number of tensors; ",
    "missing tensor '",
    "has wrong shape; expected",
)


def ollamas_file(seen: Observed) -> Found | None:
    """A file of Ollama's store that another program could not load."""
    failed = any(seen.first(needle) for needle in OLLAMAS_FAIL) or removed_tensor_type(seen)
    if seen.program.key == "ollama" or not failed:
        return None
    for name in OLLAMAS:
        for line in islice(seen.lines(name), MOST_READ):
            if "failed to load model" in line.text or "loading model '" in line.text:
                return Found((line,))
    return None


CONDITIONS = (
    missing_file,
    no_first_bytes,
    unknown_tensor_type,
    removed_tensor_type,
    missing_tensor,
    tensor_shape,
    adapter_as_model,
    split_file,
    mmproj_mismatch,
    projector_not_loaded,
    ollamas_file,
)
