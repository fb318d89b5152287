"""The list of records that an upgrade of llama.cpp makes stale, with commands that run."""

import json
import sys
from inspect import signature
from pathlib import Path

import pytest

from inferlab.records import shipped
from studies.recipes import NotRepeatable, recipes

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import stale_records as tool  # noqa: E402


def record(folder, name, version):
    path = folder / f"{name}.json"
    machine = {"llama_cpp_python": version}
    path.write_text(json.dumps({"record": "run", "schema": 2, "sequence": [{"machine": machine}]}))
    return path


def test_a_record_of_another_version_is_listed(tmp_path):
    """With what measures it again and what uses it; one of this version is not."""
    records = {
        "a/mistral-7b-depth": record(tmp_path, "mistral-7b-depth", "0.3.1"),
        "a/same-answers": record(tmp_path, "same-answers", "0.3.1"),
        "a/new": record(tmp_path, "new", "0.4.0"),
    }
    found = tool.stale(records, "0.4.0", {"book/one.md": "lab.load('a/same-answers')", "book/two.md": "nothing"})
    assert [(one.name, one.again, one.used_in) for one in found] == [
        ("a/mistral-7b-depth", "make reference REFERENCE_OPTIONS=mistral-7b-depth", ()),
        ("a/same-answers", ".venv/bin/python -m studies.same_answer.measure same-answers", ("book/one.md",)),
    ]
    assert found[0].versions == ("0.3.1",)


@pytest.mark.parametrize("name", shipped())
def test_every_record_says_how_it_is_measured_again(name):
    """By a stage of `make reference`, by a benchmark, or by a call of its study that binds; else it says why not."""
    words = tool.again(name).split()
    if words[:2] == ["not", "repeatable,"]:
        assert words[2] == "because"
        assert len(words) > 6
    elif words[:3] == [".venv/bin/python", "-m", words[2]] and words[2].startswith("studies."):
        recipe = recipes(words[2].split(".")[1])[words[3]]
        signature(recipe.func).bind(*recipe.args, **recipe.keywords)
    else:
        assert words[0] in ("make", "INFERLAB_SPEED_RECORD=FOLDER")


@pytest.mark.parametrize("name", shipped())
def test_a_call_has_the_arguments_that_its_record_names(name):
    """Where an argument is a field of the record, both have the same value."""
    words = tool.again(name).split()
    if not words[2:] or not words[2].startswith("studies."):
        pytest.skip("no call of a study")
    recipe = recipes(words[2].split(".")[1])[words[3]]
    data = json.loads(shipped()[name].read_text(encoding="utf-8"))
    one = next(iter(data.get("sequence", [data])))
    asked = {key: value for key, value in recipe.keywords.items() if isinstance(value, int | float | str)}
    assert {key: one[key] for key in asked if isinstance(one.get(key), int | float | str)} == {
        key: value for key, value in asked.items() if isinstance(one.get(key), int | float | str)
    }


def test_every_recipe_is_of_a_record():
    """A record that was renamed or deleted takes its recipe along."""
    from studies.recipes import with_records

    named = {name for study in with_records() for name in recipes(study)}
    assert named <= {name.partition("/")[2] for name in shipped()}


def test_without_a_reason_nothing_is_left_out():
    """A reason is the end of a sentence: small, and without a full stop."""
    from studies.recipes import with_records

    reasons = [one for study in with_records() for one in recipes(study).values() if isinstance(one, NotRepeatable)]
    assert all(one[0].islower() or one[:2].isupper() or one.startswith("llama") for one in reasons)
    assert not [one for one in reasons if one.endswith(".")]


def test_without_a_version_the_pinned_one_counts(capsys):
    """The records of the repository are of the llama.cpp that it installs."""
    tool.main([])
    pinned = tool.pinned((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    said = f"0 of {len(shipped())} records are of another llama-cpp-python than {pinned}.\n"
    assert capsys.readouterr().out == said


def test_before_an_upgrade_every_measured_record_is_listed(capsys):
    """Named a version that nothing was measured with, the list is as long as its last line says."""
    tool.main(["99.0"])
    *lines, last = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if "again: " in line]) == int(last.split()[0]) > 0
