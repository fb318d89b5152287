"""The model of a card: its sums by hand, what makes them larger, and the band around them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inferlab.facts import read_table
from inferlab.model.named import model_named
from inferlab.model.quant_mixes import MIXES
from inferlab.prediction.card_model import PromptRates, PromptWork, TokenRates, TokenWork, prompt_seconds, token_seconds
from inferlab.prediction.card_rates import (
    BACKENDS,
    KINDS,
    USUAL,
    Case,
    arithmetic,
    card_record,
    fitted,
    kind_of,
    prompt_rates,
    token_rates,
)
from inferlab.prediction.card_work import CardWork
from inferlab.prediction.cards import known_cards
from inferlab.prediction.expected import (
    KNOWN,
    OTHERS,
    PARTIAL,
    SIBLINGS,
    expected_decode,
    expected_prompt,
    question_of,
)
from inferlab.prediction.memory.placement import device_overrides, moved_tensors, placed_layers
from inferlab.settings import Settings

TERA = 1e12


def work(name: str, type: str = "Q4_K_M", **settings) -> CardWork:
    """A known model, placed by `n_gpu_layers` or `n_cpu_moe`."""
    model, asked = model_named(name, type), Settings(**{"n_gpu_layers": -1, **settings})
    layers = placed_layers(model.n_layer, asked, [1.0])
    return CardWork(model, layers, moved_tensors(model, layers, device_overrides(asked, [])))


def question(card: str, name: str, type: str = "Q4_K_M", **settings):
    return question_of(work(name, type, **settings), known_cards()[card], Settings(**settings))


def table() -> dict:
    return read_table("model", "public_rates")


# --- by hand --------------------------------------------------------------------------------------------------


def test_a_token_by_hand():
    """Every term of the equation, with plain numbers."""
    needed = TokenWork(8e9, 4e9, 300, 10, 5, 1e9, 2e9, host_bytes=3e9, host_layers=4)
    rates = TokenRates(0.8, 6.0, 5e-6, 20e-6, 30e-6, 0.5, 3.0, host_rate=30e9, crossing=50e-6)
    parts = [0.010, 0.0024, 0.0015, 0.0002, 0.00015, 0.002, 0.0006, 0.1, 0.0002]
    assert token_seconds(needed, rates, 1e12, 1e13) == pytest.approx(sum(parts))


def test_a_prompt_by_hand():
    """Two ubatches, an eighth of the experts, a part that crosses the bus."""
    needed = PromptWork(1000, 500, 2, 8e12, 4e12, 50, 6e9, 30, 10, 1e9, 2e11, host_touched_bytes=1e9)
    rates = PromptRates(2.0, 100.0, 0.5, 25.0, 1.5, 1e-4, 5e-5, 20.0, 2.0, bus_rate=10e9)
    dense, expert = 8e12 * 1.2, 4e12 * 1.5 / 0.5
    parts = [(dense + expert) / 2e13, 2 * (0.009 + 0.003 + 0.0005 + 0.1), (20e9 + 4e11) / 1e13]
    assert prompt_seconds(needed, rates, 1e12, 1e13) == pytest.approx(sum(parts))


@pytest.mark.parametrize(
    ("card", "name", "type"),
    [
        ("rtx-4090", "llama-3.1-8b", "Q4_K_M"),
        ("apple-m2-ultra", "qwen3-30b-a3b", "Q8_0"),
        ("r9700", "gemma-3-4b", "F16"),
    ],
)
@pytest.mark.parametrize("depth", [0, 8192])
def test_a_token_from_the_coefficients_by_hand(card, name, type, depth):
    """The rate is what model.toml, the card's ratings and the bytes give, with its own factor."""
    asked = question(card, name, type)
    of, backend = table()["token"], USUAL[known_cards()[card].backend]
    own, chip = of[backend], arithmetic()[card].chip
    bandwidth, flops = known_cards()[card].bandwidth_bytes_per_second, arithmetic()[card].flops
    needed = asked.work.token(depth)
    seconds = needed.weight_bytes / (own["reached"] * bandwidth)
    seconds += needed.weights * own["unpack"][kind_of(type)] / flops
    seconds += needed.tensors * own["launch"] * of["chips"][chip]
    seconds += needed.expert_layers * own["route"] + needed.state_layers * own["state"]
    seconds += needed.cache_bytes / (own["reached_cache"] * bandwidth) + needed.scores * own["score"] / flops
    factor = table()["cards"].get(card, {}).get(backend, {"token": 1.0})["token"]
    assert expected_decode(asked, depth).rate == pytest.approx(1 / (seconds * factor))


@pytest.mark.parametrize(
    ("card", "name", "type"),
    [
        ("rtx-4090", "llama-3.1-8b", "Q4_K_M"),
        ("apple-m2-ultra", "qwen3-30b-a3b", "Q8_0"),
        ("r9700", "gemma-3-4b", "F16"),
    ],
)
@pytest.mark.parametrize(("n_tokens", "depth"), [(512, 0), (2048, 8192)])
def test_a_prompt_from_the_coefficients_by_hand(card, name, type, n_tokens, depth):
    """Likewise, in ubatches of 512 tokens."""
    asked = question(card, name, type)
    of, backend = table()["prompt"], USUAL[known_cards()[card].backend]
    own, chip = of[backend], of["chips"][arithmetic()[card].chip]
    bandwidth, flops = known_cards()[card].bandwidth_bytes_per_second, arithmetic()[card].flops
    needed = asked.work.prompt(n_tokens, 512, depth)
    assert needed.ubatches == n_tokens // 512
    products = needed.dense * (1 + own["fill"] / 512)
    products += needed.expert * (1 + own["fill_experts"] / needed.tokens_of_expert) / own["experts"]
    seconds = products / (own["matrix"] * chip["matrix"] * own["types"][kind_of(type)] * flops)
    each = needed.touched_bytes * of["reread"] / bandwidth
    each += needed.layers * own["layer"] + needed.expert_layers * own["route"]
    seconds += needed.ubatches * each
    seconds += (needed.states * own["state"] + needed.scores * own["score"] * chip["score"]) / flops
    factor = table()["cards"].get(card, {}).get(backend, {"prompt": 1.0})["prompt"]
    assert expected_prompt(asked, n_tokens, depth).rate == pytest.approx(n_tokens / (seconds * factor))


def test_a_latent_a_quantized_and_a_plain_cache_by_hand():
    """Their coefficients, and those without flash attention and of an older build."""
    of = table()["token"]
    own = of["CUDA"]
    plain = Case("CUDA", "ada", "k")
    assert token_rates(plain).score == own["score"]
    assert token_rates(replace(plain, latent=True)).score == pytest.approx(own["score"] * own["latent"])
    assert token_rates(replace(plain, flash_attn=False)).score == pytest.approx(own["score"] * of["no_flash"])
    quantized = token_rates(replace(plain, quantized_cache=True)).reached_cache
    assert quantized == pytest.approx(own["reached_cache"] * of["quantized_cache"])
    older = token_rates(replace(plain, years=2.0))
    assert older.unpack == pytest.approx(own["unpack"]["k"] * of["yearly"]["unpack"] ** 2)
    matrix = [prompt_rates(replace(plain, years=years)).matrix for years in (0.0, 2.0)]
    assert matrix[0] / matrix[1] == pytest.approx(table()["prompt"]["yearly"]["matrix"] ** 2)


# --- what makes it slower -------------------------------------------------------------------------------------


def test_more_bytes_are_slower():
    """A larger type in decode, and a maker's mix with more bytes."""
    rates = [expected_decode(question("rtx-4090", "llama-3.1-8b", type)).rate for type in ("Q4_K_M", "Q6_K", "Q8_0")]
    assert rates == sorted(rates, reverse=True)
    plain, larger = (work("llama-3.1-8b").token(0, factor=factor) for factor in (1.0, 1.1))
    assert larger.weight_bytes == pytest.approx(1.1 * plain.weight_bytes)


def test_less_bandwidth_is_slower():
    """Two cards of one chip."""
    assert (
        expected_decode(question("rtx-4060", "qwen3-8b")).rate < expected_decode(question("rtx-4090", "qwen3-8b")).rate
    )


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-30b-a3b", "glm-4.7-flash", "qwen3.5-9b"])
def test_deeper_is_slower(name):
    """Both phases, of a dense model, a mixture, a latent cache and a hybrid."""
    asked = question("rtx-4090", name)
    for expected in (expected_decode, lambda asked, depth: expected_prompt(asked, 512, depth)):
        rates = [expected(asked, depth).rate for depth in (0, 4096, 32768)]
        assert rates == sorted(rates, reverse=True)
        assert len(set(rates)) == 3


@pytest.mark.parametrize("settings", [{"n_gpu_layers": 20}, {"n_cpu_moe": 24}])
def test_a_part_in_ram_is_slower(settings):
    """Layers, or experts; and the band is the wide one."""
    whole, part = question("rtx-3060", "qwen3-30b-a3b"), question("rtx-3060", "qwen3-30b-a3b", **settings)
    assert expected_decode(part).rate < expected_decode(whole).rate
    assert expected_prompt(part).rate < expected_prompt(whole).rate
    assert expected_decode(part).basis == PARTIAL
    assert part.work.is_partial
    assert not whole.work.is_partial


def test_unified_memory_has_no_host():
    """What a plan puts into RAM is read by the same card."""
    part, whole = (question("apple-m2-ultra", "qwen3-30b-a3b", **one) for one in ({"n_gpu_layers": 20}, {}))
    assert expected_decode(part).rate == expected_decode(whole).rate


def test_an_embedding_that_is_the_output_is_read_once():
    """A tied one counts with the output, an untied one as a row."""
    tied = work("gemma-3-4b")
    assert 0.9 * tied.model.tensor_bytes < tied.token(0).weight_bytes < 1.01 * tied.model.tensor_bytes
    untied = work("llama-3.1-8b")
    assert untied.token(0).weight_bytes < 0.97 * untied.model.tensor_bytes


# --- the band -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("card", known_cards())
def test_every_card_has_a_rate_in_its_band(card):
    """Both phases; no token is faster than the bytes allow, at the end of the band neither."""
    asked = question(card, "llama-3.2-1b")
    for expected in (expected_decode(asked), expected_prompt(asked)):
        assert 0 < expected.low < expected.rate <= expected.high
        assert expected.basis in (KNOWN, SIBLINGS, OTHERS)
    needed = asked.work.token(0)
    bound = known_cards()[card].bandwidth_bytes_per_second / (needed.weight_bytes + needed.cache_bytes)
    assert expected_decode(asked).rate < bound or expected_decode(asked).rate == pytest.approx(bound)
    assert expected_decode(asked).high <= bound * (1 + 1e-9)


def test_the_band_says_what_is_known_of_the_card():
    """Its own rows, else those of cards with its chip, else none of either."""
    records = {name: card_record(name, USUAL[card.backend]) for name, card in known_cards().items()}
    with_rows = {arithmetic()[name].chip for name, record in records.items() if record.n_prompt}
    for name, record in records.items():
        expected = expected_prompt(question(name, "llama-3.2-1b"))
        known = KNOWN if record.n_prompt else SIBLINGS if arithmetic()[name].chip in with_rows else OTHERS
        assert (expected.basis, expected.n_rows) == (known, record.n_prompt)
        low, high = fitted()["bands"]["prompt"][known]
        assert (expected.low, expected.high) == pytest.approx((low * expected.rate, high * expected.rate))


def test_less_knowledge_is_a_wider_band():
    """Rows of other chips alone, and a part in RAM."""
    for bands in fitted()["bands"].values():
        width = {name: high / low for name, (low, high) in bands.items()}
        assert width[OTHERS] > max(width[KNOWN], width[SIBLINGS])
        assert width[PARTIAL] > max(width[KNOWN], width[SIBLINGS])


# --- names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mix", MIXES)
def test_every_mix_has_a_kind(mix):
    """One whose coefficients each backend has."""
    assert kind_of(mix) in KINDS
    for backend in BACKENDS:
        assert token_rates(Case(backend, "ada", kind_of(mix))).unpack > 0
        assert prompt_rates(Case(backend, "ada", kind_of(mix))).matrix > 0


@pytest.mark.parametrize(
    ("mix", "kind"),
    [
        ("F32", "f16"),
        ("BF16", "bf16"),
        ("Q8_0", "q8"),
        ("Q4_K_M", "k"),
        ("Q6_K", "k"),
        ("Q3_K_S", "k3"),
        ("Q2_K", "k3"),
        ("Q5_1", "q4"),
        ("MXFP4_MOE", "mxfp4"),
        ("IQ4_NL", "iq4"),
        ("IQ2_XXS", "iq"),
    ],
)
def test_a_mix_is_unpacked_like_its_kind(mix, kind):
    assert kind_of(mix) == kind


def test_every_card_has_its_arithmetic():
    """A chip whose factors were fitted, and no card too many."""
    assert set(arithmetic()) == set(known_cards())
    assert {one.chip for one in arithmetic().values()} <= set(fitted()["token"]["chips"])
    assert {one.chip for one in arithmetic().values()} <= set(fitted()["prompt"]["chips"])
    assert all(0.1 * TERA < one.flops < 1000 * TERA for one in arithmetic().values())
    assert {card.backend for card in known_cards().values()} <= set(USUAL)


@pytest.mark.parametrize(
    ("name", "is_latent"), [("kimi-linear-48b-a3b", True), ("deepseek-v3", True), ("qwen3-8b", False)]
)
def test_latent_caches_are_those_of_the_memory_plan(name, is_latent):
    asked = question_of(CardWork(model_named(name)), known_cards()["rtx-4090"], Settings())
    assert asked.case.latent == is_latent
