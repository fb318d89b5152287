"""Which file a name means."""

import pytest

import inferlab as lab
from inferlab.errors import ModelNotFound
from inferlab.model import find
from inferlab.model.find import find_model, tiny_model


@pytest.fixture(autouse=True)
def _no_model_in_the_environment(monkeypatch):
    monkeypatch.delenv(find.ENVIRONMENT, raising=False)


def test_the_embedded_model_is_the_default():
    """Without a name and without INFERLAB_MODEL the embedded model is meant, and it is there."""
    assert find_model() == find_model("tiny") == tiny_model()
    assert tiny_model().is_file()


def test_inferlab_model_names_the_readers_own(monkeypatch, tmp_path):
    """INFERLAB_MODEL stands in for a missing name, never for a given one."""
    own = tmp_path / "own.gguf"
    own.touch()
    monkeypatch.setenv(find.ENVIRONMENT, str(own))
    assert find_model() == own
    assert find_model("tiny") == tiny_model()


def test_a_tilde_is_the_home_folder(monkeypatch, tmp_path):
    """~ works as in a shell."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "own.gguf").touch()
    assert find_model("~/own.gguf") == tmp_path / "own.gguf"


@pytest.mark.parametrize("name", ["no/such.gguf", "x" * 5000, "nul\0byte.gguf"])
def test_a_missing_file_is_refused_with_the_three_ways_to_name_one(name):
    """Whatever the name is, the answer is ModelNotFound."""
    with pytest.raises(ModelNotFound, match=r"hf:owner/repo/file\.gguf"):
        find_model(name)


@pytest.mark.parametrize("name", ["hf:", "hf:owner/repo", "hf:owner//file.gguf"])
def test_an_incomplete_hub_name_asks_nobody(name):
    """hf: needs an owner, a repository and a file, or a type that tells the file."""
    with pytest.raises(ModelNotFound, match=r"is not of the form|names no file"):
        find_model(name)


def test_a_hub_name_is_fetched_once_through_huggingface_hub(monkeypatch, tmp_path):
    """The Hub's own client downloads and caches; folders in the file's name are kept."""
    asked = []
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *a, **_: asked.append(a) or str(tmp_path / a[1]))
    assert find_model("hf:owner/repo/sub/file.gguf") == tmp_path / "sub/file.gguf"
    assert asked == [("owner/repo", "sub/file.gguf")]


def test_a_hub_that_does_not_answer_is_a_model_not_found(monkeypatch):
    """The message repeats what the Hub's client said and names the way around it."""
    monkeypatch.setattr("huggingface_hub.hf_hub_download", _offline)
    with pytest.raises(ModelNotFound, match=r"no route to host.*local file"):
        find_model("hf:owner/repo/file.gguf")


def _offline(*_, **__):
    raise ConnectionError("no route to host")


@pytest.mark.parametrize("shape", [lab.known_model("mistral-7b"), lab.shape("mistral-7b")])
def test_a_shape_is_no_file(shape):
    """What has no weights cannot be opened; the message says how to get a file, and not all its fields."""
    with pytest.raises(ModelNotFound, match=f"A {type(shape).__name__} is no file.*make_shape"):
        find_model(shape)


def test_a_known_model_is_known():
    """A shape may stand where its name does."""
    known = lab.known_model("mistral-7b")
    assert lab.known_model(known) is known
