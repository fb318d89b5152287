"""Judges the model of a card: `python -m studies.public_rates.judge` leaves rows out, fits the rest, and predicts them.

    cards    a card is predicted by others; `siblings` share its chip
    chips    all cards of a generation of chips are predicted by other generations
    models   a model is predicted by others, also on the same card, whose factor counts
    sources  the rows of a repository are predicted by those of others

Each is left out in GROUPS groups, which a seed draws. The cards of aside.txt were drawn before the model had its form.
They were looked at once, when it had: their rows are predicted by those of all other cards. One of them showed that
results of 2024 on backends whose kernels were replaced since mislead; these count no more, but in this split they do.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import log
from pathlib import Path

import numpy as np

from inferlab.prediction.card_rates import arithmetic
from inferlab.prediction.expected import KNOWN, OTHERS, PARTIAL, SIBLINGS
from inferlab.results.public_rates import DECODE, PROMPT, PublicRate, public_rates, sources
from studies.public_rates.fit import Cases, backend_of, card_factors, cases_of, current, fit, seconds

RECORDS = Path(__file__).parent / "records"
JUDGED = RECORDS / "judged.csv"
GROUPS, SEED = 14, 52
HOLDS = 0.90
SPLITS: dict[str, Callable[[PublicRate], str]] = {
    "cards": lambda row: row.card,
    "chips": lambda row: arithmetic()[row.card].chip,
    "models": lambda row: row.model,
    "sources": lambda row: sources()[row.source].repository,
}
ASIDE = "aside"
LEAST = 20
"""Rows from which on a band is that of its own kind."""


@dataclass(frozen=True)
class Judged:
    """A row that took no part in the model which predicted it; `error` is log(measured seconds / predicted)."""

    split: str
    row: PublicRate
    error: float

    @property
    def share(self) -> float:
        """By how much the predicted rate is too high."""
        return float(np.expm1(self.error))


def aside() -> frozenset[str]:
    """The cards that were set aside."""
    return frozenset((RECORDS / "aside.txt").read_text(encoding="utf-8").split())


def judge(rows: Sequence[PublicRate]) -> Iterator[Judged]:
    """Every row of every split, predicted without its group."""
    for phase in (DECODE, PROMPT):
        cases = cases_of(current(rows, phase), phase)
        for split, of in SPLITS.items():
            names = np.array([of(row) for row in cases.rows])
            for group in groups(names):
                yield from _predicted(split, cases, np.isin(names, group))
        as_drawn = cases_of(current(rows, phase, with_replaced=True), phase)
        yield from _predicted(ASIDE, as_drawn, np.isin([row.card for row in as_drawn.rows], [*aside()]))


def groups(names: Iterable[str]) -> list[np.ndarray]:
    """The different names in at most GROUPS groups."""
    different = np.array(sorted(set(names)))
    np.random.default_rng(SEED).shuffle(different)
    return np.array_split(different, min(GROUPS, len(different)))


def _predicted(split: str, cases: Cases, mask: np.ndarray) -> Iterator[Judged]:
    """The rows of a mask, predicted by the others."""
    known, asked = cases.only(~mask), cases.only(mask)
    logs = fit(known)
    factors = card_factors(known, logs)
    predicted = seconds(logs, asked) * [factors.get((row.card, backend_of(row)), 1.0) for row in asked.rows]
    for row, error in zip(asked.rows, np.log(asked.seconds / predicted), strict=True):
        yield Judged(split, row, float(error))


def save(found: Iterable[Judged], path: Path = JUDGED) -> None:
    """The errors with the place of their row in rows.csv."""
    places = {row: i for i, row in enumerate(public_rates())}
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("split", "row", "error"))
        writer.writerows((one.split, places[one.row], round(one.error, 4)) for one in found)


@cache
def judged() -> tuple[Judged, ...]:
    """The record."""
    rows = public_rates()
    with JUDGED.open(encoding="utf-8") as file:
        return tuple(
            Judged(line["split"], rows[int(line["row"])], float(line["error"])) for line in csv.DictReader(file)
        )


def of_split(split: str, phase: str, *, partial: bool | None = False) -> tuple[Judged, ...]:
    """The judged rows of a split and a phase, whole on the card, with a part in RAM, or all."""
    some = (one for one in judged() if (one.split, one.row.phase) == (split, phase))
    return tuple(one for one in some if partial is None or one.row.is_partial == partial)


def each_card_once(found: Sequence[Judged]) -> np.ndarray:
    """Weights with which each card counts once, however many rows it has."""
    n = Counter(one.row.card for one in found)
    return np.array([1 / n[one.row.card] for one in found])


def quantile(values: np.ndarray, weights: np.ndarray, share: float) -> float:
    """The value below which a share of the weights lies."""
    order = np.argsort(values)
    place = np.searchsorted(np.cumsum(weights[order]), share * weights.sum())
    return float(values[order][min(place, len(values) - 1)])


@cache
def bands() -> dict[str, dict[str, list[float]]]:
    """For each phase and what is known of a card: factors of the rate between which HOLDS of the judged rows lie.

    known: rows of the card itself; siblings: only of cards with its chip; others: only of other chips; partial: a part
    of the model lies in RAM
    """
    table: dict[str, dict[str, list[float]]] = defaultdict(dict)
    for phase in (DECODE, PROMPT):
        chips = Counter(arithmetic()[card].chip for card in {row.card for row in public_rates() if row.phase == phase})
        cards = of_split("cards", phase)
        siblings = [one for one in cards if chips[arithmetic()[one.row.card].chip] > 1]
        kinds = {
            KNOWN: of_split("models", phase),
            SIBLINGS: siblings,
            OTHERS: of_split("chips", phase),
            PARTIAL: of_split("cards", phase, partial=True),
        }
        found = {name: _band(some) for name, some in kinds.items()}
        found[SIBLINGS] = _wider(found[KNOWN], found[SIBLINGS])
        found[OTHERS] = _wider(found[SIBLINGS], found[OTHERS])
        table["token" if phase == DECODE else "prompt"] = found
    return dict(table)


def _wider(known: Sequence[float], less_known: Sequence[float]) -> list[float]:
    """A band that is no narrower than that of what is known better."""
    return [min(known[0], less_known[0]), max(known[1], less_known[1])]


def _band(found: Sequence[Judged]) -> list[float]:
    errors = np.array([one.error for one in found])
    ends = (quantile(errors, each_card_once(found), share) for share in ((1 + HOLDS) / 2, (1 - HOLDS) / 2))
    return [round(float(np.exp(-end)), 3) for end in ends]


def held() -> dict[str, float]:
    """By phase the share of the cards that were set aside whose rates lie in the bands, each card counted once."""
    found: dict[str, float] = {}
    for name, phase in (("token", DECODE), ("prompt", PROMPT)):
        some = of_split(ASIDE, phase)
        hits = [inside(one, bands()[name][basis_of(one)]) for one in some]
        found[name] = round(float(np.average(hits, weights=each_card_once(some))), 3)
    return found


def band_of(one: Judged) -> Sequence[float]:
    """The band that a reader is told, by what the model knew of the card."""
    return bands()["token" if one.row.phase == DECODE else "prompt"][basis_of(one)]


def basis_of(one: Judged) -> str:
    """What was known of a judged row's card when it was predicted."""
    if one.row.is_partial:
        return PARTIAL
    rest = _cards_left(one.split, one.row.phase, "" if one.split == ASIDE else SPLITS[one.split](one.row))
    if one.row.card in rest:
        return KNOWN
    return SIBLINGS if arithmetic()[one.row.card].chip in {arithmetic()[card].chip for card in rest} else OTHERS


@cache
def _cards_left(split: str, phase: str, name: str) -> frozenset[str]:
    """The cards with rows that are not of the one that was left out."""
    rows = (one.row for one in judged() if (one.split, one.row.phase) == ("cards", phase))
    if split == ASIDE:
        return frozenset(row.card for row in rows) - aside()
    return frozenset(row.card for row in rows if SPLITS[split](row) != name)


def inside(one: Judged, band: Sequence[float]) -> bool:
    """Whether a measured rate lies in the band around the prediction."""
    return log(band[0]) <= -one.error <= log(band[1])


if __name__ == "__main__":
    save(judge(public_rates()))
