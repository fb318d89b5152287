"""Ollama's models on this machine, by their names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_models import write_model

from inferlab.errors import ModelNotFound
from inferlab.model import ollama_store
from inferlab.model.find import find_model
from inferlab.model.named import model_named
from inferlab.model.ollama_store import is_ollama_name, names, stored_model

OTHER = f"sha256:{'b' * 64}"
LIBRARY = "registry.ollama.ai/library"


@pytest.fixture
def store(tmp_path, monkeypatch) -> Path:
    """A store with one model, where OLLAMA_MODELS says."""
    folder = tmp_path / "models"
    monkeypatch.setenv("OLLAMA_MODELS", str(folder))
    monkeypatch.delenv("INFERLAB_MODEL", raising=False)
    keep(folder, f"{LIBRARY}/qwen3/8b", layers={"model": 5, "template": 9, "projector": 2**20, "adapter": 2**10})
    return folder


def keep(store: Path, place: str, layers: dict[str, int]) -> Path:
    """Write the manifest of a model, and its blob."""
    blob = store / "blobs" / f"sha256-{'a' * 64}"
    blob.parent.mkdir(parents=True, exist_ok=True)
    if not blob.exists():
        write_model(blob, "llama")
    listed = [
        {
            "mediaType": f"application/vnd.ollama.image.{kind}",
            "digest": f"sha256:{'a' * 64}" if kind == "model" else OTHER,
            "size": n_bytes,
        }
        for kind, n_bytes in layers.items()
    ]
    manifest = store / "manifests" / place
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({"schemaVersion": 2, "config": {}, "layers": listed}))
    return blob


def test_a_name_is_the_blob_of_its_manifest(store):
    """With its prefix or as Ollama writes it the name means the GGUF; what Ollama loads besides is told."""
    blob = store / "blobs" / f"sha256-{'a' * 64}"
    assert find_model("ollama:qwen3:8b") == find_model("qwen3:8b") == blob
    model = model_named("qwen3:8b")
    assert (model.path, model.architecture) == (blob, "llama")
    assert [text.partition(", ")[0] for text in model.beside] == [
        "Ollama's qwen3:8b has beside its weights 1.00 MiB of a projector for pictures or sound",
        "Ollama's qwen3:8b has beside its weights 1.00 KiB of an adapter that changes its weights",
    ]


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("ollama:llama3.2", f"{LIBRARY}/llama3.2/latest"),
        ("ollama:me/mine", "registry.ollama.ai/me/mine/latest"),
        ("me/mine:v1", "registry.ollama.ai/me/mine/v1"),
        ("hf.co/owner/model-GGUF:Q4_K_M", "hf.co/owner/model-GGUF/Q4_K_M"),
        ("ollama:localhost:5000/me/mine", "localhost:5000/me/mine/latest"),
    ],
)
def test_what_a_name_leaves_out_is_ollamas_default(store, name, place):
    """Host, namespace and tag are those of Ollama's own sources."""
    blob = keep(store, place, {"model": 1})
    assert stored_model(name).path == blob


@pytest.mark.parametrize(
    ("name", "is_ollamas"),
    [
        ("qwen3:8b", True),
        ("ollama:qwen3", True),
        ("me/mine:v1", True),
        ("qwen3", False),
        ("mistral-7b", False),
        ("model.gguf", False),
        ("folder/model.gguf", False),
        (r"C:\models\a.gguf", False),
        ("C:a.gguf", False),
        ("C:/models/a.gguf", False),
        ("/models/a.gguf", False),
        ("../a:b/c.gguf", False),
    ],
)
def test_only_a_name_with_a_tag_is_ollamas_without_the_prefix(name, is_ollamas):
    """A path, on Windows too, and a known model's name are never taken for one."""
    assert is_ollama_name(name) == is_ollamas


def test_a_file_comes_first(store, tmp_path, monkeypatch):
    """A file whose name is as one of Ollama's is that file."""
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "qwen3:8b", "llama")
    assert find_model("qwen3:8b") == Path("qwen3:8b")
    assert find_model("ollama:qwen3:8b").parent.name == "blobs"


def test_without_a_variable_the_usual_folders_are_searched(store, tmp_path, monkeypatch):
    """The home folder first, then that of the service; a folder that may not be read is none."""
    monkeypatch.delenv("OLLAMA_MODELS")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    monkeypatch.setattr(ollama_store, "SERVICE", store)
    assert stored_model("qwen3:8b").path.parent == store / "blobs"
    blob = keep(tmp_path / "home" / ".ollama" / "models", f"{LIBRARY}/qwen3/8b", {"model": 1})
    assert stored_model("qwen3:8b").path == blob
    assert names(store) == ["qwen3:8b"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("qwen3:9b", r"is no file here and no model of Ollama's in .*models\. Here are: qwen3:8b\. `ollama list`"),
        ("me/mine:v1", r"On the Hugging Face Hub it would be hf:me/mine:v1\."),
        ("ollama:../../etc:passwd", "is no name of Ollama's"),
        ("ollama:", "is no name of Ollama's"),
    ],
)
def test_a_name_that_is_not_there_is_told_with_those_that_are(store, name, said):
    """Where was looked, what is there, and what to do."""
    with pytest.raises(ModelNotFound, match=said):
        find_model(name)


def test_a_store_without_models_is_told(tmp_path, monkeypatch):
    """No folder at all is no crash."""
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "none"))
    with pytest.raises(ModelNotFound, match="No model of Ollama's was found at all"):
        find_model("qwen3:8b")


def test_a_manifest_without_a_gguf_is_told(store):
    """A model of the cloud, a broken manifest and a missing blob each say what to do."""
    keep(store, f"{LIBRARY}/cloudy/latest", {"template": 1})
    with pytest.raises(ModelNotFound, match=r"has no GGUF here: its manifest names template\. It may run in Ollama's"):
        find_model("ollama:cloudy")
    (store / "manifests" / LIBRARY / "cloudy" / "latest").write_text("{")
    with pytest.raises(ModelNotFound, match=r"cannot be read.*ollama pull cloudy"):
        find_model("ollama:cloudy")
    manifest = store / "manifests" / LIBRARY / "cloudy" / "latest"
    manifest.write_text(json.dumps({"layers": [{"mediaType": "m", "digest": "../../x", "size": 1}]}))
    with pytest.raises(ModelNotFound, match="is no digest"):
        find_model("ollama:cloudy")
    (store / "blobs" / f"sha256-{'a' * 64}").unlink()
    with pytest.raises(ModelNotFound, match=r"which is not there\. Run `ollama pull qwen3:8b` again"):
        find_model("qwen3:8b")


@pytest.mark.parametrize(
    "text", ['{"layers": [{"digest": "sha256:%s", "mediaType": "x", "size": 1e999}]}', "[" * 200_000]
)
def test_a_manifest_that_is_none_is_told(store, text):
    """A size without end and brackets without end are no manifest."""
    keep(store, f"{LIBRARY}/odd/1b", layers={"model": 5})
    (store / "manifests" / LIBRARY / "odd" / "1b").write_text(text.replace("%s", "a" * 64))
    with pytest.raises(ModelNotFound, match=r"manifest of odd:1b, cannot be read"):
        stored_model("ollama:odd:1b")


def test_a_name_of_the_hub_is_told_as_its_address(store):
    """Ollama writes the Hub's host before it, which an address has not."""
    with pytest.raises(ModelNotFound, match=r"it would be hf:bartowski/x:Q4_K_M\."):
        stored_model("hf.co/bartowski/x:Q4_K_M")
