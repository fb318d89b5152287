"""What choosing a token costs: readings of the records, numbers, tables and the figure of the page."""

import json
from statistics import median

import pytest
from fakes import BUFFERS, CARD, CPU_ONLY

from inferlab.records import load, shipped
from inferlab.settings import Settings
from studies.sampling_cost import figures, study
from studies.sampling_cost.measure import QUESTIONS, REQUESTS
from studies.sampling_cost.sampling import CHAINS, JSON_CHAINS, require_sampling

RATES = {
    "llama-bench": (1000.0, 1000.0),
    "server: one candidate, not streamed": (500.0, 500.0),
    "server: one candidate": (250.0, 250.0),
    "server: default": (125.0, 125.0),
    "client: default": (100.0, 100.0),
}


def made(rates):
    """A record with these rates."""
    shared = {"model": CARD, "settings": Settings(n_ctx=256), "machine": CPU_ONLY, "buffers": BUFFERS}
    return study.BenchmarkPrograms(**shared, n_prompt=8, n_gen=4, rates=rates)


def raw(name):
    return json.loads(shipped()[f"epyc-2c/{name}"].read_text(encoding="utf-8"))


def test_the_parts_of_a_token_add_up_to_the_clients():
    """1 ms of decode, 1 of the loop, 2 of streaming, 4 of sampling and 2 on the way to the client are 10 ms."""
    parts = made(RATES).token_parts("default")
    assert {name: round(1e3 * seconds, 9) for name, seconds in parts.items()} == {
        "decode": 1,
        "server's loop": 1,
        "streaming": 2,
        "sampling": 4,
        "way to the client": 2,
    }
    assert sum(parts.values()) == pytest.approx(made(RATES).token_seconds("client: default"))


def test_a_loss_and_a_ratio_are_paired_by_turns():
    """The second turn is slower for both, and the loss is that of its pair."""
    found = made({"server: default": (100.0, 50.0), "server: other": (50.0, 25.0)})
    assert found.lost_seconds("server: default", "server: other") == pytest.approx((0.01, 0.02))
    assert found.against_default("other").ratios == (0.5, 0.5)


def test_a_part_below_zero_is_noise_and_drawn_as_none():
    """1000 us of decode, 250 of the loop, 750 of sampling; the client is faster than the server says."""
    rates = RATES | {
        "server: one candidate, not streamed": (800.0,),
        "server: one candidate": (800.0,),
        "server: default": (500.0,),
        "client: default": (510.0,),
        "llama-bench": (1000.0,),
    }
    drawn = figures.token_split(made(rates), ["default"])
    assert {trace.name: pytest.approx(trace.x[0]) for trace in drawn.data} == {
        "decode": 1000,
        "server's loop": 250,
        "streaming": 0,
        "sampling": 750,
        "way to the client": 0,
    }
    assert "default: decode 1e+03, server's loop 250" in drawn.layout.meta["alt"]


def test_the_recorded_programs_agree_about_the_same_work():
    """Decode at the same depth and prefill, within a tenth of each other."""
    found = load("epyc-2c/benchmark-programs", study.BenchmarkPrograms)
    for work in ("prefill", "decode, 1 at once"):
        rates = [found.rate(name) for name in found.rates if name.endswith(f": {work}")]
        assert len(rates) == 3
        assert max(rates) < 1.1 * min(rates)


def test_every_vocabulary_has_every_chain():
    """On logits of both exponents; the page shows three of the vocabularies, Llama 3's in the middle."""
    for one in study.recorded():
        assert {(chain.name, chain.exponent) for chain in one.chains} == {
            (name, exponent) for name in CHAINS for exponent in (study.SHARP, study.FLAT)
        }
    assert [one.n_vocab for one in study.shown()] == [4096, 128256, 262144]
    assert [*study.columns()] == ["4,096", "49,152, real", "128,256", "262,144"]
    assert {chain.name for chain in study.trained().chains} == {*CHAINS, *JSON_CHAINS}


def test_the_share_of_the_default_samplers_is_that_of_the_raw_samples():
    """The median of a chain over it and the median of the decode steps, with the largest vocabulary."""
    large = max(raw("sampling")["sequence"], key=lambda one: one["n_vocab"])
    chain = next(one for one in large["chains"] if (one["name"], one["exponent"]) == ("default", 2.0))
    seconds = median(chain["seconds"])
    found = study.numbers()
    assert found["default_share"] == pytest.approx(100 * seconds / (seconds + median(large["decode_seconds"])))
    assert found["default_choice"] == ("less than 5 %" if found["default_share"] < 5 else "5 % or more")


def test_the_rejected_share_of_a_tenth_is_a_tenth():
    """Where a card's step takes 2 ms: what a grammar adds is then a tenth of the token."""
    _, usual, _ = study.shown()
    allowed, rejected = usual.seconds(study.ALLOWED), usual.seconds(study.REJECTED)
    sampling = allowed + study.numbers()["tenth"] / 100 * (rejected - allowed)
    assert (sampling - allowed) / (2e-3 + sampling) == pytest.approx(0.1)


def test_the_client_waits_longer_than_llama_bench_takes():
    """By the share that the page gives."""
    found = study.numbers()
    for key in ("tiny", "smollm2"):
        rates = raw(f"server-and-bench-{key}")["rates"]
        client, bench = (median(1 / one for one in rates[of]) for of in ("client: default", "llama-bench"))
        assert found[f"{key}_over"] == pytest.approx(100 * (client / bench - 1))
        assert found[f"{key}_client_ms"] == pytest.approx(1e3 * client)
    assert found["turns"] == 15


def test_real_words_cost_what_numbered_ones_do():
    """A word that a grammar rejects, one that it takes, and one that a penalty looks up: within a fifth."""
    found = study.numbers()
    for real, numbered in (("reject_ns", "reject_ns"), ("match_ns", "match_ns"), ("penalty_ns", "penalty_ns")):
        assert found[f"real_{real}"] == pytest.approx(found[numbered], rel=0.2)
    assert found["real_sharp_ms"] < found["real_off_ms"] < found["real_flat_ms"]


def test_a_prompt_that_asks_for_json_has_fewer_tokens_rejected():
    """And its rate is nearer to that without a grammar; the shares are those of the raw counts."""
    found, cases = study.numbers(), {case["name"]: case for case in raw("json-smollm2")["cases"]}
    assert {*cases} == {"asked", "not asked"}
    asked = cases["asked"]
    assert found["asked_rejected"] == pytest.approx(100 * sum(asked["n_rejected"]) / sum(asked["n_tokens"]))
    assert found["asked_rejected"] < found["free_rejected"]
    assert len(asked["n_tokens"]) == len(QUESTIONS) == found["json_questions"]
    ratios = [b / a for a, b in zip(asked["plain"], asked["limited"], strict=True)]
    assert found["asked_rate"].startswith(f"{median(ratios):.3g} (")


def test_the_grammar_of_json_begins_anywhere_that_llama_cpp_takes():
    """Both have a rule `root`, and the second one begins inside a string."""
    require_sampling([one for chain in JSON_CHAINS.values() for one in chain])
    begins = [chain[0].values[0].splitlines()[0] for chain in JSON_CHAINS.values()]
    assert begins == ["root ::= value", r'root ::= character* "\""']


def test_malloc_keeps_what_a_grammar_takes():
    """With its variables the grammar is faster, and the ratio says so."""
    found = study.numbers()
    assert found["malloc_kept_ms"] < found["malloc_plain_ms"]
    assert found["before_share"] < found["before_share_slow"]
    assert " to " in found["malloc_ratio"]


def test_the_tables_have_a_row_for_each_chain_and_each_request():
    """With as many values as heads, and the control of the requests first."""
    for table in (study.chain_table(), study.grammar_table(), study.request_table(), study.share_table()):
        assert {len(row) for row in table[1]} == {len(table[0])}
    assert "top-k off, flat" in [row[0] for row in study.chain_table()[1]]
    assert study.request_table()[1][0][0] == "default again"
    assert study.share_table()[0][1] == "10 tokens/s"


def test_each_request_in_the_backend_has_its_twin():
    """So that they can be compared turn by turn; the page draws and compares requests that were measured."""
    twins = [name for name in REQUESTS if name.endswith(", in the backend")]
    assert len(twins) == 4
    for name in twins:
        assert {**REQUESTS[name.removesuffix(", in the backend")], "backend_sampling": True} == REQUESTS[name]
    assert {*study.SPLIT, *study.COMPARED} < set(REQUESTS)
