"""How fast is my machine? Results of llama-bench or of this library in; the atlas, the bound and a comparison out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from inferlab.errors import InvalidSettings, RecordError
from inferlab.instruments import forms
from inferlab.instruments.answer import Answer
from inferlab.instruments.dropped import DroppedFiles
from inferlab.instruments.numbers_pairs import Groups
from inferlab.instruments.numbers_public import Compared
from inferlab.instruments.numbers_text import MOST_ROWS
from inferlab.instruments.numbers_view import Numbers, numbers_view, summary
from inferlab.prediction.cards import KnownCard, known_cards
from inferlab.records import flat_json
from inferlab.results.against_public import BELOW, AgainstPublic, against_public
from inferlab.results.atlas import known_results
from inferlab.results.bound import Bound, bound_of, card_named
from inferlab.results.compare import ResultPairs, compare, groups
from inferlab.results.contribution import contribution
from inferlab.results.reading import PASTED, RECORD, ResultFile, read_results
from inferlab.results.result import Result

NAMED, NO_CARD = "named", "none"
DEFAULTS = {"files": "", "pasted": "", "card": NAMED, "by": "run", "first": "1", "second": "2"}
EXAMPLE = "xeon-2c/tune-n_threads"
MOST_FILES = 20
Refused = tuple[str, str]
BY = {
    "run": "runs",
    "file": "files",
    "machine": "machines",
    "build": "builds of llama.cpp",
    "settings": "settings",
}


def answer(question: Mapping[str, str], files: DroppedFiles) -> Answer:
    """The answer for files and a pasted text; an empty question is answered with the example.

    Raises RecordError if nothing can be read, with the reason for each file.
    """
    numbers = numbers_of({**DEFAULTS, **question}, files)
    record, left_out = contribution(row for file in numbers.files for row in file.rows)
    rows = [one.row for one in numbers.public if isinstance(one, AgainstPublic)]
    data = {"read": read_data(numbers), "contribution": record, "public_rows": rows or None}
    view = numbers_view(numbers, known_results(), BY, record is not None, left_out)
    return Answer(state(numbers), summary(numbers), view, data)


def numbers_of(question: Mapping[str, str], files: DroppedFiles) -> Numbers:
    """What a question holds, read and compared."""
    read, refused = all_read(question, files)
    results = tuple(result for file in read for result in file.results)
    chosen = card_of(question)
    cards = [card_named(result) if chosen is None else chosen or None for result in results]
    tests = [*zip(results, cards, strict=True)]
    return Numbers(
        files=read,
        refused=refused,
        results=results,
        groups=groups_of(question, results),
        bounds=tuple((test, bound_of(test, card)) for test, card in tests if test.is_decode),
        public=tuple(against_public(test, card) for test, card in tests),
        example=not names_of(question) and not question["pasted"].strip(),
    )


def groups_of(question: Mapping[str, str], results: tuple[Result, ...]) -> Groups:
    """The tests in the groups that are asked for, and the two chosen ones; the first two where one is not there."""
    by = forms.one_of(question, "by", "Compare", BY)
    tests = groups(results, by)
    asked = forms.whole(question, "first", "First"), forms.whole(question, "second", "Second")
    chosen = asked if all(1 <= number <= len(tests) for number in asked) else (1, 2)
    return Groups(by, tests, chosen, compared(tests, chosen))


def all_read(question: Mapping[str, str], files: DroppedFiles) -> tuple[tuple[ResultFile, ...], tuple[Refused, ...]]:
    """Each file read, or its name and the reason why it was not; the example without files.

    Raises RecordError if none was read.
    """
    names, pasted = names_of(question), question["pasted"]
    if not names and not pasted.strip():
        return (example(),), ()
    read, refused = [], []
    for name in [*names, *([PASTED] if pasted.strip() else [])]:
        try:
            data = pasted.encode("utf-8", "replace") if name is PASTED else files.content(name)
            read.append(read_results(name, data))
        except RecordError as error:
            refused.append((name, str(error)))
    if not read:
        raise RecordError("\n".join(reason for _, reason in refused))
    return tuple(read), tuple(refused)


def names_of(question: Mapping[str, str]) -> list[str]:
    """The names of the files in a question. Raises InvalidSettings for what is no list of at most MOST_FILES names."""
    try:
        names = flat_json(question["files"] or "[]")
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidSettings("Files: this is no list of names. Remove all files and choose them again.")
    if len(names) > MOST_FILES:
        raise InvalidSettings(f"Files: {len(names)} are more than {MOST_FILES}. Remove all and choose fewer.")
    return list(dict.fromkeys(names))


def example() -> ResultFile:
    """Runs with one, two and three threads, as a record of the atlas has them."""
    results = tuple(known.result for known in known_results() if known.result.source == EXAMPLE)
    return ResultFile(EXAMPLE, RECORD, results, (), ())


def card_of(question: Mapping[str, str]) -> KnownCard | Literal[False] | None:
    """The card that was chosen, False for none, or None for those that the files name."""
    name = forms.one_of(question, "card", "Card", [NAMED, NO_CARD, *known_cards()])
    return None if name == NAMED else known_cards().get(name, False)


def compared(grouped: list[list[Result]], chosen: tuple[int, int]) -> ResultPairs | None:
    """The comparison of the two groups with these numbers from 1; None where one does not exist, or both are one."""
    if chosen[0] == chosen[1] or not all(1 <= number <= len(grouped) for number in chosen):
        return None
    return compare(*(grouped[number - 1] for number in chosen))


def state(numbers: Numbers) -> str:
    """How the first line is marked: "unsure" where something was not read, or a rate lies above its bound."""
    return "unsure" if numbers.not_read or numbers.above else "yes"


def read_data(numbers: Numbers) -> dict[str, Any]:
    """All that was read and computed, for other programs."""
    comparison = numbers.groups.comparison
    return {
        "results": [{**result.to_dict(), "test": result.test, "rate": result.rate} for result in numbers.results],
        "bounds": [bound.rate if isinstance(bound, Bound) else None for _, bound in numbers.bounds],
        "public": [_public(one) for one in numbers.public[:MOST_ROWS]],
        "comparison": comparison
        and {
            "pairs": [
                {
                    "model": pair.first.model,
                    "test": pair.first.test,
                    "first": pair.first.rate,
                    "second": pair.second.rate,
                    "ratio": pair.ratio,
                    "interval": pair.interval and [*pair.interval],
                    "faster": pair.faster,
                }
                for pair in comparison.pairs
            ],
            "alone": [
                {"source": test.source, "model": test.model, "test": test.test, "reason": reason}
                for test, reason in comparison.alone
            ],
            **{name: _pooled(comparison.only(decode)) for name, decode in (("decode", True), ("prompt", False))},
        },
        "not_read": numbers.not_read,
        "notes": numbers.notes,
    }


def _public(one: Compared) -> dict[str, Any] | None:
    """A test beside public rows; None where it stands beside none."""
    if isinstance(one, str):
        return None
    return {
        "test": one.result.test,
        "n_rows": len(one.alike),
        "median": one.median,
        "expected": one.expected and {name: getattr(one.expected, name) for name in ("rate", "low", "high")},
        "place": one.place,
        "suspects": one.suspects if one.place == BELOW else (),
    }


def _pooled(comparison: ResultPairs) -> dict[str, Any]:
    return {
        "n_pairs": len(comparison.pairs),
        "median_ratio": comparison.median_ratio if comparison.pairs else None,
        "n_faster": comparison.n_decided(2),
        "n_slower": comparison.n_decided(1),
        "n_open": comparison.n_decided(0),
        "confidence": comparison.confidence,
    }


def form() -> list[Any]:
    """The form, with the default question in it; `by`, `first` and `second` are chosen in the answer."""
    accept = ".json,.jsonl,.csv,.sql,.md,.txt,.log,application/json,text/csv,text/markdown,text/plain"
    return forms.form(
        forms.group(
            "Your numbers",
            forms.small_files_field("What llama-bench printed, in any form; results of inferlab.", "files", accept),
            *(forms.hidden(name, DEFAULTS[name]) for name in ("by", "first", "second")),
        ),
        forms.group(
            "Text and card",
            forms.field(
                "Or their text", forms.text_area("pasted", "What llama-bench printed, or a post with it.", rows=3)
            ),
            forms.field("Card of the bound", forms.select("card", _cards(), DEFAULTS["card"])),
        ),
    )


def _cards() -> list[tuple[str, str]]:
    listed = ((name, card.title) for name, card in known_cards().items())
    return [(NAMED, "as the files name it"), (NO_CARD, "none"), *listed]
