"""Figures of losses by quantization, read off the figures themselves."""

from dataclasses import replace

import pytest
from fakes import CARD, made_fidelity, made_run, scripted_pass

from inferlab.facts import published_tables
from studies.quantization import figures, quant_tradeoffs, study


def a_run(n_bytes, prefill, decode):
    """A run of a shape of so many bytes, whose passes have these rates."""
    passes = tuple(scripted_pass(gaps=(1.25 / decode,) * 2, prefill=8 / rate) for rate in (prefill, prefill * 1.01))
    return made_run(model=replace(CARD, tensor_bytes=n_bytes, synthetic=True), passes=passes)


def a_fidelity(kl, n_bytes=2000):
    """A comparison whose tokens diverge by `kl` in the mean."""
    card = replace(CARD, tensor_bytes=n_bytes)
    return made_fidelity((1.0, 2.0, 3.0), (kl, 0.5 * kl, 1.5 * kl), (True, True, False), model=card)


RUNS = {"F16": a_run(2**31, 100, 10), "Q8_0": a_run(2**30, 90, 16), "Q4_0": a_run(2**29, 120, 20)}
LOSSES = quant_tradeoffs.Losses({"Q8_0": a_fidelity(0.001), "Q4_0": a_fidelity(0.05)})
EVERY = {
    "published_mix_rates": figures.published_mix_rates(published_tables()["llama-3.1-8b-rates"]),
    "fidelity": figures.fidelity(LOSSES),
    "losses_with_matrix": figures.losses_with_matrix(study.recorded()),
    "losses_by_text": figures.losses_by_text(study.recorded(), ("Q2_K", "IQ2_XXS")),
    "pareto": figures.pareto(quant_tradeoffs.rows(LOSSES, RUNS), LOSSES.badge),
}


@pytest.mark.parametrize("figure", EVERY.values(), ids=EVERY)
def test_every_figure_says_its_numbers_and_where_they_come_from(figure):
    """A text alternative with numbers, and a badge below that says measured, computed, read or cited."""
    assert any(character.isdigit() for character in figure.layout.meta["alt"])
    notes = [note.text for note in figure.layout.annotations]
    assert any(word in note for note in notes for word in ("computed", "read", "measured", "cited"))


def test_published_rates_keep_their_uncertainty():
    """The table's rates divided by its F16 row, with its standard deviations."""
    decode, prefill, _ = EVERY["published_mix_rates"].data
    assert decode.x[decode.y.index("Q4_K_M")] == pytest.approx(71.93 / 29.17)
    assert prefill.x[prefill.y.index("Q4_K_M")] == pytest.approx(821.81 / 923.49)
    assert decode.error_x.array[0] == pytest.approx(0.04 / 29.17)


def test_fidelity_shows_errors_that_can_be_seen():
    """The mean divergence of each type; an error that its dot would hide is told below the axis instead."""
    trace = EVERY["fidelity"].data[0]
    assert trace.x == pytest.approx((0.001, 0.05))
    assert min(trace.error_x.array) > 0
    same = made_fidelity((1.0, 2.0, 3.0), (0.0100, 0.0101, 0.0102), (True, True, True))
    figure = figures.fidelity(quant_tradeoffs.Losses({"Q8_0": same}))
    assert figure.data[0].error_x.array is None
    assert "standard errors of at most" in figure.layout.annotations[0].text.replace("<br>", " ")


def test_the_front_joins_what_nothing_beats():
    """Only types with a loss and a rate are drawn; a type that is slower, larger and worse is off the line."""
    front, types = EVERY["pareto"].data
    assert types.text == ("Q8_0", "Q4_0")
    assert len(front.x) == 2
    worse = {**RUNS, "Q5_0": a_run(2**30 + 1, 90, 15)}
    losses = replace(LOSSES, by_name={**LOSSES.by_name, "Q5_0": a_fidelity(0.01)})
    front, types = figures.pareto(quant_tradeoffs.rows(losses, worse), LOSSES.badge).data
    assert (len(front.x), len(types.x)) == (2, 3)


def test_a_loss_is_shown_without_a_matrix_and_with_it():
    """A row for each type, most bits on top; a line joins the two; what needs a matrix has one mark."""
    figure = EVERY["losses_with_matrix"]
    marks = {trace.name: [row.split(",")[0] for row in trace.y] for trace in figure.data if trace.mode == "markers"}
    rows = [row.split(",")[0] for row in figure.layout.yaxis.categoryarray]
    assert (rows[0], rows[-1], len(rows)) == ("Q8_0", "IQ1_S", 18)
    assert set(rows) - set(marks["training text"]) == {"Q8_0", "MXFP4"}
    assert "IQ2_XXS" not in marks["no matrix"]
    assert len([trace for trace in figure.data if trace.mode == "lines"]) == len(marks["no matrix"]) - 2


def test_texts_are_compared_in_units_of_the_right_one():
    """The training text's matrix is 1 in every row; no matrix is farther right where it was made."""
    marks = {trace.name: dict(zip(trace.y, trace.x, strict=True)) for trace in EVERY["losses_by_text"].data}
    assert marks["training text"] == {"Q2_K": 1.0, "IQ2_XXS": 1.0}
    assert marks["no matrix"]["Q2_K"] > marks["code examples"]["Q2_K"] > 1
    assert "IQ2_XXS" not in marks["no matrix"]
