"""Sizes of caches, by formulas and as logged, and the work that a cache saves."""

from dataclasses import replace

import pytest
from fakes import made_run, scripted_pass

import inferlab as lab
from inferlab.prediction import cost
from inferlab.prediction.memory import kv_cache_bytes
from inferlab.units import MIB
from studies.cache_and_batch import kv_cache
from studies.cache_and_batch.kv_cache import PlannedCache, caches_text, planned_and_logged


@pytest.mark.engine
def test_a_windowed_and_a_hybrid_cache_are_logged_as_planned(tmp_path, engine):
    """Real contexts of two small shapes, to the 0.01 MiB of each of the two lines of a cache."""
    windows = {"n_layer": 6, "n_embd": 256, "n_ff": 256, "n_vocab": 4096}
    states = {"n_layer": 4, "n_ff": 256, "n_vocab": 4096, "attention_layers": (2,)}
    models = {
        "windows": lab.make_shape("gemma-3-1b", "Q8_0", tmp_path / "windows.gguf", **windows),
        "states": lab.make_shape("granite-4.0-h-350m", "Q8_0", tmp_path / "states.gguf", **states),
    }
    found = planned_and_logged(models, (1024, 4096), engine=engine)
    assert [(one.name, one.n_ctx) for one in found] == [(n, c) for n in models for c in (1024, 4096)]
    assert max(abs(one.planned_bytes - one.logged_bytes) for one in found) < 2 * 0.0051 * MIB
    assert [one.state_bytes > 0 for one in found] == [False, False, True, True]


def test_the_text_says_the_growth():
    """Planned, states and logged of each, and the last over the first."""
    found = [PlannedCache("a", n, n * MIB, MIB, n * MIB) for n in (1000, 2000)]
    assert caches_text(found).splitlines() == [
        "a, 1,000 cells: planned 1000.00 MiB, of which 1.00 MiB states; llama.cpp logged 1000.00 MiB",
        "a, 2,000 cells: planned 2000.00 MiB, of which 1.00 MiB states; llama.cpp logged 2000.00 MiB",
        "a: the last is 2.00 times the first",
    ]


def test_the_table_of_formulas_has_the_right_one_first():
    """The thin file has the cells, layers and heads of Llama 3.1 8B, so its cache is the real one's."""
    thin = lab.shape("llama-3.1-8b", "Q4_0", **kv_cache.NARROW)
    asked = lab.Settings(n_ctx=1000, type_k="q8_0", type_v="q8_0")
    readings, real = cost.kv_readings(thin, asked), kv_cache_bytes(lab.known_model("llama-3.1-8b"), asked)
    rows = kv_cache.formula_table(real, readings)[1]
    assert [row[0] for row in rows[1:]] == [*kv_cache.FORMULAS] == [*readings]
    assert rows[0][1] == rows[1][1] == f"{real / MIB:.2f}"
    assert all(row[1] != rows[0][1] and row[2] for row in rows[2:])


@pytest.mark.engine
def test_a_change_has_the_size_that_its_name_says():
    """Half of the cells are half of the bytes; sequences divide them; the type of the weights changes nothing."""
    by_change, by_weights = kv_cache.sizes_by_change(), kv_cache.sizes_by_weights()
    assert by_change["`n_ctx` = 512"] == by_change["none"] / 2
    assert by_change["four sequences, one pool"] == by_change["none"]
    assert len(set(by_weights.values())) == 1
    readings = cost.kv_readings(lab.known_model("llama-3.1-8b"), lab.Settings(n_ctx=1000))
    found = kv_cache.size_numbers(readings, by_change, by_weights)
    assert (found["q8_share"], found["q4_share"]) == pytest.approx((100 * 34 / 64, 100 * 18 / 64), rel=0.01)
    assert found["kv_heads"] == 4 * found["kv_right"]


def test_the_work_of_a_text_grows_with_its_square_or_its_cube():
    """Ten times the text is ten times the work with a cache and 100 times without; far out 100 and 1000 times."""
    found = kv_cache.numbers()
    assert 10 < found["ten_kept"] < 12 < 99 < found["ten_again"] < 120
    assert found["ten_kept_far"] == pytest.approx(100, rel=0.1)
    assert found["ten_again_far"] == pytest.approx(1000, rel=0.1)
    assert found["llama_8k_gib"] == 8 * found["llama_kib"] / 1024


def test_a_kept_answer_is_compared_with_one_that_is_read_again():
    """Another text after the first differing token is said."""
    kept, forgot = made_run(passes=(scripted_pass(0.5, (0.1, 0.1)),)), made_run(passes=(scripted_pass(1, (2, 2)),))
    found = kv_cache.work_numbers([made_run()], kept, forgot)
    assert found["forgot_factor"] == pytest.approx(5 / 0.7)
    assert found["again_ms"] == pytest.approx(450)
    assert found["same_remark"] == "both answers are the same text"
    (one,) = forgot.passes
    other = replace(forgot, passes=(replace(one, tokens=(9, 9, 9)),))
    assert "differ from there on" in kv_cache.work_numbers([made_run()], kept, other)["same_remark"]


def test_fewer_heads_are_a_smaller_cache():
    """One head instead of eight: an eighth of the bytes, so eight times the tokens until it is as large."""
    rows = {row[0]: row[1:] for row in kv_cache.heads_table()[1]}
    eight, one = rows["Mistral 7B v0.3"], rows["Mistral 7B, if it used MQA"]
    assert (eight[0], one[0]) == (8, 1)
    assert float(eight[2]) == 8 * float(one[2])
