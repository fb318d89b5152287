"""AMD and Intel cards: pairs differ in the backend alone, and the sentences around the numbers hold."""

import re
from pathlib import Path

import pytest

from inferlab.machine import Device
from inferlab.model.catalog import known_model
from inferlab.prediction.cards import known_card
from inferlab.prediction.memory.placement import OUTPUT_MATRIX
from inferlab.results.public_rates import DECODE, PROMPT
from inferlab.units import GIB, MIB
from studies.amd_and_intel import study
from studies.amd_and_intel.study import HALO, MIX, ROCM, SINCE, SYCL, VULKAN, WHOLE

PAGE = (Path(__file__).parents[2] / "book/machine/amd-and-intel.md").read_text(encoding="utf-8")
PAIRS = (*study.pairs(), *study.pairs(SYCL))
LARGER_PART = 0.5
KEPT = 0.05
"""Between the ratios of decode at two depths, so that a page may say that they are alike."""


def by_depth(phase):
    """(card, ratios from the least to the greatest depth) of each test with several depths."""
    for found in study._by_test().values():
        own = next(iter(found.values())).own
        if len(found) > 1 and own.phase == phase:
            yield own.card, [found[depth].ratio for depth in sorted(found)]


def test_a_pair_differs_in_the_backend_alone():
    """Card, model, type, size, settings, depth and test are the same, in one source, with all layers on the card."""
    for pair in PAIRS:
        ours, theirs = pair.vulkan, pair.own
        assert (ours.backend, theirs.backend in {ROCM, SYCL}) == (VULKAN, True)
        alike = ("source", "card", "model", "type", "flash_attn", "n_ubatch", "type_k", "type_v", "depth", "n_tokens")
        assert all(getattr(ours, name) == getattr(theirs, name) for name in (*alike, "phase")), (ours, theirs)
        assert abs((ours.n_bytes or 0) - (theirs.n_bytes or 0)) <= 0.1e9
        assert not ours.is_partial
        assert min(ours.year, theirs.year) >= SINCE


def test_every_pair_is_counted_once_in_the_tables():
    """Groups by phase, kind and type are disjoint, and the sources hold them all."""
    chosen = [pair for name in study.GROUPS for pair in study.of_group(name, study.pairs())]
    assert len(chosen) == len(set(chosen)) == len(study.pairs())
    assert sum(row[2] for row in study.source_table()[1]) == len(PAIRS)


def test_most_pairs_are_of_one_chip_as_the_page_says():
    """More than half; Vulkan decodes quantized models faster in most pairs, and ROCm whole weights in all."""
    numbers = study.numbers()
    assert numbers["pairs_halo"] > LARGER_PART * numbers["pairs"]
    assert numbers["decode_faster"] > LARGER_PART * numbers["decode_pairs"]
    assert numbers["decode_middle"] > 1
    assert all(pair.ratio < 1 for pair in study.pairs() if pair.own.type == WHOLE)


def test_prompts_of_dense_models_are_mostly_faster_with_rocm():
    """So *In short* says; and the R9700 decodes most of its models faster with it."""
    dense = study.of_group("prompt, dense, quantized", study.pairs())
    assert sum(pair.ratio < 1 for pair in dense) > LARGER_PART * len(dense)
    decode = [pair for pair in study.pairs() if (pair.own.card, pair.own.phase) == ("r9700", DECODE)]
    assert sum(pair.ratio < 1 for pair in decode) > LARGER_PART * len(decode)


def test_depth_leaves_decode_and_turns_prompts():
    """Ratios of decode stay, and those of prompts on the Ryzen AI Max end higher than they began."""
    assert all(max(ratios) - min(ratios) < KEPT for _, ratios in by_depth(DECODE))
    turned = [ratios[-1] > ratios[0] for card, ratios in by_depth(PROMPT) if card == HALO]
    assert turned
    assert all(turned)


def test_threads_read_as_the_page_says():
    """Vulkan decodes faster there, and reads short prompts slower; on an Arc it loses more with depth."""
    numbers = study.numbers()
    assert numbers["halo_decode_deep"] > 1 > numbers["halo_prompt_short"]
    assert numbers["arc_decode"] > 1
    assert numbers["arc_deep_vulkan"] > numbers["arc_deep_sycl"]


def test_a_figure_of_a_thread_has_an_address_that_the_page_links():
    """Each thread once, with who wrote it, and a card and model of the lists where it names them."""
    for row in study.threads():
        assert all((row.name, row.who, row.date, float(row.value) > 0)), row
        assert re.fullmatch(r"[\w.-]+/[\w.-]+/(issues|pull)/\d+", row.path), row
        assert f"({row.address})" in PAGE, row
        assert not row.card or known_card(row.card).name == row.card
        assert not row.model or known_model(row.model)


def test_the_largest_matrix_is_one_that_a_card_multiplies():
    """An untied table of the input does not count, a tied one does, and experts count together."""
    gemma, qwen = study.largest_matrix("gemma-3-27b", WHOLE), study.largest_matrix("qwen3.5-27b", WHOLE)
    assert (gemma.name, qwen.name) == (OUTPUT_MATRIX, OUTPUT_MATRIX)
    model = known_model("gemma-3-27b")
    assert gemma.n_bytes == 2 * model.n_embd * model.n_vocab
    assert gemma.batch_bytes == 4 * 512 * model.n_vocab == 512 * MIB
    assert "exps" in study.largest_matrix("deepseek-r1", MIX).name
    assert study.largest_matrix("gemma-4-e4b", MIX).name != "per_layer_token_embd.weight"


def test_a_larger_limit_refuses_fewer_models():
    """And the list begins with the matrix that needs least."""
    counts = [len(study.too_large(limit.n_bytes, MIX)) for limit in study.LIMITS]
    assert counts == sorted(counts)
    assert counts[0] > 0
    needs = [matrix.most for matrix in study.too_large(2 * GIB, WHOLE).values()]
    assert needs == sorted(needs)
    assert needs[0] > 2 * GIB


def test_the_release_has_every_chip_that_is_shown():
    """The image lacks some, so the error is one of the image; and an example for `GPU_TARGETS` is among the chips."""
    assert set(study.TARGETS) <= study.RELEASE
    assert study.IMAGE < study.RELEASE
    assert set(study.TARGETS) - study.IMAGE
    assert set(re.findall(r"GPU_TARGETS=(gfx\w+)", PAGE)) <= study.TARGETS.keys()


@pytest.mark.parametrize("key", sorted(set(re.findall(r"\{glue:text\}`(\w+)", PAGE))))
def test_every_number_of_the_page_is_computed(key):
    """A sentence shows nothing that `numbers` does not have."""
    assert key in study.numbers()


def test_no_number_is_computed_for_nothing():
    """Each of `numbers` is shown."""
    assert set(study.numbers()) == set(re.findall(r"\{glue:text\}`(\w+)", PAGE))


@pytest.mark.parametrize(
    "table", [study.backend_table, study.depth_table, study.source_table, study.limit_table, study.target_table]
)
def test_a_table_has_a_cell_for_each_head(table):
    """And at least one row."""
    heads, rows = table()
    assert rows
    assert {len(row) for row in rows} == {len(heads)}


def test_every_citation_is_in_the_bibliography():
    """Of the page and of its tables."""
    bibliography = (Path(__file__).parents[2] / "book/references.bib").read_text(encoding="utf-8")
    cited = re.findall(r"\{cite\}`([^`]+)`", PAGE + str(study.LIMITS))
    keys = {key for group in cited for key in group.split(",")}
    assert {key for key in keys if f"{{{key}," not in bibliography} == set()


def test_pages_of_gtt_are_of_four_kibibytes():
    """As the line of the page computes them."""
    assert study.numbers()["gtt_pages"] == 96 * 262144


def test_plans_of_weights_and_cache_were_exact_as_the_page_says():
    """On the driver in software; the compute buffer was not, so the page tells how far it was off."""
    assert all(study.planned(kind).agree == study.planned(kind).n > 0 for kind in ("weights", "kv_cache"))
    compute = study.planned("compute")
    assert compute.least < 1 < compute.most
    assert Device("Vulkan0", compute.driver, "gpu").is_software
