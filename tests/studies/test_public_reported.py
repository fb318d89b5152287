"""What pages tell of others' cards: every row has an address, and the sentences around the numbers hold."""

import re
from pathlib import Path

import pytest

from handbook.cells import markdown_table
from inferlab.model.catalog import known_model
from inferlab.prediction.cards import known_card
from inferlab.results.public_rates import DECODE, PROMPT, one_row, public_rates
from studies.public_rates import reported
from studies.public_rates.reported import NAMES
from studies.several_cards import study as several_cards

BOOK = Path(__file__).parents[2] / "book"
PAGES = (
    "why-is-it-slow",
    "optimization/experts-in-ram",
    "optimization/speculation",
    "optimization/flash-attention",
    "machine/several-cards",
    "machine/workstation",
    "machine/eight-gb-card",
)
ROWS = [row for name in NAMES for row in reported.reported(name)]
NUMBERS = (
    reported.slow_numbers,
    reported.expert_numbers,
    reported.attention_numbers,
    reported.draft_numbers,
    reported.cards_numbers,
    reported.power_numbers,
)
TABLES = (
    reported.ubatch_table,
    reported.laptop_table,
    reported.cache_table,
    reported.latent_table,
    reported.draft_table,
    reported.cards_table,
)
ADDRESS = re.compile(r"\]\((https://github\.com/[^)\s]+)\)")
MOST_OF_ONE = 20


def test_every_row_names_whose_it_is_and_where_it_stands():
    """With the exact line of a file at its commit; a thread has an address alone."""
    for row in ROWS:
        assert all((row.who, row.date, row.value > 0, known_model(row.model))), row
        assert known_card(row.card).name == row.card, row
        assert bool(row.commit) == bool(row.line), row
        assert not row.commit or (len(row.commit) == 40 and row.line.isdecimal()), row
        assert row.commit or re.fullmatch(r"(issues|pull|discussions)/\d+", row.path), row


@pytest.mark.parametrize("name", NAMES)
def test_a_record_holds_single_figures_and_no_ones_table(name):
    """Of one source at most twenty rows, each once."""
    rows = reported.reported(name)
    assert len(set(rows)) == len(rows)
    sources = [row.repository for row in rows]
    assert max(map(sources.count, sources)) <= MOST_OF_ONE


def test_every_record_of_the_folder_is_told():
    """A file that no page uses is not kept."""
    heads = "repository,path,commit,line,who,"
    found = {path.stem for path in reported.RECORDS.glob("*.csv") if path.read_text().startswith(heads)}
    assert found == set(NAMES)


def test_an_address_opens_the_line():
    row = one_row(reported.reported("spill"), what="power", unit="W", setting="draft 2, -c 32768")
    path = f"https://github.com/{row.repository}/blob/{row.commit}/sweeps/rtx-3090.md"
    assert row.address == f"{path}?plain=1#L{row.line}"
    assert row.link == f"[ntindle, 2026-08]({row.address})"


def test_a_space_in_a_path_does_not_end_a_link():
    addresses = [row.address for row in reported.reported("several_cards")]
    assert any("LLaMA%203/" in address for address in addresses)
    assert not any(" " in address for address in addresses)


def test_the_address_of_a_thread_is_its_own():
    row = one_row(reported.reported("attention"), setting="f16", depth=1024)
    assert row.address == "https://github.com/TheTom/llama-cpp-turboquant/issues/102"


@pytest.mark.parametrize(("wanted", "found"), [({"card": "rtx-1"}, "0 rows"), ({"card": "rtx-5090"}, "8 rows")])
def test_a_row_that_is_not_the_only_one_is_refused(wanted, found):
    """A page that tells one of several would tell what happens to stand first."""
    with pytest.raises(LookupError, match=f"{found} have .*name more fields"):
        one_row(reported.reported("attention"), **wanted)


@pytest.mark.parametrize("numbers", NUMBERS)
def test_a_number_is_a_plain_positive_one(numbers):
    values = numbers()
    assert values
    assert all(isinstance(value, int | float) and value > 0 for value in values.values())


def test_no_two_numbers_have_a_name_in_common():
    """Two studies of a page would overwrite each other."""
    names = [name for numbers in NUMBERS for name in numbers()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("table", TABLES)
def test_every_row_of_a_table_links_its_source(table):
    heads, rows = table()
    assert rows
    assert heads[-1] == "source"
    text = markdown_table(heads, rows).splitlines()
    assert all(len(ADDRESS.findall(line)) == 1 for line in text[2:])


@pytest.mark.parametrize("page", PAGES)
def test_a_link_in_the_prose_is_the_address_of_a_row(page):
    """No page links a file of others of which no row is known, or another line of it."""
    known = {row.address for row in (*ROWS, *public_rates())}
    text = (BOOK / f"{page}.md").read_text(encoding="utf-8")
    typed = {address for address in ADDRESS.findall(text) if "/blob/" in address}
    assert typed <= known


@pytest.mark.parametrize("page", PAGES)
def test_a_page_uses_what_it_asks_for(page):
    """Its cell makes the numbers of one function available, or shows a table."""
    text = (BOOK / f"{page}.md").read_text(encoding="utf-8")
    called = re.findall(r"reported\.(\w+)\(", text)
    assert called
    assert all(hasattr(reported, name) for name in called)
    for name in called:
        if name.endswith("_numbers"):
            unused = [key for key in getattr(reported, name)() if f"`{key}:" not in text]
            assert not unused, (page, unused)


# --- sentences that the numbers must bear out ---------------------------------------------------


def test_the_driver_that_spills_is_slower_and_draws_less():
    told = reported.slow_numbers()
    assert told["spill_over"] < told["spill_fits"] / 2
    assert told["spill_over_gb"] > 10 * told["spill_fits_gb"]
    assert told["spill_over_watts"] < told["spill_fits_watts"]


def test_a_latent_cache_lost_most_of_its_rate_on_one_card_and_a_third_on_another():
    told = reported.slow_numbers()
    assert told["latent_deep"] < 0.2 * told["latent_empty"]
    assert told["plain_deep"] > 0.8 * told["plain_empty"]
    kept = [row[-2] for row in reported.latent_table()[1]]
    assert kept == ["14 %", "67 %", "37 %", "85 %"]


def test_a_larger_ubatch_makes_prompts_faster_and_leaves_decode():
    _, rows = reported.ubatch_table()
    prompts, decodes = [row[1] for row in rows], [row[2] for row in rows]
    assert prompts == sorted(prompts)
    assert prompts[2] > 2 * prompts[0]
    assert max(decodes) < 1.02 * min(decodes)


def test_fewer_experts_in_ram_gained_with_one_model_and_lost_with_another():
    told = reported.expert_numbers()
    assert told["pub_fewer"] > 1.2 * told["pub_more"]
    assert told["pub_small_fewer"] < told["pub_small_more"]
    assert known_model("gpt-oss-20b").n_layer == 24


def test_a_quantized_cache_was_slower_in_every_report_and_more_so_behind_more_tokens():
    _, rows = reported.cache_table()
    ratios = [row[3] / row[2] for row in rows]
    assert max(ratios) < 1
    assert ratios[:4] == sorted(ratios[:4], reverse=True)


def test_pairs_with_flash_attention_differ_in_nothing_else():
    pairs = reported.flash_pairs()
    assert all(on.flash_attn and off.flash_attn is False and on.model == off.model for on, off in pairs)
    assert {on.depth for on, _ in pairs} == {0}
    most = [on for on, _ in pairs if on.card == "ryzen-ai-max-395"]
    assert len(most) == reported.attention_numbers()["pub_pairs_of_one"]
    assert {(on.source, on.date[:4]) for on in most} == {("strix-halo-testing", "2025")}


def test_apples_chips_gained_least_by_a_draft():
    gains = sorted((row[4], row[0]) for row in reported.draft_table()[1])
    assert [card for _, card in gains[:2]] == ["Apple M4", "Apple M3 Ultra"]
    told = reported.draft_numbers()
    assert told["pub_draft_one"] > 1.5
    assert told["pub_draft_two"] < 1.1


def test_more_cards_with_whole_layers_decode_no_faster():
    rates = {(row.model, row.what, row.n_cards): row.value for row in reported.reported("several_cards")}
    for model in ("llama-3-8b", "llama-3-70b"):
        decode = [rates[model, DECODE, n] for n in (1, 2, 4, 8) if (model, DECODE, n) in rates]
        assert decode == sorted(decode, reverse=True)
    prompts = [rates["llama-3-8b", PROMPT, n] for n in (1, 2, 4, 8)]
    assert prompts == sorted(prompts)


def test_tensor_gained_decode_of_every_dense_model():
    """The report that the page cites lies between the two that it links; of three mixtures two lost."""
    told, cited = reported.cards_numbers(), several_cards.numbers()
    assert 1 < told["pub_radeon_decode"] < cited["dense_decode"] < told["pub_pair_decode"]
    assert cited["dense_prompt"] < 1 < min(told["pub_radeon_prompt"], told["pub_pair_prompt"])
    assert max(cited["sparse_decode"], cited["glm_decode"]) < 1 < min(cited["amd_prompt"], cited["amd_decode"])


def test_a_limit_of_power_costs_a_draft_more_than_plain_decode():
    told = reported.power_numbers()
    plain = told["pub_power_plain_capped"] / told["pub_power_plain"]
    draft = told["pub_power_draft_capped"] / told["pub_power_draft"]
    assert draft < plain < 1


def test_a_mixture_with_its_experts_in_ram_decoded_about_as_fast_as_a_model_that_fits():
    rows = {(row[0], row[1]): row for row in reported.laptop_table()[1]}
    mixture = rows["Gemma 4 26B A4B, Q4_K_M", "all but the experts of 30 of 30 layers"]
    whole = rows["Qwen3.5 9B, Q4_K_M", "all"]
    assert mixture[3] == pytest.approx(whole[3], rel=0.1)
    assert mixture[2] < whole[2] / 2
