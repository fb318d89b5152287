"""Engines as described: every description is whole, and agrees with what else is known."""

import pytest

from inferlab.errors import InvalidSettings
from inferlab.options.names import option_named, programs
from inferlab.units import GB
from studies.other_engines.engine_choice import LARGER, known_engines, least_seconds
from studies.vllm import block_pool

ENGINES = known_engines()
WORDS = ("title", "hardware", "weights", "offload", "serving", "api", "licence", "defaults", "version")


@pytest.mark.parametrize("key", ENGINES)
def test_a_description_is_whole(key):
    """Every field has words, and the fate of a larger model is one of three."""
    one = ENGINES[key]
    assert all(getattr(one, field).strip() for field in WORDS)
    assert one.larger in LARGER
    assert all(text.count("`") % 2 == 0 for text in vars(one).values() if isinstance(text, str))


@pytest.mark.parametrize(("key", "program"), [("llama-cpp", "cli"), ("ollama", "ollama"), ("lm-studio", "lmstudio")])
def test_both_tables_of_programs_were_read_in_the_same_version(key, program):
    """The table of engines and that of settings name one version, source and date, and one port."""
    one, other = ENGINES[key], programs()[program]
    assert (one.version, one.source, one.date) == (other.version, other.source, other.date)
    assert f"port {getattr(option_named('port'), f'{program}_default')}" in one.api


def test_vllm_is_described_with_the_numbers_that_are_cited():
    """Share, sequences and compute capability are those of data/facts/vllm.toml."""
    one = ENGINES["vllm"]
    assert f"{100 * block_pool.default('memory-share'):.0f} % of the card" in one.defaults
    assert f"{block_pool.default('sequences'):.0f} sequences" in one.serving
    assert f"NVIDIA from {block_pool.default('compute-capability'):.1f}" in one.hardware


def test_bytes_outside_the_card_cross_a_link_once():
    """Bytes over rate; nothing outside costs nothing; a rate of zero is refused."""
    assert least_seconds(4 * GB, 32 * GB) == 0.125
    assert least_seconds(0, 32 * GB) == 0
    with pytest.raises(InvalidSettings, match="no rate"):
        least_seconds(1, 0)
