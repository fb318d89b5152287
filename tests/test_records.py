"""Runs on disk: whole or not at all, and back again unchanged."""

import json
import os
from contextlib import suppress

import pytest
from fakes import WITH_GPU, made_run

from inferlab.errors import RecordError
from inferlab.machine import Link
from inferlab.records import load_run, run_to_dict, save_run
from inferlab.settings import Settings


@pytest.mark.parametrize(
    "run",
    [
        made_run(),
        made_run(machine=WITH_GPU, settings=Settings(n_ctx=512, tensor_split=(3.0, 1.0), devices=("CUDA0",))),
        made_run(links=(Link("127.0.0.1:4000", 1.0, 0.001, 0.98, 2e-3), Link("127.0.0.1:4001", None, 0.1, 1.5, 0.2))),
        made_run(warmups=(), buffers=(), load={}, settled=False, prompt="why?", text="because 东京\n"),
    ],
)
def test_a_run_comes_back_as_it_was(tmp_path, run):
    """Everything that a figure reads survives the file."""
    assert load_run(save_run(run, tmp_path / "run.json")) == run


def test_a_record_from_before_links_were_recorded_has_none(tmp_path):
    """Older files are read as they are."""
    old = {name: value for name, value in run_to_dict(made_run()).items() if name != "links"}
    (tmp_path / "run.json").write_text(json.dumps(old))
    assert load_run(tmp_path / "run.json") == made_run()


def test_a_record_is_readable_text(tmp_path):
    """A record is JSON in UTF-8 under the names of the objects."""
    data = json.loads(save_run(made_run(), tmp_path / "run.json").read_text(encoding="utf-8"))
    assert data["format"] == 1
    assert data["passes"][0]["token_seconds"] == list(made_run().passes[0].token_seconds)
    assert data["machine"]["cpu"] == "Example CPU"


def test_missing_folders_are_made(tmp_path):
    """A record goes where it was sent."""
    assert save_run(made_run(), tmp_path / "a" / "b" / "run.json").is_file()


def test_an_interrupted_writing_leaves_the_old_record(tmp_path, monkeypatch):
    """The file is replaced at once or not at all, and nothing unfinished stays behind."""
    path = save_run(made_run(), tmp_path / "run.json")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(RecordError, match=r"No space left on device.*Nothing was overwritten"):
        save_run(made_run(text="new"), path)
    assert load_run(path) == made_run()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_told(tmp_path):
    """The first write that does not fit is a RecordError."""
    (tmp_path / "run.json.part").symlink_to("/dev/full")
    with pytest.raises(RecordError, match="No space left"):
        save_run(made_run(), tmp_path / "run.json")


def test_a_file_where_a_folder_should_be_is_told(tmp_path):
    """A path that cannot be is a RecordError, not an OSError."""
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match="could not be written"):
        save_run(made_run(), tmp_path / "file" / "run.json")


def test_an_unknown_name_is_neither_file_nor_record():
    """The message says where was looked."""
    with pytest.raises(RecordError, match="no record 'nobody/nothing': neither a file nor a name"):
        load_run("nobody/nothing")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", "null", '{"format": 2}', "[" * 100_000, "\x00", '[["format", 1]]', '{"format": 1, "a": 2}'],
)
def test_a_damaged_file_is_no_record(tmp_path, text):
    """Whatever is wrong with the file, the answer is RecordError."""
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(RecordError, match="is not a record of a run"):
        load_run(tmp_path / "run.json")


def test_a_folder_is_no_record(tmp_path):
    """Neither is a folder."""
    with pytest.raises(RecordError):
        load_run(tmp_path)


KEYS = list(run_to_dict(made_run()))


@pytest.mark.parametrize("key", KEYS)
def test_a_record_with_a_part_missing_or_of_another_kind_breaks_nothing(tmp_path, key):
    """Whatever one field was replaced by, the run loads or the answer is RecordError."""
    whole = run_to_dict(made_run())
    path, fields = tmp_path / "run.json", {name: value for name, value in whole.items() if name != key}
    for damaged in (fields, *({**whole, key: wrong} for wrong in (None, 3, 0.5, "x", [3], {"x": 3}, [[]], True))):
        path.write_text(json.dumps(damaged))
        with suppress(RecordError):
            load_run(path)
