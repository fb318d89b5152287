"""`inferlab plan` on addresses: a repository is listed, one of its files is planned, and what fails is said."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import REPO, HubServer, serving_hub
from small_models import write_model
from split_files import write_split

from inferlab import cli
from inferlab.model import web
from inferlab.model.remote import remote_model

PLACE = ("--vram", "8GiB", "--no-simulation")


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Iterator[HubServer]:
    """A repository with three models, one of them in parts, a projector and a model that drafts."""
    model = write_model(tmp_path / "model-Q4_K_M.gguf", "llama")
    os.truncate(model, 16 * 2**30)
    other = write_model(tmp_path / "model-Q8_0.gguf", "llama")
    parts = write_split(tmp_path, "model-F16", other, 2)
    beside = [tmp_path / "mmproj-F16.gguf", tmp_path / "README.md"]
    for path in beside:
        path.write_bytes(bytes(2**20))
    draft = write_model(tmp_path / "mtp-model-Q8_0.gguf", "llama")
    files: dict[str, Path] = {path.name: path for path in (model, other, *parts, *beside, draft)}
    monkeypatch.setenv("HF_HOME", str(tmp_path / "none"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(web, "PAUSES", ())
    remote_model.cache_clear()
    with serving_hub(HubServer(files)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        yield hub


def test_a_repository_is_listed(hub, capsys):
    """Models with types and sizes, the smallest first, what goes with them, and how to plan one; nothing is read."""
    assert cli.main(["plan", f"hf:{REPO}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split()[:2] for line in lines if ".gguf" in line]
    assert rows == [
        ["model", "Q8_0"],
        ["model", "F16"],
        ["model", "Q4_K_M"],
        ["projector", "F16"],
        ["draft", "Q8_0"],
    ]
    assert any("16.00 GiB" in line and "model-Q4_K_M.gguf" in line for line in lines)
    assert any("model-F16-00001-of-00002.gguf (2 parts)" in line for line in lines)
    assert lines[-1] == f"Plan one of them: inferlab plan hf:{REPO}:Q4_K_M"
    assert hub.n_sent == 0


@pytest.mark.parametrize("words", [["--type", "Q8_0"], ["--vram", "8GiB"], ["--for", "llama-server"]])
def test_a_list_is_no_plan(hub, capsys, words):
    """An option that is for a plan is refused beside a repository, with a model that could be planned."""
    with pytest.raises(SystemExit):
        cli.main(["plan", f"hf:{REPO}", *words])
    told = capsys.readouterr().err
    assert f"{words[0]} would change nothing beside hf:{REPO}" in told
    assert f"such as hf:{REPO}:Q4_K_M" in told


def test_a_program_gets_the_list_as_json(hub, capsys):
    """The same as one object, with an address to plan each by."""
    assert cli.main(["plan", f"hf:{REPO}", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["repository"] == f"hf:{REPO}"
    assert {one["address"]: one["parts"] for one in told["files"]} == {
        f"hf:{REPO}/model-Q4_K_M.gguf": 1,
        f"hf:{REPO}/model-Q8_0.gguf": 1,
        f"hf:{REPO}/model-F16-00001-of-00002.gguf": 2,
        f"hf:{REPO}/mmproj-F16.gguf": 1,
        f"hf:{REPO}/mtp-model-Q8_0.gguf": 1,
    }


def test_a_file_of_it_is_planned(hub, capsys):
    """By type, by file and with a draft from the same place; a few MB of 16 GiB are read."""
    for name in (f"hf:{REPO}:Q4_K_M", f"hf:{REPO}/model-Q4_K_M.gguf", f"hf.co/{REPO}:Q4_K_M"):
        assert cli.main(["plan", name, *PLACE]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert "fits: yes" in shown
        assert "mmproj-F16.gguf, 1.00 MiB, a projector" in shown
    assert cli.main(["plan", f"hf:{REPO}:Q4_K_M", *PLACE, "--draft", f"hf:{REPO}/mtp-model-Q8_0.gguf"]) == 0
    assert "Drafter" in capsys.readouterr().out
    assert hub.n_sent < 16 * 2**20


def test_the_lines_to_paste_name_the_address(hub, capsys):
    """llama-server takes the repository itself; no folder of this machine is named where the file is not here."""

    def pasted(name, program, *words):
        assert cli.main(["plan", name, *PLACE, "--for", program, *words]) == 0
        shown = capsys.readouterr().out
        assert "/tmp" not in shown
        assert "stands for" not in shown
        return shown

    file, draft = f"hf:{REPO}/model-Q4_K_M.gguf", f"hf:{REPO}/mtp-model-Q8_0.gguf"
    assert f"llama-server -hf {REPO}:Q4_K_M -c 4096 " in pasted(f"hf:{REPO}:Q4_K_M", "llama-server")
    assert f"llama-server -hf {REPO} -hff model-Q4_K_M.gguf -c 4096 " in pasted(file, "llama-server")
    page = f"https://huggingface.co/{REPO}/resolve/main/model-Q4_K_M.gguf"
    assert f"llama-cli -hf {REPO} -hff model-Q4_K_M.gguf " in pasted(page, "llama-cli")
    assert "filename='model-Q4_K_M.gguf'," in pasted(f"hf:{REPO}:Q4_K_M", "llama-cpp-python")
    assert f"FROM hf.co/{REPO}:model-Q4_K_M.gguf" in pasted(f"hf:{REPO}:Q4_K_M", "ollama")
    assert f" -hfd {REPO} -md mtp-model-Q8_0.gguf " in pasted(file, "llama-server", "--draft", draft)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (f"hf:{REPO}:Q2_K", "NotFound: hf:owner/model-GGUF has no model of the type Q2_K. It has Q4_K_M, Q8_0, F16."),
        (f"hf:{REPO}/none.gguf", "has no file none.gguf"),
        ("hf:owner/none", "NotReached: "),
        ("hf:owner", "is not of the form hf:owner/repo"),
        (REPO, f"On the Hugging Face Hub it would be hf:{REPO}."),
    ],
)
def test_what_fails_is_said_in_a_sentence(hub, capsys, name, said):
    """The status is 1, and the known names are not listed behind a failure of the network."""
    assert cli.main(["plan", name, *PLACE]) == 1
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
    assert "Did you mean" not in told
