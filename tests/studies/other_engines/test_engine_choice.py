"""Engines as described: every description is whole, and agrees with what else is known."""

import pytest

from inferlab.facts import cited_facts
from inferlab.options.names import option_named, programs
from studies.other_engines.engine_choice import COMPUTED, REFUSED, SENT, known_engines

ENGINES = known_engines()
WORDS = ("title", "hardware", "weights", "offload", "serving", "api", "licence", "defaults", "version")


@pytest.mark.parametrize("key", ENGINES)
def test_a_description_is_whole(key):
    """Every field has words, and the fate of a larger model is one of three."""
    one = ENGINES[key]
    assert all(getattr(one, field).strip() for field in WORDS)
    assert one.larger in (COMPUTED, SENT, REFUSED)
    assert all(text.count("`") % 2 == 0 for text in vars(one).values() if isinstance(text, str))


@pytest.mark.parametrize(("key", "program"), [("llama-cpp", "cli"), ("ollama", "ollama"), ("lm-studio", "lmstudio")])
def test_both_tables_of_programs_were_read_in_the_same_version(key, program):
    """The table of engines and that of settings name one version, source and date, and one port."""
    one, other = ENGINES[key], programs()[program]
    assert (one.version, one.source, one.date) == (other.version, other.source, other.date)
    assert f"port {getattr(option_named('port'), f'{program}_default')}" in one.api


def test_vllm_is_described_with_the_numbers_that_are_cited():
    """Share, sequences and compute capability are those of data/facts/vllm.toml."""
    one, cited = ENGINES["vllm"], {name: fact.value for name, fact in cited_facts("vllm").items()}
    assert f"{100 * cited['memory-share']:.0f} % of the card" in one.defaults
    assert f"{cited['sequences']:.0f} sequences" in one.serving
    assert f"NVIDIA from {cited['compute-capability']:.1f}" in one.hardware
