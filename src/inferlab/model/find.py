"""Finds the model file of a name: the embedded model, a path, or a file on the Hugging Face Hub."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

from inferlab.errors import ModelNotFound

ENVIRONMENT = "INFERLAB_MODEL"
CACHE = "INFERLAB_CACHE"
HUB_PREFIX = "hf:"


def tiny_model() -> Path:
    """The embedded model: about 6 million trained parameters, F16, made by data/tiny/build.py."""
    return Path(str(files("inferlab") / "data" / "tiny" / "tiny.gguf"))


def held_out_text() -> str:
    """Text of the embedded model's kind that its training never saw."""
    return tiny_model().with_name("held-out.txt").read_text(encoding="utf-8")


def tiny_imatrix(name: str = "training") -> Path:
    """An importance matrix of the embedded model, by the text that it was made from (data/tiny/matrices.py).

    Raises ModelNotFound for a name that is not there.
    """
    folder = tiny_model().with_name("imatrix")
    if not (folder / f"{name}.gguf").is_file():
        there = ", ".join(sorted(path.stem for path in folder.glob("*.gguf")))
        raise ModelNotFound(f"The embedded model has no importance matrix {name!r}. It has: {there}.")
    return folder / f"{name}.gguf"


def calibration_text() -> Path:
    """The piece of the embedded model's training text that its importance matrix was made from."""
    return tiny_model().with_name("calibration.txt")


def cache_folder() -> Path:
    """The folder for generated files: INFERLAB_CACHE, else ~/.cache/inferlab (or under XDG_CACHE_HOME)."""
    if chosen := os.environ.get(CACHE):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "inferlab"


def find_model(name: str | Path | None = None) -> Path:
    """The path of the GGUF file `name`; None means INFERLAB_MODEL, else the embedded model.

    `name` is a path, `tiny`, or `hf:owner/repo/file.gguf` (downloaded once, kept in the Hub's cache).
    Raises ModelNotFound when there is no such file, or the download fails.
    """
    name = name if name is not None else os.environ.get(ENVIRONMENT) or "tiny"
    if not isinstance(name, (str, os.PathLike)):
        raise ModelNotFound(
            f"A {type(name).__name__} is no file. Give a path to a .gguf file; `lab.make_shape` writes a known model's."
        )
    name = str(name)
    if name == "tiny":
        return tiny_model()
    if name.startswith(HUB_PREFIX):
        return _from_hub(name)
    path = Path(name).expanduser()
    if not os.path.exists(path):
        raise ModelNotFound(
            f"{path} does not exist. Give a path to a .gguf file, `tiny`, or `{HUB_PREFIX}owner/repo/file.gguf`."
        )
    return path


def _from_hub(name: str) -> Path:
    parts = name.removeprefix(HUB_PREFIX).split("/", 2)
    if len(parts) != 3 or not all(parts):
        raise ModelNotFound(f"{name} is not of the form {HUB_PREFIX}owner/repo/file.gguf.")
    owner, repo, file = parts
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(f"{owner}/{repo}", file))
    except Exception as error:  # the Hub client raises from many libraries; all mean "not available"
        raise ModelNotFound(
            f"{name} could not be had from the Hugging Face Hub: {type(error).__name__}: {error}. "
            "Check the name and the network, or give the path of a local file."
        ) from error
