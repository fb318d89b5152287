"""Published rates by what ran where: nothing is lost, and which rate of several is shown."""

from dataclasses import replace

from inferlab.results.public_rates import DECODE, PROMPT, public_rates
from studies.hardware_atlas.public_groups import groups, numbers

PLAIN = next(row for row in public_rates() if row.phase == DECODE and not row.is_partial and not row.depth)


def a_rate(phase=DECODE, n_tokens=128, **changes):
    """A rate of one card with one model, with llama.cpp's defaults."""
    usual = {"flash_attn": None, "type_k": "f16", "type_v": "f16", "n_ubatch": 512, "year": 2026.0}
    return replace(PLAIN, phase=phase, n_tokens=n_tokens, **(usual | changes))


def only(*rows):
    """The one group of some rates."""
    (group,) = groups(rows)
    return group


def test_every_rate_is_in_one_group():
    """Of one card, backend, model and type with the same part in RAM; each shows a rate."""
    grouped = groups(public_rates())
    assert sorted(map(id, public_rates())) == sorted(id(row) for group in grouped for row in group.rows)
    for group in grouped:
        assert len({(row.card, row.backend, row.model, row.type, row.in_ram_text) for row in group.rows}) == 1
        assert group.decode or group.prompt
    assert numbers(grouped)["n_public"] == len(public_rates())
    assert len(grouped) < len(public_rates())


def test_the_usual_test_is_shown():
    """What llama-bench measures by default, before a longer or a deeper one."""
    rows = [a_rate(n_tokens=512), a_rate(), a_rate(depth=4096), a_rate(PROMPT, 2048), a_rate(PROMPT, 512)]
    group = only(*rows)
    assert (group.decode, group.prompt, group.deepest) == (rows[1], rows[4], rows[2])


def test_usual_settings_and_the_newest_come_first():
    """Another type of cache or ubatch is shown where there is no other, and of equals the newest."""
    old, new = a_rate(year=2025.0), a_rate(year=2026.5)
    assert only(a_rate(type_k="q8_0", year=2026.9), old, new).decode is new
    assert only(a_rate(PROMPT, 512, n_ubatch=2048, year=2026.9), a_rate(PROMPT, 512)).prompt.n_ubatch == 512
    assert only(a_rate(flash_attn=False, year=2026.9), old).decode is old
    assert only(a_rate(), a_rate(depth=4096, flash_attn=False), plain := a_rate(depth=4096)).deepest is plain
    assert only(other := a_rate(type_k="q8_0")).decode is other


def test_a_deep_decode_is_deeper_than_the_one_beside_it():
    """With decodes of one depth alone there is none; of two as deep the newest."""
    assert only(a_rate(depth=8192), a_rate(n_tokens=64, depth=8192)).deepest is None
    assert only(a_rate(PROMPT, depth=8192)).deepest is None
    assert only(a_rate(), a_rate(depth=8192, year=2025.0), new := a_rate(depth=8192)).deepest is new


def test_a_part_in_ram_is_a_group_of_its_own():
    """By how many layers or experts; and a backend that is not stated says so."""
    grouped = groups([a_rate(), a_rate(n_gpu_layers=20), a_rate(n_gpu_layers=10), a_rate(backend="")])
    assert {group.in_ram for group in grouped} == {"", "20 layers on the card", "10 layers on the card"}
    assert "CUDA, likely" in {group.backend for group in grouped}
