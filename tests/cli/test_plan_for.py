"""`inferlab plan --for`: the plan as the lines of another program."""

import json
import re

import pytest
from fakes import WITH_GPU, ScriptedEngine

from inferlab import cli
from inferlab.model.catalog import known_models
from inferlab.model.find import tiny_model
from inferlab.units import GIB

pytestmark = pytest.mark.engine
PLAN = ["plan", str(tiny_model()), "--vram", "8GiB", "--n-ctx", "512", "--for"]


@pytest.fixture
def scripted():
    """A scripted engine on a machine with a GPU."""
    return ScriptedEngine(machine=WITH_GPU)


def test_the_lines_follow_the_plan(scripted, capsys):
    """A heading with the program, and the file by its full path, below the plan itself."""
    assert cli.main([*PLAN, "llama-server"], scripted) == 0
    plan, _, lines = capsys.readouterr().out.partition("\nFor llama-server\n")
    assert "fits: yes" in plan
    assert lines.split("\n\n")[0].strip().splitlines() == [
        "In a terminal:",
        f"  llama-server -m {tiny_model()} -c 512 -ngl 7 -np 1 --port 8080",
    ]


@pytest.mark.parametrize(
    ("program", "said"),
    [("ollama", "PARAMETER num_gpu 7"), ("lmstudio", "--gpu max"), ("llama-cpp-python", "n_gpu_layers=7,")],
)
def test_each_program_has_its_own_lines(scripted, capsys, program, said):
    """The same plan in the words of each."""
    assert cli.main([*PLAN, program], scripted) == 0
    assert said in capsys.readouterr().out


def test_pools_and_windows_are_asked_for_and_pasted(scripted, capsys):
    """One pool is a flag of llama-server, windows only its default; what changes nothing is refused."""
    plan = ["plan", "gemma-3-1b", "--vram", "8GiB", "--no-simulation", "--n-seq-max", "4"]
    assert cli.main([*plan, "--kv-unified", "--for", "llama-server"], scripted) == 0
    lines = capsys.readouterr().out.partition("\nFor llama-server\n")[2]
    assert "-np 4 -kvu" in lines
    assert "--swa-full" not in lines
    assert cli.main([*plan, "--swa-full", "--for", "llama-server"], scripted) == 0
    assert "--swa-full" in capsys.readouterr().out
    assert cli.main([*PLAN[:2], "--swa-full"], scripted) == 1
    assert "no layer of" in capsys.readouterr().err


def test_json_has_the_lines_by_their_place(scripted, capsys):
    """One field more: the program, sentences, the settings, and each part with its place."""
    assert cli.main([*PLAN, "ollama", "--json"], scripted) == 0
    fields = json.loads(capsys.readouterr().out)
    assert (list(fields)[:4], list(fields)[-1]) == (["model", "method", "devices", "fits"], "paste")
    assert list(fields["paste"]) == ["for", "notes", "settings", "parts"]
    assert (fields["paste"]["for"], fields["paste"]["notes"]) == ("ollama", [])
    assert fields["paste"]["settings"]["n_ctx"] == 512
    assert [part["where"] for part in fields["paste"]["parts"]] == ["In a file named Modelfile", "In a terminal"]


def test_a_known_name_has_no_file(scripted, capsys):
    """A sentence says what stands for its path."""
    assert cli.main(["plan", "mistral-7b", "--vram", "8GiB", "--for", "llama-server"], scripted) == 0
    printed = capsys.readouterr().out
    assert "model.gguf stands for the path of your file." in printed
    assert "llama-server -m model.gguf -c 4096 -ngl 33 -np 1 --port 8080" in printed


def test_an_unknown_program_is_status_2(scripted, capsys):
    """The usage lists those that there are."""
    with pytest.raises(SystemExit) as left:
        cli.main([*PLAN, "vllm"], scripted)
    assert left.value.code == 2
    complaint = capsys.readouterr().err.partition("choose from ")[2].replace("'", "")
    assert complaint.startswith("llama-server, llama-cli, llama-cpp-python, ollama, lmstudio")


def test_a_drafter_takes_room_and_has_its_flags(scripted, capsys):
    """Its bytes are left free, and llama-server gets it by flags; others get a comment."""
    assert cli.main([*PLAN, "llama-server", "--draft", str(tiny_model())], scripted) == 0
    said = " ".join(capsys.readouterr().out.rpartition("\n\n")[0].split())
    assert "of cache for 512 tokens" in said
    assert said.endswith(f"--port 8080 -md {tiny_model()} --spec-type draft-simple")
    assert cli.main([*PLAN, "ollama", "--draft", str(tiny_model()), "--json"], scripted) == 0
    with_draft = json.loads(capsys.readouterr().out)
    assert with_draft["paste"]["parts"][-1]["text"].splitlines()[-1].startswith("# the drafter ")
    assert cli.main([*PLAN, "ollama", "--json"], scripted) == 0
    without = json.loads(capsys.readouterr().out)
    added = with_draft["reserve_bytes"] - without["reserve_bytes"]
    assert added == max(with_draft["draft"]["most_bytes"].values()) > 0


def test_ram_is_counted(scripted, capsys):
    """What no machine of that size holds does not fit; what is assumed is said, and what is left for prompts pasted."""
    plan = ["plan", "qwen3-30b-a3b", "--card", "rtx-4060", "--n-cpu-moe", "40", "--no-simulation"]
    assert cli.main(plan, scripted) == 0
    printed = capsys.readouterr().out
    assert "fits: yes" in printed
    assert "RAM is assumed to be 32.00 GiB; --ram gives yours." in printed
    assert cli.main([*plan, "--ram", "16GiB", "--json"], scripted) == 0
    fields = json.loads(capsys.readouterr().out)
    assert (fields["fits"], fields["ram"]["bytes"], fields["ram"]["system_bytes"]) == ("no", 16 * GIB, 4 * GIB)
    assert cli.main([*plan, "--ram", "24GiB", "--for", "llama-server"], scripted) == 0
    left = re.search(r" -cram (\d+) ", capsys.readouterr().out)
    assert 0 < int(left[1]) < 8192
    assert cli.main([*plan, "--ram", "24GiB", "--cache-ram", "8192"], scripted) == 0
    assert "fits: no" in capsys.readouterr().out
    assert cli.main([*plan, "--ram", "24GiB", "-cram", "0", "--for", "llama-server"], scripted) == 0
    assert " -cram 0 " in capsys.readouterr().out


def test_a_mac_has_its_systems_share(scripted, capsys):
    """By the card's name, with where the number comes from; another limit is an option."""
    plan = ["plan", "llama-3.1-8b", "--card", "apple-m4:16", "--no-simulation"]
    assert cli.main(plan, scripted) == 0
    assert "macOS" in capsys.readouterr().out
    assert cli.main([*plan, "--unified", "12GiB", "--json"], scripted) == 0
    assert json.loads(capsys.readouterr().out)["rooms"]["shared"]["free_bytes"] == 12 * GIB


@pytest.mark.parametrize(
    "words",
    [
        ["mistral-7b", "--card", "rtx-4060", "--backend", "rocm"],
        ["--list", "--card", "rtx-4060", "--type", "Q8_0"],
        ["--list", "--vram", "8GiB", "--for", "llama-server"],
        ["--list", "--vram", "8GiB", "--draft", "qwen3-0.6b"],
    ],
)
def test_an_option_that_would_change_nothing_is_refused(scripted, capsys, words):
    """No plan is shown of which somebody thinks that it has a choice in it that it has not."""
    with pytest.raises(SystemExit):
        cli.main(["plan", *words], scripted)
    assert f"{words[-2]} would change nothing beside" in capsys.readouterr().err


def test_weights_of_a_name_are_the_usual_ones(scripted, capsys):
    """Those that a model was trained in where it has such, else Q4_K_M; --type has others."""

    def weights(*words):
        assert cli.main(["plan", *words, "--vram", "24GiB", "--no-simulation", "--json"], scripted) == 0
        devices = json.loads(capsys.readouterr().out)["devices"].values()
        return sum(device["weights_bytes"] for device in devices)

    assert weights("gpt-oss-20b") == weights("gpt-oss-20b", "--type", "MXFP4_MOE")
    assert weights("gpt-oss-20b") != weights("gpt-oss-20b", "--type", "Q4_K_M")
    assert weights("qwen3-4b") == weights("qwen3-4b", "--type", "Q4_K_M")


def test_what_runs_is_listed(scripted, capsys):
    """Every known model, as a table and as JSON, also on two cards; without a card there is nothing to list for."""
    listing = ["plan", "--list", "--card", "rtx-4060", "--ram", "32GiB", "-c", "8192"]
    assert cli.main(listing, scripted) == 0
    table = capsys.readouterr().out
    assert "mistral-7b-v0.3" in table
    assert cli.main([*listing, "--json"], scripted) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["n_ctx"] == 8192
    neither = [runs["title"] for runs in found["models"] if runs["reason"] == "Not even Q2_K fits."]
    assert neither
    assert f"\nNot even Q2_K fits of {len(neither)} models: {', '.join(neither)}.\n" in table
    assert "\nNot even MXFP4_MOE fits of 1 model: gpt-oss 120B.\n" in table
    rest = {runs["reason"] for runs in found["models"] if not (runs["whole"] or runs["in_ram"])}
    assert rest == {"Not even Q2_K fits.", "Not even MXFP4_MOE fits."}
    assert {runs["name"] for runs in found["models"]} == set(known_models())
    assert cli.main(["plan", "--list", "--vram", "8GiB,6GiB"], scripted) == 0
    assert "2 cards with 8.00 GiB and 6.00 GiB and 32.00 GiB of RAM" in " ".join(capsys.readouterr().out.split())
    for wrong in (["plan", "--list"], ["plan", "tiny", "--list", "--card", "rtx-4060"]):
        with pytest.raises(SystemExit):
            cli.main(wrong, scripted)
