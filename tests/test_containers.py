"""The three descriptions of a container say what the Makefile, the README and the project's metadata say."""

import json
import re
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
FILES = ("Dockerfile", "compose.yaml", ".devcontainer/devcontainer.json")
FROM_THE_IMAGE = {"python3-venv"}  # the image's own Python has it
INSTRUCTIONS = {"ARG", "FROM", "RUN", "USER", "WORKDIR", "COPY", "CMD"}


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def instructions():
    """The Dockerfile's instructions with their arguments, continued lines joined."""
    lines = text("Dockerfile").replace("\\\n", " ").splitlines()
    return [tuple(line.split(None, 1)) for line in lines if line and not line.startswith("#")]


def make_lines():
    """Every call of make in the three files, as its words."""
    calls = [words.split() for _, words in instructions() if re.match(r"make ", words)]
    calls += [json.loads(words) for kind, words in instructions() if kind == "CMD"]
    calls += [
        service["command"]
        for service in yaml.safe_load(text("compose.yaml"))["services"].values()
        if "command" in service
    ]
    return [*calls, json.loads(text(".devcontainer/devcontainer.json"))["postCreateCommand"].split()]


def apt_packages():
    installed = " ".join(words for kind, words in instructions() if kind == "RUN" and "apt-get install" in words)
    words = re.search(r"apt-get install ([^&]+)", installed)[1].split()
    return {word for word in words if not word.startswith("--")}


def test_the_dockerfile_is_made_of_known_instructions():
    """Each line is an instruction, stages come before what they hold, and nothing runs as root in the end."""
    kinds = [kind for kind, _ in instructions()]
    assert set(kinds) <= INSTRUCTIONS
    assert kinds[:2] == ["ARG", "FROM"]
    assert ("USER", "reader") in instructions()


def test_only_targets_of_the_makefile_are_called():
    """Each file calls make, with targets that exist and variables that the Makefile reads."""
    makefile, calls = text("Makefile"), make_lines()
    targets = set(re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)[1].split())
    assert len(calls) == 4
    for program, target, *variables in calls:
        assert (program, target in targets) == ("make", True), target
        names = {variable.partition("=")[0] for variable in variables}
        assert all(f"$({name})" in makefile for name in names), names


def test_the_packages_are_those_of_the_readme_and_of_ci():
    """A package that the README's table or the bare machine of CI needs is in the image, and no other."""
    row = re.search(r"\| Debian, Ubuntu \| `sudo apt-get install (.+?)` \|", text("README.md"))[1]
    of_ci = set(" ".join(re.findall(r"missing\+=\((.+?)\)", text(".ci/run"))).split())
    assert apt_packages() == (set(row.split()) | of_ci) - FROM_THE_IMAGE - {"python3"}


def test_the_python_is_one_that_the_project_supports():
    """The image's Python is the newest one of CI, within requires-python, and the README names that range."""
    python = dict(instructions())["ARG"].partition("=")[2]
    supported = SpecifierSet(re.search(r'^requires-python = "(.+)"', text("pyproject.toml"), re.MULTILINE)[1])
    of_ci = json.loads(re.search(r"^ +python: (\[.+\])$", text(".github/workflows/ci.yml"), re.MULTILINE)[1])
    assert python in supported
    assert python == of_ci[-1]
    assert f"Python {of_ci[0]} to {of_ci[-1]}" in text("README.md")


def test_compose_builds_the_dockerfile_and_keeps_what_is_written():
    """Each service is the Dockerfile's image, reachable from this machine only, with a volume for what users write."""
    compose = yaml.safe_load(text("compose.yaml"))
    for name, service in compose["services"].items():
        assert service["build"] == ".", name
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        places = dict(volume.split(":")[:2] for volume in service["volumes"])
        assert any(name in compose["volumes"] for name in places)
        assert service.get("environment", {}).get("HUB_FOLDER", "") in ("", *places.values())


def test_the_dev_container_is_a_stage_of_the_dockerfile():
    """It has the packages and no copy of the repository, which the editor mounts."""
    build = json.loads(text(".devcontainer/devcontainer.json"))["build"]
    stages = [words.split(" AS ")[1] for kind, words in instructions() if kind == "FROM"]
    assert build["target"] == stages[0]
    assert (ROOT / ".devcontainer" / build["dockerfile"]).resolve() == ROOT / "Dockerfile"


@pytest.mark.parametrize("name", [".venv", "node_modules", "_build", ".hub", ".tools"])
def test_what_was_installed_outside_stays_outside(name):
    """What this machine installed or built does not go into the image, where paths and processors differ."""
    assert name in text(".dockerignore").split()
    assert f"{name}/" in text(".gitignore").split()
