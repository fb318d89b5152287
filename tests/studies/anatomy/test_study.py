"""Anatomy of a model: the numbers and the table of the page."""

import math

import pytest
from fakes import made_run

from inferlab.engine.log import Buffer
from inferlab.model.catalog import known_vocabularies
from inferlab.units import MIB
from studies.anatomy import study


def test_the_feed_forward_networks_are_most_of_a_model():
    """And of the embedded model, weights in buffers of the processor are counted alone, beside all weights."""
    buffers = Buffer("CPU_Mapped", "weights", MIB), Buffer("CPU", "compute", MIB), Buffer("RPC0", "weights", 3 * MIB)
    found = study.numbers(made_run(buffers=buffers))
    assert (found["host_mib"], found["placed_mib"]) == (1, 4)
    assert found["ffn_bytes"] > 50 < found["ffn_operations"]
    assert found["ffn_bytes"] + found["projection_bytes"] < 100
    assert found["row_kib"] < found["table_mib"]
    assert found["tiny_millions"] * 1e6 * found["weights_ratio"] == pytest.approx(7.2e9, rel=0.01)


@pytest.mark.engine
def test_the_same_text_has_no_id_in_common():
    """Each published vocabulary has a row, none of its ids is another's, and the pieces are of that vocabulary."""
    heads, rows = study.vocabulary_table()
    *published, ours = rows
    assert [row[0] for row in published] == [one.name for one in known_vocabularies().values()]
    ids = [number for row in published for number in row[3].split(", ")]
    assert len(ids) == len(set(ids)) == 2 * len(published)
    assert ours[0] == "embedded model"
    assert {len(row) for row in rows} == {len(heads)}
    assert "`'Hello'`" in {row[4] for row in published}


def test_the_tokenizers_share_is_of_the_sum():
    """A quarter beside three quarters."""
    found = study.tokenizing_numbers(1e-6, 3e-6)
    assert (found["tokenize_us"], found["prefill_us"], found["tokenize_share"]) == pytest.approx((1, 3, 25))


def test_a_cost_in_nats_is_a_probability():
    """The logarithm of two costs a half; a blind guess has one chance among all entries."""
    found = study.expected_numbers(math.log(2), math.log(4), 0.0)
    assert [found[f"percent_{name}"] for name in ("engine", "first", "last")] == pytest.approx([50, 25, 100])
    assert found["percent_guess"] == pytest.approx(100 / study.tiny().n_vocab)
