"""Tests beside public rows: which rows are alike, what is expected, what explains a gap, and what is saved."""

from __future__ import annotations

import csv
import time
from dataclasses import replace
from importlib.resources import files
from statistics import median

import pytest
from bench_rows import as_bytes, on_card

from inferlab.model.architectures import n_params
from inferlab.model.catalog import known_models
from inferlab.model.synthetic_model import shape
from inferlab.prediction.card_work import placed_work
from inferlab.prediction.cards import known_card, known_cards
from inferlab.prediction.expected import PARTIAL, expected_decode, question_of
from inferlab.results.against_public import DEEP, DIFFERENCES, LEAST_PROMPT, AgainstPublic, against_public
from inferlab.results.bound import card_named, known_names_of
from inferlab.results.public_rates import DECODE, PROMPT, of_card, public_rates
from inferlab.results.reading import read_results
from inferlab.results.result import Result, result_of
from inferlab.settings import Settings

TWINS = {"llama-3-8b", "llama-3.1-8b", "deepseek-r1-distill-llama-8b"}
RECENT = {"n_depth": 0, "n_cpu_moe": 0}


def decode(name: str = "NVIDIA GeForce RTX 4090", slower: float = 8, **changed: object) -> Result:
    """A decode of Llama 3.1 8B in Q4_K_M into an empty cache."""
    return result_of(on_card(name, slower, **{**RECENT, **changed})[1], "a.json")


def against(result: Result) -> AgainstPublic:
    found = against_public(result, card_named(result))
    assert isinstance(found, AgainstPublic), found
    return found


def test_rows_that_are_alike_share_card_model_type_and_phase():
    """Models with the same tensors count as one; a prompt has rows of its own length alone."""
    one = against(decode())
    assert {*one.names} == TWINS
    expected = [
        row
        for row in of_card("rtx-4090", DECODE)
        if row.model in TWINS and row.type == "Q4_K_M" and not row.is_partial and row.depth == 0
    ]
    assert [*one.alike] == expected != []
    assert one.median == median(row.rate for row in expected)
    prompt = against(result_of(on_card(**RECENT)[0], "a.json"))
    assert {(row.phase, row.n_tokens) for row in prompt.alike} == {(PROMPT, 512)}
    assert prompt.alike == prompt.nearest[1]


def test_a_public_row_is_alike_to_itself():
    """As a reader's result it finds its own row and its own model; in Q8_0, which llama.cpp describes by its name."""
    for row in (one for one in public_rates() if one.type == "Q8_0"):
        known = known_models()[row.model]
        fields = {
            "model_type": f"{known.architecture} 8B Q8_0",
            "model_n_params": n_params(known),
            "model_size": row.n_bytes and round(row.n_bytes),
            "backends": row.backend,
            "n_prompt" if row.phase == PROMPT else "n_gen": row.n_tokens,
            "n_gpu_layers": -1 if row.n_gpu_layers is None else row.n_gpu_layers,
            "avg_ts": row.rate,
        }
        same = {name: getattr(row, name) for name in ("n_cpu_moe", "n_ubatch", "type_k", "type_v")}
        one = against_public(result_of({**fields, **same, "n_depth": row.depth}, "a"), known_card(row.card))
        assert row in one.alike
        assert row.model in one.names


@pytest.mark.parametrize(
    ("changed", "differing"),
    [
        ({}, ()),
        ({"type_k": "q8_0"}, (3,)),
        ({"n_gpu_layers": 20}, (4,)),
        ({"n_depth": 30_000}, (2,)),
        ({"n_depth": 30_000, "backends": "SYCL"}, (1, 2)),
    ],
)
def test_the_nearest_rows_differ_in_the_least(changed, differing):
    """And in what is named; those that are alike differ in nothing."""
    one = against(decode(**changed))
    assert one.nearest[0] == tuple(DIFFERENCES[place] for place in differing)
    assert one.nearest[1]
    assert bool(one.alike) is not differing


def test_a_card_without_the_model_has_no_nearest_row():
    """There every row is of something else."""
    tested = {row.card for row in public_rates() if row.model in TWINS}
    card = next(card for card in known_cards().values() if card.name not in tested and not card.unified)
    one = against_public(decode(), card)
    assert (one.alike, one.median, one.nearest) == ((), None, ((), ()))
    assert one.expected is not None


def test_the_expected_rate_is_that_of_the_model_of_a_card():
    """With the bytes of the file over those of the type, in the middle of the test, in the backend that is named."""
    result = decode(model_size=round(1.04 * 4912898304), backends="Vulkan", n_depth=1000)
    card, work = replace(known_card("rtx-4090"), backend="vulkan"), placed_work(shape("llama-3.1-8b", "Q4_K_M"))
    factor = result.model_bytes / work.model.tensor_bytes
    question = question_of(work, card, Settings(), "Q4_K_M", factor)
    assert factor == pytest.approx(1.04, rel=0.01)
    assert against(result).expected == expected_decode(question, 1000 + 127 // 2)


def test_a_part_in_ram_is_expected_to_be_slow():
    """As the file places layers; in unified memory it is the same memory."""
    whole, part = against(decode()).expected, against(decode(n_gpu_layers=16)).expected
    assert part.basis == PARTIAL != whole.basis
    assert part.rate < whole.rate / 3
    shared = against_public(decode("Apple M4 Max", n_gpu_layers=16, backends="MTL,BLAS"), known_card("apple-m4-max-32"))
    assert (shared.n_gpu_layers, shared.backend) == (None, "Metal")


@pytest.mark.parametrize(("factor", "place"), [(0.99, "below"), (1.01, "inside")])
def test_the_place_is_that_in_the_band(factor, place):
    """Just below its least rate, and just above it; the most rate likewise."""
    band = against(decode()).expected
    for edge, at_edge in ((band.low, place), (band.high, {"below": "inside", "inside": "above"}[place])):
        one = against(replace(decode(), samples=(), mean=edge * factor))
        assert one.place == at_edge


@pytest.mark.parametrize(
    ("changed", "there", "absent"),
    [
        ({}, (), ("layers", "host", "backend", "flash", "cache", "spilled")),
        ({"n_gpu_layers": None}, ("layers",), ("host",)),
        ({"n_gpu_layers": 16}, ("host",), ("layers", "spilled")),
        ({"no_kv_offload": True}, ("cache",), ()),
        ({"backends": ""}, ("backend",), ()),
        ({"n_depth": DEEP, "flash_attn": False}, ("flash",), ()),
        ({"n_depth": DEEP, "flash_attn": True}, (), ("flash",)),
        ({"model_type": "llama 8B F16", "model_size": 16060522496}, ("spilled",), ()),
    ],
)
def test_a_suspect_is_what_the_file_does_not_exclude(changed, there, absent):
    """The power limit, an old build, other programs and heat are in no file."""
    suspects = against(decode(**changed)).suspects
    assert {*there, "power", "build", "others", "heat"} <= {*suspects}
    assert not {*absent} & {*suspects}


def test_experts_may_lie_in_ram_where_the_file_does_not_say():
    """Of a model that has some."""
    model = {
        "model_type": "qwen3moe 30B.A3B Q4_K - Medium",
        "model_n_params": 30532122624,
        "model_size": 18_600_000_000,
    }
    assert "layers" in against(decode(**model, n_cpu_moe=None)).suspects
    assert "layers" not in against(decode(**model)).suspects
    assert against(decode(**model, n_cpu_moe=9999)).n_cpu_moe == shape("qwen3-30b-a3b").n_layer


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"gpu_info": "a card"}, "no card of the list"),
        ({"n_prompt": 9}, "timed as one"),
        ({"n_sequences": 2}, "several sequences"),
        ({"n_gpu_layers": 0}, "no card of the list"),
        ({"n_gpu_layers": "00"}, "the processor"),
        ({"gpu_info": "NVIDIA GeForce RTX 4090, NVIDIA GeForce RTX 4090"}, "several cards"),
        ({"tensor_buft_overrides": "ffn=CPU"}, "a pattern"),
        ({"model_n_params": 8_100_000_000}, "not one of the book's"),
        ({"model_n_params": None}, "not one of the book's"),
        ({"model_type": "llama 8B Q9_9"}, "llama-quantize"),
        ({"model_size": 1}, "the bytes of its type"),
    ],
)
def test_what_has_no_comparison_has_a_reason(changed, reason):
    """Nothing is compared with rows of another thing."""
    result = decode(**changed)
    assert reason in against_public(result, card_named(result))


def test_a_long_description_takes_no_time():
    """It is no type, whatever it holds."""
    started = time.process_time()
    assert isinstance(against_public(decode(model_type="llama " + "8B" * 50_000), known_card("rtx-4090")), str)
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize("changed", [{"type_k": "f99"}, {"n_ubatch": 10**9}, {"flash_attn": False, "type_v": "q4_0"}])
def test_odd_settings_leave_the_rows(changed):
    """What llama.cpp would refuse has no expected rate, and no error ends the page."""
    one = against(decode(**changed))
    assert one.expected is None or one.expected.rate > 0
    assert one.nearest[1]


def test_a_short_prompt_is_not_predicted():
    """No public prompt is as short, so nothing says that the model holds there."""
    prompt = on_card(**RECENT)[0]
    assert min(row.n_tokens for row in public_rates() if row.phase == PROMPT) == LEAST_PROMPT
    assert against(result_of({**prompt, "n_prompt": LEAST_PROMPT - 1, "samples_ts": []}, "a")).expected is None


def test_the_name_of_the_file_decides_between_twins():
    """Else all are named; a table has rounded numbers of weights, and finds the same."""
    assert known_names_of(decode(model_filename="Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf"))[0] == "llama-3.1-8b"
    text = """\
| model | size | params | backend | ngl | test | t/s |
| --- | --: | --: | --- | --: | --: | --: |
| gpt-oss 20B MXFP4 MoE | 11.27 GiB | 20.91 B | CUDA | 99 | tg128 | 220.10 ± 1.00 |
"""
    (result,) = read_results("a.md", text.encode()).results
    one = against_public(result, known_card("rtx-4090"))
    assert (one.names, one.type) == (("gpt-oss-20b",), "MXFP4_MOE")
    assert {row.model for row in one.alike} == {"gpt-oss-20b"}


def test_a_row_has_the_columns_of_the_table_and_no_free_text():
    """Only what the file states, and a build or a date only where it is one."""
    text = (files("inferlab") / "data" / "public_rates" / "rows.csv").read_text(encoding="utf-8")
    columns = {*next(csv.reader([text.splitlines()[0]]))}
    row = against(decode(model_filename="/home/me/Llama-3.1-8B.gguf", n_gpu_layers=16, flash_attn=True)).row
    assert row.keys() <= columns - {"source", "place", "host"}
    stated = {"card": "rtx-4090", "model": "llama-3.1-8b", "type": "Q4_K_M", "backend": "CUDA", "phase": DECODE}
    assert stated.items() <= row.items()
    assert (row["n_gpu_layers"], row["flash_attn"], row["n_tokens"], row["build"]) == (16, 1, 127, "0c1e570")
    texts = dict.fromkeys(("build_commit", "test_time", "type_k", "cpu_info", "backends"), "me@host")
    odd = against(decode(**texts)).row
    assert "me@host" not in odd.values()
    assert not {"build", "date", "type_k", "backend"} & odd.keys()
    assert as_bytes([odd])
