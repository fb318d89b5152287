"""The table of settings beside llama-server's own help: flags, variables and defaults of the pinned llama.cpp."""

import re
import subprocess

import pytest

from inferlab.options.names import options

DEFAULTS = {
    "n_batch": "2048",
    "n_ubatch": "512",
    "port": "8080",
    "cache_ram": "8192",
    "n_ctx": "0",
    "temperature": "0.80",
    "top_k": "40",
    "top_p": "0.95",
    "min_p": "0.05",
    "typical_p": "1.00",
    "top_n_sigma": "-1.00",
    "xtc_probability": "0.00",
    "dry_multiplier": "0.00",
    "backend_sampling": "disabled",
    "samplers": "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature",
    "spec_type": "none",
    "spec_draft_n_max": "3",
    "spec_draft_n_min": "0",
    "spec_draft_p_min": "0.00",
    "spec_ngram_size_n": "12",
    "spec_ngram_size_m": "48",
}


@pytest.fixture
def entries(program) -> list[str]:
    """The entries of the help: flags, what they do, default and variable, each in one line."""
    done = subprocess.run([program("llama-server"), "--help"], capture_output=True, text=True, timeout=60)
    return [" ".join(entry.split()) for entry in re.split(r"\n(?=-)", done.stdout) if entry.startswith("-")]


def entry_of(entries: list[str], flag: str) -> str:
    """The entry that has this flag among its names."""
    found = [entry for entry in entries if flag in re.split(r"[,\s]+", entry)[:8]]
    assert found, f"llama-server has no {flag}"
    return found[0]


def test_every_flag_is_one_of_llama_servers(entries):
    """And its environment variable belongs to the same flag."""
    for option in options().values():
        for name in option.names_in("cli"):
            entry = entry_of(entries, name.split()[0])
            assert option.env.partition("=")[0] in entry, option.name


@pytest.mark.parametrize(("name", "default"), DEFAULTS.items())
def test_a_number_is_llama_servers_default(entries, name, default):
    """Those that the help prints as numbers, or as names."""
    assert f"default: {default}" in entry_of(entries, options()[name].names_in("cli")[0])
