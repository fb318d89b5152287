"""Checks of Python, its environment and the C++ compiler."""

from pathlib import Path

import pytest
from fakes_host import OTHER_ENVIRONMENT, check, ok, problem, warning

SYSTEM_PYTHON = Path("/usr")
NEW_ENVIRONMENT = "rm -rf .venv && make book PYTHON="


@pytest.mark.parametrize(
    ("commands", "fix"),
    [
        ({"python3.11": (0, "")}, f"{NEW_ENVIRONMENT}python3.11"),
        ({}, f"sudo apt-get install python3.13 python3.13-venv && {NEW_ENVIRONMENT}python3.13"),
    ],
    ids=["another Python is here", "no other Python"],
)
@pytest.mark.parametrize(("version", "text"), [((3, 9, 18), "3.9.18"), ((3, 14, 0), "3.14.0")])
def test_a_python_outside_the_range_is_a_problem(version, text, commands, fix):
    """A fitting Python is named if it is here, else installed; the old .venv goes, since make would keep it."""
    expected = problem(f"{text}; the book needs 3.10 to 3.13", fix)
    assert check("Python", python=version, commands=commands) == expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ({}, ok("the book's own, .venv")),
        ({"prefix": OTHER_ENVIRONMENT}, ok("another than the book's: ~/env")),
        ({"prefix": SYSTEM_PYTHON, "environment": {"CONDA_PREFIX": "/opt"}}, ok("a conda environment")),
        (
            {"prefix": SYSTEM_PYTHON},
            warning("none: packages are installed into the system's Python", "make book && .venv/bin/inferlab doctor"),
        ),
    ],
    ids=["the book's", "another", "conda", "none"],
)
def test_only_the_systems_own_python_is_worth_a_warning(host, expected):
    """Any environment of its own is fine, and the finding says which it is."""
    assert check("virtual environment", **host) == expected


VISUAL_STUDIO = (
    "winget install Microsoft.VisualStudio.2022.BuildTools "
    '--override "--add Microsoft.VisualStudio.Workload.VCTools --passive --wait"'
)


@pytest.mark.parametrize(
    ("host", "fix"),
    [
        ({"commands": {"c++": None}}, "sudo apt-get install g++"),
        ({"commands": {"c++": (1, "no headers")}, "is_root": True}, "apt-get install g++"),
        ({"commands": {"c++": (1, "xcrun: error")}, "system": "Darwin"}, "xcode-select --install"),
        ({"commands": {"winget": (0, "")}, "system": "Windows"}, VISUAL_STUDIO),
    ],
    ids=["no compiler", "no headers, as root", "macOS", "Windows"],
)
def test_a_missing_compiler_is_a_warning_where_llama_cpp_is_built_and_a_problem_where_not(host, fix):
    """A name on the path proves nothing: the compiler has to compile a line."""
    found = "none that compiles; llama.cpp is built already, and could not be built again"
    assert check("C++ compiler", **host) == warning(found, fix)
    assert check("C++ compiler", built_for=None, **host) == problem("none that compiles", fix)
