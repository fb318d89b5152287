"""Places to plan for: a card of the list, a Mac's share, and the RAM beside it."""

from __future__ import annotations

import re

import pytest

import inferlab as lab
from inferlab.errors import InvalidSettings
from inferlab.machine import HOST_DEVICE
from inferlab.prediction.cards import known_cards
from inferlab.prediction.free_memory import PROMPT_CACHE_BYTES, SYSTEM_BYTES, HostRam, ram_bytes
from inferlab.prediction.memory.plan import SHARED
from inferlab.prediction.place import DEFAULT_RAM_BYTES, place_of_card
from inferlab.settings import Settings
from inferlab.units import GIB, MIB, bytes_text

MIXTURE = Settings(n_ctx=4096, n_cpu_moe=40)


def fitted(ram, settings=MIXTURE, **card):
    """A mixture with most experts in so much RAM."""
    return lab.fit("qwen3-30b-a3b", settings, ram=ram, simulate=False, **(card or {"vram": "8GiB"}))


def test_a_card_has_its_memory_and_the_ram_beside_it():
    """A Mac has one memory, of which its GPU gets the share that logs name; a reader may give another."""
    card = place_of_card("rtx-4060")
    assert (card.sizes, card.shared, card.ram) == ((8 * GIB,), False, HostRam(DEFAULT_RAM_BYTES))
    mac = place_of_card("apple-m4:24")
    share = known_cards()["apple-m4"].gpu_bytes(24 * GIB)
    assert (mac.sizes, mac.shared, mac.ram.n_bytes) == ((share,), True, 24 * GIB)
    assert re.search(
        r"does macOS 26 leave it, .* \(2026-\d\d\)\. With macOS 15 and before it is 16\.00 GiB\.$", mac.limit
    )
    assert re.search(r"does macOS 15 and before leave it, .* \(2023-\d\d\)\.$", place_of_card("apple-m1:8").limit)
    assert place_of_card("apple-m4:24", gpu_bytes=20 * GIB).sizes == (20 * GIB,)
    assert (card.limit, place_of_card("apple-m4:24", gpu_bytes=24 * GIB).limit) == ("", "")
    with pytest.raises(InvalidSettings, match="Give less"):
        place_of_card("apple-m4:24", gpu_bytes=25 * GIB)
    with pytest.raises(InvalidSettings, match=r"shares its memory with the processor\. Leave it out"):
        place_of_card("apple-m4:24", 8 * GIB)
    assert place_of_card("apple-m4:24", 24 * GIB) == mac


def test_ram_is_compared_without_what_is_for_others():
    """The system's part and what is set aside for prompts; a shared memory is no larger than what they leave."""
    whole = fitted("32GiB")
    assert whole.usable_bytes[HOST_DEVICE] == 32 * GIB - SYSTEM_BYTES
    assert (whole.fits, fitted("16GiB").fits) == ("yes", "no")
    strict = fitted(HostRam(24 * GIB, prompt_cache_bytes=PROMPT_CACHE_BYTES))
    assert (strict.fits, strict.fullest_memory) == ("no", HOST_DEVICE)
    shared = fitted("24GiB", unified="23GiB")
    assert shared.usable_bytes == {SHARED: 24 * GIB - SYSTEM_BYTES}
    with pytest.raises(InvalidSettings, match=r"leaves nothing beside the 4\.00 GiB"):
        HostRam(4 * GIB)


def test_prompts_get_what_is_left():
    """At most llama-server's own limit, in whole MiB; nothing is said where RAM is not known."""
    roomy, tight = fitted("64GiB"), fitted("24GiB")
    assert roomy.prompt_cache_bytes(roomy.plan) == PROMPT_CACHE_BYTES
    left = 24 * GIB - SYSTEM_BYTES - ram_bytes(tight.plan)
    assert tight.prompt_cache_bytes(tight.plan) == left // MIB * MIB < PROMPT_CACHE_BYTES
    unknown = fitted(None)
    assert unknown.prompt_cache_bytes(unknown.plan) is None


def test_what_lies_on_a_card_between_the_hosts_tensors_may_leave_ram():
    """Experts of the last layers alone: the mapped part of the file spans all, but RAM must hold those only."""
    last = Settings(n_ctx=4096, override_tensor=(r"blk\.(46|47)\.ffn_.*_exps=CPU",))
    plan = fitted("8GiB", last, vram="24GiB").plan
    held = sum(row.weights_on(HOST_DEVICE) for row in plan.layers)
    assert plan.never_read_bytes == plan.devices[HOST_DEVICE].weights_bytes - held > 10 * GIB
    assert fitted("8GiB", last, vram="24GiB").fits == "yes"
    assert f"host would hold {bytes_text(held)} of weights" in plan.shortfall({HOST_DEVICE: 0})
    unmapped = fitted("8GiB", last.but(load_mode="none"), vram="24GiB").plan
    assert unmapped.never_read_bytes == 0


def test_layers_are_searched_for_the_card_and_then_held_against_ram():
    """More layers on the card need less RAM, so few layers may be too many for RAM."""
    dense = Settings(n_ctx=4096)
    small = lab.fit("qwen3-32b", dense, vram="8GiB", ram="16GiB", simulate=False)
    assert small.most_layers.value is None
    assert "host would hold" in small.most_layers.reason
    large = lab.fit("qwen3-32b", dense, vram="8GiB", ram="32GiB", simulate=False)
    assert large.most_layers.value > 0


def test_a_reserve_larger_than_a_card_is_refused():
    """It would leave less than nothing."""
    with pytest.raises(InvalidSettings, match="Keep less free"):
        lab.fit("llama-3.2-1b", vram="8GiB", reserve_bytes=30 * GIB, simulate=False)
