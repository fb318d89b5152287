"""Does it fit: the page's numbers and tables, the equation of the compute buffer, and plan beside log."""

import pytest

import inferlab as lab
from inferlab.prediction.fit import RESERVE_BYTES
from inferlab.units import GIB, MIB
from studies.does_it_fit import study


def test_the_numbers_agree_with_each_other():
    """A smaller type leaves more for the context, and what is too large says by how much; the front page has the same.

    Without flash attention the compute buffer is many times as large at the context at which it fills the card.
    """
    numbers, front = study.numbers(), study.weights_numbers()
    mixes, contexts = ("F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M"), []
    sizes = [numbers[f"{mix}_gib"] for mix in mixes]
    assert sizes == sorted(sizes, reverse=True)
    for mix, gib in zip(mixes, sizes, strict=True):
        said = numbers[f"{mix}_longest"]
        if gib > 7:
            assert said == f"none: {gib - 7:.2f} GiB too large"
        else:
            contexts.append(int(said.removesuffix(" tokens").replace(",", "")))
    assert contexts == sorted(contexts)
    assert numbers["compute_off_mib"] > 4 * numbers["compute_on_mib"]
    assert 0 < numbers["partial_layers"] < numbers["all_layers"]
    assert numbers["reserve_gib"] * GIB == RESERVE_BYTES
    assert front["mistral"] == pytest.approx(numbers["Q4_K_M_gib"])
    assert front["mistral"] < front["llama"]


def test_every_line_grows_with_the_context():
    """Plans of one setting need more for each longer context, and most without flash attention."""
    ends = {}
    for name, plans in study.context_lines().items():
        most = [plan.most_bytes("gpu0") for plan in plans]
        assert most == sorted(most)
        ends[name] = most[-1]
    assert max(ends, key=ends.__getitem__) == "f16, without"
    assert min(ends, key=ends.__getitem__) == "q8_0, flash attention"


def test_only_flash_attention_makes_it_fit():
    """The answer of the exercise: B, and a smaller batch changes nothing."""
    rows = dict(study.changes_table()[1])
    assert (rows["none"], rows["B, flash attention on"], rows["C, n_batch 512"]) == ("no", "yes", "no")


@pytest.mark.engine
def test_plan_and_log_agree_on_a_loopback_device():
    """Every kind of bytes within the log's two decimals, and the page's equation with the compute buffer."""
    with lab.loopback_device() as device:
        grid = study.measured_grid(device)
        moments = study.moments_table(grid)[1]
    found = study.grid_numbers(grid)
    assert found["n_loads"] == len(grid.pairs) == 16
    assert found["worst_gap"] < 0.011
    for _, _, computed, logged in study.weights_table(grid)[1]:
        assert float(computed) == pytest.approx(float(logged), abs=0.011)
    for _, *sizes, logged in moments:
        assert max(map(float, sizes)) == pytest.approx(float(logged), abs=0.03)


def test_scores_grow_with_heads_and_cells_only_without_flash_attention():
    """Twice the cells add the scores of every head without it, and only the mask with it."""
    model = lab.shape("mistral-7b-v0.3", "Q4_K_M")
    grown = {
        flash: study.moments(model, flash, n=4096)[1] - study.moments(model, flash, n=2048)[1]
        for flash in (True, False)
    }
    assert grown[True] == 2 * 2048 * 512 == 2 * MIB
    assert grown[False] == 4 * 2048 * 512 * (1 + model.n_head)
