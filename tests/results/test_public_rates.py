"""Published rates: where each was read, what they cover, and that none of them is impossible."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache

import pytest

from inferlab.model.catalog import known_models
from inferlab.model.named import model_named
from inferlab.model.quant_mixes import MIXES
from inferlab.prediction.card_rates import arithmetic
from inferlab.prediction.cards import known_cards
from inferlab.prediction.cost import bytes_read
from inferlab.prediction.decode_bound import token_bytes
from inferlab.prediction.memory.cache import cache_layers
from inferlab.results.public_rates import DECODE, PROMPT, PublicRate, n_sources, of_card, public_rates, sources

BACKENDS = {"CUDA", "ROCm", "Vulkan", "Metal", "SYCL"}
ABOVE_THE_BOUND: dict[tuple[str, str], str] = {}
"""Source and place of a row that is faster than its card reads the bytes -> why it stays. There is none."""
APART = 1.45
"""By what factor alike rows of different repositories may differ: builds and drivers are years apart."""
FURTHER_APART = {
    ("ryzen-ai-max-395", "ROCm", "llama-2-7b", "Q4_0", "pp512"): "a build of August 2025 and one of 2026",
}


@cache
def model(name: str, type: str):
    """A known model in a type; files of gpt-oss keep their experts as they were trained."""
    return model_named(name, "MXFP4_MOE" if name.startswith("gpt-oss") else type)


def is_mixture(name: str) -> bool:
    return bool(model(name, "Q4_K_M").number("expert_count"))


def test_there_are_rows_of_many_kinds():
    """Cards, models, backends, mixtures, recurrent layers, a latent cache, deep caches, and a part in RAM."""
    rows = public_rates()
    assert len(rows) >= 600
    assert len({row.card for row in rows}) >= 40
    assert {row.backend for row in rows} - {""} == BACKENDS
    assert {row.phase for row in rows} == {DECODE, PROMPT}
    names = {row.model for row in rows}
    assert len(names) >= 25
    assert {is_mixture(name) for name in names} == {True, False}
    assert any(model(name, "Q4_K_M").architecture == "deepseek2" for name in names)
    assert any(layer.state_values for name in names for layer in cache_layers(model(name, "Q4_K_M")))
    for kind in (lambda row: row.depth >= 32768, lambda row: row.n_gpu_layers is not None, lambda row: row.n_cpu_moe):
        assert sum(map(bool, map(kind, rows))) >= 20


def test_every_row_has_its_source():
    """A repository at its commit, or a thread; and an address that opens there."""
    for row in public_rates():
        source = sources()[row.source]
        assert source.url.startswith(f"https://github.com/{source.repository}")
        assert row.address.startswith(f"{source.url}/blob/{source.commit}/" if source.commit else source.url)
        assert " " not in row.address
        assert row.place
    assert {row.source for row in public_rates()} == set(sources())


@pytest.mark.parametrize("name", sources())
def test_a_source_says_what_was_read(name):
    """Its state, what its repository states of a licence, and when it was read."""
    source = sources()[name]
    assert (
        re.fullmatch(r"[0-9a-f]{40}", source.commit)
        or "/issues/" in source.url
        or "/pull/" in source.url
        or ("/discussions/" in source.url)
    )
    assert source.licence
    assert re.fullmatch(r"20\d\d-\d\d", source.read)


def test_every_name_is_known():
    """Cards with their arithmetic, models, and mixes."""
    for row in public_rates():
        assert row.card in known_cards()
        assert row.card in arithmetic()
        assert row.model in known_models()
        assert row.type in MIXES


def test_values_are_possible():
    """Rates, tokens and years; a part in RAM is less than the model has layers."""
    for row in public_rates():
        assert row.rate > 0
        assert row.n_tokens > 0
        assert row.n_ubatch > 0
        assert row.depth >= 0
        assert row.n_alike >= 1
        assert 2023 <= row.year < 2027
        assert row.n_gpu_layers is None or 0 <= row.n_gpu_layers <= model(row.model, row.type).n_layer
        assert row.n_cpu_moe == 0 or is_mixture(row.model)


def test_no_row_stands_twice():
    """Rows of one place with the same test are one row."""
    assert len(set(public_rates())) == len(public_rates())


def bound(row: PublicRate) -> float:
    """Tokens per second at which the card's rated bandwidth reads each byte once; the file's bytes where stated."""
    of = model(row.model, row.type)
    weights, every = sum(bytes_read(of).values()), token_bytes(of, row.type_k, row.type_v, row.depth)
    factor = row.n_bytes / of.tensor_bytes if row.n_bytes else 1.0
    return known_cards()[row.card].bandwidth_bytes_per_second / (every - weights + weights * factor)


def test_no_decode_is_faster_than_the_memory():
    """Of models whole on the card, and of one sequence without drafts."""
    for row in public_rates():
        if row.phase == DECODE and not row.is_partial and (row.source, row.place) not in ABOVE_THE_BOUND:
            assert row.rate < bound(row), (row.card, row.model, row.type, row.test, row.address)


def doubles() -> dict[tuple, list[PublicRate]]:
    """Rows with the same card, backend, model, type, test and settings, of several repositories."""
    alike: dict[tuple, list[PublicRate]] = defaultdict(list)
    for row in public_rates():
        settings = (row.n_gpu_layers, row.n_cpu_moe, row.flash_attn, row.type_k, row.type_v)
        alike[row.card, row.backend, row.model, row.type, row.test, settings].append(row)
    return {key: rows for key, rows in alike.items() if n_sources(rows) > 1}


def test_doubles_agree():
    """By the factor that differs between builds; what differs by more is named here with its reason."""
    assert len(doubles()) >= 10
    for key, rows in doubles().items():
        rates = [row.rate for row in rows]
        if key[:5] not in FURTHER_APART:
            assert max(rates) / min(rates) < APART, (key, [(row.rate, row.address) for row in rows])


def test_a_card_is_asked_for():
    """Its rows of one phase."""
    row = public_rates()[0]
    assert row in of_card(row.card, row.phase)
    assert {(one.card, one.phase) for one in of_card(row.card, PROMPT)} <= {(row.card, PROMPT)}
    assert of_card("no card") == ()


def test_a_test_is_written_as_llama_bench_does():
    """With the depth where there is one."""
    names = {row.test for row in public_rates()}
    assert {"tg128", "pp512"} <= names
    assert all(re.fullmatch(r"(tg|pp)\d+( @ d\d+)?", name) for name in names)
    deep = next(row for row in public_rates() if row.depth)
    assert deep.test.endswith(f" @ d{deep.depth}")


def test_an_empty_cell_is_the_engines_default():
    """All layers on the card, cells of 16 bits, ubatches of 512."""
    plain = [row for row in public_rates() if not row.is_partial]
    assert {(row.n_gpu_layers, row.n_cpu_moe) for row in plain} == {(None, 0)}
    assert any((row.n_ubatch, row.type_k, row.type_v) == (512, "f16", "f16") for row in plain)
