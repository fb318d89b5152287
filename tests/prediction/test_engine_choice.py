"""Engines as described: every description is whole, agrees with what else is known, and the choice follows from it."""

import pytest

from inferlab.engine.option_names import option_named, programs
from inferlab.errors import InvalidSettings
from inferlab.prediction import block_pool
from inferlab.prediction.engine_choice import COMPUTED, HARDWARE, LARGER, SENT, able, known_engines, least_seconds
from inferlab.units import GB

ENGINES = known_engines()
WORDS = ("title", "hardware", "weights", "offload", "cache", "serving", "api", "licence", "defaults", "version")


@pytest.mark.parametrize("key", ENGINES)
def test_a_description_is_whole(key):
    """Every field has words, the hardware is known, and the fate of a larger model is one of three."""
    one = ENGINES[key]
    assert all(getattr(one, field).strip() for field in WORDS)
    assert one.runs_on
    assert set(one.runs_on) <= set(HARDWARE)
    assert one.larger in LARGER
    assert all(text.count("`") % 2 == 0 for text in vars(one).values() if isinstance(text, str))


@pytest.mark.parametrize(("key", "program"), [("llama-cpp", "cli"), ("ollama", "ollama"), ("lm-studio", "lmstudio")])
def test_both_tables_of_programs_were_read_in_the_same_version(key, program):
    """The table of engines and that of settings name one version, source and date, and one port."""
    one, other = ENGINES[key], programs()[program]
    assert (one.version, one.source, one.date) == (other.version, other.source, other.date)
    assert f"port {getattr(option_named('port'), f'{program}_default')}" in one.api


def test_vllm_is_described_with_the_numbers_that_are_cited():
    """Block, share, sequences and compute capability are those of data/facts/vllm.toml."""
    one = ENGINES["vllm"]
    assert f"blocks of {block_pool.default('block-tokens'):.0f} tokens" in one.cache
    assert f"{100 * block_pool.default('memory-share'):.0f} % of the card" in one.defaults
    assert f"{block_pool.default('sequences'):.0f} sequences" in one.serving
    assert f"NVIDIA from {block_pool.default('compute-capability'):.1f}" in one.hardware


def test_what_computes_in_ram_comes_before_what_sends():
    """A model larger than the card excludes what has no setting for it."""
    found = [one.larger for one in able("nvidia", larger=True)]
    assert found == sorted(found, key=(COMPUTED, SENT).index)
    assert set(found) == {COMPUTED, SENT}
    assert len(found) < len(able("nvidia"))


@pytest.mark.parametrize("hardware", ["apple", "cpu"])
def test_without_memory_of_its_own_nothing_is_larger_than_the_card(hardware):
    """All memory is RAM, so the same engines remain."""
    assert able(hardware, larger=True) == able(hardware)


def test_many_users_need_an_engine_that_batches_by_default():
    """One request at a time by default excludes an engine, though a setting may change it."""
    assert {one.key for one in able("nvidia")} - {one.key for one in able("nvidia", many=True)} == {
        "ollama",
        "transformers",
    }


def test_unknown_hardware_is_answered_with_the_known():
    """The error names what the table has."""
    with pytest.raises(InvalidSettings, match="nvidia, amd, intel, apple, cpu"):
        able("tpu")


def test_bytes_outside_the_card_cross_a_link_once():
    """Bytes over rate; nothing outside costs nothing; a rate of zero is refused."""
    assert least_seconds(4 * GB, 32 * GB) == 0.125
    assert least_seconds(0, 32 * GB) == 0
    with pytest.raises(InvalidSettings, match="no rate"):
        least_seconds(1, 0)
