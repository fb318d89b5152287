"""The model of a card against published rates: the record, the fit, the tables, and what they say."""

from __future__ import annotations

import re
from math import log

import numpy as np
import pytest

from inferlab.prediction.card_model import prompt_seconds, token_seconds
from inferlab.prediction.card_rates import BACKENDS, KINDS, Case, arithmetic, fitted, kind_of, prompt_rates, token_rates
from inferlab.prediction.cards import known_cards
from inferlab.prediction.expected import KNOWN, OTHERS, PARTIAL, SIBLINGS
from inferlab.results.public_rates import DECODE, PROMPT, public_rates
from studies.public_rates import fit, judge, study
from studies.public_rates.figures import cards_left_out

WITHIN = 0.02


# --- the record -----------------------------------------------------------------------------------------------


def test_the_record_is_of_these_rows():
    """Every split has each row that counts once; cards that were set aside have the rows that counted then."""
    places = {row: i for i, row in enumerate(public_rates())}

    def counted(**options) -> set[int]:
        every = (row for phase in (DECODE, PROMPT) for row in fit.current(public_rates(), phase, **options))
        return {places[row] for row in every}

    for split in judge.SPLITS:
        found = [places[one.row] for one in judge.judged() if one.split == split]
        assert len(found) == len(set(found))
        assert set(found) == counted()
    aside = {places[one.row] for one in judge.judged() if one.split == judge.ASIDE}
    assert aside == {i for i in counted(with_replaced=True) if public_rates()[i].card in judge.aside()}
    assert judge.aside() <= set(known_cards())
    assert {one.split for one in judge.judged()} == set(study.LEFT_OUT)


def test_the_bands_are_those_of_the_record():
    """model.toml was written after the last judgement."""
    bands = judge.bands()
    assert set(bands) == {"token", "prompt"}
    for phase, of in bands.items():
        assert set(of) == {KNOWN, SIBLINGS, OTHERS, PARTIAL}
        for name, band in of.items():
            assert fitted()["bands"][phase][name] == pytest.approx(band, rel=WITHIN)


def test_groups_have_each_name_once():
    """And there are at most as many as were asked for."""
    groups = judge.groups(["b", "a", "c", "a"])
    assert sorted(name for group in groups for name in group) == ["a", "b", "c"]
    assert len(judge.groups(map(str, range(100)))) == judge.GROUPS


def test_each_card_counts_once():
    """However many rows it has."""
    found = judge.of_split("cards", DECODE)
    weights = judge.each_card_once(found)
    assert weights.sum() == pytest.approx(len({one.row.card for one in found}))
    values = np.array([1.0, 2.0, 3.0, 4.0])
    assert judge.quantile(values, np.array([1.0, 1.0, 1.0, 7.0]), 0.5) == 4.0
    assert judge.quantile(values, np.ones(4), 0.5) == 2.0


# --- the fit --------------------------------------------------------------------------------------------------


def logs_of(table: dict, priors: dict, shared: dict[str, str]) -> np.ndarray:
    """Logarithms that give the coefficients of model.toml; where a backend has its own, the shared ones are 0."""
    values = []
    for name in priors:
        word, _, key = name.partition(" ")
        own = shared.get(word, word)
        if word == "yearly":
            value = table["yearly"][key]
        elif key in BACKENDS and own not in ("unpack", "types"):
            value = table[key][own]
        elif key in table["chips"]:
            chip = table["chips"][key]
            value = chip[own] if isinstance(chip, dict) else chip
        elif key.partition(" ")[2] in BACKENDS:
            kind, _, backend = key.partition(" ")
            value = table[backend][own][kind]
        elif not key and own in table:
            value = table[own]
        else:
            value = 1.0
        values.append(log(value))
    return np.array(values)


@pytest.fixture(scope="module")
def cases():
    """The rows of both phases as arrays, with the logarithms of model.toml."""
    tables = {DECODE: ("token", fit.TOKEN), PROMPT: ("prompt", fit.PROMPTS)}
    return {
        phase: (fit.cases_of(fit.current(public_rates(), phase), phase), logs_of(fitted()[name], priors, {}))
        for phase, (name, priors) in tables.items()
    }


@pytest.mark.parametrize("phase", [DECODE, PROMPT])
def test_the_arrays_of_the_fit_and_the_planner_give_the_same_seconds(cases, phase):
    """Each row, by `fit.seconds` and by the coefficients that the planner looks up."""
    some, logs = cases[phase]
    array = fit.seconds(logs, some)
    for i in range(0, len(some.rows), 7):
        row, work = some.rows[i], fit.work_of(some.rows[i])
        case = Case(
            fit.backend_of(row),
            arithmetic()[row.card].chip,
            kind_of(row.type),
            latent=study.kinds_of(row.model)[-1:] == ("with a latent cache",),
            quantized_cache=row.type_k != "f16",
            flash_attn=row.flash_attn is not False,
            years=fit.PRESENT - row.year,
        )
        ratings = known_cards()[row.card].bandwidth_bytes_per_second, arithmetic()[row.card].flops
        one = (
            token_seconds(work, token_rates(case), *ratings)
            if phase == DECODE
            else prompt_seconds(work, prompt_rates(case), *ratings)
        )
        assert array[i] == pytest.approx(one, rel=1e-6)


def test_the_factors_of_cards_are_of_these_rows(cases):
    """As model.toml has them, with how many rows there are."""
    (token, token_logs), (prompt, prompt_logs) = cases[DECODE], cases[PROMPT]
    found = fit.cards_table(token, prompt, token_logs, prompt_logs)
    assert {(card, backend) for card, of in found.items() for backend in of} == {
        (card, backend) for card, of in fitted()["cards"].items() for backend in of
    }
    for card, of in found.items():
        for backend, entry in of.items():
            assert fitted()["cards"][card][backend] == pytest.approx(entry, rel=WITHIN)


def test_the_coefficients_of_a_token_are_those_of_the_rows(cases):
    """Fitted again; a prompt's would take twice as long."""
    found = fit.token_table(fit.fit(cases[DECODE][0]))
    for backend in BACKENDS:
        own = fitted()["token"][backend]
        assert {name: found[backend][name] for name in own if name != "unpack"} == pytest.approx(
            {name: value for name, value in own.items() if name != "unpack"}, rel=WITHIN
        )
        assert found[backend]["unpack"] == pytest.approx(own["unpack"], rel=WITHIN)
    assert found["chips"] == pytest.approx(fitted()["token"]["chips"], rel=WITHIN)


def test_prompts_of_one_maker_are_fitted_and_stay_near_what_is_expected():
    """The method alone: errors become small, and coefficients of backends that have no row keep their values."""
    rows = [row for row in public_rates() if row.card.startswith("apple") and row.phase == PROMPT]
    some = fit.cases_of(fit.current(rows, PROMPT), PROMPT)
    logs = fit.fit(some)
    assert np.median(np.abs(np.log(fit.seconds(logs, some) / some.seconds))) < 0.15
    of = dict(zip(fit.PROMPTS, logs, strict=True))
    assert of["matrix CUDA"] == pytest.approx(0, abs=1e-3)
    assert of["matrix Metal"] != pytest.approx(0, abs=1e-3)


def test_what_is_written_can_be_read(tmp_path):
    """TOML with the keys of the table, and coefficients above 0."""
    from inferlab.facts import tomllib

    path = tmp_path / "model.toml"
    fit.write({"present": 1.5, "a": {"b": 2.0, "c.d": {"e": [0.5, 2.0]}}}, path)
    assert tomllib.loads(path.read_text()) == {"present": 1.5, "a": {"b": 2.0, "c.d": {"e": [0.5, 2.0]}}}
    assert all(fitted()["token"][backend]["unpack"][kind] > 0 for backend in BACKENDS for kind in KINDS)


# --- the tables -----------------------------------------------------------------------------------------------

TABLES = {
    "whole": (study.ERROR_HEADS, study.whole_rows),
    "partial": (study.ERROR_HEADS, study.partial_rows),
    "goals": (study.GOAL_HEADS, study.goal_rows),
    "bands": (study.BAND_HEADS, study.band_rows),
    "misses": (study.MISS_HEADS, study.miss_rows),
    "apart": (study.APART_HEADS, study.apart_rows),
    "backends": (study.ROW_HEADS, study.backend_rows),
    "kinds": (study.KIND_HEADS, study.kind_rows),
    "licences": (study.LICENCE_HEADS, study.licence_rows),
    "sources": (study.SOURCE_HEADS, study.source_rows),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_its_heads(name):
    heads, rows = TABLES[name]
    assert rows()
    assert {len(row) for row in rows()} == {len(heads)}
    assert all(re.fullmatch(r"\[[\w./-]+\]\(https://github.com/\S+\)", row[-1]) for row in study.miss_rows())


def test_the_rows_add_up():
    """The last row counts all; dense models and mixtures, licences and repositories are all of them, too."""
    *backends, everything = study.backend_rows()
    assert sum(row[1] for row in backends) == everything[1] == len(public_rates()) == study.numbers()["n_rates"]
    kinds = {kind: n for kind, _, n, _ in study.kind_rows()}
    assert kinds["dense"] + kinds["a mixture of experts"] == len(public_rates())
    assert sum(row[2] for row in study.licence_rows()) == sum(row[2] for row in study.source_rows()) == everything[1]


def test_an_error_is_that_of_the_rate():
    """Twice the measured rate is off by the whole of it, half of it by a half."""
    row = public_rates()[0]
    assert judge.Judged("cards", row, log(2)).share == pytest.approx(1.0)
    assert judge.Judged("cards", row, -log(2)).share == pytest.approx(-0.5)


def test_met_and_missed_are_computed():
    """A goal that the same errors meet, and one that they miss; and one of the bands."""
    found = study.errors("cards", DECODE).quantile(0.5, once=True) * 100
    for percent, word in ((found + 1, "met"), (found - 1, "missed")):
        goal = study.Goal("decode", "cards", DECODE, False, 0.5, percent)
        assert goal.is_met(once=True) == (word == "met")
        assert goal.row[-1] == f"{found:.1f} %, {word}"
    inside = study.errors("cards", DECODE).inside(once=True) * 100
    for percent, met in ((inside - 1, True), (inside + 1, False)):
        assert study.Goal("band", "cards", DECODE, False, None, percent).is_met(once=True) == met
    numbers = study.numbers()
    words = [row[-1].rpartition(", ")[2] for row in study.goal_rows()]
    assert words.count("met") == numbers["n_goals_met"]
    assert len(words) == numbers["n_goals"]


def test_what_is_known_of_a_card_says_its_band():
    """A card that was left out has no rows of its own, one whose model was left out has."""
    assert {judge.basis_of(one) for one in judge.of_split("cards", DECODE)} <= {SIBLINGS, OTHERS}
    assert {judge.basis_of(one) for one in judge.of_split("chips", DECODE)} == {OTHERS}
    assert KNOWN in {judge.basis_of(one) for one in judge.of_split("models", DECODE)}
    assert {judge.basis_of(one) for one in judge.of_split("cards", DECODE, partial=True)} == {PARTIAL}


def test_the_worst_are_the_worst():
    """The largest factors first, no more than two of a source and card, and each with a reason or none."""
    worst = study.worst()
    factors = [abs(one.error) for one in worst]
    assert factors == sorted(factors, reverse=True)
    keys = [(one.row.source, one.row.card) for one in worst]
    assert max(map(keys.count, keys)) <= study.MOST_OF_ONE
    assert len(worst) == study.WORST
    assert {study.reason_of(one) for one in worst} <= {*study.REASONS, study.NOT_KNOWN}
    assert factors[0] == max(abs(one.error) for one in judge.judged() if one.split == "cards")


def test_every_reason_explains_a_row():
    """None that no row of the record shows."""
    reasons = {study.reason_of(one) for one in judge.judged() if one.split == "cards" and abs(one.error) > 0.1}
    assert study.NOT_KNOWN in reasons
    assert len(reasons) > len(study.REASONS) / 2


def test_rates_that_disagree_are_of_one_test():
    """More than a quarter apart, the slower first, and what differs is said."""
    apart = study.apart()
    assert apart
    for pair in apart:
        one, other = pair.slower, pair.faster
        assert pair.ratio > study.APART
        assert (one.card, one.model, one.type, one.test) == (other.card, other.model, other.type, other.test)
        assert {"backend", "source", "build"} & {*pair.differs}
    assert len(study.apart_rows()) <= study.MOST_APART
    ratios = [row[4] for row in study.apart_rows()]
    assert ratios == sorted(ratios, reverse=True)


def test_a_figure_has_every_row_of_cards_left_out():
    """Points of both phases, a band of each, the line on which both are equal, and a text."""
    figure = cards_left_out()
    points = [trace for trace in figure.data if trace.mode == "markers"]
    assert sum(len(trace.x) for trace in points) == sum(one.split == "cards" for one in judge.judged())
    assert sum(trace.fill == "toself" for trace in figure.data) == 2
    assert re.match(r"Measured against predicted .* decode \d+ points, .* within \d+%", figure.layout.meta["alt"])
