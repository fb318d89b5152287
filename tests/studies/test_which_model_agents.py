"""Models for a coding agent: each row is a choice of the page *Which model*, and bytes in RAM are those of a copy."""

from dataclasses import replace

import pytest

from inferlab.settings import Settings
from studies.which_model import agents as plans
from studies.which_model import study as models
from studies.windows_and_states.kept import checkpoint_bytes, copy_bytes

KEPT = plans.Kept(copy_bytes, checkpoint_bytes)
PURPOSES = models.CODE, models.LARGER
CHOSEN = [(name, models.choices(name).get(purpose)) for name in plans.MACHINES for purpose in PURPOSES]


def test_every_machine_has_a_row_and_its_context():
    """Each is named once, and both purposes have the context of the page."""
    heads, rows = plans.table(CHOSEN, KEPT)
    assert [row[0] for row in rows if row[0]] == list(plans.MACHINES.values())
    assert all(len(row) == len(heads) for row in rows)
    assert {purpose.n_ctx for purpose in PURPOSES} == {plans.N_CTX}
    assert all("../planner.html?" in row[1] for row in rows)


def test_a_copy_is_that_of_a_full_context():
    """With checkpoints it is larger by their bytes; a model that needs none says so."""
    for _, one in CHOSEN:
        if one:
            model, settings = one.candidate.model, one.settings
            each = checkpoint_bytes(model, settings, plans.N_CTX)
            assert KEPT.all_bytes(one, 3) == copy_bytes(model, settings, plans.N_CTX) + 3 * each
            assert ("each" in KEPT.text(one)) == bool(each)


def test_the_numbers_say_what_the_defaults_hold():
    """A name is told where all checkpoints exceed the limit, and few of them fit."""
    told = plans.numbers(CHOSEN, KEPT)
    over = [one.candidate.known.name for _, one in CHOSEN if one and KEPT.all_bytes(one, 32) > 8 << 30]
    assert told["over"] == (" and ".join(dict.fromkeys(over)) or "no model of the table")
    assert told["few_gib"] < told["cram_gib"]
    plain = copy_bytes(models.shape(plans.PLAIN, "Q4_K_M"), Settings(n_ctx=plans.N_CTX), told["plain_tokens"])
    assert plain == pytest.approx(8 << 30, rel=1e-3)
    assert told["read_least"] < told["read_most"]


def test_a_choice_without_rates_is_refused():
    """The first choice has an expected rate, or the page would say none."""
    name, one = CHOSEN[0]
    bare = replace(one, rates=models.Rates(1.0, 1.0, 1.0))
    with pytest.raises(ValueError, match="no expected rate"):
        plans.numbers([(name, bare)], KEPT)


def test_lines_name_their_machine():
    """One line for each row, below the name of its card; few checkpoints where all of them are too large."""
    text = plans.Lines(CHOSEN, KEPT)._repr_markdown_()
    n = sum(one is not None for _, one in CHOSEN)
    assert text.count("llama-server -m ") == n == text.count("\n# ") == text.count(" --metrics")
    assert text.count(" -ctxcp 8") == sum(one is not None and KEPT.exceeds(one) for _, one in CHOSEN)
