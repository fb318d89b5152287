"""Rates of links: readings of a record, the ladder of rungs, and what a published rate can mean."""

import json

import pytest
from fakes import made_link_rates

import inferlab as lab
from inferlab.prediction.decode_bound import token_bytes
from inferlab.prediction.link_rates import cited_rungs, measured_rungs
from inferlab.records import shipped
from studies.links_and_rates import figures, measure, study
from studies.links_and_rates.study import CacheLevel


def test_a_cache_has_the_rate_of_the_largest_block_that_half_fills_it():
    """16 KiB for L1 of 32 KiB; 512 KiB for L2 of 1 MiB; none where no size was read between two levels."""
    found = made_link_rates()
    assert [found.cache_rate(cache) for cache in found.caches] == [100e9, 80e9]
    assert found.cache_rate(CacheLevel(3, 2**21)) is None


def test_rungs_have_a_place_and_a_device_without_memory_of_its_own_has_none():
    """A loopback device is a network; its memory is the host's."""
    rates = made_link_rates().rates
    assert rates["this disk"] == ("disk", 2e9)
    assert rates["to loopback device"] == ("network", 1e9)
    assert rates["memory of loopback device"] == ("VRAM", None)


def test_every_rung_is_drawn_once_with_the_mark_of_its_origin():
    """Cited rungs are open diamonds and measured ones circles; both stand in the legend and in the text."""
    found = made_link_rates()
    cited, measured = cited_rungs(), measured_rungs(found.rates)
    figure = figures.link_ladder([*cited, *measured], found.badge)
    drawn = {trace.name: (trace.marker.symbol, set(trace.y)) for trace in figure.data}
    assert drawn == {
        "cited": ("diamond-open", {one.name for one in cited}),
        "measured": ("circle", {one.name for one in measured}),
    }
    assert figure.layout.xaxis.type == "log"
    assert all(one.name in figure.layout.meta["alt"] for one in (*cited, *measured))
    assert figure.layout.showlegend


def test_the_numbers_of_the_record_are_those_of_its_file():
    """In GB/s, and the second read of the file over the first."""
    raw, found = json.loads(shipped()["epyc-2c/link-rates"].read_text()), study.numbers()
    names = {"disk_gb": "disk", "cached_gb": "page_cache", "ram_all_gb": "host_ram"}
    assert {key: found[key] for key in names} == {key: raw[name] / 1e9 for key, name in names.items()}
    assert found["second_read"] == raw["page_cache"] / raw["disk"]
    assert found["far_gb"] == raw["sweep"][-1]["bytes_per_second"] / 1e9 < found["near_gb"]


def test_the_computed_numbers_agree_with_each_other():
    """A slow part adds its time; a ridge is operations over bytes; a claimed rate leaves bytes and weights."""
    found = study.numbers()
    assert found["tenth_tokens"] == pytest.approx(1000 / (found["tenth_bus_ms"] + found["tenth_vram_ms"]))
    rising = [found[key] for key in ("bus_tokens", "tenth_tokens", "tenth_card", "tenth_slot", "vram_tokens")]
    assert rising == sorted(rising)
    for key in ("fp16_sum32", "fp16_sum16", "int8"):
        assert found[f"{key}_ridge"] == pytest.approx(1000 * found[f"{key}_tflops"] / found["card_gb"])
        assert found[f"{key}_q4"] == pytest.approx(found[f"{key}_ridge"] * found["card_bits"] / 16)
    assert found["claimed_gb"] * found["claimed_tokens"] == pytest.approx(found["card_5090"])
    assert found["claimed_weights"] == pytest.approx(8 * found["claimed_gb"] / found["card_bits"])
    assert 16 < study.bits_per_weight(lab.shape("mistral-7b", "F16")) < 16.01


@pytest.mark.parametrize("mix", ["F16", "Q4_K_M"])
def test_the_largest_model_is_the_last_that_fits(mix):
    """It needs no more than the bytes, and every other dense model that fits needs no more than it."""
    known, names = study.largest_model(6e9, mix), ("mistral-7b", "llama-3.1-8b", "gemma-3-4b", "qwen2.5-0.5b")
    sizes = [token_bytes(lab.shape(name, mix)) for name in names]
    assert max(n for n in sizes if n <= 6e9) <= token_bytes(lab.shape(known, mix)) <= 6e9
    assert known.n_expert == 0
    assert study.largest_model(1e6, mix) is None


@pytest.mark.parametrize(("rate", "tokens"), [(50, 0.5), (100, 1.0), (400, 4.0)])
def test_more_than_one_token_a_reading_rules_out_one_after_another(rate, tokens):
    """10 GB from 1000 GB/s: 100 readings per second."""
    assert study.tokens_for_a_reading(1e12, rate, 10e9) == pytest.approx(tokens)


def test_every_request_of_the_table_of_shares_has_its_part_of_decode():
    """A request with this ratio of prompt and answer spends 95 % in decode, and longer prompts less."""
    shares = {name: row for name, _, row in study.share_table()[1]}
    prompt_over_answer = study.numbers()["share_95"]
    assert [*shares] == [*study.REQUESTS]
    for name, (n_prompt, n_gen) in study.REQUESTS.items():
        assert (shares[name] > 95) == (n_prompt / n_gen < prompt_over_answer)


def test_the_tables_of_rates_have_a_row_for_each_place():
    """A cache and a network bound no token; every other rung does, and every memory has its tokens."""
    heads, rows = study.rungs_table()
    assert len(rows) == len(study.rungs())
    bounded = {rung.name for rung in study.rungs() if rung.place not in ("cache", "network")}
    assert {row[0] for row in rows if row[-1] != "–"} == bounded
    heads, rows = study.memories_table()
    assert all(len(row) == len(heads) for row in rows)
    assert sum(str(row[3]).startswith("recorded") for row in rows) == 1
    assert all(row[4] == pytest.approx(row[2] / row[1] * 1e9 / 2**30) for row in rows)


def test_the_recipes_ask_for_what_was_recorded():
    """Prompts of the same lengths, and the sizes of the read sweep, doubled from 16 KiB."""
    asked = measure.RECIPES["roof-F16"].keywords["n_prompts"]
    assert asked == [run.n_prompt for run in lab.load("xeon-2c/roof-F16").runs]
    swept = [point.n_bytes for point in study.recorded().sweep]
    assert measure._swept_sizes(swept[-1]) == swept
