"""Contributions: every record of the repository fits the schema, and none of them names its owner."""

import json
from dataclasses import replace

import pytest
from fakes import ScriptedEngine, made_run

from inferlab import cli
from inferlab.atlas.campaign import records_folder
from inferlab.atlas.contribute import MOST_BYTES, anonymized, contribute, problems, require_name, schema
from inferlab.errors import ContributionRefused
from inferlab.records import kind_of, save, shipped, to_record
from inferlab.settings import Settings

RECORDS = list(shipped().values())
OWNED = ["/home/ada/models/a.gguf", "~/a.gguf", r"C:\Users\ada\a.gguf", r"\\nas\models\a.gguf", "file:///tmp/a.gguf"]


@pytest.fixture
def ada(monkeypatch):
    """A machine called `analytical`, whose user is `lovelace`."""
    monkeypatch.setattr("inferlab.atlas.contribute.identifying_names", lambda: ("analytical", "lovelace"))


def record(**changes):
    return to_record(made_run(**changes))


# --- what is in the repository ----------------------------------------------------------------


def test_a_record_of_the_repository_fits_the_schema_and_names_nobody():
    """Every field is known and of its kind; no path, no address of another machine, no name of host or user."""
    found = {path.name: problems(json.loads(path.read_text(encoding="utf-8"))) for path in RECORDS}
    assert {name: told for name, told in found.items() if told} == {}


def test_a_record_is_of_modest_size():
    """A clone stays small."""
    assert [path.name for path in RECORDS if path.stat().st_size > MOST_BYTES] == []


def test_every_folder_is_named_after_what_a_machine_is():
    """Small letters, digits, dots and dashes."""
    assert [require_name(folder.name) for folder in records_folder().iterdir() if folder.is_dir()]


# --- the schema -------------------------------------------------------------------------------


def test_the_schema_is_a_valid_one():
    """Other programs can use it: it is JSON, and draft 2020-12 accepts it."""
    from jsonschema import Draft202012Validator

    Draft202012Validator.check_schema(json.loads(json.dumps(schema())))


def test_a_run_fits_and_is_recognised():
    """What `save` writes is a run."""
    assert kind_of(record()) == "run"
    assert problems(record()) == []


@pytest.mark.parametrize("text", OWNED)
def test_a_path_is_found_in_any_field(text):
    """In a field that holds a name, and in the middle of a sentence."""
    assert "holds a path" in problems(record(text=text))[0]
    sentence = f"It could not read {text}."
    assert "holds a path" in problems(record(text=sentence))[0]


@pytest.mark.parametrize("text", ["512 tokens/s", "K/V", "a / b", "1/2", "https://example.org/a", "llama ?B Q4_K"])
def test_what_is_no_path_is_left_alone(text):
    """A slash between words is no path."""
    assert problems(record(text=text)) == []
    assert anonymized(text) == text


def test_another_machines_address_is_found():
    """A device may be on this machine's loopback; an address elsewhere names a network."""
    assert problems(record(settings=Settings(n_ctx=256, rpc_servers=("127.0.0.1:50052",)))) == []
    told = problems(record(settings=Settings(n_ctx=256, rpc_servers=("gpubox.lan:50052",))))
    assert "settings/rpc_servers/0" in told[0]
    assert "another machine" in problems(record(text="RPC0[192.0.2.7:50052]"))[0]


def test_a_field_that_no_record_has_is_found():
    """Nothing rides along unseen, at any depth."""
    owned = record()
    owned["machine"]["hostname"] = "x"
    assert "hostname" in problems(owned)[0]


def test_a_missing_field_and_a_wrong_kind_are_found_with_their_place():
    """Whoever has to mend it learns where."""
    broken = record()
    broken["passes"][1]["prefill_seconds"] = "fast"
    assert problems(broken)[0].startswith("passes/1/prefill_seconds: ")
    del broken["machine"]
    assert any("'machine' is a required property" in told for told in problems(broken))


def test_the_names_of_machine_and_user_are_found(ada):
    """Whole words, in capitals or not."""
    assert "'analytical'" in problems(record(text="on ANALYTICAL-2"))[0]
    assert problems(record(text="analytically")) == []


@pytest.mark.parametrize("data", [[], {}, "text", None, {"hello": 1}])
def test_other_json_is_no_record(data):
    """It is said which kinds there are."""
    assert "it is no record: it names no kind of record" in problems(data)[0]
    assert "schedule, seen drafts, served answers, served speculation" in problems(data)[0]


# --- making a contribution --------------------------------------------------------------------


def test_anonymizing_leaves_names_of_files_and_nothing_of_their_owner(ada):
    """A path is cut to its last part, names are taken out, prompts and answers left out; the rest stays."""
    card = replace(made_run().model, file="/home/ada/x.gguf")
    found = anonymized(record(prompt="Dear diary", text="Hello", model=card))
    assert found["model"]["file"] == "x.gguf"
    assert found["prompt"] is found["text"] is None
    assert anonymized(r"C:\a b.gguf of Lovelace at analytical") == "a b.gguf of [name] at [name]"
    assert found["passes"] == record()["passes"]
    assert problems(found) == []


def test_a_folder_is_copied_anonymized_and_what_cannot_be_shared_is_named(tmp_path, ada):
    """What fits is written; what does not stays behind, with the reason; the source is not touched."""
    kept = tmp_path / "kept"
    save(made_run(prompt="secret"), kept / "one.json")
    save(made_run(settings=Settings(n_ctx=256, rpc_servers=("gpubox:1",))), kept / "two.json")
    (kept / "three.json").write_text("{")
    written, refused = contribute(kept, tmp_path / "example-4c")
    assert list(written) == ["one"]
    assert set(refused) == {"two", "three"}
    assert "secret" not in (tmp_path / "example-4c" / "one.json").read_text()
    assert "secret" in (kept / "one.json").read_text()


def test_nothing_to_share_is_an_error(tmp_path):
    """It says what was found and how records are made."""
    with pytest.raises(ContributionRefused, match=r"no \.json file.*inferlab reference"):
        contribute(tmp_path, tmp_path / "example-4c")


@pytest.mark.parametrize("name", ["", "My Laptop", "a/b", "..", "UPPER", "analytical-2"])
def test_a_folder_with_another_name_is_refused(name, ada):
    """It says what a name looks like."""
    with pytest.raises(ContributionRefused, match="rtx-4090, xeon-2c"):
        require_name(name)


def test_a_record_that_is_too_large_stays_behind(tmp_path, monkeypatch):
    """A clone stays small."""
    monkeypatch.setattr("inferlab.atlas.contribute.MOST_BYTES", 100)
    save(made_run(), tmp_path / "one.json")
    with pytest.raises(ContributionRefused, match="more than 100"):
        contribute(tmp_path, tmp_path / "example-4c")


# --- the command ------------------------------------------------------------------------------


@pytest.fixture
def scripted(monkeypatch, tmp_path):
    """A machine without records, whose stages take no time."""
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("inferlab.cli.report.record", recorded)
    return tmp_path


def recorded(folder, stages, name, **_):
    for stage in stages:
        save(made_run(prompt="secret"), folder / name / f"{stage}.json")


def test_the_command_measures_the_short_stages_where_nothing_is_kept(scripted, capsys):
    """It writes a folder, says where to send it, and measures nothing the second time."""
    command = ["report", "--machine", "box-4c", "--out", str(scripted)]
    assert cli.main(command, ScriptedEngine()) == 0
    told = capsys.readouterr().out
    assert "measuring calibration, llama-3.2-1b-weights, llama-3.2-1b-layers" in told
    assert "pull request" in told
    files = sorted((scripted / "inferlab-report" / "box-4c").iterdir())
    assert len(files) == 3
    assert "secret" not in "".join(path.read_text() for path in files)
    assert cli.main(command, ScriptedEngine()) == 0
    assert "measuring" not in capsys.readouterr().out


def test_the_command_takes_records_from_any_folder(scripted, capsys):
    """Records kept elsewhere go the same way; what has to stay behind is named."""
    save(made_run(), scripted / "mine" / "one.json")
    (scripted / "mine" / "two.json").write_text("{}")
    command = ["report", "--from", str(scripted / "mine"), "--machine", "box-4c", "--out", str(scripted)]
    assert cli.main(command, ScriptedEngine()) == 0
    assert "left out: two: it is no record" in capsys.readouterr().out


def test_the_command_prints_the_schema(capsys):
    """Other programs can check a contribution too."""
    assert cli.main(["report", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "A record of inferlab"
