"""Ollama's models on this machine, by their names: the manifest says which files a model has.

Names and folders are those of Ollama's sources: types/model/name.go, manifest/paths.go, envconfig/config.go.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferlab.errors import ModelNotFound
from inferlab.units import bytes_text, file_size

PREFIX = "ollama:"
HOST, NAMESPACE, TAG = "registry.ollama.ai", "library", "latest"
SERVICE = Path("/usr/share/ollama/.ollama/models")
"""Where the service of Linux has them (docs/faq.mdx)."""
NAME = re.compile(
    r"(?:(?:(?P<host>\w[\w.:-]*)/)?(?P<namespace>\w[\w-]*)/)?(?P<model>\w[\w.-]*)(?::(?P<tag>\w[\w.-]*))?", re.ASCII
)
DIGEST = re.compile(r"sha256[:-][0-9a-fA-F]{64}")
KIND = "application/vnd.ollama.image."
BESIDE = {
    "projector": "a projector for pictures or sound, which Ollama loads too, on top of this plan",
    "adapter": "an adapter that changes its weights, which Ollama loads too, on top of this plan",
    "draft": "a model that drafts for it, which Ollama may load too, on top of this plan",
}
"""Kinds of layers that take memory beside the model's own."""
LISTED = 20


@dataclass(frozen=True)
class StoredModel:
    """A model of Ollama: its GGUF, and in sentences what else it loads."""

    path: Path
    beside: tuple[str, ...]


def is_ollama_name(name: str) -> bool:
    """Whether a name can only be Ollama's: with its prefix, or `model:tag`, of which there is no file."""
    if name.lower().startswith(PREFIX):
        return True
    found = NAME.fullmatch(name)
    return bool(found and found["tag"] and len(found["model"]) > 1) and not os.path.exists(name)


def bare_name(name: str) -> str:
    """A name as Ollama writes it, without the prefix."""
    return name[len(PREFIX) :] if name.lower().startswith(PREFIX) else name


def stored_model(name: str) -> StoredModel:
    """The model of a name such as `ollama:qwen3:8b`. Raises ModelNotFound with the names that there are."""
    bare = bare_name(name)
    found = NAME.fullmatch(bare)
    if not found:
        raise ModelNotFound(f"{name} is no name of Ollama's. Write it as `ollama list` does, such as {PREFIX}qwen3:8b.")
    place = Path(found["host"] or HOST, found["namespace"] or NAMESPACE, found["model"], found["tag"] or TAG)
    for store in stores():
        manifest = store / "manifests" / place
        if _is_there(manifest):
            return _from_manifest(bare, manifest, store)
    raise ModelNotFound(_not_there(name))


def stores() -> list[Path]:
    """The folders where Ollama's models may lie here: the one of OLLAMA_MODELS alone, if that is set."""
    if own := os.environ.get("OLLAMA_MODELS", "").strip("\"' "):
        return [Path(own)]
    return [Path.home() / ".ollama" / "models", SERVICE]


def names(store: Path) -> list[str]:
    """The models of a store, as Ollama writes them."""
    root = store / "manifests"
    try:
        places = [path.relative_to(root).parts for path in root.glob("*/*/*/*") if path.is_file()]
    except OSError:
        return []
    return sorted(_written(*place) for place in places)


def _written(host: str, namespace: str, model: str, tag: str) -> str:
    front = [] if (host, namespace) == (HOST, NAMESPACE) else [namespace] if host == HOST else [host, namespace]
    return f"{'/'.join([*front, model])}:{tag}"


def _is_there(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a folder that only the service may read
        return False


def _not_there(name: str) -> str:
    looked = stores()
    there = [one for store in looked for one in names(store)]
    found = (
        f"Here are: {', '.join(there[:LISTED])}{', …' if len(there) > LISTED else ''}."
        if there
        else ("No model of Ollama's was found at all, or its folder may not be read.")
    )
    bare = re.sub(r"^(?:hf\.co|huggingface\.co)/", "", name)
    hub = f" On the Hugging Face Hub it would be hf:{bare}." if "/" in bare and not name.startswith(PREFIX) else ""
    return (
        f"{name} is no file here and no model of Ollama's in {' or '.join(map(str, looked))}. {found} "
        f"`ollama list` shows the names; OLLAMA_MODELS names another folder.{hub}"
    )


def _from_manifest(name: str, manifest: Path, store: Path) -> StoredModel:
    try:
        layers = list(_layers(json.loads(manifest.read_text(encoding="utf-8"))))
    except (OSError, ValueError, OverflowError, RecursionError, KeyError, TypeError, AttributeError) as wrong:
        raise ModelNotFound(
            f"{manifest}, Ollama's manifest of {name}, cannot be read: {wrong!r}. Run `ollama pull {name}` again."
        ) from wrong
    digests = [digest for kind, digest, _ in layers if kind == "model"]
    if not digests:
        kinds = ", ".join(sorted({kind for kind, _, _ in layers})) or "nothing"
        raise ModelNotFound(
            f"Ollama's {name} has no GGUF here: its manifest names {kinds}. It may run in Ollama's cloud, or be a "
            "model of pictures. Give a .gguf file of a language model."
        )
    path = store / "blobs" / digests[0].replace(":", "-")
    if not _is_there(path):
        raise ModelNotFound(f"Ollama's {name} should be {path}, which is not there. Run `ollama pull {name}` again.")
    return StoredModel(path, tuple(_beside(name, layers)))


def _layers(manifest: Any) -> Iterable[tuple[str, str, int]]:
    """Kind, digest and bytes of each layer."""
    for layer in manifest["layers"]:
        digest = layer["digest"]
        if not DIGEST.fullmatch(digest):
            raise ValueError(f"{digest!r} is no digest")
        yield layer["mediaType"].removeprefix(KIND), digest, file_size(layer["size"])


def _beside(name: str, layers: Iterable[tuple[str, str, int]]) -> Iterable[str]:
    for kind, _, n_bytes in layers:
        if what := BESIDE.get(kind.removeprefix("image.")):
            yield f"Ollama's {name} has beside its weights {bytes_text(n_bytes)} of {what}."
