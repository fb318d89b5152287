"""What a repository shows to who uses, cites or reports: one version, and forms that ask for the check-up."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from inferlab.cli import parser

ROOT = Path(__file__).parents[1]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def version():
    return re.search(r'^version = "(.+)"', text("pyproject.toml"), re.MULTILINE)[1]


def test_the_citation_is_of_this_version():
    """It has what the format asks for, the licences of code and prose, and the version that is installed."""
    found = yaml.safe_load(text("CITATION.cff"))
    assert {"cff-version", "message", "title", "authors"} <= set(found)
    assert found["title"] == re.search(r"^title: (.+)$", text("_config.yml"), re.MULTILINE)[1]
    assert found["version"] == version()
    assert found["license"] == ["MIT", "CC-BY-4.0"]


def test_the_changelog_begins_with_this_version():
    """Each version has notes."""
    versions = re.findall(r"^## (.+)\n\n\S", text("CHANGELOG.md"), re.MULTILINE)
    assert versions[0] == version()
    assert len(versions) == len(re.findall(r"^## ", text("CHANGELOG.md"), re.MULTILINE))


def release_steps():
    return yaml.safe_load(text(".github/workflows/release.yml"))["jobs"]["release"]["steps"]


def test_a_release_has_the_notes_of_its_version(tmp_path):
    """The workflow's own command takes them out of the changelog, without those of another version."""
    (tmp_path / "_build").mkdir()
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 0.2.0\n\nNew.\n\n- A.\n\n## 0.1.0\n\nOld.\n")
    command = next(step["run"] for step in release_steps() if "awk" in step.get("run", ""))
    subprocess.run(
        ["bash", "-euc", command], cwd=tmp_path, env={"GITHUB_REF_NAME": "v0.2.0", "PATH": "/usr/bin:/bin"}, check=True
    )
    assert (tmp_path / "_build" / "notes.md").read_text().strip() == "New.\n\n- A."


@pytest.mark.parametrize(("tag", "accepted"), [("v{}", True), ("v9.9.9", False)])
def test_a_tag_of_another_version_is_no_release(tag, accepted):
    """The workflow compares the tag with the project's version before it tests."""
    command = next(step["run"] for step in release_steps() if "pyproject.toml" in step.get("run", ""))
    environment = {"GITHUB_REF_NAME": tag.format(version()), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["bash", "-euc", command], cwd=ROOT, env=environment)
    assert (done.returncode == 0) is accepted


def test_a_release_has_what_make_builds():
    """Each command of make exists, and each file that is published is one that they write."""
    targets = re.search(r"^\.PHONY: (.+)$", text("Makefile"), re.MULTILINE)[1].split()
    called = [step["run"].split()[1] for step in release_steps() if step.get("run", "").startswith("make ")]
    published = next(step["run"] for step in release_steps() if "gh release" in step.get("run", ""))
    assert called == ["test", "pdf", "epub"]
    assert set(called) <= set(targets)
    assert {"_build/handbook.pdf", "_build/handbook.epub", "_build/handbook-site.zip"} <= set(published.split())


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_a_form_asks_for_the_check_up(form):
    """It has a name, and a field for the output of a command that exists."""
    found = yaml.safe_load(form.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= set(found)
    asked = [field for field in found["body"] if field.get("id") == "doctor"]
    assert "inferlab doctor --json" in asked[0]["attributes"]["description"]
    ids = [field["id"] for field in found["body"] if "id" in field]
    assert len(set(ids)) == len(ids)


def test_the_check_up_of_the_forms_exists():
    """The command line knows it."""
    assert parser().parse_args(["doctor", "--json"]).json
