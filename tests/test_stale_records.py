"""The list of records that an upgrade of llama.cpp makes stale."""

import json
import sys
from pathlib import Path

from inferlab.records import RECORDED

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import stale_records as tool  # noqa: E402


def record(folder, name, version, kind="run"):
    machine = {"llama_cpp_python": version}
    path = folder / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"record": kind, "schema": 2, "sequence": [{"machine": machine}]}))


def test_a_record_of_another_version_is_listed(tmp_path):
    """With what measures it again and what uses it; one of this version is not."""
    record(tmp_path, "a/mistral-7b-depth", "0.3.1", "depth scaling")
    record(tmp_path, "a/split", "0.3.1", "sweep")
    record(tmp_path, "a/new", "0.4.0")
    found = tool.stale(tmp_path, "0.4.0", {"book/one.md": "lab.load('a/split')", "book/two.md": "nothing"})
    assert [(one.name, one.again, one.used_in) for one in found] == [
        ("a/mistral-7b-depth", "make reference", ()),
        ("a/split", "inferlab.measurement.sweep", ("book/one.md",)),
    ]
    assert found[0].versions == ("0.3.1",)


def test_without_a_version_the_pinned_one_counts(capsys):
    """The records of the repository are of the llama.cpp that it installs."""
    tool.main([])
    pinned = tool.pinned((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    n_records = len(list(RECORDED.rglob("*.json")))
    said = f"0 of {n_records} records are of another llama-cpp-python than {pinned}.\n"
    assert capsys.readouterr().out == said


def test_before_an_upgrade_every_measured_record_is_listed(capsys):
    """Named a version that nothing was measured with, the list is as long as its last line says."""
    tool.main(["99.0"])
    *lines, last = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if "again: " in line]) == int(last.split()[0]) > 0
