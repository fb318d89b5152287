"""The list of cards: each number cited, each written once, and each in agreement with what else is known of it."""

import re
from collections import Counter
from pathlib import Path

import pytest

from inferlab.errors import InferlabError, InvalidSettings
from inferlab.facts import cited_facts, read_table
from inferlab.prediction.cards import bus_bandwidth, entries, families, known_card, known_cards, looked_at, sized_card
from inferlab.prediction.gpu_share import gpu_share
from inferlab.units import GB, GIB, MB

BIBLIOGRAPHY = Path(__file__).parents[2] / "book" / "references.bib"
BACKENDS = {"cuda", "rocm", "metal", "sycl", "vulkan"}


def test_every_card_has_its_sources_in_the_bibliography():
    """Bandwidth, memory and the system's limit each name a source that a reader can look up, and its state."""
    keys = set(re.findall(r"^@\w+\{([^,\s]+),", BIBLIOGRAPHY.read_text(encoding="utf-8"), re.MULTILINE))
    cards = known_cards().values()
    logged = [line for system in read_table("gpu_shares").values() for line in system["logged"]]
    assert {card.source for card in cards} | {card.memory_source for card in cards} <= keys
    assert {line["source"] for line in logged} <= keys
    dates = [looked_at(), *(card.date for card in cards), *(line["date"] for line in logged)]
    assert all(re.fullmatch(r"20\d\d-[01]\d", date) for date in dates)
    assert max(dates) == looked_at()


def test_a_bandwidth_that_is_cited_elsewhere_is_not_written_twice():
    """A card of which cards.toml knows the bandwidth takes it from there, with its source."""
    shared = {name: fact for name, fact in cited_facts("cards").items() if name.endswith("-bandwidth")}
    assert {entry["fact"] for entry in entries().values() if "fact" in entry} == set(shared)
    for name, fact in shared.items():
        card = known_cards()[name.removesuffix("-bandwidth")]
        assert (card.bandwidth_bytes_per_second, card.source, card.date) == (fact.value * GB, fact.source, fact.date)
        assert "bandwidth" not in entries()[card.name]


def test_memory_is_whole_gib_in_ascending_sizes():
    """8 GB on the box are 8 GiB, and no size stands twice."""
    for card in known_cards().values():
        sizes = [n_bytes / GIB for n_bytes in card.memory_bytes]
        assert len(sizes) > 0, card.name
        assert all(size == int(size) and 3 <= size <= 512 for size in sizes), card.name
        assert sizes == sorted(set(sizes)), card.name


def test_names_and_titles_are_unique():
    """One name, one card: no family repeats the name of another, and no two cards read alike."""
    names = Counter(name for family in families().values() for name in family["cards"])
    assert max(names.values()) == 1
    assert len({card.title for card in known_cards().values()}) == len(known_cards()) == names.total()
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in names)


def test_a_stated_bandwidth_is_the_bus_times_its_rate():
    """Where a source has both, they agree to a thousandth, which is its rounding: a slip in a number fails here."""
    both = [name for name, entry in entries().items() if "bus" in entry and {"bandwidth", "fact"} & set(entry)]
    assert len(both) > 90
    for name in both:
        computed = bus_bandwidth(entries()[name]["bus"], entries()[name]["rate"])
        assert known_cards()[name].bandwidth_bytes_per_second == pytest.approx(computed, rel=1e-3), name


def test_a_bandwidth_that_is_not_stated_is_computed():
    """256 bits at 8 Gbit/s each are 256 GB/s, and no number in the file says so."""
    assert "bandwidth" not in entries()["ryzen-ai-max-395"]
    assert known_card("ryzen-ai-max-395").bandwidth_bytes_per_second == 256 * GB


def test_only_a_machine_with_shared_memory_is_sold_in_several_sizes():
    """A card with twice the memory is a card of its own; a machine's memory is chosen when it is bought."""
    for card in known_cards().values():
        assert card.unified or len(card.memory_bytes) == 1, card.name
        assert card.backend in BACKENDS, card.name
        assert card.unified or card.backend != "metal", card.name


@pytest.mark.parametrize("written", ["rtx-4060", "RTX-4060", "GeForce RTX 4060", "4060", "rtx4060", "NVIDIA RTX 4060"])
def test_a_card_is_known_by_its_name_its_title_and_in_short(written):
    """Small letters or large, hyphens or spaces, with or without its brand: 8 GiB at 272 GB/s."""
    card = known_card(written)
    assert (card.name, card.memory_bytes, card.bandwidth_bytes_per_second) == ("rtx-4060", (8 * GIB,), 272 * GB)


def test_an_unknown_card_is_answered_with_the_nearest():
    """A slip of the fingers finds the card that was meant; a word like no card lists them all."""
    with pytest.raises(InferlabError, match=r"no known card 'rtx-4o60'\. Nearest: rtx-4060, .*give its memory"):
        known_card("rtx-4o60")
    with pytest.raises(InferlabError, match=r"Nearest: rtx-pro-6000"):
        known_card("6000 pro")
    with pytest.raises(InferlabError, match=r"Known: gtx-970, .*dgx-spark"):
        known_card("?")


def test_a_card_with_several_sizes_is_named_with_one():
    """A name alone is enough where one size is sold; elsewhere the size in GiB follows, and an error lists them."""
    assert sized_card("rtx-4060") == (known_card("rtx-4060"), 8 * GIB)
    several = next(card for card in known_cards().values() if len(card.memory_bytes) > 1)
    name, n_bytes = f"{several.name}:{several.memory_bytes[1] // GIB}", several.memory_bytes[1]
    assert sized_card(name) == (several, n_bytes)
    for wrong in (several.name, f"{several.name}:7"):
        with pytest.raises(InvalidSettings, match=name):
            sized_card(wrong)
    with pytest.raises(InvalidSettings, match="no known card 'rtx'"):
        sized_card("rtx")


@pytest.mark.parametrize(
    ("written", "name", "gib"),
    [
        ("7900xtx", "rx-7900-xtx", 24),
        ("AMD Radeon RX 9070 XT", "rx-9070-xt", 16),
        ("m4 max 64", "apple-m4-max-40", 64),
        ("m4 max 36gb", "apple-m4-max-32", 36),
        ("m4 pro 48 GB", "apple-m4-pro", 48),
        ("5060 ti 16", "rtx-5060-ti-16gb", 16),
        ("4060ti", "rtx-4060-ti", 8),
        ("a100 80gb", "a100-80gb", 80),
        ("mi50 32", "mi50-32gb", 32),
        ("RTX 4060 8GB", "rtx-4060", 8),
        ("RTX 5090 (32 GB)", "rtx-5090", 32),
        ("Apple M4 Max (64GB)", "apple-m4-max-40", 64),
        ("6000 ada", "rtx-6000-ada", 48),
        ("rtx pro 6000", "rtx-pro-6000", 96),
        ("4070 laptop gpu", "rtx-4070-laptop", 8),
        ("gb10", "dgx-spark", 128),
        ("strix halo 96", "ryzen-ai-max-395", 96),
        ("b60", "arc-pro-b60", 24),
    ],
)
def test_a_size_may_follow_what_people_call_a_card(written, name, gib):
    """Brand, spaces and "GB" may be left out; the size chooses between cards of one name."""
    assert sized_card(written) == (known_card(name), gib * GIB)


@pytest.mark.parametrize("written", ["m4 max", "v100", "apple m4", "m4 max 65"])
def test_a_name_that_leaves_a_choice_is_answered_with_it(written):
    """Of several cards or sizes none is guessed: each is listed as it can be written."""
    with pytest.raises(
        InvalidSettings, match=r"(does not say how much|the list has no) .* Name one of [a-z0-9:-]+, [a-z0-9:-]+"
    ):
        sized_card(written)


def test_no_two_cards_are_called_alike_by_chance():
    """Only the two widths of one Apple chip share what people call them."""
    for card in known_cards().values():
        assert known_card(card.name) == known_card(card.title) == card
    with pytest.raises(InvalidSettings, match=r"name of several cards\. .*apple-m3-max-30:36, .*apple-m3-max-40:48"):
        known_card("m3 max")


def test_macos_keeps_a_share_for_the_processor():
    """Of 24 GiB the GPU gets the 19,069.67 MB that a log of llama.cpp names, of 16 on older systems two thirds."""
    mac = known_card("apple-m4")
    share = mac.gpu_share(24 * GIB)
    assert (mac.gpu_bytes(24 * GIB), share.logged, share.system) == (round(19069.67 * MB), True, "macOS 26")
    assert gpu_share("macos-15", 16 * GIB).gpu_bytes == pytest.approx(16 * GIB * 2 / 3, rel=1e-6)


def test_every_mac_has_a_limit_and_only_a_mac():
    """More memory means more for the GPU, never all; a card with memory of its own has all of it."""
    for card in known_cards().values():
        limits = [card.gpu_bytes(n_bytes) for n_bytes in card.memory_bytes]
        assert limits == sorted(limits)
        if card.backend == "metal":
            assert all(0.6 * n < limit < 0.91 * n for n, limit in zip(card.memory_bytes, limits, strict=True))
        else:
            assert limits == list(card.memory_bytes)
            assert card.gpu_share(card.memory_bytes[0]) is None


def test_a_size_that_no_log_has_gets_the_share_of_the_next_smaller():
    """32 GiB: 74 %, as 24 GiB have, and the answer says that it was not logged; below every log nothing is said.

    8 GiB, which macOS 26 has no log of, get the share of the systems before, and by their name.
    """
    share = gpu_share("macos", 32 * GIB)
    assert not share.logged
    assert share.gpu_bytes / (32 * GIB) == pytest.approx(0.74, abs=1e-4)
    assert gpu_share("macos", 4 * GIB) is None
    assert gpu_share("macos", 8 * GIB) == gpu_share("macos-15", 8 * GIB)


def test_the_limits_of_macos_are_whole_percentages():
    """From 16 to 128 GB each logged limit is one of the memory, to a thousandth of a percent: pages are whole."""
    for line in read_table("gpu_shares")["macos"]["logged"]:
        if 16 <= line["memory"] <= 128:
            percent = line["limit"] * MB / (line["memory"] * GIB) * 100
            assert abs(percent - round(percent)) < 0.001, line
