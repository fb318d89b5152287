"""The types of speculation and their defaults beside llama-server's own help."""

import re
import subprocess

import pytest

from inferlab.options.speculation import N_MAX, N_MIN, NONE, P_MIN, SIZE_FLAGS, SIZES, speculation_types


@pytest.fixture
def said(program) -> str:
    """The help, in one line."""
    done = subprocess.run([program("llama-server"), "--help"], capture_output=True, text=True, timeout=60)
    return " ".join(done.stdout.split())


def test_the_types_are_llama_servers(said):
    """No more and no fewer; the order of the help is another."""
    names = re.search(r"--spec-type (\S+)", said)[1].split(",")
    assert sorted(names) == sorted([NONE, *speculation_types()])
    assert re.search(r"--spec-type .*?\(default: (\w+)\)", said)[1] == NONE


def test_the_defaults_are_llama_servers(said):
    """Of a draft model and of every look-up."""
    for flag, value in (("n-max", N_MAX), ("n-min", N_MIN), ("p-min", P_MIN)):
        assert float(re.search(rf"--spec-draft-{flag}\b.*?\(default: ([\d.]+)\)", said)[1]) == value
    for name, sizes in SIZES.items():
        for flag, size in zip(SIZE_FLAGS.get(name, ("size-n", "size-m")), sizes, strict=True):
            assert int(re.search(rf"--spec-{name}-{flag} .*?\(default: (\d+)\)", said)[1]) == size
