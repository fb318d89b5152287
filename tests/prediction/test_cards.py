"""The list of cards: each number cited, each written once, and each in agreement with what else is known of it."""

import re
from collections import Counter
from pathlib import Path

import pytest

from inferlab.errors import InferlabError, InvalidSettings
from inferlab.facts import cited_facts, read_table
from inferlab.prediction.cards import bus_bandwidth, entries, known_card, known_cards, sized_card
from inferlab.units import GB, GIB

BIBLIOGRAPHY = Path(__file__).parents[2] / "book" / "references.bib"
BACKENDS = {"cuda", "rocm", "metal", "sycl", "vulkan"}


def test_every_card_has_its_sources_in_the_bibliography():
    """Bandwidth and memory each name a source that a reader can look up, and its state."""
    keys = set(re.findall(r"^@\w+\{([^,\s]+),", BIBLIOGRAPHY.read_text(encoding="utf-8"), re.MULTILINE))
    cards = known_cards().values()
    assert {card.source for card in cards} | {card.memory_source for card in cards} <= keys
    assert all(re.fullmatch(r"20\d\d-[01]\d", card.date) for card in cards)


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
        assert all(size == int(size) and 8 <= size <= 256 for size in sizes), card.name
        assert sizes == sorted(set(sizes)), card.name


def test_names_and_titles_are_unique():
    """One name, one card: no family repeats the name of another, and no two cards read alike."""
    names = Counter(name for family in read_table("devices").values() for name in family["cards"])
    assert max(names.values()) == 1
    assert len({card.title for card in known_cards().values()}) == len(known_cards()) == names.total()
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in names)


def test_a_stated_bandwidth_is_the_bus_times_its_rate():
    """Where a source has both, they agree to a thousandth, which is its rounding: a slip in a number fails here."""
    both = [name for name, entry in entries().items() if "bus" in entry and {"bandwidth", "fact"} & set(entry)]
    assert len(both) > 30
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


@pytest.mark.parametrize("written", ["rtx-4060", "RTX-4060", "rtx 4060", "GeForce RTX 4060"])
def test_a_card_is_known_by_its_name_and_by_its_title(written):
    """Small letters or large, hyphens or spaces: 8 GiB at 272 GB/s."""
    card = known_card(written)
    assert (card.name, card.memory_bytes, card.bandwidth_bytes_per_second) == ("rtx-4060", (8 * GIB,), 272 * GB)


def test_an_unknown_card_is_answered_with_the_nearest():
    """A slip of the fingers finds the card that was meant; a word like no card lists them all."""
    with pytest.raises(InferlabError, match=r"no known card 'rtx-4o60'\. Nearest: rtx-4060, .*give its memory"):
        known_card("rtx-4o60")
    with pytest.raises(InferlabError, match=r"Known: rtx-3060, .*dgx-spark"):
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
